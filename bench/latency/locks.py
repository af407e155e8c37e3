"""How long a table's lock is held, in programs built to measure it (src/base/lock_times.h): a server under the load of C clients, and a
table in process.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import pathlib
import tempfile
import time
from collections.abc import Callable

import numpy as np

from ..cells import Results
from ..processes import Process, ProcessError
from ..programs import ROOT
from ..turns import Measurement, run_turns
from ..wire.board import Board
from ..wire.side import FILL_TIMEOUT, Pace, Side, Work
from .histogram import PERCENTILES, percentiles

BUILD = pathlib.Path(os.environ.get("RV_LOCKS_BUILD", str(ROOT / "build/locks")))
PROGRAM = BUILD / "tools/reverie-server"
LOCAL_PROGRAM = BUILD / "bench/bench-local"
COUNTERS = 64 * 16
LONG = 20_000  # nanoseconds
HEADLINE = "p99.9"
TABLES = ("uniform", "prioritized")
LOADS = (
    Work("insert", 32, "c"),
    Work("insert", 32, "c", sampler="prioritized"),
    Work("batch", 32, "c"),
    Work("batch", 32, "c", sampler="prioritized"),
    Work("both", 32, "c"),
    Work("both", 32, "c", sampler="prioritized"),
)

IN_PROCESS = (  # operations of bench-local, with 128 transitions added and 256 sampled or updated at a time
    ("add", "uniform"),
    ("add_batch", "uniform"),
    ("sample", "uniform"),
    ("prioritized_sample", "prioritized"),
    ("update_priorities", "prioritized"),
)


def nanoseconds(counter: int) -> int:
    """The middle of what the counter counts."""
    row, part = divmod(counter, 16)
    if row == 0:
        return part
    return ((16 + part) << (row - 1)) + ((1 << (row - 1)) >> 1)


class Counters:
    """The file that a program counts in: how long its holds took, and arithmetic that was meant to take as long."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "w+b") as file:
            file.truncate(2 * COUNTERS * 8)
            self.counts = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint64)

    def clear(self) -> None:
        self.counts[:] = 0

    def found(self) -> tuple[dict[str, float], dict[str, float]]:
        """Microseconds of processor time at each percentile of the holds, and what is noted beside them."""
        holds, spans = self.counts.copy().reshape(2, COUNTERS)
        if not spans.any():
            raise ProcessError(f"{BUILD} was built without RV_MEASURE_LOCKS")
        times = np.array([nanoseconds(i) for i in range(COUNTERS)])
        return self._percentiles(holds), {
            "holds": float(holds.sum()),
            "long_percent": 100 * float(holds[times > LONG].sum() / holds.sum()),
            "arithmetic_long_percent": 100 * float(spans[times > LONG].sum() / spans.sum()),
            "arithmetic_p99.9_us": self._percentiles(spans)["p99.9"],
        }

    @staticmethod
    def _percentiles(counts: np.ndarray) -> dict[str, float]:
        return percentiles((nanoseconds(i), int(counts[i])) for i in np.flatnonzero(counts))


class MeasuredServer(Side):
    """A side whose server measures its locks."""

    def __init__(self, elements: int, items: int, board: Board) -> None:
        self.store, self.elements, self.board, self.client_env = "reverie", elements, board, None
        self.clients = {"python": [], "c": []}
        self.folder = tempfile.TemporaryDirectory(prefix="reverie-bench-")
        self.socket = f"{self.folder.name}/s"
        self.counters = Counters(f"{self.folder.name}/locks")
        fields = {"uniform": "uniform", "prioritized": "prioritized:0.6"}
        words = [word for name in TABLES for word in ("--table", f"name={name},sampler={fields[name]},max_size={items}")]
        command = ["setpriv", "--pdeathsig", "KILL", str(PROGRAM), "--listen", f"unix:{self.socket}", *words]
        self.server = Process(*command, env={"RV_MEASURE_LOCKS_FILE": self.counters.path})
        try:
            self.wait_for_socket()
        except BaseException:
            self.stop(0)
            raise

    def wait_for_socket(self) -> None:
        deadline = time.monotonic() + 20
        while not os.path.exists(self.socket):
            if self.server.process.poll() is not None or time.monotonic() > deadline:
                raise self.server.failed("does not listen")
            time.sleep(0.01)

    def holds(self, work: Work, pace: Pace) -> tuple[dict[str, float], dict[str, float]]:
        """The holds under that load."""
        self.counters.clear()
        self.measure(work, pace)
        return self.counters.found()

    def stop(self, patience: float = 10) -> None:
        self.drop_clients()
        self.server.process.terminate()
        super().stop(patience)


class MeasuredTable:
    """A table of small transitions in a process of its own that measures its locks."""

    def __init__(self, items: int) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="reverie-bench-")
        self.counters = Counters(f"{self.folder.name}/locks")
        words = ("reverie", "transition", "16", str(items), "256", "1", "1")
        self.process = Process(str(LOCAL_PROGRAM), *words, env={"RV_MEASURE_LOCKS_FILE": self.counters.path})
        try:
            self.process.receive(FILL_TIMEOUT)
        except BaseException:
            self.stop()
            raise

    def holds(self, operation: str, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
        """The holds of that operation, called again and again by one thread."""
        self.counters.clear()
        self.process.send(f"{operation} {seconds}")
        self.process.receive(FILL_TIMEOUT)
        return self.counters.found()

    def stop(self) -> None:
        self.process.stop(2)
        self.folder.cleanup()


def _measurement(
    results: Results, row: dict[str, str], holds: Callable[[], tuple[dict[str, float], dict[str, float]]]
) -> Measurement:
    row = {"what": "lock", **row, "store": "reverie"}
    cells = {name: results.cell({**row, "percentile": name}, "us", "lower") for name in PERCENTILES}

    def measure() -> tuple[float, dict[str, float]]:
        found, details = holds()
        for name in PERCENTILES:
            if name != HEADLINE:
                cells[name].add(found[name])
        return found[HEADLINE], details

    return Measurement(cells[HEADLINE], measure)


def _of_server(results: Results, side: MeasuredServer, items: int, pace: Pace, say: Callable[[str], None]) -> list[Measurement]:
    for name in TABLES:
        say(f"filling {name} for the locks")
        side.measure(Work("insert", 4, "c", "unix", name), Pace(0.5, 0.1, 30.0, items // 4, 10.0))
    return [
        _measurement(
            results,
            {"operation": work.operation, "sampler": work.sampler, "clients": f"{work.clients} C clients"},
            functools.partial(side.holds, Work(work.operation, work.clients, "c", "unix", work.sampler), pace),
        )
        for work in LOADS
    ]


def _in_process(results: Results, table: MeasuredTable, pace: Pace) -> list[Measurement]:
    return [
        _measurement(
            results,
            {"operation": operation, "sampler": sampler, "clients": "in process"},
            functools.partial(table.holds, operation, pace.seconds),
        )
        for operation, sampler in IN_PROCESS
    ]


def run(results: Results, items: int, rounds: int, pace: Pace, say: Callable[[str], None]) -> None:
    """Adds the cells to `results`."""
    with contextlib.ExitStack() as stack:
        board = Board(64)
        stack.callback(board.close)
        try:
            side = MeasuredServer(100, items, board)
            stack.callback(side.stop)
            table = MeasuredTable(items)
            stack.callback(table.stop)
        except ProcessError as error:
            results.notes.append(f"locks were not measured: {error}")
            return
        run_turns([*_of_server(results, side, items, pace, say), *_in_process(results, table, pace)], rounds, say)
