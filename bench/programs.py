"""Where the programs are that the benchmark runs: its own, in C, and the virtual environments of the peers."""

from __future__ import annotations

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("RV_BENCH_BUILD", str(ROOT / "build/release")))
REVERB_PYTHON = os.environ.get("RV_PEER_PYTHON", str(ROOT / ".venv-reverb/bin/python"))
PEERS_PYTHON = os.environ.get("RV_PEERS_PYTHON", str(ROOT / ".venv-peers/bin/python"))


def has_tensorflow() -> bool:
    """Is there TensorFlow in dm-reverb's virtual environment, which programs with datasets run in, whichever store they use?"""
    looks = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"
    try:
        return subprocess.run([REVERB_PYTHON, "-c", looks], capture_output=True).returncode == 0
    except OSError:
        return False


def program(name: str) -> str:
    """The path of bench/c/NAME.c's program."""
    return str(BUILD / "bench" / f"bench-{name}")
