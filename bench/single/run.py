"""Runs the benchmark of single calls: one client, one call at a time, a pause between two or none, Reverie and dm-reverb in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np

from .. import limits
from ..cells import Results
from ..latency.histogram import PERCENTILES, percentiles
from ..processes import Process, ProcessError
from ..programs import program
from ..turns import Measurement, run_turns
from ..wire.board import Board
from ..wire.job import PAYLOADS
from ..wire.run import note_versions
from ..wire.side import MODULE, PYTHON, Side

# A row that is added and an item of one step look different when they are sampled.
TABLES = {
    "sample_batch": "uniform",
    "sample_batch_ahead": "uniform",
    "sample": "uniform",
    "update_priorities": "prioritized",
    "insert": "inserted",
    "add": "inserted",
    "writer": "inserted",
    "server_info": "uniform",
}
OTHER = "prioritized"  # for who asks two tables by turns
NOT_IN = {("reverie", "c"): ("insert",), ("dm-reverb", "python"): ("sample_batch", "sample_batch_ahead", "add")}
TRANSPORTS = {"reverie": ("tcp", "unix"), "dm-reverb": ("tcp",)}
PAUSES_US = {"idle": 1000, "hot": 0}  # between an answer and the next call, as limits.round_trip has it
HEADLINE = "p50"  # the cell that the turn fills; the other percentiles go beside it


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked for on the command line."""

    payload: str = "400B"
    stores: tuple[str, ...] = ("reverie", "dm-reverb")
    languages: tuple[str, ...] = ("python", "c")
    operations: tuple[str, ...] = tuple(TABLES)
    seconds: float = 2.0
    rounds: int = 3
    items: int = 10_000


def quick() -> Options:
    return Options(seconds=0.2, rounds=1, items=1000)


class Caller:
    """A process with one client."""

    def __init__(self, side: Side, language: str, folder: str) -> None:
        self.side = side
        self.path = f"{folder}/{side.store}-{language}"
        if language == "c":
            self.process = Process(program("single"))
        else:
            script = str(pathlib.Path(__file__).with_name("client.py"))
            self.process = Process(PYTHON[side.store], script, MODULE[side.store])

    def call(self, operation: str, transport: str, pause_us: int, seconds: float) -> tuple[np.ndarray, float]:
        """Nanoseconds of each call, and the client's microseconds of processor time for one and its pause."""
        address = f"unix:{self.side.socket}" if transport == "unix" else f"127.0.0.1:{self.side.port}"
        words = (address, operation, TABLES[operation], OTHER, self.side.elements, pause_us, seconds, self.path)
        self.process.send(" ".join(str(word) for word in words))
        answer = self.process.receive(60 + 3 * seconds)
        return np.fromfile(self.path, np.int64), answer["cpu_us"]


def _call(caller: Caller, row: dict[str, str], seconds: float, results: Results) -> tuple[float, dict[str, float]]:
    """The median; the other percentiles fill their own cells."""
    trips, cpu_us = caller.call(row["operation"], row["transport"], PAUSES_US[row["pace"]], seconds)
    values, counts = np.unique(trips, return_counts=True)
    found = percentiles(zip(values.tolist(), counts.tolist(), strict=True))
    for name in PERCENTILES:
        if name != HEADLINE:
            results.cell({**row, "percentile": name}, "us", "lower").add(found[name])
    return found[HEADLINE], {"count": float(len(trips)), "client_cpu_us": cpu_us}


def _of_store(side: Side, options: Options, folder: str, stack: contextlib.ExitStack, results: Results) -> list[Measurement]:
    measurements = []
    for language in options.languages:
        if language == "c" and side.store != "reverie":
            continue
        caller = Caller(side, language, folder)
        stack.callback(caller.process.stop, 2)
        for operation in options.operations:
            if operation in NOT_IN.get((side.store, language), ()):
                continue
            for transport in TRANSPORTS[side.store]:
                for pace in PAUSES_US:
                    row = {
                        "what": "single call",
                        "payload": options.payload,
                        "operation": operation,
                        "transport": transport,
                        "pace": pace,
                        "language": language,
                        "store": side.store,
                    }
                    cell = results.cell({**row, "percentile": HEADLINE}, "us", "lower")
                    measurements.append(Measurement(cell, functools.partial(_call, caller, row, options.seconds, results)))
    return measurements


def _of_machine(seconds: float, results: Results) -> list[Measurement]:
    measurements = []
    for transport in ("tcp", "unix"):
        for pace in PAUSES_US:
            row = {"what": "machine", "operation": "send/recv", "transport": transport, "pace": pace, "store": "machine"}
            measure = functools.partial(limits.round_trip, transport, pace, min(1.0, seconds))
            measurements.append(Measurement(results.cell(row, "us", ""), measure))
    return measurements


def run(results: Results, options: Options, say: Callable[[str], None]) -> None:
    """Adds the cells to `results` as they are measured."""
    note_versions(results, options.stores)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="reverie-bench-"))
        board = Board(2)
        stack.callback(board.close)
        measurements: list[Measurement] = []
        for store in options.stores:
            say(f"starting and filling {store}")
            try:
                side = Side(store, PAYLOADS[options.payload], board, sorted(set(TABLES.values())), options.items)
            except ProcessError as error:
                results.notes.append(f"{store} is left out: {error}")
                say(f"FAILED: {store}: {error}")
                continue
            stack.callback(side.stop)
            measurements += _of_store(side, options, folder, stack, results)
        run_turns([*measurements, *_of_machine(options.seconds, results)], options.rounds, say)
