"""A server in this process with a memory limit and a spill, filled with so many times the limit, whose rows are sampled in batches.

spill_side.py DIRECTORY LIMIT SHARE ROW_BYTES
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import reverie

BATCH = 256


def fill(client: reverie.Client, rows: int, row_bytes: int) -> None:
    block = np.random.default_rng(1).integers(0, 256, (BATCH, row_bytes), np.uint8)
    for begin in range(0, rows, BATCH):
        block[:, 0] = begin // BATCH & 255
        client.add_batch("t", {"x": block})


def sample(client: reverie.Client, seconds: float) -> dict[str, float]:
    """Microseconds and processor time a sample."""
    end, samples = time.perf_counter() + seconds, 0
    begun, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() < end or samples == 0:
        samples += len(client.sample_batch("t", BATCH))
    scale = 1e6 / samples
    memory = client.memory_info()
    return {
        "us": (time.perf_counter() - begun) * scale,
        "cpu_us": (time.process_time() - cpu) * scale,
        "used_bytes": memory.used,
        "spilled_bytes": memory.spilled,
    }


def main() -> None:
    directory, limit, share, row_bytes = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    rows = int(limit * share / row_bytes)
    table = reverie.Table(
        name="t",
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=2 * rows,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    with reverie.Server([table], in_process=True, memory_limit=limit, spill=directory) as server:
        client = reverie.Client(server)
        fill(client, rows, row_bytes)
        print(json.dumps({"rows": rows}), flush=True)
        for line in sys.stdin:
            print(json.dumps(sample(client, float(line))), flush=True)


if __name__ == "__main__":
    main()
