"""What both sides of the wire benchmark share: payloads, and a clock that all client processes start by. Needs NumPy only."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

PAYLOADS = {"400B": 100, "4kB": 1_000, "40kB": 10_000, "400kB": 100_000}  # float32 elements of the one column
CLIENTS = (1, 2, 32, 200)
TABLE = "bench"
IN_FLIGHT_BYTES = 1_000_000_000  # over all clients, so that neither side swaps
BATCH_BYTES = 1_000_000_000


def table_size(payload: str) -> int:
    """Items the table holds: at most about 400 MB."""
    return min(100_000, 400_000_000 // (4 * PAYLOADS[payload]))


def in_flight(payload: str, clients: int) -> int:
    """Items that a writer may have sent and not yet heard of: at most 200, and 32 MB of them."""
    size = 4 * PAYLOADS[payload]
    return max(4, min(200, 32_000_000 // size, IN_FLIGHT_BYTES // (size * clients)))


def batch_size(payload: str, clients: int) -> int:
    """Items of a batch."""
    return max(4, min(64, BATCH_BYTES // (4 * PAYLOADS[payload] * clients)))


@dataclasses.dataclass(frozen=True)
class Job:
    """What one client process does: ``clients`` threads of ``all_clients``, each with a client of its own, for ``seconds``."""

    address: str
    operation: str  # insert, iterate, batch
    payload: str
    clients: int
    all_clients: int
    seconds: float

    @property
    def in_flight(self) -> int:
        return in_flight(self.payload, self.all_clients)

    @property
    def batch(self) -> int:
        return batch_size(self.payload, self.all_clients)


def run_threads(job: Job, make: Callable[[Job, int], Callable[[float], int]]) -> dict:
    """Runs the job's threads; ``make(job, i)`` prepares client number i and returns what works until a moment and counts items.

    Returns items and the seconds from the common start to the moment the last thread ended.
    """
    prepared = [make(job, i) for i in range(job.clients)]
    print(json.dumps({"ready": True}), flush=True, file=_answers())
    sys.stdin.readline()
    counts = [0] * job.clients
    ends = [0.0] * job.clients
    errors: list[str] = []  # a figure with a failed client is no figure
    begin = time.monotonic()
    stop = begin + job.seconds

    def work(i: int) -> None:
        try:
            counts[i] = prepared[i](stop)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
        ends[i] = time.monotonic()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(job.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        return {"error": errors[0]}
    return {"items": sum(counts), "seconds": max(ends) - begin}


def random_row(payload: str, seed: int) -> np.ndarray:
    """One step's value."""
    return np.random.default_rng(seed).standard_normal(PAYLOADS[payload]).astype(np.float32)


_ANSWERS = None


def _answers():
    global _ANSWERS
    if _ANSWERS is None:
        _ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # what libraries print goes to standard error
    return _ANSWERS


def serve_jobs(make: dict[str, Callable[[Job, int], Callable[[float], int]]]) -> None:
    """A client process: reads jobs as JSON lines until standard input ends."""
    answers = _answers()
    for line in sys.stdin:
        job = Job(**json.loads(line))
        if job.operation not in make:
            print(json.dumps({"error": "no such operation"}), file=answers)
            continue
        print(json.dumps(run_threads(job, make[job.operation])), file=answers)
    os._exit(0)
