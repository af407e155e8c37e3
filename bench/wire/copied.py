"""How many bytes an item is copied in the memory of clients and server, and how many go through loopback: counted, not timed.

A library that is loaded before the C library counts the bytes of memcpy and memmove (bench/c/copied.c), in a run of its own.
"""

from __future__ import annotations

import functools
import mmap
import tempfile
from collections.abc import Callable

import numpy as np

from ..cells import Results
from ..processes import ProcessError
from ..programs import program
from ..turns import Measurement, run_turns
from .board import Board
from .job import PAYLOADS
from .side import Pace, Side, Work

OPERATIONS = ("insert", "iterate", "batch")


class Counter:
    """A file that a process counts in."""

    def __init__(self) -> None:
        self.file = tempfile.NamedTemporaryFile(prefix="reverie-bench-")  # noqa: SIM115 - it lives as long as the counter
        self.file.truncate(mmap.PAGESIZE)
        self.words = np.frombuffer(mmap.mmap(self.file.fileno(), 0), np.uint64)

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": program("copied") + ".so", "BENCH_COPIED_FILE": self.file.name}

    @property
    def bytes(self) -> int:
        return int(self.words[0])


def loopback_bytes() -> int:
    """Sent over the loopback device so far, by everybody."""
    with open("/proc/net/dev") as file:
        for line in file:
            name, _, numbers = line.partition(":")
            if name.strip() == "lo":
                return int(numbers.split()[8])
    return 0


class CountedSide(Side):
    """A side whose processes count what they copy."""

    def __init__(self, store: str, elements: int, board: Board, items: int) -> None:
        self.counters = {"clients": Counter(), "server": Counter()}
        super().__init__(
            store,
            elements,
            board,
            ["uniform"],
            items,
            server_env=self.counters["server"].env,
            client_env=self.counters["clients"].env,
        )

    def count(self, work: Work, pace: Pace) -> tuple[float, dict[str, float]]:
        """Bytes that clients and server copy for an item; each of them and loopback's beside it."""

        def now() -> dict[str, int]:
            return {**{name: counter.bytes for name, counter in self.counters.items()}, "loopback": loopback_bytes()}

        seen: list[dict[str, int]] = []
        rate, details = self.measure(work, pace, at_edges=lambda: seen.append(now()))
        items = rate * details["seconds"]
        each = {name: (seen[1][name] - seen[0][name]) / items for name in seen[0]}
        return each["clients"] + each["server"], {f"{name}_bytes": value for name, value in each.items()}


def run(
    results: Results,
    payload: str,
    stores: tuple[str, ...],
    wanted: tuple[str, ...],
    pace: Pace,
    board: Board,
    say: Callable[[str], None],
) -> None:
    """Adds the cells of that payload to `results`."""
    for store in stores:
        rows = {
            operation: {"what": "copied", "payload": payload, "operation": operation, "store": store}
            for operation in OPERATIONS
            if operation in wanted
        }
        try:
            side = CountedSide(store, PAYLOADS[payload], board, 1000)
        except ProcessError as error:
            for row in rows.values():
                results.cell(row, "bytes an item", "lower").failure = str(error)
            say(f"FAILED: bytes copied, {payload}: {store}: {error}")
            continue
        try:
            measurements = [
                Measurement(results.cell(row, "bytes an item", "lower"), functools.partial(side.count, Work(operation, 1), pace))
                for operation, row in rows.items()
            ]
            run_turns(measurements, 1, say)
        finally:
            side.stop()
