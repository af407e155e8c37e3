"""What a client process is told to do, and the sizes that both stores are measured with. Needs NumPy only: peers import it."""

from __future__ import annotations

import dataclasses

import numpy as np

PAYLOADS = {"400B": 100, "4kB": 1_000, "40kB": 10_000, "400kB": 100_000}  # float32 elements of the one column
IN_FLIGHT_BYTES = 1_000_000_000  # over all clients, so that neither side swaps
BATCH_BYTES = 1_000_000_000
TABLE_BYTES = 400_000_000

HOLD, GO, STOP = 0, 1, 2  # the board's phases
LINE_WORDS = 8  # int64 words a line of the board: line 0 is the phase, line 1 + i what client i has moved


def table_size(elements: int) -> int:
    """Items the table holds: at most about 400 MB."""
    return min(100_000, TABLE_BYTES // (4 * elements))


def in_flight(elements: int, clients: int) -> int:
    """Items that a writer may have sent and not yet heard of: at most 200, and 32 MB of them."""
    return max(4, min(200, 32_000_000 // (4 * elements), IN_FLIGHT_BYTES // (4 * elements * clients)))


def batch_size(elements: int, clients: int) -> int:
    """Items of a batch."""
    return max(4, min(64, BATCH_BYTES // (4 * elements * clients)))


@dataclasses.dataclass(frozen=True)
class Job:
    """What one client process does: `clients` threads, each with a client of its own, until the board says stop.

    bench/c/wire.c reads the fields in this order.
    """

    address: str
    operation: str  # insert, iterate, batch, dataset (of tf.data), both (even clients insert, odd ones iterate), idle
    sampler: str  # uniform, prioritized: the table's name
    tables: int  # with more than one, client i uses the table named sampler + str(i % tables)
    elements: int
    first: int  # number of this process's first client
    clients: int
    in_flight: int
    batch: int
    step: int  # items between two looks at the board
    board: str
    shared_memory: int = 1  # 0: the client goes by the socket of the address alone (Reverie)

    def table(self, client: int) -> str:
        return self.sampler if self.tables == 1 else f"{self.sampler}{client % self.tables}"

    def operation_of(self, client: int) -> str:
        if self.operation != "both":
            return self.operation
        return "iterate" if client % 2 else "insert"

    def words(self) -> str:
        return " ".join(str(value) for value in dataclasses.astuple(self))


def parse_job(line: str) -> Job:
    words = line.split()
    types = [str, str, str, int, int, int, int, int, int, int, str, int]
    return Job(*(convert(word) for convert, word in zip(types, words, strict=True)))


def random_row(elements: int, seed: int) -> np.ndarray:
    """One step's value."""
    return np.random.default_rng(seed).standard_normal(elements).astype(np.float32)
