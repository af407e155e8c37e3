"""Runs one store in a process of its own, in the store's own virtual environment, and times what it is told to.

Reads lines ``OPERATION SECONDS`` from standard input and answers each with a JSON object: ``{"us": microseconds a call, the median of the
slices; "cpu_us": processor time of all threads a call}``, or ``{"us": null}`` where the store has no such operation. bench/c/local.c does
the same for C. Imports no Reverie module, so that it runs anywhere.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.child import answers, die_with_parent
from bench.local.cases import CASES


class NotSupported(Exception):  # noqa: N818 - it is no mistake
    """The store has no such thing; the sentence says what it has instead."""


def time_calls(call: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Microseconds a call: the median over slices of about 20 ms, after one call that is not counted; and processor time a call."""
    begin = time.perf_counter()
    call()
    once = max(time.perf_counter() - begin, 1e-7)
    slices, all_calls, cpu = [], 0, time.process_time()
    end = time.perf_counter() + seconds
    while len(slices) < 3 or time.perf_counter() < end:
        calls = max(1, int(0.02 / once))
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        once = max((time.perf_counter() - begin) / calls, 1e-7)
        slices.append(once)
        all_calls += calls
    return sorted(slices)[len(slices) // 2] * 1e6, (time.process_time() - cpu) / all_calls * 1e6


def main() -> None:
    die_with_parent()
    stream = answers()
    module, case_name = sys.argv[1:3]
    try:
        store = importlib.import_module(f"bench.local.stores.{module}").Store(CASES[case_name])
    except Exception as error:
        if type(error).__name__ != "NotSupported":  # this file is __main__ here, and a module there
            raise
        print(json.dumps({"not_supported": str(error)}), file=stream)
        return
    print(json.dumps({"ready": store.version}), file=stream)
    for line in sys.stdin:
        operation, seconds = line.split()
        call = getattr(store, operation, None)
        if call is None:
            print(json.dumps({"us": None}), file=stream)
            continue
        try:
            us, cpu_us = time_calls(call, float(seconds))
            print(json.dumps({"us": us, "cpu_us": cpu_us}), file=stream)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=stream)
    close = getattr(store, "close", None)
    if close is not None:
        close()
    os._exit(0)


if __name__ == "__main__":
    main()
