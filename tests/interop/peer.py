"""Runs scripts in the peer's virtual environment (dm-reverb's published wheel), which tools/dev/peer.sh makes."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import textwrap
from typing import Self

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("RV_PEER_PYTHON", str(ROOT / ".venv-reverb/bin/python"))

_PRELUDE = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
import numpy as np
import reverb

def answer(value):
    print(json.dumps(value), file=answers)
"""


class PeerCrashError(AssertionError):
    """The peer's process ended by a segmentation fault."""


class Peer:
    """A script in the peer's interpreter: it calls ``answer(value)``, and may read lines from standard input."""

    def __init__(self, script: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [PYTHON, "-c", _PRELUDE + textwrap.dedent(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def receive(self) -> object:
        """The next answered value."""
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            kind = PeerCrashError if status == -signal.SIGSEGV else AssertionError
            raise kind(f"the peer ended with {status}:\n{self.process.stderr.read()[-3000:]}")
        return json.loads(line)

    def tell(self, line: str) -> None:
        """A line for the script's standard input."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


def run(script: str, *arguments: str) -> object:
    """Runs a script to its first answer and ends it."""
    with Peer(script, *arguments) as peer:
        return peer.receive()
