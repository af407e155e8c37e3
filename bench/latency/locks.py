"""How long a table's lock is held: a server built to measure it (src/base/lock_times.h), under the load of C clients."""

from __future__ import annotations

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
from ..wire.side import Pace, Side, Work
from .histogram import PERCENTILES, percentiles

PROGRAM = pathlib.Path(os.environ.get("RV_LOCKS_BUILD", str(ROOT / "build/locks"))) / "tools/reverie-server"
COUNTERS = 64 * 16
TABLES = ("uniform", "prioritized")
LOADS = (
    Work("insert", 32, "c"),
    Work("insert", 32, "c", sampler="prioritized"),
    Work("batch", 32, "c"),
    Work("batch", 32, "c", sampler="prioritized"),
    Work("both", 32, "c"),
    Work("both", 32, "c", sampler="prioritized"),
)


def nanoseconds(counter: int) -> int:
    """The middle of what the counter counts."""
    row, part = divmod(counter, 16)
    if row == 0:
        return part
    return ((16 + part) << (row - 1)) + ((1 << (row - 1)) >> 1)


class MeasuredServer(Side):
    """A side whose server measures its locks."""

    def __init__(self, elements: int, items: int, board: Board) -> None:
        self.store, self.elements, self.board, self.client_env = "reverie", elements, board, None
        self.clients = {"python": [], "c": []}
        self.folder = tempfile.TemporaryDirectory(prefix="reverie-bench-")
        self.socket = f"{self.folder.name}/s"
        path = f"{self.folder.name}/locks"
        with open(path, "w+b") as file:
            file.truncate(COUNTERS * 8)
            self.counters = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint64)
        fields = {"uniform": "uniform", "prioritized": "prioritized:0.6"}
        words = [word for name in TABLES for word in ("--table", f"name={name},sampler={fields[name]},max_size={items}")]
        command = ["setpriv", "--pdeathsig", "KILL", str(PROGRAM), "--listen", f"unix:{self.socket}", *words]
        self.server = Process(*command, env={"RV_MEASURE_LOCKS_FILE": path})
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

    def holds(self, work: Work, pace: Pace) -> dict[str, float]:
        """Microseconds of processor time at each percentile of the holds under that load."""
        self.counters[:] = 0
        self.measure(work, pace)
        counts = self.counters.copy()
        if not counts.any():
            raise ProcessError(f"{PROGRAM} was built without RV_MEASURE_LOCKS")
        found = percentiles((nanoseconds(i), int(counts[i])) for i in np.flatnonzero(counts))
        return {**found, "holds": float(counts.sum())}

    def stop(self, patience: float = 10) -> None:
        self.drop_clients()
        self.server.process.terminate()
        super().stop(patience)


def run(results: Results, items: int, rounds: int, pace: Pace, say: Callable[[str], None]) -> None:
    """Adds the cells to `results`."""
    board = Board(64)
    try:
        side = MeasuredServer(100, items, board)
    except ProcessError as error:
        board.close()
        results.notes.append(f"locks were not measured: {error}")
        return
    try:
        for name in TABLES:
            say(f"filling {name} for the locks")
            side.measure(Work("insert", 4, "c", "unix", name), Pace(0.5, 0.1, 30.0, items // 4, 10.0))
        measurements = []
        for work in LOADS:
            load = Work(work.operation, work.clients, "c", "unix", work.sampler)

            def measure(load: Work, row: dict[str, str]) -> tuple[float, dict[str, float]]:
                found = side.holds(load, pace)
                for name in PERCENTILES:
                    if name != "p99.9":
                        results.cell({**row, "percentile": name}, "us", "lower").add(found[name])
                return found["p99.9"], {"holds": found["holds"]}

            row = {
                "what": "lock",
                "operation": work.operation,
                "sampler": work.sampler,
                "clients": str(work.clients),
                "store": "reverie",
            }
            cell = results.cell({**row, "percentile": "p99.9"}, "us", "lower")
            measurements.append(Measurement(cell, functools.partial(measure, load, row)))
        run_turns(measurements, rounds, say)
    finally:
        side.stop()
        board.close()
