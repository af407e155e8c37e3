"""Round trips of single calls by a Python client of Reverie or dm-reverb; what bench/c/single.c does, line for line.

The argument, ``reverie`` or ``reverb``, names the module. ``sample_batch``, ``sample_batch_ahead`` and ``add`` are Reverie's alone; the
other operations are the same calls on both.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import pathlib
import sys
import time
from collections.abc import Callable

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.child import answer_orders, die_with_parent
from bench.wire.job import random_row

store = importlib.import_module(sys.argv[1])
WARM_CALLS = 50
_PR_SET_TIMERSLACK = 29


def sample_batch(client: store.Client, table: str, other: str, _: np.ndarray) -> Callable[[], object]:
    """Of two tables by turns: who asks for one again and again gets batches that were drawn ahead."""
    tables = itertools.cycle((table, other))
    return lambda: client.sample_batch(next(tables), 1)


def sample_batch_ahead(client: store.Client, table: str, _: str, __: np.ndarray) -> Callable[[], object]:
    return lambda: client.sample_batch(table, 1)


def sample(client: store.Client, table: str, _: str, __: np.ndarray) -> Callable[[], object]:
    return lambda: next(iter(client.sample(table, 1, emit_timesteps=False)))


def update_priorities(client: store.Client, table: str, _: str, __: np.ndarray) -> Callable[[], object]:
    key = next(iter(client.sample(table, 1, emit_timesteps=False))).info.key
    key = int(np.ravel(key)[0])
    return lambda: client.mutate_priorities(table, updates={key: 2.0})


def insert(client: store.Client, table: str, _: str, row: np.ndarray) -> Callable[[], object]:
    return lambda: client.insert([row], {table: 1.0})


def add(client: store.Client, table: str, _: str, row: np.ndarray) -> Callable[[], object]:
    return lambda: client.add(table, [row])


def writer(client: store.Client, table: str, _: str, row: np.ndarray) -> Callable[[], object]:
    made = client.trajectory_writer(num_keep_alive_refs=1)

    def call() -> None:
        made.append([row])
        made.create_item(table, 1.0, [made.history[0][-1:]])
        made.flush()

    return call


def server_info(client: store.Client, _: str, __: str, ___: np.ndarray) -> Callable[[], object]:
    return client.server_info


MAKE = {
    made.__name__: made
    for made in (sample_batch, sample_batch_ahead, sample, update_priorities, insert, add, writer, server_info)
}


def run(words: list[str]) -> dict:
    address, operation, table, other, path = words[0], words[1], words[2], words[3], words[7]
    elements, pause, seconds = int(words[4]), int(words[5]) / 1e6, float(words[6])
    call = MAKE[operation](store.Client(address), table, other, random_row(elements, 0))
    trips = []
    for _ in range(WARM_CALLS):
        call()
    cpu, now = time.process_time(), time.monotonic_ns()
    end = now + int(seconds * 1e9)
    while now < end:
        if pause:
            time.sleep(pause)
        begin = time.monotonic_ns()
        call()
        now = time.monotonic_ns()
        trips.append(now - begin)
    cpu = time.process_time() - cpu
    np.array(trips, np.int64).tofile(path)
    return {"count": len(trips), "cpu_us": 1e6 * cpu / len(trips)}


def main() -> None:
    die_with_parent()
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)  # sleeps end when they should
    answer_orders(run)


if __name__ == "__main__":
    main()
