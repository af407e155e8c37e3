"""Runs the in-process benchmark: every store in a process of its own, in turns, and bare copies of the same bytes beside them."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import sys
import time
from collections.abc import Callable, Iterable

from .. import limits
from ..cells import Results
from ..processes import Process, ProcessError
from ..programs import PEERS_PYTHON, REVERB_PYTHON, program
from ..turns import Measurement, Value, run_turns
from .cases import CASES, Case, operations, title

# name: (module in stores, its Python)
STORES: dict[str, tuple[str, str]] = {
    "reverie": ("reverie_store", sys.executable),
    "dm-reverb": ("dm_reverb", REVERB_PYTHON),
    "rlox": ("rlox", PEERS_PYTHON),
    "cpprb": ("cpprb", PEERS_PYTHON),
    "sb3": ("sb3", PEERS_PYTHON),
    "flashbax": ("flashbax", PEERS_PYTHON),
}
FILL_TIMEOUT = 300.0


class Worker:
    """A store's process, or one of the C program's: Reverie from C, or the bare copies ("machine")."""

    def __init__(self, store: str, language: str, case: Case) -> None:
        self.store, self.language = store, language
        if language == "c":
            words = [
                store,
                case.kind,
                str(case.obs_bytes),
                str(case.capacity),
                str(case.batch),
                str(case.length),
                str(case.period),
            ]
            self.process = Process(program("local"), *words)
        else:
            module, python = STORES[store]
            self.process = Process(python, str(pathlib.Path(__file__).with_name("worker.py")), module, case.name)

    def wait(self) -> tuple[str, str]:
        """The store's version, and why it has no such rows: one of them is empty."""
        answer = self.process.receive(FILL_TIMEOUT)
        return answer.get("ready", ""), answer.get("not_supported", "")

    def measure(self, operation: str, seconds: float) -> Value | None:
        self.process.send(f"{operation} {seconds}")
        answer = self.process.receive(60 + 10 * seconds)
        if self.store == "dm-reverb":
            time.sleep(0.1)  # until its dataset has fetched ahead again, which would be in the way of the next
        if answer["us"] is None:
            return None
        return answer["us"], {"cpu_us": answer["cpu_us"]}


def run(
    results: Results,
    cases: Iterable[str],
    stores: tuple[str, ...],
    only: tuple[str, ...] | None,
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
) -> None:
    """Adds the cells to `results` as they are measured."""
    for name in cases:
        _case(results, CASES[name], stores, only, rounds, seconds, say)
        results.cells = [cell for cell in results.cells if cell.values or cell.failure]


def _case(
    results: Results,
    case: Case,
    stores: tuple[str, ...],
    only: tuple[str, ...] | None,
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
) -> None:
    wanted = [operation for operation in operations(case) if only is None or operation in only]

    def row(operation: str, store: str, language: str) -> dict[str, str]:
        return {"rows": case.name, "operation": title(operation, case), "language": language, "store": store}

    with contextlib.ExitStack() as stack:
        workers = []
        kinds = [(store, "python") for store in stores]
        kinds += [("reverie", "c")] if "reverie" in stores else []
        for store, language in [*kinds, ("machine", "c")]:
            say(f"{case.name}: filling {store}{' from C' if language == 'c' else ''}")
            try:
                worker = Worker(store, language, case)
                stack.callback(worker.process.stop)
                version, lacking = worker.wait()
            except ProcessError as error:
                say(f"FAILED: {case.name}: {store}: {error}")
                for operation in wanted:
                    results.cell(row(operation, store, language), "us", "lower").failure = str(error)
                continue
            if lacking:
                say(f"{case.name}: {store} cannot do it: {lacking}")
                results.notes.append(f"{case.name}: {store}: {lacking}")
                continue
            if version and store != "machine":
                results.versions[store] = version
            workers.append(worker)
        measurements = [
            Measurement(
                results.cell(row(operation, worker.store, worker.language), "us", "" if worker.store == "machine" else "lower"),
                functools.partial(worker.measure, operation, seconds),
            )
            for operation in wanted
            for worker in workers
        ]
        cell = results.cell({"operation": "memcpy", "store": "machine"}, "MB/s", "")
        measurements.append(Measurement(cell, functools.partial(limits.memory_copy, min(0.3, seconds))))
        run_turns(measurements, rounds, say)
