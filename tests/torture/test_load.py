"""A load's clock and its ledger: a call is late by what it waited itself, and what was written half was not said."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from . import status
from .ledger import CONFIRMED, SENT, Ledger, Tail
from .starved import Starved

ROOT = pathlib.Path(__file__).resolve().parents[2]
STOPS, STOPPED = 4, 0.5  # so many times for so many seconds

CHILD = """
import ctypes, pathlib, signal, sys
from tests.torture.loads.load import Load, Place

load = Load(Place(pathlib.Path(sys.argv[1])), "child", lambda: None, 1, 1)
stop = getattr(ctypes.PyDLL(None), "raise")  # with the interpreter's lock: when it goes on the call ends before any other thread runs
for _ in range(int(sys.argv[2])):
    load.call("stop", stop, signal.SIGSTOP)
"""


def test_the_time_in_which_a_process_was_stopped_does_not_make_its_call_late(tmp_path: pathlib.Path) -> None:
    for name in ("streams", "status"):
        (tmp_path / name).mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), str(STOPS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    ) as child:
        for _ in range(STOPS):
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)
            subprocess.run(["sleep", str(STOPPED)], check=True)
            child.send_signal(signal.SIGCONT)
    assert child.returncode == 0
    found = status.look(tmp_path / "status" / "child")
    assert found is not None
    assert found[status.CALLS] == STOPS
    assert found[status.LONGEST] < STOPPED / 2


def test_only_what_lies_between_two_moments_counts_as_starved() -> None:
    starved = Starved()
    starved._times = [(1.0, 2.0), (5.0, 7.0)]
    for begin, end, seconds in ((0.0, 9.0, 3.0), (1.5, 6.0, 1.5), (2.0, 5.0, 0.0), (5.5, 6.5, 1.0), (7.0, 8.0, 0.0)):
        assert starved.between(begin, end) == seconds


def test_a_line_that_a_kill_cut_short_does_not_spoil_what_a_successor_writes(tmp_path: pathlib.Path) -> None:
    first = Ledger(tmp_path, 1, "keep")
    since = first.sent(1, 10)
    os.write(first.file, b"C 17.5 1 1")
    Ledger(tmp_path, 1, "keep").confirmed(1, 10, since)
    entries = list(Tail(tmp_path / "1.keep").entries())
    assert [(entry.kind, entry.low, entry.high) for entry in entries] == [(SENT, 1, 10), (CONFIRMED, 1, 10)]
