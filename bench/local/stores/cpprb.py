"""cpprb: ReplayBuffer (with its n-step and its compression of stacked frames) and PrioritizedReplayBuffer."""

from __future__ import annotations

import importlib.metadata

import cpprb
import numpy as np

from bench.local.cases import ADD_BATCH, EPISODE, POOL, Case
from bench.local.worker import NotSupported


class Store:
    version = importlib.metadata.version("cpprb")

    def __init__(self, case: Case) -> None:
        self.batch = case.batch
        self.i = 0
        self.ends = case.kind == "nstep"  # what goes on for ever has no end
        if case.kind == "transition":
            self._begin_transitions(case)
        elif case.kind == "nstep":
            self._begin_nstep(case)
        elif case.kind in ("next", "framestack"):
            self._begin_shared(case)
        else:
            raise NotSupported("it has no sequences")

    def sample(self) -> None:
        self.uniform.sample(self.batch)

    # ---- transitions ----

    def _begin_transitions(self, case: Case) -> None:
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
        for i in range(0, case.capacity, ADD_BATCH):
            batch = self.batches[(i // ADD_BATCH) % len(self.batches)]
            self.uniform.add(**batch)
            self.prioritized.add(**batch)
        self.indexes = self.prioritized.sample(self.batch)["indexes"]
        self.priorities = np.random.default_rng(0).random(self.batch)
        self.add, self.add_batch = self._add, self._add_batch
        self.prioritized_sample, self.update_priorities = self._prioritized_sample, self._update_priorities

    def _add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.uniform.add(**self.rows[self.i])

    def _add_batch(self) -> None:
        self.i = (self.i + 1) % len(self.batches)
        self.uniform.add(**self.batches[self.i])

    def _prioritized_sample(self) -> None:
        self.indexes = self.prioritized.sample(self.batch)["indexes"]

    def _update_priorities(self) -> None:
        self.prioritized.update_priorities(self.indexes, self.priorities)

    # ---- what several steps make ----

    def _begin_nstep(self, case: Case) -> None:
        fields = {
            "obs": {"shape": case.shape, "dtype": np.dtype(case.dtype)},
            "action": {"dtype": np.int64},
            "reward": {"dtype": np.float32},
            "next_obs": {"shape": case.shape, "dtype": np.dtype(case.dtype)},
            "done": {"dtype": np.bool_},
        }
        self.uniform = cpprb.ReplayBuffer(
            case.capacity, fields, Nstep={"size": case.length, "rew": "reward", "gamma": 0.99, "next": "next_obs"}
        )
        steps = case.steps()
        following = np.roll(steps["obs"], -1, axis=0)
        self.rows = [{**{name: column[i] for name, column in steps.items()}, "next_obs": following[i]} for i in range(POOL)]
        self._fill(case)

    def _begin_shared(self, case: Case) -> None:
        """Its next_of is of one environment's steps: a batch of them is what an environment does in 128 steps."""
        stack = case.kind == "framestack"
        fields = {
            "obs": {"shape": (*case.shape, case.length) if stack else case.shape, "dtype": np.dtype(case.dtype)},
            "action": {"dtype": np.int64},
            "reward": {"dtype": np.float32},
            "done": {"dtype": np.bool_},
        }
        options = {"stack_compress": "obs"} if stack else {}
        self.uniform = cpprb.ReplayBuffer(case.capacity, fields, next_of="obs", **options)
        self.many = cpprb.ReplayBuffer(case.capacity, fields, next_of="obs", **options)
        steps = case.shared_steps(1)
        if stack:  # it wants frames last
            obs = [np.ascontiguousarray(np.moveaxis(step["obs"], 1, -1)) for step in steps]
            steps = [{**step, "obs": obs[i], "next_obs": obs[(i + 1) % POOL]} for i, step in enumerate(steps)]
        self.rows = [{name: column[0] for name, column in step.items()} for step in steps]
        self.batches = [
            {name: np.concatenate([step[name] for step in steps[i : i + ADD_BATCH]]) for name in steps[0]}
            for i in range(0, POOL, ADD_BATCH)
        ]
        self._fill(case)
        self.add_batch = self._add_shared_batch
        for _ in range(0, case.capacity, ADD_BATCH):
            self._add_shared_batch()

    def _add_shared_batch(self) -> None:
        self.i = (self.i + 1) % len(self.batches)
        self.many.add(**self.batches[self.i])

    def _fill(self, case: Case) -> None:
        self.add = self._add_step
        for _ in range(case.capacity):
            self._add_step()

    def _add_step(self) -> None:
        self.uniform.add(**self.rows[self.i % POOL])
        self.i += 1
        if self.i % EPISODE == 0 and self.ends:
            self.uniform.on_episode_end()
