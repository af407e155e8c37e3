"""rlox: ReplayBuffer, PrioritizedReplayBuffer and SequenceReplayBuffer (rows are kept as float32, flat)."""

from __future__ import annotations

import importlib.metadata
import math

import numpy as np
import rlox as library

from bench.local.cases import ADD_BATCH, POOL, Case
from bench.local.worker import NotSupported


class Store:
    version = importlib.metadata.version("rlox")

    def __init__(self, case: Case) -> None:
        if case.name == "atari":
            raise NotSupported("it keeps float32: 20,000 Atari rows would take 4.5 GB a buffer")
        if case.kind not in ("transition", "sequence"):
            raise NotSupported("it has neither n-step transitions nor frames that are stored once")
        self.batch, self.length = case.batch, case.length
        self.i = 0
        self.seed = 0
        width = math.prod(case.shape)
        pool = case.pool()
        done = pool["done"] if case.kind == "transition" else case.steps()["done"]
        obs = np.ascontiguousarray(pool["obs"].reshape(POOL, width).astype(np.float32))
        next_obs = np.ascontiguousarray(pool["next_obs"].reshape(POOL, width).astype(np.float32))
        action = pool["action"].astype(np.float32).reshape(POOL, 1)
        self.rows = [(obs[i], action[i], float(pool["reward"][i]), bool(done[i]), False, next_obs[i]) for i in range(POOL)]
        if case.kind == "sequence":
            self.rows = [(row[0], row[5], *row[1:5]) for row in self.rows]  # its order of arguments is another
            self.sequences = library.SequenceReplayBuffer(case.capacity, width, 1)
            for i in range(case.capacity):
                self.sequences.push(*self.rows[i % POOL])
            self.add, self.sample = self._add_step, self._sample_sequences
            return
        self.uniform = library.ReplayBuffer(case.capacity, width, 1)
        self.prioritized = library.PrioritizedReplayBuffer(case.capacity, width, 1, 0.6, 0.4)
        self.batches = [
            (
                obs[i : i + ADD_BATCH].reshape(-1),
                next_obs[i : i + ADD_BATCH].reshape(-1),
                action[i : i + ADD_BATCH].reshape(-1),
                np.ascontiguousarray(pool["reward"][i : i + ADD_BATCH]),
                done[i : i + ADD_BATCH].astype(np.uint8),
                np.zeros(ADD_BATCH, np.uint8),
            )
            for i in range(0, POOL, ADD_BATCH)
        ]
        for i in range(case.capacity):
            self.uniform.push(*self.rows[i % POOL])
            self.prioritized.push(*self.rows[i % POOL], 1.0)
        self.indexes = self.prioritized.sample(self.batch, 1)["indices"]
        self.priorities = np.random.default_rng(0).random(self.batch)
        self.add, self.add_batch, self.sample = self._add, self._add_batch, self._sample
        self.prioritized_sample, self.update_priorities = self._prioritized_sample, self._update_priorities

    def _add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.uniform.push(*self.rows[self.i])

    def _add_batch(self) -> None:
        self.i = (self.i + 1) % len(self.batches)
        self.uniform.push_batch(*self.batches[self.i])

    def _sample(self) -> None:
        self.seed += 1
        self.uniform.sample(self.batch, self.seed)

    def _prioritized_sample(self) -> None:
        self.seed += 1
        self.indexes = self.prioritized.sample(self.batch, self.seed)["indices"]

    def _update_priorities(self) -> None:
        self.prioritized.update_priorities(self.indexes, self.priorities)

    def _add_step(self) -> None:
        self.i = (self.i + 1) % POOL
        self.sequences.push(*self.rows[self.i])

    def _sample_sequences(self) -> None:
        self.seed += 1
        self.sequences.sample_sequences(self.batch, self.length, self.seed)
