"""Runs programs in this interpreter's virtual environment, with Reverie or with dm-reverb as their reverb."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DM_REVERB = str(ROOT / ".venv-consumers/dm-reverb")  # not importable but by what compares


def _run(arguments: list[str], path: list[str]) -> subprocess.CompletedProcess[str]:
    paths = [*path, str(HERE), str(HERE / "stand_ins"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=540, env=environment, check=False)


def with_reverie(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A script, or with -m a module, in which reverb is Reverie; it must end well."""
    done = _run(["-m", "reverie.as_reverb", *arguments], [])
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done


def their_own_test(module: str) -> None:
    """Tests that a library brings along: all of them pass with Reverie."""
    done = with_reverie("-m", module)
    assert all_passed(done.stderr), done.stderr[-3000:]


def all_passed(said: str) -> bool:
    """Whether unittest said so, of tests more than half of which it ran: those that it skips are in its count, and pass, too."""
    found = re.search(r"^Ran (\d+) tests? in .*\n\nOK(?: \((.*)\))?$", said, re.MULTILINE)
    if found is None:
        return False
    skipped = re.search(r"\bskipped=(\d+)", found[2] or "")
    return int(found[1]) > 2 * int(skipped[1] if skipped else 0)


def record_with_reverie(script: str) -> Any:
    """The record that a script of this folder prints with Reverie."""
    return json.loads(with_reverie(str(HERE / script)).stdout)


def record_with_dm_reverb(script: str, *arguments: str) -> Any:
    """The record that a script of this folder prints under dm-reverb."""
    for _ in range(7):
        done = _run([str(HERE / script), *arguments], [DM_REVERB])
        if done.returncode != -signal.SIGSEGV:  # dm-reverb 0.14's structured writer crashes in partial steps, now and then
            break
    assert done.returncode == 0, f"{script} ended with {done.returncode} under dm-reverb:\n{done.stderr[-6000:]}"
    return json.loads(done.stdout)


def recorded(library: str) -> Any:
    return json.loads((HERE / "recorded" / f"{library}.json").read_text())


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Records, compared scenario by scenario and call by call."""
    assert list(ours) == list(theirs)
    for name, scenario in theirs.items():
        for i, (our_call, their_call) in enumerate(zip(ours[name]["calls"], scenario["calls"], strict=False)):
            assert our_call == their_call, f"{name}: call {i}"
        assert ours[name] == scenario, name
