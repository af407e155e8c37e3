"""Client.close: what ends with it, at once, and what is said afterwards, whichever way it came to its server."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie import structured
from reverie.errors import CancelledError, FailedPreconditionError
from waiting import LONG, Call, until

ROW = {"x": np.float32(1)}
CLOSED = "^the client of .* was closed; make a new one$"
CONFIG = structured.create_config(structured.pattern_from_transform({"x": None}, lambda step: {"x": step["x"][-1]}), "t")

CALLS: dict[str, Callable[[reverie.Client], Any]] = {
    "add": lambda client: client.add("t", ROW),
    "add_batch": lambda client: client.add_batch("t", {"x": np.zeros(3, np.float32)}),
    "insert": lambda client: client.insert([np.float32(1)], {"t": 1.0}),
    "writer": lambda client: client.writer(1),
    "trajectory_writer": lambda client: client.trajectory_writer(1),
    "structured_writer": lambda client: client.structured_writer([CONFIG]),
    "transitions": lambda client: client.transitions("t", 1).add({"x": np.zeros(1, np.float32)}),
    "sample": lambda client: next(client.sample("t")),
    "sample_batch": lambda client: client.sample_batch("t", 1),
    "batches": lambda client: next(client.batches("t", 1)),
    "update_priorities": lambda client: client.update_priorities("t", [1], [1.0]),
    "mutate_priorities": lambda client: client.mutate_priorities("t", {1: 1.0}),
    "get": lambda client: client.get("t", 1),
    "keys": lambda client: client.keys("t"),
    "items": lambda client: next(client.items("t")),
    "reset": lambda client: client.reset("t"),
    "server_info": lambda client: client.server_info(),
    "memory_info": lambda client: client.memory_info(),
    "journal_info": lambda client: client.journal_info(),
    "set_bounds": lambda client: client.set_bounds("t", max_size=5),
    "set_rate_limiter": lambda client: client.set_rate_limiter("t", reverie.rate_limiters.MinSize(1)),
    "set_memory_limit": lambda client: client.set_memory_limit(0),
    "checkpoint": lambda client: client.checkpoint(),
    "with": lambda client: client.__enter__(),
}


def test_every_call_after_close_says_that_it_was_closed(connect):
    client = connect()
    client.add("t", ROW)
    client.insert([np.float32(1)], {"t": 1.0})
    assert len(client.sample_batch("t", 2, unequal="list")) == 2
    client.close()
    for name, call in CALLS.items():
        with pytest.raises(FailedPreconditionError, match=CLOSED):
            pytest.fail(f"{name} returned {call(client)!r}")
    client.close()


def test_a_client_that_was_never_used_closes(connect):
    client = connect()
    client.close()
    client.close()
    with pytest.raises(FailedPreconditionError, match=CLOSED):
        client.server_info()


def test_leaving_the_block_closes_it(connect):
    with connect() as client:
        client.add("t", ROW)
    with pytest.raises(FailedPreconditionError, match=CLOSED):
        client.add("t", ROW)


def test_others_of_the_same_server_go_on(team):
    first, second = team(2)
    first.add("t", ROW)
    first.close()
    second.add("t", ROW)
    assert second.server_info()["t"].current_size == 2


WAITS: dict[str, Callable[[reverie.Client], Any]] = {
    "sample_batch": lambda client: client.sample_batch("empty", 1, timeout=None),
    "sample": lambda client: next(client.sample("empty")),
    "batches": lambda client: next(client.batches("empty", 1, timeout=None)),
    "add": lambda client: client.add("full", ROW, timeout=None),
    "add_batch": lambda client: client.add_batch("full", {"x": np.zeros(3, np.float32)}, timeout=None),
    "insert": lambda client: client.insert([np.float32(1)], {"full": 1.0}),
}


def tables() -> list[reverie.Table]:
    """One that nothing can be sampled from, and one that takes nothing more."""
    return [make_table("empty"), reverie.Table.queue("full", 1)]


def ends_by(wait: Callable[[], Any], are_waiting: Callable[[], bool], close: Callable[[], None]) -> BaseException:
    """What a thread that waits is told when somebody closes what it waits with."""
    call = Call(wait)
    until(are_waiting)
    close()
    return call.join()


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_call_that_waits_in_another_thread_is_ended(team, wait):
    client, other = team(2, *tables())
    other.add("full", ROW)

    def are_waiting() -> bool:
        return any(table.waiting for table in other.server_info().values())

    error = ends_by(lambda: wait(client), are_waiting, client.close)
    assert isinstance(error, CancelledError), error
    assert "the client was closed" in str(error)
    until(lambda: not are_waiting())


def trajectory(client: reverie.Client, table: str) -> Any:
    writer = client.trajectory_writer(1)
    writer.append(ROW)
    writer.create_item(table, 1.0, {"x": writer.history["x"][-1:]})
    return writer


def test_a_writer_that_waits_is_ended_and_tells_what_it_gave_up(team, caplog):
    client, other = team(2, *tables())
    other.add("full", ROW)
    writer = trajectory(client, "full")
    error = ends_by(writer.flush, lambda: bool(other.server_info()["full"].waiting), client.close)
    assert isinstance(error, (CancelledError, FailedPreconditionError)), error  # in process its item waits before it does
    assert "was closed" in str(error)
    for call in (lambda: writer.append(ROW), writer.flush, writer.end_episode):
        with pytest.raises(FailedPreconditionError, match=CLOSED):
            call()
    writer.close()
    until(lambda: "with 1 of its items unconfirmed, which are given up" in caplog.text)


def test_what_was_confirmed_before_is_there_and_nothing_is_told(team, caplog):
    client, other = team(2)
    with client:
        writer = trajectory(client, "t")
        writer.flush()
    writer.close()
    assert other.server_info()["t"].current_size == 1
    assert caplog.text == ""


def filled(client: reverie.Client, kind: str) -> Any:
    """A writer of this kind with a step of which there is an item, if it makes those itself."""
    if kind == "transitions":
        writer: Any = client.transitions("t", 1)
        writer.add({"x": np.zeros(1, np.float32)})
        return writer
    if kind == "trajectory":
        return trajectory(client, "t")
    writer = client.writer(1) if kind == "writer" else client.structured_writer([CONFIG])
    writer.append(ROW)
    if kind == "writer":
        writer.create_item("t", 1, 1.0)
    return writer


KINDS: dict[str, Callable[[reverie.Client], Any]] = {
    "writer": lambda client: client.writer(1),
    "trajectory": lambda client: client.trajectory_writer(1),
    "structured": lambda client: client.structured_writer([CONFIG]),
    "transitions": lambda client: client.transitions("t", 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_that_has_nothing_unconfirmed_ends_after_its_client_in_silence(team, caplog, kind):
    client, other = team(2)
    unused, closed, left = KINDS[kind](client), filled(client, kind), filled(client, kind)
    for writer in (closed, left):
        writer.flush()
        writer.flush()  # which waits for what the first one of a Writer has sent
    client.close()
    for writer in (unused, left):
        writer.__exit__(None, None, None)
    closed.close()
    assert other.server_info()["t"].current_size == 2
    assert caplog.text == ""


@pytest.mark.parametrize("ends", ["block", "close"])
def test_a_writer_whose_items_went_with_its_client_raises_that(team, ends):
    client, other = team(2, *tables())
    other.add("full", ROW)
    writer = client.writer(1)
    writer.append(ROW)
    writer.create_item("full", 1, 1.0)
    client.close()
    with pytest.raises(FailedPreconditionError, match=CLOSED):
        writer.close() if ends == "close" else writer.__exit__(None, None, None)


def test_a_block_whose_items_went_with_its_client_raises_that(team):
    client, other = team(2, *tables())
    other.add("full", ROW)
    writer = trajectory(client, "full")
    client.close()
    with pytest.raises(FailedPreconditionError, match=CLOSED):
        writer.__exit__(None, None, None)


@pytest.mark.parametrize("error", [None, KeyError("mine")], ids=["end", "error"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_block_whose_items_went_with_its_client_logs_how_many_when_it_ends(kind, error, caplog):
    with reverie.Server([reverie.Table.queue("t", 1)], address="127.0.0.1:0") as server:
        client = reverie.Client(server.address)
        client.add("t", ROW)
        writer = filled(client, kind)
        client.close()
        with pytest.raises(FailedPreconditionError, match=CLOSED) if error is None else contextlib.nullcontext():
            writer.__exit__(None if error is None else type(error), error, None)
    assert re.search(r"a writer was left by \w+.*\b1\b.* items", caplog.text), caplog.text


def test_samplers_and_iterators_say_that_it_was_closed(connect):
    client = connect()
    client.add_batch("t", {"x": np.zeros(10, np.float32)})
    samples = client.sample("t", 1000, emit_timesteps=False)
    batches = client.batches("t", 2)
    next(samples)
    next(batches)
    client.close()
    with pytest.raises(FailedPreconditionError, match=CLOSED):
        next(samples)
    with pytest.raises((FailedPreconditionError, CancelledError), match="was closed"):
        for _ in range(10):  # two were drawn ahead
            next(batches)
    batches.close()


def test_what_was_sampled_stays(connect):
    client = connect()
    client.add_batch("t", {"x": np.full(10, 3, np.float32)})
    batch = client.sample_batch("t", 10, unequal="list", copy=False)
    client.close()
    assert [float(row) for row in batch.data["x"]] == [3.0] * 10


def test_the_connection_is_gone_at_once():
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        client = reverie.Client(server.address)
        client.add("t", ROW)
        descriptors = len(os.listdir("/proc/self/fd"))
        client.close()
        until(lambda: len(os.listdir("/proc/self/fd")) < descriptors)


def test_a_signal_handler_may_close_the_client_whose_call_it_interrupts(connect):
    client = connect(*tables())
    before = signal.signal(signal.SIGALRM, lambda *_: client.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(CancelledError, match="the client was closed"):
            client.sample_batch("empty", 1, timeout=None)
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(FailedPreconditionError, match=CLOSED):
        client.server_info()


def test_a_client_whose_server_is_not_there_closes():
    client = reverie.Client("127.0.0.1:1")
    error = ends_by(client.server_info, lambda: True, client.close)
    assert "was closed" in str(error)


def test_a_server_that_only_the_client_held_stops_with_it():
    client = reverie.Client(reverie.Server([make_table()], address="127.0.0.1:0"))
    other = reverie.Client(client._server.address)
    other.add("t", ROW)
    client.close()
    with pytest.raises(reverie.ReverieError):
        other.add("t", ROW, timeout=0.5)


def test_a_server_and_its_localhost_client_close_alike():
    with reverie.Server([make_table()], address="127.0.0.1:0") as server, server.localhost_client() as client:
        client.add("t", ROW)
    with pytest.raises(FailedPreconditionError, match=CLOSED):
        client.add("t", ROW)


def test_a_copy_of_a_closed_client_is_a_new_one():
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        client = reverie.Client(server.address)
        client.close()
        copy.copy(client).add("t", ROW)


def test_an_object_whose_init_did_not_run_closes():
    class Odd(reverie.Client):
        def __init__(self) -> None:
            pass

    Odd().close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork beside threads
def test_a_forked_child_closes_its_copy_and_the_parents_goes_on(connect):
    client = connect()
    client.add("t", ROW)
    child = os.fork()
    if child == 0:
        try:
            client.close()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.add("t", ROW)


def test_many_threads_close_it_beside_calls(connect):
    client = connect()
    client.add("t", ROW)
    ended = []

    def use() -> None:
        try:
            while True:
                client.add("t", ROW)
                client.sample_batch("t", 2)
                client.insert([np.float32(1)], {"t": 1.0})
        except (FailedPreconditionError, CancelledError) as error:
            ended.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    threads += [threading.Thread(target=client.close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert len(ended) == 4
