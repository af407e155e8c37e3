"""A server that is not there, that is killed in the middle of calls, and that comes back on the same port."""

import contextlib
import re
import signal
import socket
import threading
from concurrent import futures

import grpc
import numpy as np
import pytest
import reverie
import server_program
from conftest import make_table
from reverie.errors import CancelledError, DeadlineExceededError, UnavailableError
from waiting import LONG, Call, HeldPort, says_at_its_deadline, wait_until_waiting, with_a_deadline

TABLES = ["--table", "name=t,sampler=fifo,remover=fifo", "--table", "name=q,preset=queue:1"]
GONE = (DeadlineExceededError, UnavailableError)


class Fallible:
    """reverie-server on a port that stays the same over its deaths."""

    def __init__(self):
        self.held = HeldPort()
        self.port, self.address = self.held.number, self.held.address
        self.server = None

    def start(self):
        self.server = server_program.Server("--listen", self.address, *TABLES)

    def kill(self):
        if self.server is not None:
            self.server.kill()
            self.server = None


@pytest.fixture
def fallible():
    server = Fallible()
    yield server
    server.kill()
    server.held.close()


def item(writer, table, value):
    writer.append([np.int64(value)])
    writer.create_item(table, 1.0, [writer.history[0][-1:]])


# ---- a server that is not there ----

ABSENT = {
    "add": lambda client: client.add("t", 1, timeout=0.2),
    "add_batch": lambda client: client.add_batch("t", np.arange(2), timeout=0.2),
    "sample_batch": lambda client: client.sample_batch("t", 1, timeout=0.2),
    "batches": lambda client: next(client.batches("t", 1, timeout=0.2)),
    "update_priorities": lambda client: client.update_priorities("t", [1], [1.0], timeout=0.2),
    "keys": lambda client: client.keys("t", timeout=0.2),
    "items": lambda client: list(client.items("t", timeout=0.2)),
    "get": lambda client: client.get("t", 1, timeout=0.2),
    "reset": lambda client: client.reset("t", timeout=0.2),
    "server_info": lambda client: client.server_info(0.2),
    "set_rate_limiter": lambda client: client.set_rate_limiter("t", reverie.rate_limiters.MinSize(1), timeout=0.2),
    "set_bounds": lambda client: client.set_bounds("t", max_size=1, timeout=0.2),
    "set_memory_limit": lambda client: client.set_memory_limit(1, timeout=0.2),
    "checkpoint": lambda client: client.checkpoint(timeout=0.2),
}


@pytest.mark.parametrize("call", ABSENT.values(), ids=ABSENT)
def test_a_server_that_is_not_there_is_an_error_within_the_timeout_that_names_it(fallible, call):
    with pytest.raises(GONE, match=f"127.0.0.1:{fallible.port}"):
        call(reverie.Client(fallible.address))


@pytest.mark.parametrize("end", ["flush", "end_episode"])
def test_a_writer_without_a_server_says_at_the_deadline_whom_it_waits_for_and_goes_on_later(fallible, end):
    client = reverie.Client(fallible.address)
    writer = client.trajectory_writer(1, validate_items=False)
    item(writer, "t", 1)
    with pytest.raises(DeadlineExceededError, match=f"127.0.0.1:{fallible.port}"):
        getattr(writer, end)(timeout_ms=200)
    fallible.start()
    getattr(writer, end)(timeout_ms=int(LONG * 1000))
    assert client.sample_batch("t", 1, timeout=LONG).data[0].tolist() == [[1]]


# ---- killed in the middle ----

BLOCKED = {
    "add": ("q", "inserts", lambda s, client, _: client.add("q", 2, timeout=s)),
    "add_batch": ("q", "inserts", lambda s, client, _: client.add_batch("q", np.arange(2, 4), timeout=s)),
    "flush": ("q", "inserts", lambda s, _, writer: (item(writer, "q", 2), writer.flush(timeout_ms=int(s * 1000)))),
    "end_episode": ("q", "inserts", lambda s, _, writer: (item(writer, "q", 2), writer.end_episode(timeout_ms=int(s * 1000)))),
    "sample_batch": ("t", "samples", lambda s, client, _: client.sample_batch("t", 1, timeout=s)),
    "batches": ("t", "samples", lambda s, client, _: next(client.batches("t", 1, timeout=s))),
}


