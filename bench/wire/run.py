"""Runs the benchmark between processes: a server process and client processes each, Reverie and dm-reverb in turns."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable

from ..limits import loopback_megabytes
from ..peers import REVERB_PYTHON
from .common import CLIENTS, PAYLOADS, Job

HERE = pathlib.Path(__file__).parent
SIDES = {
    "reverie": (sys.executable, "reverie_server.py", "reverie_client.py"),
    "dm_reverb": (REVERB_PYTHON, "reverb_server.py", "reverb_client.py"),
}
OPERATIONS = ("insert", "iterate", "batch")
PROCESSES = 2  # that the clients are spread over


class Process:
    """A worker that talks in JSON lines; what it prints besides goes to a file shown on failure."""

    def __init__(self, python: str, script: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [python, str(HERE / script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def send(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(line)

    def stop(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Side:
    """One store: its server, and client processes that stay for all cells of a payload."""

    def __init__(self, name: str, payload: str) -> None:
        python, server, client = SIDES[name]
        self.server = Process(python, server, payload)
        for line in self.server.process.stdout:
            if line.startswith("port "):
                self.address = f"127.0.0.1:{int(line.split()[1])}"
                break
        else:
            raise RuntimeError(f"{name}: its server did not start")
        self.clients = [Process(python, client) for _ in range(PROCESSES)]

    def measure(self, operation: str, payload: str, clients: int, seconds: float) -> float | None:
        """Items a second over all clients; None when a client failed."""
        processes = self.clients[: min(PROCESSES, clients)]
        for i, process in enumerate(processes):
            share = clients // len(processes) + (i < clients % len(processes))
            process.send(json.dumps(dataclasses.asdict(Job(self.address, operation, payload, share, seconds))))
        answers = [process.receive() for process in processes]
        for process in processes:
            process.send("go")
        answers = [process.receive() for process in processes]
        if any("error" in answer for answer in answers):
            return None
        return sum(answer["items"] for answer in answers) / max(answer["seconds"] for answer in answers)

    def stop(self) -> None:
        for process in [*self.clients, self.server]:
            process.stop()


def run(
    payloads: list[str], client_counts: list[int], rounds: int, seconds: float, say: Callable[[str], None]
) -> dict:
    """Figures by payload, operation, client count and side: every round's items/s; loopback's MB/s beside them."""
    results: dict = {"kind": "wire", "payloads": {}, "loopback_MBps": {}}
    for payload in payloads:
        say(f"{payload}: starting and filling")
        sides = {name: Side(name, payload) for name in SIDES}
        figures: dict = {operation: {str(n): {name: [] for name in sides} for n in client_counts} for operation in OPERATIONS}
        limits = []
        for turn in range(rounds):
            for operation in OPERATIONS:
                for n in client_counts:
                    for name, side in sides.items():
                        value = side.measure(operation, payload, n, seconds)
                        if value is not None:
                            figures[operation][str(n)][name].append(value)
                        else:
                            say(f"{payload}: {name} failed at {operation} with {n} clients")
            limits.append(loopback_megabytes(min(4 * PAYLOADS[payload], 262_144), min(seconds, 1.0)))
            say(f"{payload}: round {turn + 1} of {rounds}")
        for side in sides.values():
            side.stop()
        results["payloads"][payload] = figures
        results["loopback_MBps"][payload] = limits
    return results


__all__ = ["CLIENTS", "PAYLOADS", "run"]
