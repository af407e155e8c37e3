"""Runs the benchmark between processes: a server process and client processes each, Reverie and dm-reverb in turns."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable

from ..limits import loopback_megabytes
from ..peers import REVERB_PYTHON
from .common import CLIENTS, PAYLOADS, Job
from .processes import Process, ProcessError

HERE = pathlib.Path(__file__).parent
SIDES = {
    "reverie": (sys.executable, "reverie"),
    "dm_reverb": (REVERB_PYTHON, "reverb"),
}
OPERATIONS = ("insert", "iterate", "batch")
PROCESSES = 2  # that the clients are spread over
TIMEOUT = 60.0  # seconds for what is not measured: filling a table, making clients, the last confirmations


class Side:
    """One store: its server, and client processes that stay for all cells of a payload."""

    def __init__(self, name: str, payload: str) -> None:
        self.name = name
        self.python, self.module = SIDES[name]
        self.clients: list[Process] = []
        self.server = Process(self.python, str(HERE / "server.py"), self.module, payload)
        try:
            self.address = f"127.0.0.1:{int(self.server.receive_word('port', TIMEOUT))}"
        except ProcessError:
            self.server.stop(0)
            raise

    def start_clients(self) -> None:
        while len(self.clients) < PROCESSES:
            self.clients.append(Process(self.python, str(HERE / "client.py"), self.module))

    def stop_clients(self, patience: float = 10) -> None:
        while self.clients:
            self.clients.pop().stop(patience)

    def measure(self, operation: str, payload: str, clients: int, seconds: float) -> float:
        """Items a second over all clients. A failure of one is the failure of all: ProcessError says which."""
        if self.server.process.poll() is not None:
            raise self.server.failed(f"ended with status {self.server.process.returncode}")
        self.start_clients()
        processes = self.clients[: min(PROCESSES, clients)]
        try:
            for i, process in enumerate(processes):
                share = clients // len(processes) + (i < clients % len(processes))
                process.send(json.dumps(dataclasses.asdict(Job(self.address, operation, payload, share, clients, seconds))))
            for process in processes:
                process.receive(TIMEOUT)
            for process in processes:
                process.send("go")
            answers = [process.receive(seconds + TIMEOUT) for process in processes]
        except ProcessError:
            self.stop_clients(0)
            raise
        for process, answer in zip(processes, answers, strict=True):
            if "error" in answer:
                raise ProcessError(f"{process.name}: {answer['error']}")
        return sum(answer["items"] for answer in answers) / max(answer["seconds"] for answer in answers)

    def stop(self) -> None:
        self.stop_clients()
        self.server.stop()


def run(
    payloads: list[str], operations: list[str], client_counts: list[int], rounds: int, seconds: float, say: Callable[[str], None]
) -> dict:
    """Figures by payload, operation, client count and side: every round's items/s; loopback's MB/s beside them; what failed."""
    results: dict = {"kind": "wire", "payloads": {}, "loopback_MBps": {}, "failures": []}

    def measure(side: Side, operation: str, payload: str, n: int) -> list[float]:
        try:
            return [side.measure(operation, payload, n, seconds)]
        except ProcessError as error:
            results["failures"].append(f"{payload}, {operation}, {n} clients: {side.name}: {error}")
            say("FAILED: " + results["failures"][-1])
            return []

    for payload in payloads:
        say(f"{payload}: starting and filling")
        figures: dict = {operation: {str(n): {name: [] for name in SIDES} for n in client_counts} for operation in operations}
        limits = []
        sides: list[Side] = []
        try:
            sides.extend(Side(name, payload) for name in SIDES)
            for turn in range(rounds):
                for operation in operations:
                    for n in client_counts:
                        for side in sides:
                            figures[operation][str(n)][side.name] += measure(side, operation, payload, n)
                        last = {name: round(values[-1]) for name, values in figures[operation][str(n)].items() if values}
                        say(f"{payload}, round {turn + 1} of {rounds}, {operation}, {n} clients: {last}")
                limits.append(loopback_megabytes(min(4 * PAYLOADS[payload], 262_144), min(seconds, 1.0)))
        finally:
            for side in sides:
                side.stop()
        results["payloads"][payload] = figures
        results["loopback_MBps"][payload] = limits
    return results


__all__ = ["CLIENTS", "OPERATIONS", "PAYLOADS", "run"]
