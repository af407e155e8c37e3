"""A load's clock: a call is late by what it waited itself, not by what its process was kept from running."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from . import status

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
