"""Every public call that may wait takes a timeout, and says what it waited for."""

import contextlib
import inspect
import threading

import numpy as np
import pytest
import reverie
from reverie import structured
from reverie.errors import DeadlineExceededError, ResourceExhaustedError, UnavailableError

SOON = 0.05
NAMED_BY_REVERB = ["insert", "sample", "mutate_priorities", "writer", "reset", "server_info", "checkpoint"]
OUR_OWN = [
    "add",
    "add_batch",
    "sample_batch",
    "update_priorities",
    "get",
    "keys",
    "items",
    "batches",
    "set_rate_limiter",
    "set_bounds",
    "set_memory_limit",
]


@pytest.mark.parametrize(("name", "default"), [(n, None) for n in NAMED_BY_REVERB] + [(n, 60.0) for n in OUR_OWN])
def test_every_call_of_a_client_takes_a_timeout(name, default):
    assert inspect.signature(getattr(reverie.Client, name)).parameters["timeout"].default == default


@pytest.mark.parametrize("name", ["append", "append_sequence", "create_item", "flush", "close"])
def test_every_call_of_a_legacy_writer_takes_a_timeout(name):
    parameter = inspect.signature(getattr(reverie.Writer, name)).parameters["timeout"]
    assert parameter.default is None
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY


@pytest.fixture
def client(connect):
    """Of a full table "q" and an empty one "e"."""
    made = connect(reverie.Table.queue("q", 1), reverie.Table.queue("e", 1))
    made.insert([np.float32(0)], {"q": 1.0})
    return made


def legacy(client, **options):
    writer = client.writer(1, **options)
    writer.append([np.float32(1)])
    return writer


def test_insert(client):
    with pytest.raises(DeadlineExceededError, match='"q"|not confirmed'):
        client.insert([np.float32(1)], {"q": 1.0}, timeout=SOON)
    assert next(client.sample("q", timeout=60.0))[0].data[0] == 0
    client.insert([np.float32(2)], {"e": 1.0}, timeout=60.0)


@pytest.mark.parametrize("options", [{}, {"emit_timesteps": False}, {"unpack_as_table_signature": True}])
def test_sample_may_go_on_after_its_timeout(client, options):
    samples = client.sample("e", 2, timeout=SOON, **options)
    for _ in range(2):
        with pytest.raises(DeadlineExceededError, match="timed out"):
            next(samples)
    client.insert([np.float32(7)], {"e": 1.0})
    while True:
        try:
            sample = next(samples)
        except DeadlineExceededError:
            continue
        break
    assert sample is not None


def test_legacy_create_item_keeps_the_item(client):
    writer = legacy(client, max_in_flight_items=1)
    writer.create_item("q", 1, 1.0, timeout=SOON)
    with pytest.raises(DeadlineExceededError, match="not confirmed|in flight"):
        writer.create_item("q", 1, 1.0, timeout=SOON)
    assert [int(next(client.sample("q", timeout=60.0))[0].data[0]) for _ in range(3)] == [0, 1, 1]
    writer.close(timeout=60.0)


def test_legacy_flush_and_close(client):
    writer = legacy(client)
    writer.create_item("q", 1, 1.0)
    with pytest.raises(DeadlineExceededError):
        writer.flush(timeout=SOON)
    with pytest.raises(DeadlineExceededError):
        writer.close(timeout=SOON)
    with pytest.raises(ValueError, match="already"):
        writer.close()


def test_server_wait():
    with reverie.Server([reverie.Table.queue("q", 1)], in_process=True) as server:
        with pytest.raises(DeadlineExceededError, match="still serves"):
            server.wait(timeout=SOON)
        server.stop()
        server.wait(timeout=60.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.insert([1], {"q": 1.0}, timeout=SOON),
        lambda c: next(c.sample("q", timeout=SOON)),
        lambda c: next(c.sample("q", unpack_as_table_signature=True, timeout=SOON)),
        lambda c: c.mutate_priorities("q", {1: 1.0}, timeout=SOON),
        lambda c: c.reset("q", timeout=SOON),
        lambda c: c.server_info(timeout=SOON),
        lambda c: c.checkpoint(timeout=SOON),
    ],
)
@pytest.mark.parametrize("server", ["was stopped", "was never there"])
def test_calls_end_although_the_server_is_gone(call, server):
    client = reverie.Client("127.0.0.1:1")
    if server == "was stopped":
        with reverie.Server([reverie.Table.queue("q", 5)], address="127.0.0.1:0") as gone:
            client = reverie.Client(gone.address)
            client.insert([1], {"q": 1.0})
    with pytest.raises((DeadlineExceededError, UnavailableError), match="127.0.0.1"):
        call(client)