@pytest.mark.parametrize(("table", "kind", "call"), BLOCKED.values(), ids=BLOCKED)
def test_a_server_killed_while_a_call_waits_ends_it_within_its_deadline_and_serves_it_when_it_is_back(
    fallible, table, kind, call
):
    def lose(timeout):
        fallible.kill()
        fallible.start()
        client, watcher = reverie.Client(fallible.address), reverie.Client(fallible.address)
        writer = client.trajectory_writer(1)
        client.add("q", 1)
        blocked = Call(call, timeout, client, writer)
        wait_until_waiting([blocked], watcher, table, kind)
        fallible.kill()
        assert isinstance(blocked.join(2 * LONG), GONE)
        return client, writer

    client, writer = with_a_deadline(lose)

    fallible.start()
    client.add("t", 5, timeout=LONG)
    assert client.sample_batch("t", 1, timeout=LONG).data.tolist() == [5]
    item(writer, "t", 6)
    drained = Call(lambda: [int(np.ravel(client.sample_batch("q", 1, timeout=LONG).data)[0])]) if kind == "inserts" else None
    if call in (BLOCKED["flush"][2], BLOCKED["end_episode"][2]):
        assert drained.join() == [2], "what was not confirmed is sent again"
    writer.flush(timeout_ms=int(LONG * 1000))
    if drained is not None and drained.is_alive():
        client.add("q", 9, timeout=LONG)
        drained.join()
    assert writer.status().items_in_flight == 0


@pytest.mark.parametrize("sent", [False, True], ids=["created-after-the-loss", "lost-on-its-way"])
def test_a_writer_says_to_the_end_why_it_cannot_reach_its_server(fallible, sent):
    fallible.start()
    writer = reverie.Client(fallible.address).trajectory_writer(1)
    item(writer, "t", 1)
    writer.flush(timeout_ms=int(LONG * 1000))
    if sent:
        fallible.server.freeze()
        item(writer, "t", 2)
        says_at_its_deadline(lambda timeout: writer.flush(timeout_ms=int(timeout * 1000)), "timed out", 0.1)
    fallible.kill()
    if not sent:
        item(writer, "t", 2)
    refused = r"connection refused \(.*\); attempt \d+\)"
    says_at_its_deadline(lambda timeout: writer.flush(timeout_ms=int(timeout * 1000)), refused, 1.0)
    assert re.search(r"\(.*connection refused.*; attempt \d+\); the last stream ended with", writer.status().state)
    writer.close()


def test_calls_without_a_deadline_wait_for_the_server_to_come_back(fallible):
    fallible.start()
    client = reverie.Client(fallible.address)
    client.insert([np.int64(1)], {"q": 1.0})
    waiting = reverie.Client(fallible.address)
    sample = Call(lambda: next(client.sample("t", emit_timesteps=False)).data[0].tolist())
    wait_until_waiting([sample], waiting, "t", "samples")
    insert = Call(client.insert, [np.int64(2)], {"q": 1.0})
    wait_until_waiting([insert], waiting, "q", "inserts")
    fallible.kill()
    fallible.start()
    assert insert.join() is None
    assert next(waiting.sample("q", emit_timesteps=False)).data[0].tolist() == [2]
    waiting.add("t", [np.int64(3)], timeout=LONG)
    assert sample.join() in ([3], 3)


WAITING = {
    "add": ("q", "inserts", lambda client, _: client.add("q", 2, timeout=None)),
    "add_batch": ("q", "inserts", lambda client, _: client.add_batch("q", np.arange(2), timeout=None)),
    "insert": ("q", "inserts", lambda client, _: client.insert([np.int64(2)], {"q": 1.0})),
    "flush": ("q", "inserts", lambda _, writer: (item(writer, "q", 2), writer.flush())),
    "sample_batch": ("t", "samples", lambda client, _: client.sample_batch("t", 1, timeout=None)),
    "batches": ("t", "samples", lambda client, _: next(client.batches("t", 1, timeout=None))),
    "sample": ("t", "samples", lambda client, _: next(client.sample("t"))),
}
BACK = {
    "without the table": (
        ["--table", "name=other"],
        reverie.errors.NotFoundError,
        'table "[qt]" was not found; the store has "other"',
    ),
    "with identities": (TABLES, reverie.errors.UnauthenticatedError, "the server asks who calls; give the client a token"),
}


@pytest.mark.parametrize(("tables", "error", "words"), BACK.values(), ids=BACK)
def test_who_waits_without_a_deadline_hears_what_the_server_that_comes_back_refuses(fallible, tmp_path, tables, error, words):
    fallible.start()
    watcher = reverie.Client(fallible.address)
    watcher.add("q", 1)
    calls = {"inserts": [], "samples": []}
    for table, kind, call in WAITING.values():
        client = reverie.Client(fallible.address)
        calls[kind].append(Call(call, client, client.trajectory_writer(1)))
        wait_until_waiting(calls[kind], watcher, table, kind)
    fallible.kill()
    (tmp_path / "identities.yaml").write_text("identities: [{name: a, token: 0123456789abcdef, rights: {'*': read}}]\n")
    more = ["--config", str(tmp_path / "identities.yaml")] if error is reverie.errors.UnauthenticatedError else []
    fallible.server = server_program.Server(*more, "--listen", fallible.address, *tables)
    for call in calls["inserts"] + calls["samples"]:
        told = call.join()
        assert isinstance(told, error), told
        assert re.search(words, str(told)), told


