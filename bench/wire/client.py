"""A Python client of Reverie or dm-reverb; the first argument, ``reverie`` or ``reverb``, names the module.

Inserting and iterating are the same calls on both; only batches are fetched in each store's own way.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.wire.common import TABLE, Job, random_row, serve_jobs

store = importlib.import_module(sys.argv[1])


def insert(job: Job, i: int) -> Callable[[float], int]:
    client = store.Client(job.address)
    writer = client.trajectory_writer(num_keep_alive_refs=1, validate_items=False)
    row = random_row(job.payload, i)
    in_flight = job.in_flight

    def work(stop: float) -> int:
        items = 0
        while time.monotonic() < stop:
            for _ in range(20):
                writer.append([row])
                writer.create_item(TABLE, 1.0, [writer.history[0][-1:]])
                writer.flush(in_flight)
                items += 1
        writer.flush()
        return items

    return work


def iterate(job: Job, i: int) -> Callable[[float], int]:
    client = store.Client(job.address)

    def work(stop: float) -> int:
        items = 0
        for _ in client.sample(TABLE, 1_000_000_000, emit_timesteps=False):
            items += 1
            if items % 10 == 0 and time.monotonic() >= stop:
                return items
        return items

    return work


def reverie_batch(job: Job, i: int) -> Callable[[float], int]:
    client = store.Client(job.address)

    def work(stop: float) -> int:
        items = 0
        while time.monotonic() < stop:
            client.sample_batch(TABLE, job.batch)
            items += job.batch
        return items

    return work


def reverb_batch(job: Job, i: int) -> Callable[[float], int]:
    import numpy as np
    import tensorflow as tf

    elements = random_row(job.payload, 0).size
    dataset = store.TrajectoryDataset(
        server_address=job.address,
        table=TABLE,
        dtypes=[np.dtype(np.float32)],
        shapes=[tf.TensorShape([1, elements])],
        max_in_flight_samples_per_worker=2 * job.batch,
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2  # the one of all datasets comes to a halt when there are 100 of them
    dataset = dataset.batch(job.batch).prefetch(1).with_options(options)

    def work(stop: float) -> int:
        items = 0
        batches = iter(dataset)  # fetches at once: not before the clock runs
        while time.monotonic() < stop:
            next(batches)
            items += job.batch
        return items

    return work


if __name__ == "__main__":
    serve_jobs({"insert": insert, "iterate": iterate, "batch": reverie_batch if sys.argv[1] == "reverie" else reverb_batch})
