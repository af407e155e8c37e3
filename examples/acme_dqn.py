"""Acme's DQN agent with its replay in Reverie: only the line with `install_as_reverb` is new.

To run it, beside Reverie, with Python up to 3.11 (Acme itself is installed without what it pins, for that is of 2022)::

    pip install 'tensorflow-cpu==2.15.*' 'tensorflow-probability==0.23.*' dm-sonnet trfl dm-env dm-tree jax==0.4.30 jaxlib==0.4.30
    pip install --no-deps dm-acme==0.4.0
    python examples/acme_dqn.py

Acme imports Launchpad, which has no wheel for Python 3.10 and later: put tests/consumers/stand_ins on PYTHONPATH instead.
"""

import argparse

import reverie

reverie.install_as_reverb()  # before anything imports reverb

import acme
import dm_env
import numpy as np
import sonnet as snt
from acme import specs
from acme.agents.tf import dqn
from acme.utils import loggers


class Corridor(dm_env.Environment):
    """Six cells, from the first to the last, which is worth 1; every step costs 0.02, and after 40 it is over."""

    cells = 6

    def reset(self):
        self._cell, self._steps = 0, 0
        return dm_env.restart(self._seen())

    def step(self, action):
        self._cell = max(self._cell + (1 if action == 1 else -1), 0)
        self._steps += 1
        if self._cell == self.cells - 1:
            return dm_env.termination(1.0, self._seen())
        if self._steps == 40:
            return dm_env.truncation(-0.02, self._seen())
        return dm_env.transition(-0.02, self._seen())

    def _seen(self):
        return np.eye(self.cells, dtype=np.float32)[self._cell]

    def observation_spec(self):
        return specs.BoundedArray((self.cells,), np.float32, 0, 1, "cell")

    def action_spec(self):
        return specs.DiscreteArray(2, name="left_or_right")


def main():
    parser = argparse.ArgumentParser(description="Acme's DQN, with Reverie")
    parser.add_argument("--episodes", type=int, default=150)
    options = parser.parse_args()

    environment = Corridor()
    spec = acme.make_environment_spec(environment)
    agent = dqn.DQN(
        environment_spec=spec,
        network=snt.Sequential([snt.Flatten(), snt.nets.MLP([32, spec.actions.num_values])]),
        batch_size=32,
        samples_per_insert=16.0,
        min_replay_size=64,
        n_step=3,
        learning_rate=3e-3,
        target_update_period=20,
        checkpoint=False,
        logger=loggers.NoOpLogger(),
    )
    loop = acme.EnvironmentLoop(environment, agent, logger=loggers.NoOpLogger())
    returns = [float(loop.run_episode()["episode_return"]) for _ in range(options.episodes)]
    tenth = max(len(returns) // 10, 1)
    print(
        f"{len(returns)} episodes: mean return {np.mean(returns[:tenth]):.2f} at first, {np.mean(returns[-tenth:]):.2f} at last"
    )


if __name__ == "__main__":
    main()
