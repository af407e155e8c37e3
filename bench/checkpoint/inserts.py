"""A writer that inserts so many rows a second: ``inserts.py ADDRESS ELEMENTS RATE``. Prints ``{"count": ...}`` when standard input ends."""

from __future__ import annotations

import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np

from bench.child import die_with_parent
from bench.wire.job import in_flight, random_row

ROWS = 1000  # different ones: they shall not look as if they could be compressed


def random_priorities(seed: int) -> list[float]:
    """Some that have nothing to do with the order of insertion, nor with the rows."""
    return np.random.default_rng(seed).random(100_003).tolist()


if __name__ == "__main__":
    import reverie  # not above: dm-reverb's server takes its rows from here, and has no such package

    die_with_parent()
    address, elements, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    rows = [random_row(elements, ROWS + seed) for seed in range(ROWS)]  # others than the table begins with
    priorities = random_priorities(1)
    writer = reverie.Client(address).trajectory_writer(1, validate_items=False)
    begin, count = time.monotonic(), 0
    while not ended.is_set():
        due = int((time.monotonic() - begin) * rate)
        for i in range(count, due):
            writer.append([rows[i % ROWS]])
            writer.create_item("uniform", priorities[i % len(priorities)], [writer.history[0][-1]])
            writer.flush(in_flight(elements, 1))
        count = max(count, due)
        time.sleep(0.002)
    writer.flush()
    print(json.dumps({"count": count, "seconds": time.monotonic() - begin}), flush=True)
