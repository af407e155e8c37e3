"""Round trips of single operations by Python clients of Reverie or dm-reverb; what bench/c/latency.c does, line for line.

The argument, ``reverie`` or ``reverb``, names the module. Operations: ``insert`` (`Client.insert`), ``sample`` (`Client.sample` of one
item), and for Reverie ``batch`` (`Client.sample_batch` of one item).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.child import answers, die_with_parent
from bench.wire.job import random_row

store = importlib.import_module(sys.argv[1])
_PR_SET_TIMERSLACK = 29


def make_call(address: str, operation: str, table: str, elements: int) -> Callable[[], object]:
    client = store.Client(address)
    row = [random_row(elements, 0)]
    calls = {
        "insert": lambda: client.insert(row, {table: 1.0}),
        "sample": lambda: next(iter(client.sample(table, 1, emit_timesteps=False))),
        "batch": lambda: client.sample_batch(table, 1),
    }
    return calls[operation]


def on_schedule(
    call: Callable[[], object], number: int, clients: int, rate: float, begin: int, end: int
) -> list[tuple[int, int]]:
    """Nanoseconds from the intended and from the actual start to the answer, for each operation."""
    trips = []
    gap = 1e9 * clients / rate if rate > 0 else 0.0
    following = begin + gap * number / clients
    time.sleep(max(0, begin - time.monotonic_ns()) / 1e9)
    while True:
        intended = int(following)
        if gap and (left := intended - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)
        start = time.monotonic_ns()
        if not gap:
            intended = start
        if intended >= end or start > end + 5_000_000_000:
            return trips
        call()
        now = time.monotonic_ns()
        trips.append((now - intended, now - start))
        following += gap


def run(words: list[str]) -> dict:
    address, operation, table, path = words[0], words[1], words[2], words[7]
    elements, clients = int(words[3]), int(words[4])
    rate, seconds = float(words[5]), float(words[6])
    calls = [make_call(address, operation, table, elements) for _ in range(clients)]
    for call in calls:
        for _ in range(20):
            call()
    begin = time.monotonic_ns() + 20_000_000
    end = begin + int(seconds * 1e9)
    trips: list[list[tuple[int, int]]] = [[] for _ in calls]
    errors: list[str] = []

    def work(i: int) -> None:
        try:
            trips[i] = on_schedule(calls[i], i, clients, rate, begin, end)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = (time.monotonic_ns() - begin) / 1e9
    if errors:
        return {"error": errors[0]}
    np.concatenate([np.array(each, np.int64).reshape(-1, 2) for each in trips]).tofile(path)
    return {"count": sum(len(each) for each in trips), "seconds": took}


def main() -> None:
    die_with_parent()
    stream = answers()
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)  # sleeps end when they should
    for line in sys.stdin:
        print(json.dumps(run(line.split())), file=stream)
    os._exit(0)


if __name__ == "__main__":
    main()
