"""Calls end by their timeout and by Ctrl-C also while the thread that does a client's I/O is kept from its work."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
HANGS = 60.0  # seconds of a call that hangs

# It lets the thread go only when the call has returned: one that waits for it hangs.
CHILD = """
import contextlib, ctypes, faulthandler, signal, sys
import numpy as np
import reverie
import test_waiting_calls as calls
from conftest import make_table
from reverie.errors import DeadlineExceededError, NotFoundError
from waiting import until

preloaded = ctypes.CDLL(None)
asked, hangs = sys.argv[1], float(sys.argv[2])
KNOWN = {"Client.writer", "Client.trajectory_writer", "Transitions.add"}  # what they ask for the client knows already
signal.signal(signal.SIGINT, signal.default_int_handler)


def leave_something(writer):
    for _ in range(3):
        writer.append([np.float32(1)])
        writer.create_item("full", 1.0, [writer.history[0][-1:]])
    with contextlib.suppress(DeadlineExceededError):
        writer.flush(1, timeout_ms=1)  # who lets one be in flight leaves the sending to the thread


@contextlib.contextmanager
def stuck():
    tables = [
        make_table("few", max_size=2000, rate_limiter=reverie.rate_limiters.MinSize(1005)),
        reverie.Table.queue("full", 1),
    ]
    with reverie.Server(tables, address="127.0.0.1:0") as server:
        world = calls.World(reverie.Client(server.address), server)
        world.client.add_batch("few", np.arange(3))
        world.client.add("full", np.float32(0))
        waker = world.writer()
        preloaded.stuck_loop_hold(1)
        if asked != "guest":  # who waits does the thread's work while that sleeps: not when something was left for it
            until(lambda: leave_something(waker) or preloaded.stuck_loop_num_held())
            leave_something(waker)
        faulthandler.dump_traceback_later(hangs, exit=True)
        try:
            yield world
        finally:
            faulthandler.cancel_dump_traceback_later()
            preloaded.stuck_loop_hold(0)
        world.close()


def ends(call, world):
    if asked == "Ctrl-C":
        calls.interrupted(lambda: call(world, None))
        return True
    try:
        call(world, 0.3)
    except DeadlineExceededError:
        return True
    except NotFoundError:
        assert asked == "guest"  # it was answered: nothing has the key that is asked for
    return False


def walk(call):
    with stuck() as world:
        return ends(call, world)  # its client goes when the thread is free: that waits for it


for name, row in calls.CALLS.items():
    if row is None or (name in KNOWN and asked == "Ctrl-C"):
        continue
    print(name, flush=True)
    assert walk(row[0]) or asked == "guest" or name in KNOWN, f"{name} did not wait"
print("all")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("preloaded") / "stuck_loop.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", path, HERE / "stuck_loop.c", "-ldl"], check=True)
    return path


def run(library: pathlib.Path, asked: str) -> None:
    paths = [str(HERE), str(HERE.parent), *sys.path]
    env = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    child = subprocess.run([sys.executable, "-c", CHILD, asked, str(HANGS)], capture_output=True, text=True, env=env, check=False)
    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout.endswith("all\n")


def test_every_call_ends_at_its_timeout_while_the_thread_of_its_io_is_stuck(library: pathlib.Path) -> None:
    run(library, "timeout")


def test_every_call_ends_by_ctrl_c_while_the_thread_of_its_io_is_stuck(library: pathlib.Path) -> None:
    run(library, "Ctrl-C")


def test_every_call_ends_at_its_timeout_where_it_does_a_stuck_threads_work_meanwhile(library: pathlib.Path) -> None:
    run(library, "guest")
