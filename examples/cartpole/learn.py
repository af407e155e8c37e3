"""The learner's loop: sample a prioritized batch, learn, write the priorities back, publish the weights now and then."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import reverie

from .config import EPISODES, REPLAY, SOLVED_RETURN, WEIGHTS, Config
from .dqn import Learner, evaluate
from .network import Weights
from .progress import Progress
from .view import LineView, PanelView


@dataclasses.dataclass
class Result:
    """How it ended: the best weights and the returns of fresh evaluation episodes with them."""

    weights: Weights
    returns: np.ndarray
    updates: int

    @property
    def solved(self) -> bool:
        return float(self.returns.mean()) >= SOLVED_RETURN


def publish(client: reverie.Client, learner: Learner) -> None:
    """Puts the weights where the actors look for them; the table's one item is replaced."""
    client.insert({"updates": np.int64(learner.updates), "weights": learner.weights}, {WEIGHTS: 1.0})


def drain_episodes(client: reverie.Client, progress: Progress) -> None:
    """Takes the actors' finished episodes, without waiting for any."""
    while True:
        try:
            batch = client.sample_batch(EPISODES, 100, timeout=0)
        except reverie.errors.DeadlineExceededError:
            return
        progress.episodes += [(progress.seconds, float(value)) for value in batch.data["return"]]


def learn(
    config: Config, client: reverie.Client, progress: Progress, view: LineView | PanelView, check_actors: Callable[[], None]
) -> Result:
    """Learns until solved or out of time; ``check_actors`` is called now and then and may raise."""
    learner = Learner(config)
    best, best_mean = {name: value.copy() for name, value in learner.weights.items()}, -1.0
    publish(client, learner)
    next_reading = 0.0
    while progress.seconds < config.time_limit:
        try:
            batch = client.sample_batch(REPLAY, config.batch_size, timeout=1.0)
        except reverie.errors.DeadlineExceededError:
            batch = None
        if batch is not None:
            priorities = learner.learn(batch.data, batch.probabilities, batch.table_sizes)
            client.update_priorities(REPLAY, batch.keys, priorities)
            progress.updates = learner.updates
            if learner.updates % config.publish_period == 0:
                publish(client, learner)
        if progress.seconds >= next_reading:
            next_reading = progress.seconds + 0.25
            check_actors()
            drain_episodes(client, progress)
            view.show(progress, progress.read_table(client.server_info(timeout=10)))
        if batch is not None and learner.updates % config.evaluate_period == 0:
            mean = float(evaluate(learner.weights, config.evaluate_episodes, seed=config.seed).mean())
            progress.evaluations.append((progress.seconds, mean))
            if mean > best_mean:
                best, best_mean = {name: value.copy() for name, value in learner.weights.items()}, mean
            if mean >= SOLVED_RETURN:
                returns = evaluate(learner.weights, config.evaluate_episodes, seed=config.seed + 1_000_003)
                if returns.mean() >= SOLVED_RETURN:
                    return Result(learner.weights, returns, learner.updates)
    returns = evaluate(best, config.evaluate_episodes, seed=config.seed + 1_000_003)
    return Result(best, returns, learner.updates)
