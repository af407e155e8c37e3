"""Reverie's Python client."""

from __future__ import annotations

import pathlib
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import reverie

from bench.wire.common import TABLE, Job, random_row, serve_jobs


def insert(job: Job, i: int) -> Callable[[float], int]:
    client = reverie.Client(job.address)
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
    client = reverie.Client(job.address)

    def work(stop: float) -> int:
        items = 0
        for _ in client.sample(TABLE, 1_000_000_000, emit_timesteps=False):
            items += 1
            if items % 10 == 0 and time.monotonic() >= stop:
                return items
        return items

    return work


def batch(job: Job, i: int) -> Callable[[float], int]:
    client = reverie.Client(job.address)

    def work(stop: float) -> int:
        items = 0
        while time.monotonic() < stop:
            client.sample_batch(TABLE, job.batch)
            items += job.batch
        return items

    return work


if __name__ == "__main__":
    serve_jobs({"insert": insert, "iterate": iterate, "batch": batch})
