"""What is stored in the in-process benchmark: transitions of three sizes. Imported by every worker, so it needs NumPy only."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

BATCH = 256
ADD_BATCH = 128
POOL = 1024  # distinct rows that are added again and again


@dataclasses.dataclass(frozen=True)
class Case:
    """Transitions (obs, action, reward, next_obs, done) with ``obs`` of this shape and dtype; ``capacity`` in transitions."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    capacity: int

    @property
    def row_bytes(self) -> int:
        """Payload of one transition: two observations, int64 action, float32 reward, bool done."""
        return 2 * math.prod(self.shape) * np.dtype(self.dtype).itemsize + 8 + 4 + 1

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


CASES = {
    "small": Case("small", (4,), "float32", 100_000),
    "image": Case("image", (32, 32, 3), "uint8", 100_000),
    "atari": Case("atari", (84, 84, 4), "uint8", 20_000),
}

# What is measured; a store that cannot do one leaves the method out.
OPERATIONS = {
    "add": "add 1",
    "add_batch": f"add {ADD_BATCH}",
    "sample": f"sample {BATCH}",
    "prioritized_sample": f"PER sample {BATCH}",
    "update_priorities": f"PER update {BATCH}",
}
