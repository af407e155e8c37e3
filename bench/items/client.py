"""A client of Reverie or dm-reverb that writes items of several columns and iterates over them: ``client.py MODULE PORT CASE``.

Reads ``insert ITEMS SECONDS`` and ``iterate SECONDS``, and answers with what it moved: as many items, or as many as fit into the time.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.child import answer_orders, die_with_parent
from bench.items.cases import CASES, STEPS

store, case = importlib.import_module(sys.argv[1]), CASES[" ".join(sys.argv[3:])]
client = store.Client(f"localhost:{sys.argv[2]}")
IN_FLIGHT = 200
LOOK_EVERY = 64  # items


def measured(begin: float, cpu: float, items: int) -> dict:
    cpu = time.process_time() - cpu
    return {"items": items, "seconds": time.monotonic() - begin, "cpu_us": 1e6 * cpu / items}


def insert(items: int, seconds: float) -> dict:
    steps, made, appended = case.steps(), 0, 0
    begin, cpu = time.monotonic(), time.process_time()
    with client.trajectory_writer(case.history, validate_items=False) as writer:
        while made < items and (made % LOOK_EVERY or time.monotonic() - begin < seconds):
            writer.append(steps[appended % STEPS])
            appended += 1
            if appended < case.history or appended % case.period:
                continue
            writer.create_item("t", 1.0, case.item(writer.history))
            writer.flush(IN_FLIGHT)
            made += 1
        writer.flush()
    return measured(begin, cpu, made)


def iterate(seconds: float) -> dict:
    samples = iter(client.sample("t", 10**9, emit_timesteps=False))
    for _ in range(IN_FLIGHT):
        next(samples)
    seen = 0
    begin, cpu = time.monotonic(), time.process_time()
    while seen % LOOK_EVERY or time.monotonic() - begin < seconds:
        next(samples)
        seen += 1
    return measured(begin, cpu, seen)


def run(words: list[str]) -> dict:
    return insert(int(words[1]), float(words[2])) if words[0] == "insert" else iterate(float(words[1]))


if __name__ == "__main__":
    die_with_parent()
    answer_orders(run)
