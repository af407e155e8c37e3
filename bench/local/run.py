"""Runs the in-process benchmark: every store in a process of its own, in turns, and memcpy of the same bytes beside them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

import numpy as np

from ..peers import PEERS_PYTHON, REVERB_PYTHON
from .cases import BATCH, CASES, OPERATIONS, Case
from .worker import time_calls

STORES: dict[str, str] = {
    "reverie_store": sys.executable,
    "dm_reverb": REVERB_PYTHON,
    "rlox": PEERS_PYTHON,
    "cpprb": PEERS_PYTHON,
    "sb3": PEERS_PYTHON,
    "flashbax": PEERS_PYTHON,
}


class Worker:
    """A store's process."""

    def __init__(self, store: str, case: str) -> None:
        self.store = store
        worker = pathlib.Path(__file__).with_name("worker.py")
        # A file: a pipe that nobody reads stops a store that warns a lot.
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        command = [STORES[store], str(worker), store, case]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def ready(self) -> str:
        """The store's version; RuntimeError with what it printed if it could not start."""
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            error = self.log.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(error[-1] if error else f"exit status {self.process.returncode}")
        return json.loads(line)["ready"]

    def measure(self, operation: str, seconds: float) -> float | None:
        self.process.stdin.write(json.dumps({"operation": operation, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["us"]

    def stop(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def bare_gather(case: Case) -> Callable[[], None]:
    """One memcpy a row of a batch's bytes from random places, into memory that is used again: the limit for sampling."""
    rows = np.zeros((case.capacity, case.row_bytes), np.uint8)
    rows += 1  # touch every page
    out = np.empty((BATCH, case.row_bytes), np.uint8)
    rng = np.random.default_rng(0)
    places = rng.integers(0, case.capacity, (64, BATCH))
    state = {"turn": 0}

    def gather() -> None:
        state["turn"] = (state["turn"] + 1) % 64
        np.take(rows, places[state["turn"]], axis=0, out=out, mode="clip")

    return gather


def run(cases: list[str], rounds: int, seconds: float, say: Callable[[str], None]) -> dict:
    """Figures by case, operation and store: every round's microseconds a call."""
    results: dict = {"kind": "local", "cases": {}, "versions": {}, "left_out": {}}
    for name in cases:
        say(f"{name}: filling")
        workers = []
        for store in STORES:
            worker = Worker(store, name)
            try:
                results["versions"][store] = worker.ready()
                workers.append(worker)
            except RuntimeError as error:
                results["left_out"][f"{name}/{store}"] = str(error)
                say(f"{name}: {store} is left out: {error}")
        figures: dict = {operation: {worker.store: [] for worker in workers} for operation in OPERATIONS}
        figures["sample"]["bare gather"] = []
        gather = bare_gather(CASES[name])
        for turn in range(rounds):
            for operation in OPERATIONS:
                for worker in workers:
                    value = worker.measure(operation, seconds)
                    if value is not None:
                        figures[operation][worker.store].append(value)
            figures["sample"]["bare gather"].append(time_calls(gather, seconds))
            say(f"{name}: round {turn + 1} of {rounds}")
        for worker in workers:
            worker.stop()
        results["cases"][name] = {operation: {s: v for s, v in by_store.items() if v} for operation, by_store in figures.items()}
    return results
