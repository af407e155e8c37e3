"""TF-Agents' DQN on CartPole with its replay buffer in Reverie: only the line with `install_as_reverb` is new.

To run it, beside Reverie, with Python up to 3.11::

    pip install 'tensorflow-cpu==2.15.*' tf-agents==0.19.0 'tensorflow-probability==0.23.*'
    python examples/tf_agents_dqn.py
"""

import argparse

import reverie

reverie.install_as_reverb()  # before anything imports reverb

import reverb
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.drivers import py_driver
from tf_agents.environments import suite_gym
from tf_agents.metrics import py_metrics
from tf_agents.networks import q_network
from tf_agents.policies import py_tf_eager_policy, random_py_policy
from tf_agents.replay_buffers import reverb_replay_buffer, reverb_utils
from tf_agents.specs import tensor_spec
from tf_agents.utils import common

LENGTH = 2  # steps of an item: a transition


def mean_return(environment, policy, episodes):
    metric = py_metrics.AverageReturnMetric(buffer_size=episodes)
    driver = py_driver.PyDriver(environment, py_tf_eager_policy.PyTFEagerPolicy(policy, True), [metric], max_episodes=episodes)
    driver.run(environment.reset())
    return float(metric.result())


def main():
    parser = argparse.ArgumentParser(description="TF-Agents' DQN on CartPole, with Reverie")
    parser.add_argument("--iterations", type=int, default=10_000)
    options = parser.parse_args()

    environment, evaluation = suite_gym.load("CartPole-v0"), suite_gym.load("CartPole-v0")
    time_step_spec, action_spec = (
        tensor_spec.from_spec(spec) for spec in (environment.time_step_spec(), environment.action_spec())
    )
    agent = dqn_agent.DqnAgent(
        time_step_spec,
        action_spec,
        q_network=q_network.QNetwork(time_step_spec.observation, action_spec, fc_layer_params=(64,)),
        optimizer=tf.keras.optimizers.Adam(1e-3),
        td_errors_loss_fn=common.element_wise_squared_loss,
        target_update_tau=0.05,
        target_update_period=5,
        gamma=0.99,
    )
    agent.initialize()
    agent.train = common.function(agent.train)

    table = reverb.Table(
        "experience",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=20_000,
        rate_limiter=reverb.rate_limiters.MinSize(64),
        signature=tensor_spec.add_outer_dim(tensor_spec.from_spec(agent.collect_data_spec), LENGTH),
    )
    server = reverb.Server([table])
    buffer = reverb_replay_buffer.ReverbReplayBuffer(agent.collect_data_spec, "experience", LENGTH, local_server=server)
    observer = reverb_utils.ReverbAddTrajectoryObserver(buffer.py_client, "experience", LENGTH)

    random_policy = random_py_policy.RandomPyPolicy(environment.time_step_spec(), environment.action_spec())
    py_driver.PyDriver(environment, random_policy, [observer], max_steps=200).run(environment.reset())
    print(f"before: mean return {mean_return(evaluation, agent.policy, 5):.0f}, {buffer.num_frames()} items")

    collect_policy = py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, True)
    collect = py_driver.PyDriver(environment, collect_policy, [observer], max_steps=1)
    samples = iter(buffer.as_dataset(sample_batch_size=64, num_steps=LENGTH, num_parallel_calls=2).prefetch(2))
    time_step = environment.reset()
    for _ in range(options.iterations):
        time_step, _ = collect.run(time_step)
        experience, _ = next(samples)
        loss = agent.train(experience).loss
    print(f"after {options.iterations} iterations: mean return {mean_return(evaluation, agent.policy, 5):.0f}, loss {loss:.3f}")

    observer.close()
    server.stop()


if __name__ == "__main__":
    main()
