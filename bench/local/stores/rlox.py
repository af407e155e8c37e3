"""rlox: ReplayBuffer and PrioritizedReplayBuffer (rows are kept as float32, flat)."""

from __future__ import annotations

import importlib.metadata
import math

import numpy as np
import rlox as library

from bench.local.cases import ADD_BATCH, BATCH, POOL, Case


class Store:
    version = importlib.metadata.version("rlox")

    def __init__(self, case: Case) -> None:
        width = math.prod(case.shape)
        if case.name == "atari":
            raise SystemExit("rlox keeps float32: 20,000 Atari rows would take 4.5 GB a buffer")
        self.uniform = library.ReplayBuffer(case.capacity, width, 1)
        self.prioritized = library.PrioritizedReplayBuffer(case.capacity, width, 1, 0.6, 0.4)
        pool = case.pool()
        obs = np.ascontiguousarray(pool["obs"].reshape(POOL, width).astype(np.float32))
        next_obs = np.ascontiguousarray(pool["next_obs"].reshape(POOL, width).astype(np.float32))
        action = pool["action"].astype(np.float32).reshape(POOL, 1)
        self.rows = [
            (obs[i], action[i], float(pool["reward"][i]), bool(pool["done"][i]), False, next_obs[i]) for i in range(POOL)
        ]
        self.batches = [
            (
                obs[i : i + ADD_BATCH].reshape(-1),
                next_obs[i : i + ADD_BATCH].reshape(-1),
                action[i : i + ADD_BATCH].reshape(-1),
                np.ascontiguousarray(pool["reward"][i : i + ADD_BATCH]),
                pool["done"][i : i + ADD_BATCH].astype(np.uint8),
                np.zeros(ADD_BATCH, np.uint8),
            )
            for i in range(0, POOL, ADD_BATCH)
        ]
        self.i = 0
        self.seed = 0
        for i in range(case.capacity):
            self.uniform.push(*self.rows[i % POOL])
            self.prioritized.push(*self.rows[i % POOL], 1.0)
        self.indexes = self.prioritized.sample(BATCH, 1)["indices"]
        self.priorities = np.random.default_rng(0).random(BATCH)

    def add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.uniform.push(*self.rows[self.i])

    def add_batch(self) -> None:
        self.i = (self.i + 1) % len(self.batches)
        self.uniform.push_batch(*self.batches[self.i])

    def sample(self) -> None:
        self.seed += 1
        self.uniform.sample(BATCH, self.seed)

    def prioritized_sample(self) -> None:
        self.seed += 1
        self.indexes = self.prioritized.sample(BATCH, self.seed)["indices"]

    def update_priorities(self) -> None:
        self.prioritized.update_priorities(self.indexes, self.priorities)
