"""Runs the latency benchmark: single inserts and samples on a schedule at a part of the peak, Reverie and dm-reverb in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Protocol

import numpy as np

from .. import limits
from ..cells import Cell, Results
from ..processes import Process, ProcessError
from ..programs import program
from ..turns import Measurement, run_turns
from ..wire.board import Board
from ..wire.job import PAYLOADS
from ..wire.run import note_versions
from ..wire.side import MODULE, PYTHON, Pace, Side
from . import locks
from .histogram import PERCENTILES, percentiles

# Inserts have a table of their own: a row that is added and an item of one step look different when they are sampled.
TABLES = {"insert": "inserted", "sample": "uniform", "batch": "uniform"}
HEADLINE = "p50"  # the cell that the turn fills; the other percentiles go beside it


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked for on the command line."""

    payloads: tuple[str, ...] = ("400B", "40kB")
    stores: tuple[str, ...] = ("reverie", "dm-reverb")
    operations: tuple[str, ...] = ("insert", "sample", "batch", "lock")
    languages: tuple[str, ...] = ("python", "c")
    clients: tuple[int, ...] = (1, 8)
    loads: tuple[int, ...] = (10, 50, 90)  # per cent of the peak
    seconds: float = 3.0
    rounds: int = 3
    lock_items: int = 1_000_000
    lock_pace: Pace = dataclasses.field(default_factory=lambda: Pace(3.0, 0.5, 10.0, 8, 8.0))


def quick() -> Options:
    return Options(
        payloads=("400B",),
        clients=(2,),
        loads=(50,),
        seconds=0.5,
        rounds=1,
        lock_items=100_000,
        lock_pace=Pace(0.5, 0.1, 2.0, 2, 4.0),
    )


class Serving(Protocol):
    """Whose server is called."""

    store: str
    elements: int
    port: int


class Caller:
    """A process of clients that call on a schedule."""

    def __init__(self, side: Serving, language: str, folder: str, tables: dict[str, str] = TABLES) -> None:
        self.side, self.tables = side, tables
        self.path = f"{folder}/{side.store}-{language}"
        if language == "c":
            self.process = Process(program("latency"))
        else:
            script = str(pathlib.Path(__file__).with_name("client.py"))
            self.process = Process(PYTHON[side.store], script, MODULE[side.store])

    def call(self, operation: str, clients: int, rate: float, seconds: float) -> tuple[float, np.ndarray]:
        """Operations a second, and [n, 2] nanoseconds from the intended and from the actual start."""
        address = f"127.0.0.1:{self.side.port}"
        self.process.send(
            f"{address} {operation} {self.tables[operation]} {self.side.elements} {clients} {rate} {seconds} {self.path}"
        )
        answer = self.process.receive(60 + 3 * seconds)
        return answer["count"] / answer["seconds"], np.fromfile(self.path, np.int64).reshape(-1, 2)


class Schedule:
    """One store's operation by so many clients: its peak, measured once a turn, and the loads that are parts of it."""

    def __init__(self, caller: Caller, operation: str, clients: int, results: Results, row: dict[str, str]) -> None:
        self.caller, self.operation, self.clients, self.results, self.row = caller, operation, clients, results, row
        self.peak = 0.0

    def measure_peak(self, seconds: float) -> float:
        self.peak, _ = self.caller.call(self.operation, self.clients, 0, seconds)
        return self.peak

    def measure_load(self, load: int, seconds: float) -> tuple[float, dict[str, float]]:
        """The median from the intended start; the other percentiles fill their own cells."""
        if self.peak == 0:
            raise ProcessError("the peak is not known")
        rate, trips = self.caller.call(self.operation, self.clients, self.peak * load / 100, seconds)
        values, counts = np.unique(trips[:, 0], return_counts=True)
        found = percentiles(zip(values.tolist(), counts.tolist(), strict=True))
        for name in PERCENTILES:
            if name != HEADLINE:
                self.cell(load, name).add(found[name])
        served = np.percentile(trips[:, 1], [50, 99]) / 1e3
        late = np.percentile(trips[:, 0] - trips[:, 1], [50, 99]) / 1e3
        return found[HEADLINE], {
            "rate": rate,
            "count": float(len(trips)),
            "from_actual_start_p50_us": float(served[0]),
            "from_actual_start_p99_us": float(served[1]),
            "started_late_p50_us": float(late[0]),
            "started_late_p99_us": float(late[1]),
        }

    def cell(self, load: int, percentile: str) -> Cell:
        return self.results.cell({**self.row, "load": f"{load} %", "percentile": percentile}, "us", "lower")


def _operations(store: str, language: str, wanted: tuple[str, ...]) -> list[str]:
    there = ("insert", "sample", "batch") if (store, language) == ("reverie", "python") else ("insert", "sample")
    return [operation for operation in there if operation in wanted]


def _payload(results: Results, payload: str, options: Options, board: Board, say: Callable[[str], None]) -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="reverie-bench-"))
        measurements: list[Measurement] = []
        for store in options.stores:
            say(f"{payload}: starting and filling {store}")
            try:
                side = Side(store, PAYLOADS[payload], board, sorted(set(TABLES.values())))
            except ProcessError as error:
                results.notes.append(f"{payload}: {store} is left out: {error}")
                say(f"FAILED: {store}: {error}")
                continue
            stack.callback(side.stop)
            for language in options.languages:
                if language == "c" and store != "reverie":
                    continue
                caller = Caller(side, language, folder)
                stack.callback(caller.process.stop, 2)
                for operation in _operations(store, language, options.operations):
                    for clients in options.clients:
                        row = {
                            "what": "round trip",
                            "payload": payload,
                            "operation": operation,
                            "clients": str(clients),
                            "language": language,
                            "store": store,
                        }
                        schedule = Schedule(caller, operation, clients, results, row)
                        peak = results.cell({**row, "load": "peak"}, "operations/s", "higher")
                        measurements.append(
                            Measurement(peak, functools.partial(schedule.measure_peak, max(0.3, options.seconds / 4)))
                        )
                        for load in options.loads:
                            cell = schedule.cell(load, HEADLINE)
                            measurements.append(
                                Measurement(cell, functools.partial(schedule.measure_load, load, options.seconds))
                            )
            for manner in ("hot", "idle"):
                cell = results.cell({"what": "machine", "operation": f"send/recv, {manner}", "store": "machine"}, "us", "")
                measure = functools.partial(limits.round_trip, "tcp", manner, min(1.0, options.seconds))
                measurements.append(Measurement(cell, measure))
        run_turns(measurements, options.rounds, say)


def run(results: Results, options: Options, say: Callable[[str], None]) -> None:
    """Adds the cells to `results` as they are measured."""
    note_versions(results, options.stores)
    if set(options.operations) - {"lock"}:
        board = Board(64)
        try:
            for payload in options.payloads:
                _payload(results, payload, options, board, say)
        finally:
            board.close()
    if "lock" in options.operations and "reverie" in options.stores and "c" in options.languages:
        locks.run(results, options.lock_items, options.rounds, options.lock_pace, say)
