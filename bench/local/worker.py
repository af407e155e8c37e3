"""Runs one store in a process of its own, in the store's own virtual environment, and times what it is told to.

Reads one JSON object a line from standard input and answers each with one on standard output:
``{"operation": NAME, "seconds": S}`` -> ``{"us": microseconds per call, median of the slices}``, or ``{"us": null}`` where the store
has no such operation. Imports no Reverie module, so that it runs anywhere.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.local.cases import CASES


def time_calls(call: object, seconds: float) -> float:
    """Median microseconds a call over slices of about 20 ms."""
    begin = time.perf_counter()
    call()
    once = max(time.perf_counter() - begin, 1e-7)
    calls = max(1, int(0.02 / once))
    slices = []
    end = time.perf_counter() + seconds
    while len(slices) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        slices.append((time.perf_counter() - begin) / calls)
        calls = max(1, int(0.02 / max(slices[-1], 1e-7)))
    return sorted(slices)[len(slices) // 2] * 1e6


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to standard error
    store_name, case_name = sys.argv[1:3]
    store = importlib.import_module(f"bench.local.stores.{store_name}").Store(CASES[case_name])
    print(json.dumps({"ready": store.version}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        call = getattr(store, request["operation"], None)
        print(json.dumps({"us": None if call is None else time_calls(call, request["seconds"])}), file=answers)
    close = getattr(store, "close", None)
    if close is not None:
        close()
    os._exit(0)


if __name__ == "__main__":
    main()
