"""Runs the benchmark between processes: a server process and client processes of each store, in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import subprocess
from collections.abc import Callable, Iterable

from .. import limits
from ..cells import Results
from ..processes import ProcessError
from ..programs import REVERB_PYTHON, has_tensorflow
from ..turns import Measurement, run_turns
from . import copied
from .board import Board
from .job import PAYLOADS
from .plan import MANY, Options, tables, works
from .side import PYTHON, Pace, Side, Work

IO_BYTES_MAX = 262_144  # of the plain send and recv: more at once is no faster


def row_of(payload: str, work: Work, store: str) -> dict[str, str]:
    return {
        "payload": payload,
        "operation": work.operation,
        "clients": str(work.clients),
        "language": work.language,
        "transport": work.transport,
        "sampler": work.sampler,
        "tables": str(work.tables),
        "store": store,
    }


# What loopback moves without any store: the operation, its transport, and its flow in bench/c/loopback.h.
LOOPBACK = (
    ("send/recv", "tcp", "plain"),
    ("send/recv", "unix", "plain"),
    ("send/recv into a table", "tcp", "insert"),
    ("send/recv from a table", "tcp", "sample"),
)


def _loopback(results: Results, payload: str, seconds: float) -> list[Measurement]:
    io_bytes = min(4 * PAYLOADS[payload], IO_BYTES_MAX)
    made = []
    for operation, transport, flow in LOOPBACK:
        row = {"payload": payload, "operation": operation, "transport": transport, "store": "machine"}
        cell = results.cell(row, "MB/s", "")
        made.append(Measurement(cell, functools.partial(limits.loopback, transport, flow, io_bytes, seconds)))
    return made


def _machine(results: Results, seconds: float) -> list[Measurement]:
    """What the machine does at all."""
    made = []
    for manner in ("hot", "idle"):
        cell = results.cell({"operation": f"round trip, {manner}", "transport": "tcp", "store": "machine"}, "us", "")
        made.append(Measurement(cell, functools.partial(limits.round_trip, "tcp", manner, seconds)))
    cell = results.cell({"operation": "memcpy", "store": "machine"}, "MB/s", "")
    made.append(Measurement(cell, functools.partial(limits.memory_copy, seconds)))
    return made


def _memory(results: Results, board: Board, clients: int, pace: Pace, say: Callable[[str], None]) -> None:
    """What a connection costs the server, on a server that has nothing else."""
    row = {"operation": "memory a client", "clients": str(clients), "language": "c", "transport": "tcp", "store": "reverie"}
    cell = results.cell(row, "KiB", "lower")

    def measure() -> tuple[float, dict[str, float]]:
        side = Side("reverie", 100, board, ["uniform"], items=64)
        try:
            return side.memory_a_client(clients, pace)
        finally:
            side.stop(2)

    run_turns([Measurement(cell, measure)], 1, say)


def _payload(results: Results, payload: str, options: Options, board: Board, say: Callable[[str], None]) -> None:
    pairs = works(payload, options)
    if not pairs:
        return
    sides: dict[str, Side] = {}
    with contextlib.ExitStack() as stack:
        for store in dict.fromkeys(store for store, _ in pairs):
            say(f"{payload}: starting and filling {store}")
            try:
                sides[store] = Side(store, PAYLOADS[payload], board, tables(pairs), options.items)
                stack.callback(sides[store].stop)
            except ProcessError as error:
                say(f"FAILED: {payload}: {store}: {error}")
                for name, work in pairs:
                    if name == store:
                        results.cell(row_of(payload, work, store), "items/s", "higher").failure = str(error)
        seconds = min(options.pace.seconds, 1.0)
        loopback = _loopback(results, payload, seconds)
        measurements, operation = [], ""
        for store, work in pairs:
            if work.operation != operation:  # the limits stand between the operations, not before or after all
                operation, measurements = work.operation, measurements + loopback
            cell = results.cell(row_of(payload, work, store), "items/s", "higher")
            if store in sides:
                measurements.append(Measurement(cell, functools.partial(sides[store].measure, work, options.pace)))
        run_turns(measurements + _machine(results, seconds), options.rounds, say)


def note_versions(results: Results, stores: Iterable[str]) -> None:
    """Which version of each store its Python has."""
    for store in stores:
        command = [PYTHON[store], "-c", f"import importlib.metadata as m; print(m.version({store!r}))"]
        with contextlib.suppress(OSError):
            said = subprocess.run(command, capture_output=True, text=True).stdout.strip()
            results.versions[store] = said or "unknown"


def run(results: Results, options: Options, say: Callable[[str], None]) -> None:
    """Adds the cells to `results` as they are measured."""
    note_versions(results, options.stores)
    if "dataset" in options.operations and not has_tensorflow():
        results.notes.append(f"datasets were not measured: {REVERB_PYTHON} has no TensorFlow; tools/dev/peer.sh makes it")
        options = dataclasses.replace(options, operations=tuple(each for each in options.operations if each != "dataset"))
    board = Board(max(MANY, *options.clients))
    try:
        for payload in options.payloads:
            _payload(results, payload, options, board, say)
            if options.variants and "python" in options.languages:
                copied.run(results, payload, options.stores, options.operations, options.pace, board, say)
        if options.variants and "c" in options.languages and "reverie" in options.stores:
            for clients in sorted({min(200, max(options.clients)), max(options.clients)}):
                _memory(results, board, clients, options.pace, say)
    finally:
        board.close()
