"""Every public call that may wait ends at its timeout and at Ctrl-C, and says what it waited for. The table lists them all."""

import contextlib
import inspect
import os
import pathlib
import re
import signal
import socket
import threading

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie import structured
from reverie.errors import DeadlineExceededError
from waiting import says_at_its_deadline, until

SOON = 0.15
INSERTING = 'table "full": inserting waits for 1 more sample'
SAMPLING = 'table "few": sampling waits for 1,005 items, has 3'
UNCONFIRMED = "1 item is not confirmed by the server"  # it may be large, and still on its way
LARGE = np.random.default_rng(1).integers(0, 256, 33 << 20, np.uint8)  # of the 64 MiB that may be on their way


class World:
    """Of a table "few" that lets nothing be sampled, and a queue "full" that lets nothing in; or at a server that does not answer."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.opened = []

    def close(self):
        for writer in self.opened:
            with contextlib.suppress(DeadlineExceededError, ValueError):
                writer.close(timeout=0)

    def writer(self):
        writer = self.client.trajectory_writer(1)
        writer.append([np.float32(1)])
        writer.create_item("full", 1.0, [writer.history[0][-1:]])
        return writer

    def legacy(self, flushed=False, **options):
        writer = self.client.writer(1, timeout=60.0, **options)
        self.opened.append(writer)
        writer.append([np.float32(1)])
        writer.create_item("full", 1, 1.0)
        if flushed:
            with contextlib.suppress(DeadlineExceededError):  # what waits for its chunk is sent without waiting
                writer.flush(timeout=0)
        return writer

    def large_step(self):
        """A writer with an item on its way that leaves no room for another like it."""
        writer = self.client.writer(1, timeout=60.0)
        self.opened.append(writer)
        writer.append([LARGE])
        writer.create_item("full", 1, 1.0)
        return writer

    def structured(self):
        def pattern(reference):
            return [reference[0][-1]]

        config = structured.create_config(structured.pattern_from_transform([None], pattern), "full")
        writer = self.client.structured_writer([config])
        writer.append([np.float32(1)])
        return writer

    def transitions(self):
        return self.client.transitions("full", 1)


def whole(timeout):
    return None if timeout is None else int(timeout * 1000)


# call, what it waits for in process and remotely; None: it does not wait there
CALLS = {
    "Client.add": (lambda w, t: w.client.add("full", np.float32(1), timeout=t), INSERTING, INSERTING),
    "Client.add_batch": (lambda w, t: w.client.add_batch("full", np.ones(2, np.float32), timeout=t), INSERTING, INSERTING),
    "Client.insert": (lambda w, t: w.client.insert([np.float32(1)], {"full": 1.0}, timeout=t), INSERTING, INSERTING),
    "Client.sample": (lambda w, t: next(w.client.sample("few", timeout=t)), SAMPLING, SAMPLING),
    "Client.sample_batch": (lambda w, t: w.client.sample_batch("few", 2, timeout=t), SAMPLING, SAMPLING),
    "Client.batches": (lambda w, t: next(w.client.batches("few", 2, timeout=t)), SAMPLING, SAMPLING),
    "Client.mutate_priorities": (lambda w, t: w.client.mutate_priorities("few", {1: 1.0}, timeout=t), None, None),
    "Client.update_priorities": (lambda w, t: w.client.update_priorities("few", [1], [1.0], timeout=t), None, None),
    "Client.get": (lambda w, t: w.client.get("few", 1, timeout=t), None, None),
    "Client.keys": (lambda w, t: w.client.keys("few", timeout=t), None, None),
    "Client.items": (lambda w, t: list(w.client.items("few", timeout=t)), None, None),
    "Client.reset": (lambda w, t: w.client.reset("few", timeout=t), None, None),
    "Client.server_info": (lambda w, t: w.client.server_info(timeout=t), None, None),
    "Client.journal_info": (lambda w, t: w.client.journal_info(timeout=t), None, None),
    "Client.memory_info": (lambda w, t: w.client.memory_info(timeout=t), None, None),
    "Client.set_rate_limiter": (
        lambda w, t: w.client.set_rate_limiter("few", reverie.rate_limiters.MinSize(2), timeout=t),
        None,
        None,
    ),
    "Client.set_bounds": (lambda w, t: w.client.set_bounds("few", max_size=2000, timeout=t), None, None),
    "Client.set_memory_limit": (lambda w, t: w.client.set_memory_limit(0, timeout=t), None, None),
    "Client.checkpoint": (lambda w, t: w.client.checkpoint(timeout=t), None, None),
    "Client.writer": (lambda w, t: w.client.writer(1, timeout=t), None, None),
    "Client.trajectory_writer": (lambda w, t: w.client.trajectory_writer(1, get_signature_timeout_ms=whole(t)), None, None),
    "Writer.append": (lambda w, t: w.large_step().append([LARGE], timeout=t), INSERTING, UNCONFIRMED),
    "Writer.append_sequence": (lambda w, t: w.large_step().append_sequence([LARGE[None]], timeout=t), INSERTING, UNCONFIRMED),
    "Writer.create_item": (
        lambda w, t: w.legacy(max_in_flight_items=1).create_item("full", 1, 1.0, timeout=t),
        INSERTING,
        INSERTING,
    ),
    "Writer.flush": (lambda w, t: w.legacy(flushed=True).flush(timeout=t), INSERTING, INSERTING),
    "Writer.close": (lambda w, t: w.legacy().close(timeout=t), INSERTING, INSERTING),
    "TrajectoryWriter.flush": (lambda w, t: w.writer().flush(timeout_ms=whole(t)), INSERTING, INSERTING),
    "TrajectoryWriter.end_episode": (lambda w, t: w.writer().end_episode(timeout_ms=whole(t)), INSERTING, INSERTING),
    "StructuredWriter.flush": (lambda w, t: w.structured().flush(timeout_ms=whole(t)), INSERTING, INSERTING),
    "StructuredWriter.end_episode": (lambda w, t: w.structured().end_episode(timeout_ms=whole(t)), INSERTING, INSERTING),
    "Transitions.add": (lambda w, t: w.transitions().add(np.ones(1, np.float32), timeout=t), INSERTING, None),
    "Transitions.flush": (
        lambda w, t: [transitions := w.transitions(), transitions.add(np.ones(1, np.float32)), transitions.flush(timeout=t)],
        None,
        INSERTING,
    ),
    "Server.wait": (lambda w, t: w.server.wait(timeout=t), "still serves", "still serves"),
    "Server.sync_journal": None,  # needs a journal; tests/python/test_journal.py
}
AT_A_SILENT_SERVER = [
    name for name, call in CALLS.items() if call is not None and name.startswith("Client.") and name != "Client.trajectory_writer"
]


def test_the_tests_in_c_have_every_function_that_takes_a_wait():
    root = pathlib.Path(__file__).resolve().parents[2]
    found = set()
    for header in (root / "include/reverie").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        found |= {m[1] for m in re.finditer(r"RV_API\s[^;()]*?\b(rv_\w+)\(([^;]*)\);", text) if "rv_wait *" in m[2]}
    tested = (root / "tests/c/waiting_calls_test.c").read_text()
    assert {name for name in found if f"{name}(" not in tested} == set()
    assert len(found) > 25


def test_the_table_has_every_public_call_with_a_timeout():
    found = set()
    for kind in (
        reverie.Client,
        reverie.Writer,
        reverie.TrajectoryWriter,
        structured.StructuredWriter,
        reverie.Transitions,
        reverie.Server,
    ):
        for name, member in inspect.getmembers(kind, callable):
            if name.startswith("_"):
                continue
            parameters = inspect.signature(member).parameters
            if any(p in parameters for p in ("timeout", "timeout_ms", "get_signature_timeout_ms")):
                found.add(f"{kind.__name__}.{name}")
    assert found == set(CALLS)


@pytest.fixture(params=["in process", "remote"])
def place(request):
    tables = [
        make_table("few", max_size=2000, rate_limiter=reverie.rate_limiters.MinSize(1005)),
        reverie.Table.queue("full", 1),
    ]
    with reverie.Server(tables, address="127.0.0.1:0") as server:
        client = reverie.Client(server if request.param == "in process" else server.address)
        client.add_batch("few", np.arange(3))
        client.add("full", np.float32(0))
        world = World(client, server)
        yield world, request.param
        world.close()


@pytest.fixture
def silent():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        yield World(reverie.Client(address), None), address


def interrupted(call):
    """The call ends by Ctrl-C."""
    timer = threading.Timer(SOON, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()  # here: it may come before the call
            call()
    finally:
        timer.cancel()
        timer.join()


WAITING = [name for name, call in CALLS.items() if call is not None and any(call[1:])]


@pytest.mark.parametrize("name", WAITING)
def test_a_call_that_its_table_holds_says_at_its_timeout_what_it_waits_for(place, name):
    world, where = place
    call, in_process, remote = CALLS[name]
    reason = in_process if where == "in process" else remote
    if reason is not None:
        says_at_its_deadline(lambda timeout: call(world, timeout), reason, SOON)


# They first ask what the table is like.
ASKING_FIRST = {
    "add": lambda client, timeout: client.add("full", np.float32(0), timeout=timeout),
    "add_batch": lambda client, timeout: client.add_batch("full", np.zeros(3, np.float32), timeout=timeout),
    "sample": lambda client, timeout: next(client.sample("few", timeout=timeout)),
    "sample_batch": lambda client, timeout: client.sample_batch("few", 2, timeout=timeout),
    "batches": lambda client, timeout: next(client.batches("few", 2, timeout=timeout)),
}


@pytest.mark.parametrize("name", ASKING_FIRST)
def test_an_error_says_the_timeout_that_was_given_and_not_what_was_left_of_it(place, name):
    world, where = place
    for timeout in (0.1, 0.25, 0.3):
        client = reverie.Client(world.server if where == "in process" else world.server.address)
        with pytest.raises(DeadlineExceededError, match=f"^timed out after {timeout} s: "):
            ASKING_FIRST[name](client, timeout)


@pytest.mark.parametrize("name", AT_A_SILENT_SERVER)
def test_a_server_that_does_not_answer_costs_the_timeout_that_was_given(silent, name):
    world, _ = silent
    with pytest.raises(DeadlineExceededError, match=r"timed out after 0\.3 s"):
        CALLS[name][0](world, 0.3)


@pytest.mark.parametrize("name", WAITING)
def test_a_call_that_its_table_holds_ends_by_ctrl_c(place, name):
    world, where = place
    call, in_process, remote = CALLS[name]
    if (in_process if where == "in process" else remote) is not None:
        interrupted(lambda: call(world, None))


@pytest.mark.parametrize("name", AT_A_SILENT_SERVER)
def test_a_call_of_a_server_that_does_not_answer_says_so_at_its_timeout(silent, name):
    world, address = silent
    with pytest.raises(DeadlineExceededError, match=address):
        CALLS[name][0](world, SOON)


@pytest.mark.parametrize("name", AT_A_SILENT_SERVER)
def test_a_call_of_a_server_that_does_not_answer_ends_by_ctrl_c(silent, name):
    interrupted(lambda: CALLS[name][0](silent[0], None))


@pytest.fixture
def held(place):
    """A server, listening, that has a call in progress."""
    world, _ = place
    with reverie.Client(world.server.address).batches("few", 1, timeout=None) as batches:
        reader = threading.Thread(target=list, args=(batches,))
        reader.start()
        until(lambda: world.client.server_info(60)["few"].num_waiting_samples)
        yield world.server
        batches.close()
        reader.join()


def drain_interrupted(server, press):
    """The server's stop ends by Ctrl-C, which is pressed once it drains: one that comes before the call stops no server."""

    def press_in_time():
        until(lambda: any(thread.name == "reverie-drain" for thread in threading.enumerate()))
        press()

    pressing = threading.Thread(target=press_in_time)
    try:
        with pytest.raises(KeyboardInterrupt):
            pressing.start()
            server.stop(drain=600)
    finally:
        pressing.join()
    server.wait(timeout=0)


def test_a_stop_that_drains_ends_by_ctrl_c_and_the_server_is_stopped(held):
    drain_interrupted(held, lambda: os.kill(os.getpid(), signal.SIGINT))


def test_a_stop_that_drains_ends_by_ctrl_c_whichever_thread_the_system_tells(held):
    told, over = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: (told.set(), over.wait()))
    other.start()
    told.wait()
    try:
        drain_interrupted(held, lambda: signal.pthread_kill(other.ident, signal.SIGINT))
    finally:
        over.set()
        other.join()


def test_a_second_stop_ends_the_drain_of_the_first(held):
    first = threading.Thread(target=held.stop, args=(600,))
    first.start()
    held.stop()
    first.join()
