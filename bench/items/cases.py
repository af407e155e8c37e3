"""What writers append and make items of. Reverie's and dm-reverb's interpreters import it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

STEPS = 1000  # distinct ones, again and again


@dataclasses.dataclass(frozen=True)
class Case:
    """Steps of observation, action, reward and discount, and an item every `period` of them; `history` is what a writer keeps of each."""

    observation: int  # float32 elements
    next_observation: bool  # a column of the step, too
    history: int
    period: int
    share: float = 1.0  # of the items that a table has: larger ones are fewer

    def steps(self) -> list[dict[str, Any]]:
        random = np.random.default_rng(0)
        return [self._step(random) for _ in range(STEPS)]

    def _step(self, random: np.random.Generator) -> dict[str, Any]:
        step: dict[str, Any] = {
            "observation": random.standard_normal(self.observation, np.float32),
            "action": random.standard_normal(6, np.float32),
            "reward": np.float32(random.standard_normal()),
            "discount": np.float32(1),
        }
        if self.next_observation:
            step["next_observation"] = random.standard_normal(self.observation, np.float32)
        return step

    def item(self, history: Mapping[str, Any]) -> dict[str, Any]:
        """Its rows: the last of each column, as many as are kept; of two, what the first observation led to."""
        if self.history == 2:
            return {name: rows[-2:] if name == "observation" else rows[-2:-1] for name, rows in history.items()}
        return {name: rows[-self.history :] for name, rows in history.items()}

    def specs(self) -> dict[str, tuple[int, ...]]:
        """What an item has of each column, in its order."""
        step = self._step(np.random.default_rng(0))
        item = self.item({name: np.zeros((self.history, *np.shape(value))) for name, value in step.items()})
        return {name: rows.shape for name, rows in item.items()}


CASES: dict[str, Case] = {
    "transition": Case(observation=4, next_observation=True, history=1, period=1),
    "two steps": Case(observation=17, next_observation=False, history=2, period=1),
    "sequence": Case(observation=17, next_observation=False, history=32, period=16, share=0.1),
}
