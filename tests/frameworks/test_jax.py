"""reverie.jax: batches, samples and items of steps on a device, put there ahead."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import reverie
import reverie.jax
from reverie import structured
from waiting import AT_MOST, SAMPLING, SOON, interrupted, says_at_its_deadline


def test_batches_are_arrays_on_the_device(source):
    device = jax.devices()[0]
    with reverie.jax.batches(source, "replay", 16, device=device) as batches:
        for _, batch in zip(range(5), batches, strict=False):
            assert isinstance(batch.data["obs"], jax.Array)
            assert batch.data["obs"].devices() == {device}
            assert batch.data["obs"].shape == (16, 3, 2)
            assert jnp.array_equal(batch.data["obs"][:, 0, 0].astype(int), batch.data["action"])
            assert batch.data["name"].dtype == object
            assert batch.keys.dtype == np.uint64
            assert batch.table_size == 100
            assert batch.table_sizes.dtype == np.int64
            assert batch.table_sizes.tolist() == [100] * 16


def test_a_batch_stays_as_it_was_drawn(source):
    with reverie.jax.batches(source, "replay", 64, prefetch=3) as batches:
        first = next(batches)
        before = np.array(first.data["obs"])
        for _ in range(20):
            next(batches)
        assert np.array_equal(np.array(first.data["obs"]), before)


def test_keys_of_a_batch_update_priorities(source):
    with reverie.jax.batches(source, "replay", 8) as batches:
        batch = next(batches)
    client = reverie.Client(source)
    client.update_priorities("replay", batch.keys, jnp.full(8, 500.0))
    assert {item.key for item in client.items("replay") if item.priority == 500.0} == set(batch.keys.tolist())


def test_a_batch_goes_into_a_compiled_function(source):
    @jax.jit
    def total(data):
        return data["obs"].sum()

    with reverie.jax.batches(source, "replay", 8) as batches:
        batch = next(batches)
    del batch.data["name"]
    assert float(total(batch.data)) == pytest.approx(6.0 * float(batch.data["action"].sum()))


def test_a_batch_waits_no_longer_than_told(source):
    reverie.Client(source).reset("replay")
    with reverie.jax.batches(source, "replay", 4, timeout=0.05) as batches, pytest.raises(reverie.errors.DeadlineExceededError):
        next(batches)


@pytest.mark.parametrize(("name", "value"), [("batch_size", 0), ("prefetch", 0), ("timeout", -1.0), ("unequal", "list")])
def test_a_wrong_argument_is_named_at_once(name, value):
    with pytest.raises(ValueError, match=name):
        reverie.jax.batches(**{"server": "localhost:1", "table": "replay", "batch_size": 4, name: value})


# ---- samples and steps ----


def test_trajectories_are_arrays_on_the_device_with_their_info(source):
    device = jax.devices()[0]
    with reverie.jax.trajectories(source, "replay", 2, max_samples=7, device=device) as samples:
        got = list(samples)
    assert len(got) == 7
    for sample in got:
        assert isinstance(sample, reverie.ReplaySample)
        assert isinstance(sample.data["obs"], jax.Array)
        assert sample.data["obs"].devices() == {device}
        assert sample.data["obs"].shape == (3, 2)
        assert sample.data["name"].item() == f"row {int(sample.data['action'])}".encode()
        assert sample.info.priority == int(sample.data["action"]) + 1
        assert sample.info.table_size == 100


def test_keys_of_samples_update_priorities(source):
    keys = [sample.info.key for sample in reverie.jax.trajectories(source, "replay", 1, max_samples=3)]
    client = reverie.Client(source)
    client.update_priorities("replay", keys, jnp.full(3, 500.0))
    assert {item.key for item in client.items("replay") if item.priority == 500.0} == set(keys)


def test_a_sample_stays_as_it_was_drawn(source):
    with reverie.jax.trajectories(source, "replay", 8, prefetch=3) as samples:
        first = next(samples)
        for _ in range(50):
            next(samples)
        assert first.data["obs"].tolist() == [[float(first.data["action"])] * 2] * 3


@pytest.fixture
def of_three_steps(serve):
    """A server with one item of the rows 0, 1 and 2 of "x"."""
    server = serve(signature={"x": reverie.TensorSpec((None,), np.int64)})
    with reverie.Client(server).trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append({"x": np.int64(i)})
        writer.create_item("replay", 1.0, {"x": writer.history["x"][:]})
    return server


def test_timesteps_come_one_by_one_and_items_are_counted(of_three_steps):
    steps = list(reverie.jax.timesteps(of_three_steps, "replay", 1, max_samples=2))
    assert [int(step.data["x"]) for step in steps] == [0, 1, 2, 0, 1, 2]
    assert all(isinstance(step.data["x"], jax.Array) and step.data["x"].shape == () for step in steps)


def test_a_row_that_was_added_is_one_step(source):
    with reverie.jax.timesteps(source, "replay", 1) as steps:
        for _, step in zip(range(5), steps, strict=False):
            assert step.data["obs"].tolist() == [[float(step.data["action"])] * 2] * 3


def test_an_item_without_steps_is_refused_with_the_call_that_reads_it_and_others_come(serve):
    server = serve(sampler=reverie.selectors.Fifo(), max_times_sampled=1)
    with reverie.Client(server).trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append({"x": np.int64(i), "y": np.int64(i)})
        writer.create_item("replay", 1.0, {"x": writer.history["x"][:], "y": writer.history["y"][-1]})
        writer.create_item("replay", 1.0, {"x": writer.history["x"][-1:], "y": writer.history["y"][-1]})
    with reverie.jax.timesteps(server, "replay", 1, max_samples=2) as steps:
        with pytest.raises(ValueError, match=r"column 0 has 3 rows, column 1 has 1; read it whole, .*trajectories"):
            next(steps)
        assert [int(leaf) for leaf in next(steps).data] == [2, 2]


STREAMS = {"trajectories": reverie.jax.trajectories, "timesteps": reverie.jax.timesteps}


@pytest.fixture(params=STREAMS)
def stream(request):
    return STREAMS[request.param]


def test_the_iteration_ends_when_the_limiter_lets_nothing_through(source, stream):
    reverie.Client(source).reset("replay")
    assert list(stream(source, "replay", 1, rate_limiter_timeout_ms=20)) == []


def test_iteration_may_go_on_after_a_deadline(serve, stream):
    server = serve()
    client = reverie.Client(server)
    with stream(server, "replay", 1, prefetch=1, timeout=0.05) as samples:
        with pytest.raises(reverie.DeadlineExceededError, match="replay"):
            next(samples)
        client.add("replay", [np.arange(3)])
        for _ in range(5):  # the error that was drawn ahead comes first
            try:
                assert next(samples).data[0].tolist() in ([0, 1, 2], 0)
                return
            except reverie.DeadlineExceededError:
                pass
    raise AssertionError("it did not go on")


def test_an_unknown_table_is_told(source, stream):
    with stream(source, "nowhere", 1) as samples, pytest.raises(reverie.errors.NotFoundError, match="nowhere"):
        next(samples)


def test_a_server_that_stops_ends_the_iteration_with_its_error(of_three_steps, stream):
    with stream(of_three_steps, "replay", 1) as samples:
        next(samples)
        of_three_steps.stop()
        with pytest.raises(reverie.errors.CancelledError):
            for _ in samples:
                pass
        assert list(samples) == []


def test_closing_gives_back_what_was_fetched_ahead(serve, stream):
    server = serve("127.0.0.1:0", max_times_sampled=1, signature={"x": reverie.TensorSpec((2,), np.float32)})
    client = reverie.Client(server.address)
    client.add_batch("replay", {"x": np.zeros((100, 2), np.float32)})
    samples = stream(server.address, "replay", 3)
    next(samples)
    samples.close()
    assert list(samples) == []
    assert [thread for thread in threading.enumerate() if thread.name == "reverie-batches"] == []


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("server_address", 3, TypeError),
        ("table", 3, TypeError),
        ("max_in_flight_samples_per_worker", 0, ValueError),
        ("num_workers_per_iterator", 0, ValueError),
        ("max_samples_per_stream", -2, ValueError),
        ("rate_limiter_timeout_ms", -2, ValueError),
        ("max_samples", 0, ValueError),
        ("prefetch", 0, ValueError),
        ("prefetch", "two", TypeError),
        ("timeout", -1.0, ValueError),
    ],
)
def test_a_wrong_argument_of_a_stream_is_named_at_once(stream, name, value, error):
    given = {"server_address": "localhost:1", "table": "replay", "max_in_flight_samples_per_worker": 1, name: value}
    with pytest.raises(error, match=name.removesuffix("_address")):
        stream(**given)


# ---- items of steps ----

STEP = {"x": 0, "name": 0, "end": False}


def config_of(transform, step=STEP):
    return structured.create_config(structured.pattern_from_transform(step, transform), "t")


def steps_of(numbers, ends=()):
    return ({"x": np.full(2, i, np.float32), "name": f"step {i}", "end": i in ends} for i in numbers)


def ended(step):
    return step["end"]


PAIRS = config_of(lambda ref: {"two": ref["x"][-2:], "last": [ref["x"][-1], ref["name"][-1]]})


@pytest.mark.parametrize("respect", [True, False])
def test_patterns_are_the_items_of_a_structured_writer_on_the_device(respect):
    device = jax.devices()[0]
    with reverie.jax.patterns(steps_of(range(9), {3}), [PAIRS], respect, ended, device=device) as items:
        got = list(items)
    wanted = list(structured.pattern_items(steps_of(range(9), {3}), [PAIRS], respect, ended))
    assert len(got) == (7 if respect else 8)
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours["two"].devices() == {device}
        assert ours["two"].dtype == jnp.float32
        assert ours["two"].tolist() == theirs["two"].tolist()
        assert ours["last"][0].tolist() == theirs["last"][0].tolist()
        assert ours["last"][1] == theirs["last"][1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
def test_steps_may_be_arrays_on_a_device(dtype):
    steps = [{"x": jnp.full(2, i % 2, dtype)} for i in range(3)]
    config = config_of(lambda ref: ref["x"][-2:], {"x": 0})
    items = list(reverie.jax.patterns(steps, [config], True, lambda step: step["x"].any() & False))
    assert [item.tolist() for item in items] == [[[0, 0], [1, 1]], [[1, 1], [0, 0]]]
    assert {item.dtype for item in items} == {np.dtype(getattr(ml_dtypes, dtype, dtype))}


def test_sampled_steps_go_into_patterns(of_three_steps):
    config = config_of(lambda ref: ref["x"][-2:], {"x": 0})
    with (
        reverie.jax.timesteps(of_three_steps, "replay", 1, max_samples=2) as steps,
        reverie.jax.patterns((step.data for step in steps), [config], True, lambda step: step["x"] == 2) as items,
    ):
        assert [item.tolist() for item in items] == [[0, 1], [1, 2]] * 2


def test_what_a_stream_of_steps_raises_is_raised_in_its_place():
    def steps():
        yield from steps_of(range(3))
        raise OSError("the recording ends here")

    with reverie.jax.patterns(steps(), [PAIRS], True, ended) as items:
        assert [int(next(items)["last"][0][0]) for _ in range(2)] == [1, 2]
        with pytest.raises(OSError, match="the recording ends here"):
            next(items)
        assert list(items) == []


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"configs": []}, ValueError, "At least one config"),
        ({"configs": [config_of(lambda ref: ref["x"][0])]}, ValueError, "position 0"),
        ({"input_dataset": 3}, TypeError, "iterable"),
        ({"is_end_of_episode": True}, ValueError, "is_end_of_episode"),
        ({"prefetch": 0}, ValueError, "prefetch"),
    ],
)
def test_a_wrong_argument_of_patterns_is_told_at_once(arguments, error, text):
    given = {"input_dataset": [], "configs": [PAIRS], "respect_episode_boundaries": True, "is_end_of_episode": ended}
    with pytest.raises(error, match=text):
        reverie.jax.patterns(**{**given, **arguments})


def test_closing_ends_those_who_wait_for_a_step_that_does_not_come():
    reading, go_on = threading.Event(), threading.Event()

    def steps():
        reading.set()
        go_on.wait()
        yield from steps_of(range(2))

    items = reverie.jax.patterns(steps(), [PAIRS], True, ended)
    got = []
    consumer = threading.Thread(target=lambda: got.extend(items))
    consumer.start()
    try:
        assert reading.wait(AT_MOST)
        items.close()
        consumer.join(AT_MOST)
        assert not consumer.is_alive()
        assert got == []
    finally:
        go_on.set()
        items._drawer.thread.join(AT_MOST)
    assert not items._drawer.thread.is_alive()


def test_closing_ends_a_thread_whose_steps_make_no_item():
    reading = threading.Event()
    steps = ({"x": reading.set()} for _ in itertools.count())  # None: no row is there
    items = reverie.jax.patterns(steps, [config_of(lambda ref: ref["x"][-2:], {"x": 0})], True, lambda _: False)
    consumer = threading.Thread(target=lambda: list(items))
    consumer.start()
    assert reading.wait(AT_MOST)
    items.close()
    consumer.join(AT_MOST)
    items._drawer.thread.join(AT_MOST)
    assert not items._drawer.thread.is_alive()


# ---- all of them ----

ALL = {
    "batches": lambda address, **options: reverie.jax.batches(address, "replay", 4, **options),
    "trajectories": lambda address, **options: reverie.jax.trajectories(address, "replay", 1, **options),
    "timesteps": lambda address, **options: reverie.jax.timesteps(address, "replay", 1, **options),
    "patterns": lambda address, **options: reverie.jax.patterns(
        ({"x": i} for i in itertools.count()),
        [config_of(lambda ref: ref["x"][-2:], {"x": 0})],
        True,
        lambda _: False,
        **options,
    ),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("prefetch", [1, 3])
def test_so_many_are_put_on_the_device_before_they_are_asked_for_and_no_more(serve, monkeypatch, name, prefetch):
    server = serve(signature={"x": reverie.TensorSpec((2,), np.float32)})
    reverie.Client(server).add("replay", {"x": np.zeros(2, np.float32)})
    puts, real = [], jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda *arguments: puts.append(threading.current_thread()) or real(*arguments))
    with ALL[name](server, prefetch=prefetch) as stream:
        assert puts == []
        for taken in (1, 2):
            next(stream)
            deadline = time.monotonic() + AT_MOST
            while len(puts) < taken + prefetch:
                assert time.monotonic() < deadline, f"{len(puts)} of {taken + prefetch} were put"
                time.sleep(0.001)
            time.sleep(0.05)  # what would come too much is there by then, on most machines
            assert len(puts) == taken + prefetch
    assert threading.current_thread() not in puts


@pytest.mark.parametrize("name", ALL)
def test_dropping_an_iterator_ends_its_thread(serve, name):
    server = serve("127.0.0.1:0")
    reverie.Client(server.address).add("replay", [np.zeros(2, np.float32)])
    stream = ALL[name](server.address)
    next(stream)
    thread = stream._drawer.thread
    del stream
    thread.join(AT_MOST)
    assert not thread.is_alive()


HELD = {
    "batches": lambda address, timeout: reverie.jax.batches(address, "few", 2, timeout=timeout),
    "trajectories": lambda address, timeout: reverie.jax.trajectories(address, "few", 1, timeout=timeout),
    "timesteps": lambda address, timeout: reverie.jax.timesteps(address, "few", 1, timeout=timeout),
}


@pytest.mark.parametrize("name", HELD)
def test_what_the_table_holds_says_at_its_timeout_what_it_waits_for(holding, name):
    def wait(timeout):
        with HELD[name](holding.address, timeout) as stream:
            next(stream)

    says_at_its_deadline(wait, SAMPLING, SOON)


@pytest.mark.parametrize("name", HELD)
def test_a_server_that_went_is_named_at_the_timeout(holding, name):
    holding.stop()
    with (
        HELD[name](holding.address, SOON) as stream,
        pytest.raises(reverie.DeadlineExceededError, match=holding.address),
    ):
        next(stream)


@pytest.mark.parametrize("name", HELD)
def test_a_wait_ends_by_ctrl_c(holding, name):
    with HELD[name](holding.address, None) as stream:
        interrupted(lambda: next(stream))


@pytest.mark.parametrize("name", HELD)
def test_a_wait_ends_when_another_thread_closes_the_iterator(holding, name):
    stream = HELD[name](holding.address, None)
    closing = threading.Timer(SOON, stream.close)
    closing.start()
    assert list(stream) == []
    closing.join()


OPEN_AT_THE_END = """
import jax, numpy as np, reverie
from reverie import structured
fifo = reverie.selectors.Fifo()
server = reverie.Server([reverie.Table("t", fifo, fifo, 10, reverie.rate_limiters.MinSize(1))], address="127.0.0.1:0", name="open")
client = reverie.Client(server.address)
config = structured.create_config([structured.create_reference_step([1])[0][-1]], "t")
writer = client.structured_writer([config])
writer.append([1.0])
writer.flush()
batches = client.batches("t", 1)
next(batches)
"""


def test_a_program_that_ends_with_everything_open_ends_without_a_word():
    done = subprocess.run([sys.executable, "-c", OPEN_AT_THE_END], capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