def test_a_legacy_writer_that_no_server_tells_what_tables_expect():
    with pytest.raises(DeadlineExceededError, match="127.0.0.1"):
        reverie.Client("127.0.0.1:1").writer(1, timeout=SOON)


def test_a_trajectory_writer_waits_for_the_server_only_where_that_is_asked_for():
    client = reverie.Client("127.0.0.1:1")
    client.trajectory_writer(1).close()
    with pytest.raises(DeadlineExceededError, match="127.0.0.1"):
        client.trajectory_writer(1, get_signature_timeout_ms=50)


@pytest.mark.parametrize("bad", [-1, float("nan"), "1", [1]])
def test_a_bad_timeout_is_refused_before_anything_is_done(client, bad):
    error = ValueError if isinstance(bad, (int, float)) else TypeError
    with pytest.raises(error, match="timeout"):
        client.insert([np.float32(1)], {"e": 1.0}, timeout=bad)
    assert client.server_info()["e"].current_size == 0
    with pytest.raises(error, match="timeout"):
        client.sample("e", timeout=bad)
    with pytest.raises(error, match="timeout"):
        client.writer(1, timeout=bad)
    with pytest.raises(error, match="timeout"):
        legacy(client).flush(timeout=bad)
    with pytest.raises(error, match="timeout"):
        client.mutate_priorities("e", {}, timeout=bad)


def test_more_time_than_a_float_has_is_for_ever_in_milliseconds_and_told_in_seconds(client):
    pattern = structured.pattern_from_transform([None], lambda step: step[0][-2:])
    config = structured.create_config(pattern, "e")
    for writer in (client.trajectory_writer(1), client.structured_writer([config])):
        writer.append([np.float32(1)])
        writer.flush(timeout_ms=10**400)
        writer.end_episode(timeout_ms=10**400)
    for call in (client.server_info, lambda timeout: client.sample_batch("e", 1, timeout=timeout)):
        with pytest.raises(ValueError, match="timeout is too large for a float"):
            call(timeout=10**400)


def trajectories(client):
    writer = client.trajectory_writer(1)
    writer.append([np.float32(1)])
    writer.create_item("q", 1.0, [writer.history[0][-1:]])
    return writer, lambda seconds: writer.flush(timeout_ms=None if seconds is None else round(seconds * 1000))


def transitions(client):
    writer = client.transitions("q", 1)
    row = [np.ones(1, np.float32)]  # in process it is the add that waits
    return writer, lambda seconds: (writer.add(row, timeout=seconds), writer.flush(timeout=seconds))


def steps(client):
    writer = legacy(client)
    writer.create_item("q", 1, 1.0)
    return writer, lambda seconds: (writer.flush(timeout=seconds), writer.flush(timeout=seconds))


@pytest.mark.parametrize("made", [trajectories, transitions, steps])
def test_a_call_waits_for_another_threads_no_longer_than_it_was_given(client, made):
    writer, flush = made(client)
    other = threading.Thread(target=flush, args=(None,), daemon=True)
    other.start()
    said = ""
    while "another thread" not in said:  # until then it was first
        with pytest.raises(DeadlineExceededError) as caught:
            flush(SOON)
        said = str(caught.value)
    if isinstance(writer, reverie.Writer):
        with pytest.raises(ResourceExhaustedError, match="not made"):
            writer.create_item("q", 1, 1.0, timeout=SOON)
    while other.is_alive():
        with contextlib.suppress(DeadlineExceededError):
            client.sample_batch("q", 1, timeout=SOON)
    if isinstance(writer, reverie.Writer):
        writer.close(timeout=60.0)
