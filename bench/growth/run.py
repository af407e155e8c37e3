"""Runs the growth benchmark: Reverie from C at each number of items beside bare copies of rows, and a bare gather of the same columns
out of plain arrays; memory an item; memory after many inserts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import sys
import tempfile
from collections.abc import Callable

from ..cells import Results
from ..processes import Process, ProcessError, ask
from ..programs import program
from ..turns import Measurement, Value, run_turns
from ..wire.board import Board
from ..wire.side import Side

# name: kind, bytes of an observation, batch, length, period. A sequence begins at every step, so that as many items are as steps.
ROWS = {"transitions": ("transition", 16, 256, 1, 1), "sequences": ("sequence", 16, 32, 32, 1)}
OPERATIONS = {
    "transitions": ("add", "sample", "prioritized_sample", "update_priorities"),
    "sequences": ("add", "sample"),
}
SPILL_ROWS = (1024, 28_224)  # a vector; four frames of 84 x 84
TITLES = {"add": "add 1", "sample": "sample {}", "prioritized_sample": "PER sample {}", "update_priorities": "PER update {}"}


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked for on the command line."""

    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    seconds: float = 0.3
    rounds: int = 3
    creep: tuple[int, int, int] = (1_000_000, 10_000_000, 100_000_000)  # capacity, first look, last look
    wire_items: int = 200_000
    spill_limit: int = 256 << 20


def quick() -> Options:
    return Options((10_000, 1_000_000), 0.05, 1, (100_000, 1_000_000, 10_000_000), 20_000, 32 << 20)


class Table:
    """The C program with a full table of so many items, or bare copies of as many rows."""

    def __init__(self, store: str, rows: str, items: int) -> None:
        kind, obs_bytes, batch, length, period = ROWS[rows]
        words = (store, kind, obs_bytes, items, batch, length, period)
        self.process = Process(program("local"), *(str(word) for word in words))

    def wait(self) -> float:
        """Bytes an item by which memory grew beyond the data."""
        return self.process.receive(900).get("overhead_bytes", 0.0)

    def measure(self, operation: str, seconds: float) -> Value | None:
        self.process.send(f"{operation} {seconds}")
        answer = self.process.receive(60 + 10 * seconds)
        return None if answer["us"] is None else (answer["us"], {"cpu_us": answer["cpu_us"]})


def _times(results: Results, rows: str, items: int, options: Options, say: Callable[[str], None]) -> None:
    with contextlib.ExitStack() as stack:
        tables = {}
        for store in ("reverie", "machine"):
            say(f"{rows}, {items:,} items: filling {store}")
            table = tables[store] = Table(store, rows, items)
            stack.callback(table.process.stop)
            row = {"what": "memory an item", "rows": rows, "items": str(items), "where": "local", "store": "reverie"}
            try:
                overhead = table.wait()
            except ProcessError as error:
                results.cell(row, "bytes above the data", "lower").failure = str(error)
                say(f"FAILED: {rows}, {items} items: {error}")
                return
            if store == "reverie":
                results.cell(row, "bytes above the data", "lower").add(overhead)
        measurements = []
        for operation in OPERATIONS[rows]:
            for store, table in tables.items():
                if store == "machine" and operation not in ("add", "sample"):
                    continue
                title = TITLES[operation].format(ROWS[rows][2])
                row = {"what": "time", "rows": rows, "operation": title, "items": str(items), "store": store}
                cell = results.cell(row, "us", "" if store == "machine" else "lower")
                measurements.append(Measurement(cell, functools.partial(table.measure, operation, options.seconds)))
                if store == "machine" and operation == "sample":
                    cell = results.cell({**row, "store": "gather"}, "us", "")
                    measurements.append(Measurement(cell, functools.partial(table.measure, "gather", options.seconds)))
        run_turns(measurements, options.rounds, say)


def _wire_memory(results: Results, items: int, say: Callable[[str], None]) -> None:
    """Memory of items that came over the wire, each with a chunk of one row."""
    row = {"what": "memory an item", "rows": "one-row chunks", "items": str(items), "where": "wire", "store": "reverie"}
    elements = 4
    board = Board(1)

    def resident(count: int) -> int:
        side = Side("reverie", elements, board, ["uniform"], items=count)
        try:
            return side.server.resident_bytes()
        finally:
            side.stop()

    def measure() -> float:
        few = 1000
        return (resident(items) - resident(few)) / (items - few) - 4 * elements

    try:
        run_turns([Measurement(results.cell(row, "bytes above the data", "lower"), measure)], 1, say)
    finally:
        board.close()


def _creep(results: Results, options: Options, say: Callable[[str], None]) -> None:
    capacity, first, last = options.creep

    def measure(remover: str) -> tuple[float, dict[str, float]]:
        answer = ask(program("creep"), remover, str(capacity), str(first), str(last), timeout=1800)
        return 100 * (answer["last_bytes"] / answer["first_bytes"] - 1), answer

    measurements = []
    for remover in ("fifo", "min_heap"):
        say(f"{last:,} inserts into a table of {capacity:,} with the remover {remover}")
        row = {
            "what": "creep",
            "remover": remover,
            "items": str(capacity),
            "first": str(first),
            "last": str(last),
            "store": "reverie",
        }
        measurements.append(Measurement(results.cell(row, "% more memory", "lower"), functools.partial(measure, remover)))
    run_turns(measurements, 1, say)


def _spill(results: Results, options: Options, say: Callable[[str], None]) -> None:
    """Sampling a table of half its server's memory limit, and one of four times the limit: most of that lies in the spill's file."""
    with contextlib.ExitStack() as stack:
        measurements = []
        for row_bytes in SPILL_ROWS:
            for share in (0.5, 4):
                say(f"rows of {row_bytes:,} bytes: filling {share} times a memory limit of {options.spill_limit >> 20} MiB")
                directory = stack.enter_context(tempfile.TemporaryDirectory())
                side = pathlib.Path(__file__).with_name("spill_side.py")
                process = Process(sys.executable, str(side), directory, str(options.spill_limit), str(share), str(row_bytes))
                stack.callback(process.stop)
                process.receive(600)
                row = {"what": "more than memory", "rows": str(row_bytes), "data / limit": str(share), "store": "reverie"}
                cell = results.cell(row, "us a sample", "lower")

                def measure(process: Process = process) -> Value:
                    process.send(str(options.seconds))
                    answer = process.receive(60)
                    return answer["us"], answer

                measurements.append(Measurement(cell, measure))
        run_turns(measurements, options.rounds, say)


def run(results: Results, options: Options, say: Callable[[str], None]) -> None:
    """Adds the cells to `results` as they are measured."""
    for rows in ROWS:
        for items in options.sizes:
            _times(results, rows, items, options, say)
    _wire_memory(results, options.wire_items, say)
    _spill(results, options, say)
    _creep(results, options, say)
