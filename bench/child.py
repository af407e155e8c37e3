"""For processes that the benchmark starts: they end with it, whatever ends it, and first when memory runs out; and they answer it in
JSON lines. Peers import it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import TextIO

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def answers() -> TextIO:
    """Where answers go: standard output, which from now on is theirs alone. What libraries print goes to standard error."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return stream


def answer_orders(run: Callable[[list[str]], dict]) -> None:
    """Answers each line of standard input with what its words make `run` return, or the error that they raise; then ends the process."""
    stream = answers()
    for line in sys.stdin:
        try:
            answer = run(line.split())
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=stream)
    os._exit(0)
