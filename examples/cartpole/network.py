"""A small Q-network in NumPy: two hidden layers of rectified units, its gradient by hand, and Adam."""

from __future__ import annotations

import itertools

import numpy as np

Weights = dict[str, np.ndarray]


def initial_weights(rng: np.random.Generator, inputs: int, hidden: int, actions: int) -> Weights:
    """He-initialised weights: ``w0`` [inputs, hidden], ``b0`` [hidden], and so on, float32."""
    sizes = [inputs, hidden, hidden, actions]
    weights: Weights = {}
    for i, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weights[f"w{i}"] = (rng.standard_normal((rows, columns)) * np.sqrt(2.0 / rows)).astype(np.float32)
        weights[f"b{i}"] = np.zeros(columns, np.float32)
    return weights


def q_values(weights: Weights, observations: np.ndarray) -> np.ndarray:
    """Action values [B, actions] of observations [B, inputs]."""
    x = np.maximum(observations @ weights["w0"] + weights["b0"], 0.0)
    x = np.maximum(x @ weights["w1"] + weights["b1"], 0.0)
    return x @ weights["w2"] + weights["b2"]


def gradient(
    weights: Weights, observations: np.ndarray, actions: np.ndarray, targets: np.ndarray, importance: np.ndarray
) -> tuple[Weights, np.ndarray]:
    """Gradient of the importance-weighted mean Huber loss, and the TD errors [B] (target - value)."""
    h0 = np.maximum(observations @ weights["w0"] + weights["b0"], 0.0)
    h1 = np.maximum(h0 @ weights["w1"] + weights["b1"], 0.0)
    q = h1 @ weights["w2"] + weights["b2"]
    rows = np.arange(len(actions))
    td = targets - q[rows, actions]
    dq = np.zeros_like(q)
    dq[rows, actions] = -np.clip(td, -1.0, 1.0) * importance / len(actions)
    dh1 = (dq @ weights["w2"].T) * (h1 > 0)
    dh0 = (dh1 @ weights["w1"].T) * (h0 > 0)
    grads = {
        "w2": h1.T @ dq,
        "b2": dq.sum(0),
        "w1": h0.T @ dh1,
        "b1": dh1.sum(0),
        "w0": observations.T @ dh0,
        "b0": dh0.sum(0),
    }
    return grads, td


class Adam:
    """Adam (Kingma and Ba 2015, algorithm 1) with the gradient's norm clipped to ``clip``."""

    def __init__(self, weights: Weights, learning_rate: float, clip: float = 10.0) -> None:
        self.learning_rate = learning_rate
        self.clip = clip
        self.steps = 0
        self.mean = {name: np.zeros_like(value) for name, value in weights.items()}
        self.square = {name: np.zeros_like(value) for name, value in weights.items()}

    def update(self, weights: Weights, grads: Weights) -> None:
        """Changes ``weights`` in place by one step along ``grads``."""
        self.steps += 1
        norm = np.sqrt(sum(float(np.vdot(g, g)) for g in grads.values()))
        scale = min(1.0, self.clip / (norm + 1e-12))
        rate = self.learning_rate * np.sqrt(1.0 - 0.999**self.steps) / (1.0 - 0.9**self.steps)
        for name, grad in grads.items():
            grad = grad * scale
            self.mean[name] += 0.1 * (grad - self.mean[name])
            self.square[name] += 0.001 * (grad * grad - self.square[name])
            weights[name] -= (rate * self.mean[name] / (np.sqrt(self.square[name]) + 1e-8)).astype(np.float32)
