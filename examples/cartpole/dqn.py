"""The learning step: double DQN on n-step transitions with prioritized sampling."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .config import Config
from .network import Adam, Weights, gradient, initial_weights, q_values

OBSERVATIONS = 4
ACTIONS = 2


class Learner:
    """Weights, target weights and optimizer; knows nothing about where batches come from."""

    def __init__(self, config: Config) -> None:
        self.config = config
        rng = np.random.default_rng(config.seed)
        self.weights = initial_weights(rng, OBSERVATIONS, config.hidden, ACTIONS)
        self.target = {name: value.copy() for name, value in self.weights.items()}
        self.optimizer = Adam(self.weights, config.learning_rate)
        self.updates = 0

    def learn(self, batch: Mapping[str, np.ndarray], probabilities: np.ndarray, table_sizes: np.ndarray) -> np.ndarray:
        """One update; returns the new priorities [B].

        ``batch`` holds ``observation`` [B, 4], ``action`` [B], ``reward`` and ``discount`` [B, n], ``next_observation`` [B, 4].
        Targets are van Hasselt et al. 2016; weights (N P)^-beta, normalised by their largest, Schaul et al. 2016, 3.4.
        """
        config = self.config
        self.optimizer.learning_rate = config.learning_rate * max(0.05, 1.0 - self.updates / config.decay_updates)
        discounts = np.cumprod(batch["discount"], axis=1)
        returns = batch["reward"][:, 0] + np.sum(batch["reward"][:, 1:] * discounts[:, :-1], axis=1)
        best = np.argmax(q_values(self.weights, batch["next_observation"]), axis=1)
        rows = np.arange(len(best))
        bootstrap = q_values(self.target, batch["next_observation"])[rows, best]
        targets = (returns + discounts[:, -1] * bootstrap).astype(np.float32)
        importance = (table_sizes * np.maximum(probabilities, 1e-12)) ** -config.importance_exponent
        importance = (importance / importance.max()).astype(np.float32)
        grads, td = gradient(self.weights, batch["observation"], batch["action"], targets, importance)
        self.optimizer.update(self.weights, grads)
        self.updates += 1
        if self.updates % config.target_period == 0:
            self.target = {name: value.copy() for name, value in self.weights.items()}
        return np.abs(td).astype(np.float64) + 1e-3


def evaluate(weights: Weights, episodes: int, seed: int) -> np.ndarray:
    """Returns [episodes] of the greedy policy."""
    import gymnasium

    environments = gymnasium.make_vec("CartPole-v1", num_envs=episodes, vectorization_mode="vector_entry_point")
    observations, _ = environments.reset(seed=seed)
    returns = np.zeros(episodes)
    alive = np.ones(episodes, bool)
    while alive.any():
        actions = np.argmax(q_values(weights, observations), axis=1)
        observations, rewards, terminated, truncated, _ = environments.step(actions)
        returns += rewards * alive
        alive &= ~(terminated | truncated)
    environments.close()
    return returns
