"""An actor: plays with the newest weights and writes n-step transitions."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading

import numpy as np
import reverie

from .config import EPISODES, REPLAY, WEIGHTS, Config
from .network import Weights, q_values


class WeightsSource:
    """The newest weights in their table of size 1."""

    def __init__(self, client: reverie.Client) -> None:
        self.client = client

    def newest(self, timeout: float) -> Weights:
        sample = self.client.sample_batch(WEIGHTS, 1, timeout=timeout)
        return {name: value[0, 0] for name, value in sample.data["weights"].items()}


class TransitionWriter:
    """Turns a stream of steps into overlapping n-step trajectories; every step is sent once.

    After an episode's last step, n rows without reward follow, so that the last steps have transitions of the same shape: with
    discount 0 after a termination, 1 after a cut at the time limit (the value of the last observation then counts).
    """

    def __init__(self, client: reverie.Client, n_step: int) -> None:
        self.n = n_step
        self.writer = client.trajectory_writer(num_keep_alive_refs=n_step + 1)
        self.priority = 1.0

    def step(self, observation: np.ndarray, action: int, reward: float, discount: float) -> None:
        self.writer.append(
            {
                "observation": observation,
                "action": np.int64(action),
                "reward": np.float32(reward),
                "discount": np.float32(discount),
            }
        )
        if self.writer.episode_steps > self.n:
            history, n = self.writer.history, self.n
            self.writer.create_item(
                REPLAY,
                self.priority,
                {
                    "observation": history["observation"][-n - 1],
                    "action": history["action"][-n - 1],
                    "reward": history["reward"][-n - 1 : -1],
                    "discount": history["discount"][-n - 1 : -1],
                    "next_observation": history["observation"][-1],
                },
            )
            self.writer.flush(block_until_num_items=100)

    def end_episode(self, observation: np.ndarray, terminated: bool) -> None:
        for _ in range(self.n):
            self.step(observation, 0, 0.0, 0.0 if terminated else 1.0)
        self.writer.end_episode()


def play(config: Config, client: reverie.Client, number: int) -> None:
    """Plays until the server goes away."""
    import gymnasium

    rng = np.random.default_rng([config.seed, number])
    environment = gymnasium.make("CartPole-v1")
    source = WeightsSource(client)
    writer = TransitionWriter(client, config.n_step)
    weights = source.newest(timeout=60)
    steps = 0
    observation, _ = environment.reset(seed=config.seed * 1_000 + number)
    episode_return = 0.0
    while True:
        if steps % config.fetch_period == 0:
            weights = source.newest(timeout=60)
        progress = min(1.0, steps / config.epsilon_steps)
        epsilon = config.epsilon_start + (config.epsilon_end - config.epsilon_start) * progress
        if rng.random() < epsilon:
            action = int(rng.integers(environment.action_space.n))
        else:
            action = int(np.argmax(q_values(weights, observation[None])[0]))
        following, reward, terminated, truncated, _ = environment.step(action)
        writer.step(observation, action, float(reward), 0.0 if terminated else config.gamma)
        observation = following
        episode_return += float(reward)
        steps += 1
        if terminated or truncated:
            writer.end_episode(observation, terminated)
            client.add(EPISODES, {"return": np.float32(episode_return), "actor": np.int64(number)})
            observation, _ = environment.reset()
            episode_return = 0.0


def main(config: Config, address: str, number: int) -> None:
    """Entry point of an actor's process, which the learner's process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the learner, and the learner ends its actors
    threading.Thread(target=_end_with_parent, daemon=True).start()
    play(config, reverie.Client(address), number)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(0)
