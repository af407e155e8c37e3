"""Stable-Baselines3: ReplayBuffer and NStepReplayBuffer (they have neither priorities nor sequences)."""

from __future__ import annotations

import importlib.metadata

import gymnasium
import numpy as np
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer

from bench.local.cases import ADD_BATCH, POOL, Case
from bench.local.worker import NotSupported


class Store:
    version = importlib.metadata.version("stable_baselines3")

    def __init__(self, case: Case) -> None:
        if case.kind not in ("transition", "nstep", "next"):
            raise NotSupported("it has no sequences, and stores a frame once for each stack")
        if np.dtype(case.dtype).kind == "f":
            space: gymnasium.Space = gymnasium.spaces.Box(-np.inf, np.inf, case.shape, np.dtype(case.dtype).type)
        else:
            space = gymnasium.spaces.Box(0, 255, case.shape, np.dtype(case.dtype).type)
        options = {"device": "cpu", "handle_timeout_termination": False}
        action = gymnasium.spaces.Discrete(4)
        if case.kind == "next":
            self._begin_shared(case, space, action, options)
            return
        if case.kind == "nstep":
            self.buffer = NStepReplayBuffer(case.capacity, space, action, n_steps=case.length, gamma=0.99, **options)
        else:
            self.buffer = ReplayBuffer(case.capacity, space, action, **options)
        self.batch = case.batch
        pool = case.pool()
        done = case.steps()["done"] if case.kind == "nstep" else pool["done"]
        self.rows = [
            (
                pool["obs"][i : i + 1],
                pool["next_obs"][i : i + 1],
                pool["action"][i : i + 1].reshape(1, 1),
                pool["reward"][i : i + 1],
                done[i : i + 1],
                [{}],
            )
            for i in range(POOL)
        ]
        self.i = 0
        for i in range(case.capacity):
            self.buffer.add(*self.rows[i % POOL])

    def _begin_shared(self, case: Case, space: gymnasium.Space, action: gymnasium.Space, options: dict[str, object]) -> None:
        self.batch, self.i, self.k = case.batch, 0, 0
        options["optimize_memory_usage"] = True
        self.buffer = ReplayBuffer(case.capacity, space, action, **options)
        self.many = ReplayBuffer(case.capacity, space, action, n_envs=ADD_BATCH, **options)
        self.rows, self.batches = (
            [
                (step["obs"], step["next_obs"], step["action"].reshape(n, 1), step["reward"], step["done"], [{}] * n)
                for step in case.shared_steps(n)
            ]
            for n in (1, ADD_BATCH)
        )
        self.add_batch = self._add_batch
        for _ in range(case.capacity):
            self.add()
        for _ in range(0, case.capacity, ADD_BATCH):
            self._add_batch()

    def _add_batch(self) -> None:
        self.k = (self.k + 1) % len(self.batches)
        self.many.add(*self.batches[self.k])

    def add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.buffer.add(*self.rows[self.i])

    def sample(self) -> None:
        self.buffer.sample(self.batch)
