"""Reverie, embedded."""

from __future__ import annotations

import numpy as np
import reverie

from bench.local.cases import ADD_BATCH, BATCH, POOL, Case


def table(name: str, sampler: object, capacity: int, signature: object) -> reverie.Table:
    return reverie.Table(
        name=name,
        sampler=sampler,
        remover=reverie.selectors.Fifo(),
        max_size=capacity,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature=signature,
    )


class Store:
    version = reverie.__version__

    def __init__(self, case: Case) -> None:
        pool = case.pool()
        signature = {name: reverie.TensorSpec(column.shape[1:], column.dtype, name) for name, column in pool.items()}
        self.server = reverie.Server(
            [
                table("uniform", reverie.selectors.Uniform(), case.capacity, signature),
                table("prioritized", reverie.selectors.Prioritized(0.6), case.capacity, signature),
            ],
            address="127.0.0.1:0",
        )
        self.client = reverie.Client(self.server)
        self.rows = [{name: column[i] for name, column in pool.items()} for i in range(POOL)]
        self.batches = [{name: column[i : i + ADD_BATCH] for name, column in pool.items()} for i in range(0, POOL, ADD_BATCH)]
        self.i = 0
        for i in range(0, case.capacity, ADD_BATCH):
            batch = self.batches[(i // ADD_BATCH) % len(self.batches)]
            self.client.add_batch("uniform", batch)
            self.client.add_batch("prioritized", batch)
        self.keys = self.client.sample_batch("prioritized", BATCH).keys
        self.priorities = np.random.default_rng(0).random(BATCH)

    def add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.client.add("uniform", self.rows[self.i])

    def add_batch(self) -> None:
        self.i = (self.i + 1) % len(self.batches)
        self.client.add_batch("uniform", self.batches[self.i])

    def sample(self) -> None:
        self.client.sample_batch("uniform", BATCH)

    def prioritized_sample(self) -> None:
        self.keys = self.client.sample_batch("prioritized", BATCH).keys

    def update_priorities(self) -> None:
        self.client.update_priorities("prioritized", self.keys, self.priorities)

    def close(self) -> None:
        self.server.stop()
