"""Stable-Baselines3: ReplayBuffer with one environment (it has neither batches nor priorities)."""

from __future__ import annotations

import importlib.metadata

import gymnasium
import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer

from bench.local.cases import BATCH, POOL, Case


class Store:
    version = importlib.metadata.version("stable_baselines3")

    def __init__(self, case: Case) -> None:
        if np.dtype(case.dtype).kind == "f":
            space: gymnasium.Space = gymnasium.spaces.Box(-np.inf, np.inf, case.shape, np.dtype(case.dtype).type)
        else:
            space = gymnasium.spaces.Box(0, 255, case.shape, np.dtype(case.dtype).type)
        self.buffer = ReplayBuffer(
            case.capacity, space, gymnasium.spaces.Discrete(4), device="cpu", handle_timeout_termination=False
        )
        pool = case.pool()
        self.rows = [
            (
                pool["obs"][i : i + 1],
                pool["next_obs"][i : i + 1],
                pool["action"][i : i + 1].reshape(1, 1),
                pool["reward"][i : i + 1],
                pool["done"][i : i + 1],
                [{}],
            )
            for i in range(POOL)
        ]
        self.i = 0
        for i in range(case.capacity):
            self.buffer.add(*self.rows[i % POOL])

    def add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.buffer.add(*self.rows[self.i])

    def sample(self) -> None:
        self.buffer.sample(BATCH)
