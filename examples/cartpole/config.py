"""What the demo can be told, and the tables that its parts agree on."""

from __future__ import annotations

import dataclasses

REPLAY = "replay"
WEIGHTS = "weights"
EPISODES = "episodes"
SOLVED_RETURN = 475.0  # of 500: Gymnasium's own threshold for CartPole-v1


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of one run; times in seconds, the rest in steps, samples or items."""

    seed: int = 1
    actors: int = 2
    server: str | None = None
    # environment and targets
    n_step: int = 3
    gamma: float = 0.99
    # replay
    replay_size: int = 50_000
    min_replay: int = 1_000
    samples_per_insert: float = 16.0
    priority_exponent: float = 0.6
    importance_exponent: float = 0.4
    # learner
    batch_size: int = 128
    hidden: int = 128
    learning_rate: float = 5e-4
    target_period: int = 250
    publish_period: int = 20
    evaluate_period: int = 400
    evaluate_episodes: int = 20
    decay_updates: int = 30_000
    time_limit: float = 170.0
    # actors
    epsilon_start: float = 1.0
    epsilon_end: float = 0.04
    epsilon_steps: int = 5_000
    fetch_period: int = 50
