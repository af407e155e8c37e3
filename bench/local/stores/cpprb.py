"""cpprb: ReplayBuffer and PrioritizedReplayBuffer."""

from __future__ import annotations

import importlib.metadata

import cpprb
import numpy as np

from bench.local.cases import ADD_BATCH, BATCH, POOL, Case


class Store:
    version = importlib.metadata.version("cpprb")

    def __init__(self, case: Case) -> None:
        fields = {
            "obs": {"shape": case.shape, "dtype": np.dtype(case.dtype)},
            "action": {"dtype": np.int64},
            "reward": {"dtype": np.float32},
            "next_obs": {"shape": case.shape, "dtype": np.dtype(case.dtype)},
            "done": {"dtype": np.bool_},
        }
        self.uniform = cpprb.ReplayBuffer(case.capacity, fields)
        self.prioritized = cpprb.PrioritizedReplayBuffer(case.capacity, fields, alpha=0.6)
        pool = case.pool()
        self.rows = [{name: column[i] for name, column in pool.items()} for i in range(POOL)]
        self.batches = [{name: column[i : i + ADD_BATCH] for name, column in pool.items()} for i in range(0, POOL, ADD_BATCH)]
        self.i = 0
        for i in range(0, case.capacity, ADD_BATCH):
            batch = self.batches[(i // ADD_BATCH) % len(self.batches)]
            self.uniform.add(**batch)
            self.prioritized.add(**batch)
        self.indexes = self.prioritized.sample(BATCH)["indexes"]
        self.priorities = np.random.default_rng(0).random(BATCH)
        self.prioritized.update_priorities(
            np.arange(min(case.capacity, 10_000)), np.random.default_rng(0).random(min(case.capacity, 10_000))
        )

    def add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.uniform.add(**self.rows[self.i])

    def add_batch(self) -> None:
        self.i = (self.i + 1) % len(self.batches)
        self.uniform.add(**self.batches[self.i])

    def sample(self) -> None:
        self.uniform.sample(BATCH)

    def prioritized_sample(self) -> None:
        self.indexes = self.prioritized.sample(BATCH)["indexes"]

    def update_priorities(self) -> None:
        self.prioritized.update_priorities(self.indexes, self.priorities)
