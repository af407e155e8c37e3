"""What this machine can do at all: plain send and recv over loopback, a round trip, and memcpy (bench/c/limits.c)."""

from __future__ import annotations

from .processes import ask
from .programs import program


def loopback(transport: str, io_bytes: int, seconds: float) -> float:
    """MB/s from one process to another over ``tcp`` or ``unix`` with sends and receives of `io_bytes` bytes."""
    return ask(program("limits"), "loopback", transport, str(io_bytes), str(seconds))["MBps"]


def round_trip(transport: str, manner: str, seconds: float) -> tuple[float, dict[str, float]]:
    """Microseconds of a round trip, ``hot`` (one after another) or ``idle`` (a millisecond apart): the median; p99 beside it."""
    answer = ask(program("limits"), "pingpong", transport, manner, str(seconds))
    return answer["p50_us"], {"p99_us": answer["p99_us"]}


def memory_copy(seconds: float) -> float:
    """MB/s that one core copies 64 MiB with."""
    return ask(program("limits"), "memcpy", str(seconds))["MBps"]
