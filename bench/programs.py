"""Where the programs are that the benchmark runs: its own, in C, and the virtual environments of the peers."""

from __future__ import annotations

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("RV_BENCH_BUILD", str(ROOT / "build/release")))
REVERB_PYTHON = os.environ.get("RV_PEER_PYTHON", str(ROOT / ".venv-reverb/bin/python"))
PEERS_PYTHON = os.environ.get("RV_PEERS_PYTHON", str(ROOT / ".venv-peers/bin/python"))


def program(name: str) -> str:
    """The path of bench/c/NAME.c's program."""
    return str(BUILD / "bench" / f"bench-{name}")
