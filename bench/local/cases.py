"""What is stored in the in-process benchmark. Imported by every worker, so it needs NumPy only."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

ADD_BATCH = 128
POOL = 1024  # distinct rows that are added again and again
EPISODE = 256  # steps, of the kinds that know episodes


@dataclasses.dataclass(frozen=True)
class Case:
    """Experience with observations of this shape and dtype.

    `kind` says what a sample is: "transition" (obs, action, reward, next_obs, done as one row); "sequence": the last `length` steps
    of (obs, action, reward, done), a new one every `period` steps; "nstep": obs and action, the discounted sum of the next `length`
    rewards, and the obs `length` steps on; "next": a transition whose next_obs is the obs one step on, stored once; "framestack": such
    a one of stacks of the last `length` frames, each frame stored once.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    capacity: int  # steps or transitions
    batch: int
    length: int = 1
    period: int = 1

    @property
    def obs_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def observations(self, n: int, seed: int) -> np.ndarray:
        """Random observations [n, *shape]."""
        rng = np.random.default_rng(seed)
        if np.dtype(self.dtype).kind == "f":
            return rng.standard_normal((n, *self.shape)).astype(self.dtype)
        return rng.integers(0, 256, (n, *self.shape)).astype(self.dtype)

    def pool(self) -> dict[str, np.ndarray]:
        """``POOL`` transitions as columns."""
        rng = np.random.default_rng(0)
        return {
            "obs": self.observations(POOL, 1),
            "action": rng.integers(0, 4, POOL).astype(np.int64),
            "reward": rng.standard_normal(POOL).astype(np.float32),
            "next_obs": self.observations(POOL, 2),
            "done": rng.random(POOL) < 0.01,
        }

    def steps(self) -> dict[str, np.ndarray]:
        """``POOL`` steps as columns: episodes of ``EPISODE`` steps."""
        pool = self.pool()
        return {
            "obs": pool["obs"],
            "action": pool["action"],
            "reward": pool["reward"],
            "done": np.arange(POOL) % EPISODE == EPISODE - 1,
        }

    def shared_steps(self, num_envs: int) -> list[dict[str, np.ndarray]]:
        """Steps of `num_envs` environments, [num_envs, ...] each, that go on from one another for ever: next_obs is the next one's obs."""
        period = POOL // num_envs
        frames = self.observations(POOL, 1)
        first = np.arange(num_envs) * period % POOL
        numbers = np.arange(POOL)

        def obs(step: int) -> np.ndarray:
            if self.kind == "next":
                return frames[first + step % period]
            return frames[first[:, None] + (step + np.arange(1 - self.length, 1)) % period]

        columns = [obs(step) for step in range(period)]
        return [
            {
                "obs": columns[step],
                "action": numbers[:num_envs] % 4,
                "reward": numbers[:num_envs].astype(np.float32),
                "next_obs": columns[(step + 1) % period],
                "done": np.zeros(num_envs, bool),
            }
            for step in range(period)
        ]

    def discounts(self) -> np.ndarray:
        """[length]: what each of the n rewards counts."""
        return (0.99 ** np.arange(self.length)).astype(np.float32)


CASES = {
    case.name: case
    for case in (
        Case("small", "transition", (4,), "float32", 100_000, 256),
        Case("image", "transition", (32, 32, 3), "uint8", 100_000, 256),
        Case("atari", "transition", (84, 84, 4), "uint8", 20_000, 256),
        Case("sequence", "sequence", (4,), "float32", 100_000, 32, 32, 16),
        Case("next", "next", (32, 32, 3), "uint8", 100_000, 256),
        Case("nstep", "nstep", (4,), "float32", 100_000, 256, 5),
        Case("framestack", "framestack", (84, 84), "uint8", 20_000, 256, 4),
    )
}

# What is measured; a store that cannot do one leaves the method out, or makes it None.
OPERATIONS = ("add", "add_batch", "sample", "prioritized_sample", "update_priorities")


def title(operation: str, case: Case) -> str:
    """The operation's name for people."""
    return {
        "add": "add 1",
        "add_batch": f"add {ADD_BATCH}",
        "sample": f"sample {case.batch}",
        "prioritized_sample": f"PER sample {case.batch}",
        "update_priorities": f"PER update {case.batch}",
    }[operation]


def operations(case: Case) -> tuple[str, ...]:
    if case.kind in ("next", "framestack"):
        return ("add", "add_batch", "sample")
    return OPERATIONS if case.kind == "transition" else ("add", "sample")
