"""An empty table of Reverie or dm-reverb: ``server.py MODULE ITEMS CASE``. Prints the port.

Reads ``batch SIZE SECONDS``, draws such batches in its own process, as a learner does that has the server with it, and answers with how
long one takes.
"""

from __future__ import annotations

import importlib
import itertools
import pathlib
import sys
import time
from collections.abc import Callable, Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.child import answer_orders, die_with_parent
from bench.items.cases import CASES

die_with_parent()
store, case = importlib.import_module(sys.argv[1]), CASES[" ".join(sys.argv[3:])]
IS_REVERIE = sys.argv[1] == "reverie"
WARM = 20  # batches
table = store.Table("t", store.selectors.Uniform(), store.selectors.Fifo(), int(sys.argv[2]), store.rate_limiters.MinSize(1))
# Reverie would warn that it listens where other machines can reach it, as dm-reverb does.
server = store.Server([table], **({"address": ["127.0.0.1:0"]} if IS_REVERIE else {}))


def reverie_batches(size: int) -> Callable[[], object]:
    client = store.Client(server)
    return lambda: client.sample_batch("t", size)


def dataset_batches(size: int) -> Callable[[], object]:
    import numpy as np
    import tensorflow as tf

    specs = case.specs()
    dataset = store.TrajectoryDataset(
        server_address=f"localhost:{server.port}",
        table="t",
        dtypes={name: np.dtype(np.float32) for name in specs},
        shapes={name: tf.TensorShape(shape) for name, shape in specs.items()},
        max_in_flight_samples_per_worker=2 * size,
    )
    batches: Iterator[object] = iter(dataset.batch(size).prefetch(1))
    return lambda: next(batches)


def run(words: list[str]) -> dict:
    size, seconds = int(words[1]), float(words[2])
    draw = (reverie_batches if IS_REVERIE else dataset_batches)(size)
    for _ in range(WARM):
        draw()
    begin, cpu = time.monotonic(), time.process_time()
    for drawn in itertools.count(1):
        draw()
        if (passed := time.monotonic() - begin) > seconds:
            return {"us": 1e6 * passed / drawn, "cpu_us": 1e6 * (time.process_time() - cpu) / drawn}
    raise AssertionError("without end")


print(f"\nport {server.port}", flush=True)
answer_orders(run)
