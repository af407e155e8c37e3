"""A writer that inserts so many rows a second: ``inserts.py ADDRESS ELEMENTS RATE``. Prints ``{"count": ...}`` when standard input ends."""

from __future__ import annotations

import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import reverie

from bench.child import die_with_parent
from bench.wire.job import in_flight, random_row


def priority(number: int) -> float:
    """One that has nothing to do with the order of insertion."""
    return number * 2654435761 % (1 << 32) / (1 << 32)


if __name__ == "__main__":
    die_with_parent()
    address, elements, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    rows = [random_row(elements, seed) for seed in range(32)]
    writer = reverie.Client(address).trajectory_writer(1, validate_items=False)
    begin, count = time.monotonic(), 0
    while not ended.is_set():
        due = int((time.monotonic() - begin) * rate)
        for i in range(count, due):
            writer.append([rows[i % 32]])
            writer.create_item("uniform", priority(i), [writer.history[0][-1]])
            writer.flush(in_flight(elements, 1))
        count = max(count, due)
        time.sleep(0.002)
    writer.flush()
    print(json.dumps({"count": count, "seconds": time.monotonic() - begin}), flush=True)
