"""What this machine can do at all: send and recv over loopback, a round trip, memcpy, and waking (bench/c/limits.c)."""

from __future__ import annotations

import numpy as np

from .processes import ask
from .programs import program


def loopback(transport: str, flow: str, io_bytes: int, seconds: float) -> tuple[float, dict[str, float]]:
    """MB/s from one process to another over ``tcp`` or ``unix`` with sends and receives of `io_bytes` bytes; CPU s/GB beside it.

    `flow` is ``plain`` (one buffer again and again), or ``insert`` or ``sample``: with the copies and the memory that no store
    can spare them (bench/c/loopback.h).
    """
    answer = ask(program("limits"), "loopback", transport, flow, str(io_bytes), str(seconds))
    return answer["MBps"], {"cpu_s_per_gb": answer["cpu_s_per_gb"]}


def round_trip(transport: str, manner: str, seconds: float) -> tuple[float, dict[str, float]]:
    """Microseconds of a round trip, ``hot`` (one after another) or ``idle`` (a millisecond apart): the median; others beside it."""
    answer = ask(program("limits"), "pingpong", transport, manner, str(seconds))
    return answer["p50_us"], {name: answer[name] for name in ("p90_us", "p99_us", "p99.9_us")}


def memory_copy(seconds: float) -> float:
    """MB/s that one core copies 64 MiB with."""
    return ask(program("limits"), "memcpy", str(seconds))["MBps"]


def late_wakeups(rate: float, seconds: float) -> np.ndarray:
    """By how many ns a thread of the highest priority is woken late, on each core `rate` times a second; ProcessError: not allowed."""
    return np.array(ask(program("limits"), "late", str(rate), str(seconds))["late_ns"], np.int64)
