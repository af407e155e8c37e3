"""The three tables, and a check that a server elsewhere has them."""

from __future__ import annotations

import numpy as np
import reverie

from .config import EPISODES, REPLAY, WEIGHTS, Config
from .dqn import ACTIONS, OBSERVATIONS
from .network import initial_weights


def make_tables(config: Config) -> list[reverie.Table]:
    """Replay (prioritized, kept in step with the learner), weights (the newest only), finished episodes (each read once)."""
    spec = reverie.TensorSpec
    n = config.n_step
    # Slack for a batch a learner step either way, and for what the actors write before the first batch.
    buffer = max(2.0 * config.batch_size, config.samples_per_insert * 64)
    return [
        reverie.Table(
            name=REPLAY,
            sampler=reverie.selectors.Prioritized(config.priority_exponent),
            remover=reverie.selectors.Fifo(),
            max_size=config.replay_size,
            rate_limiter=reverie.rate_limiters.SampleToInsertRatio(
                samples_per_insert=config.samples_per_insert, min_size_to_sample=config.min_replay, error_buffer=buffer
            ),
            signature={
                "observation": spec((OBSERVATIONS,), np.float32, "observation"),
                "action": spec((), np.int64, "action"),
                "reward": spec((n,), np.float32, "reward"),
                "discount": spec((n,), np.float32, "discount"),
                "next_observation": spec((OBSERVATIONS,), np.float32, "next_observation"),
            },
        ),
        reverie.Table(
            name=WEIGHTS,
            sampler=reverie.selectors.Lifo(),
            remover=reverie.selectors.Fifo(),
            max_size=1,
            rate_limiter=reverie.rate_limiters.MinSize(1),
            signature={
                "updates": spec((1,), np.int64, "updates"),
                "weights": {
                    name: spec((1, *value.shape), np.float32, name)
                    for name, value in initial_weights(np.random.default_rng(0), OBSERVATIONS, config.hidden, ACTIONS).items()
                },
            },
        ),
        reverie.Table(
            name=EPISODES,
            sampler=reverie.selectors.Fifo(),
            remover=reverie.selectors.Fifo(),
            max_size=1_000,
            max_times_sampled=1,
            rate_limiter=reverie.rate_limiters.MinSize(1),
            signature={"return": spec((), np.float32, "return"), "actor": spec((), np.int64, "actor")},
        ),
    ]


def check_tables(client: reverie.Client, address: str) -> None:
    """Exits with the remedy if the server at ``address`` lacks a table of the demo."""
    have = client.server_info(timeout=10)
    missing = [name for name in (REPLAY, WEIGHTS, EPISODES) if name not in have]
    if missing:
        raise SystemExit(
            f"the server at {address} has no table {', '.join(missing)}; start one that has:\n"
            "    reverie-server --config examples/cartpole/server.yaml"
        )