def test_a_server_killed_while_items_stream_in_loses_none_that_was_not_confirmed(fallible):
    fallible.start()
    client = reverie.Client(fallible.address)
    writer = client.trajectory_writer(1)
    for value in range(200):
        item(writer, "t", value)
        if value == 100:
            writer.flush(timeout_ms=int(LONG * 1000))
            fallible.kill()
    with pytest.raises(GONE):
        writer.flush(timeout_ms=200)
    fallible.start()
    writer.flush(timeout_ms=int(LONG * 1000))
    found = [sample.data[0].tolist() for sample in client.sample("t", 99, emit_timesteps=False)]
    assert client.server_info(LONG)["t"].current_size == 99
    assert {value[0] for value in found} <= set(range(101, 200))
    assert writer.status().items_confirmed == 200


def test_a_server_that_freezes_is_an_error_within_the_deadline(fallible):
    fallible.start()
    client = reverie.Client(fallible.address)
    writer = client.trajectory_writer(1)
    item(writer, "t", 2)
    writer.flush(timeout_ms=int(LONG * 1000))
    fallible.server.freeze()
    try:
        for call in (ABSENT["sample_batch"], ABSENT["update_priorities"], ABSENT["server_info"], ABSENT["keys"]):
            with pytest.raises(DeadlineExceededError):
                call(client)
        item(writer, "t", 3)
        with pytest.raises(DeadlineExceededError):
            writer.flush(timeout_ms=200)
    finally:
        fallible.server.signal(signal.SIGCONT)
    writer.flush(timeout_ms=int(LONG * 1000))
    assert client.sample_batch("t", 1, timeout=LONG).data is not None


@pytest.mark.parametrize("message", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0" * 64])
def test_what_answers_but_is_no_server_is_an_error_within_the_deadline(message):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer, contextlib.suppress(OSError):  # it may be gone
                    peer.sendall(message)

        threading.Thread(target=answer, daemon=True).start()
        client = reverie.Client(f"127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(GONE):
            client.server_info(1)
        with pytest.raises(GONE):
            client.add("t", 1, timeout=1)
        listener.shutdown(socket.SHUT_RDWR)


def flushed(client):
    writer = client.trajectory_writer(1, validate_items=False)
    item(writer, "t", 1)
    writer.flush(timeout_ms=int(LONG * 1000))


OTHERS = {
    "insert": (lambda client: client.insert([1], {"t": 1.0}, timeout=LONG), "InsertStream"),
    "flush": (flushed, "InsertStream"),
    "sample": (lambda client: next(client.sample("t", timeout=LONG)), "SampleStream"),
    "add": (lambda client: client.add("t", 1, timeout=LONG), "ServerInfo"),
    "checkpoint": (lambda client: client.checkpoint(timeout=LONG), "Checkpoint"),
}


@pytest.mark.parametrize(("call", "method"), OTHERS.values(), ids=OTHERS)
def test_a_grpc_server_of_something_else_is_told_from_a_replay_store(call, method):
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(reverie.errors.UnimplementedError, match=f"does not know .*{method}.* Reverie"):
            call(reverie.Client(f"127.0.0.1:{port}"))
    finally:
        server.stop(None).wait()


# ---- stopped while callers wait ----


@pytest.mark.parametrize("where", ["in process", "remote"])
def test_stopping_a_server_ends_every_kind_of_wait(where):
    """In process at once; remotely a call waits for a server to come back, until its deadline."""
    if where == "in process":
        stop_under_waits(where, LONG)
    else:
        with_a_deadline(lambda timeout: stop_under_waits(where, timeout))


def stop_under_waits(where, timeout):
    with reverie.Server([make_table("t"), reverie.Table.queue("q", 1)], address="127.0.0.1:0") as server:
        client = reverie.Client(server if where == "in process" else server.address)
        client.add("q", 0)
        writer = client.trajectory_writer(1)
        item(writer, "q", 1)
        inserts = [
            Call(client.add, "q", 1, timeout=timeout),
            Call(client.add_batch, "q", np.arange(2), timeout=timeout),
            Call(writer.flush, timeout_ms=int(timeout * 1000)),
        ]
        samples = [Call(client.sample_batch, "t", 1, timeout=timeout)]
        if where == "in process":  # remotely these wait for a server to come back
            inserts.append(Call(client.insert, [1], {"q": 1.0}))
            samples.append(Call(lambda: next(client.sample("t"))))
        watcher = reverie.Client(server)
        wait_until_waiting(inserts, watcher, "q", "inserts")
        wait_until_waiting(samples, watcher, "t", "samples")
        server.stop()
        for call in inserts + samples:
            assert isinstance(call.join(2 * LONG), (CancelledError, *GONE) if where == "remote" else CancelledError), call.result
        writer.close()
