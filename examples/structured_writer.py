"""N-step transitions and overlapping sequences from one stream of steps, with priorities from TD errors.

    python examples/structured_writer.py [ADDRESS]

Without the address of a server with tables "transitions" and "sequences" it makes them in this process. docs/structured-writer.md
says what each part is for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import reverie
from reverie import structured

N, GAMMA, LENGTH, PERIOD = 3, 0.99, 8, 4
STEP = {
    "obs": np.zeros(4, np.float32),
    "action": np.int32(0),
    "reward": np.float32(0),
    "discount": np.float32(0),  # of what comes after the step: GAMMA, and 0 where the environment terminated
    "td_error": np.float32(0),
    "last": np.bool_(False),  # terminated or truncated
}


def make_configs() -> list[structured.Config]:
    """A transition from every step; sequences every PERIOD steps and at the end of the episode."""

    def transition(ref: Any) -> dict[str, Any]:
        old = -N - 1
        return {
            "obs": ref["obs"][old],
            "action": ref["action"][old],
            "rewards": ref["reward"][old:-1],
            "discounts": ref["discount"][old:-1],
            "next_obs": ref["obs"][-1],
        }

    priority = structured.td_error(0.9, STEP, lambda step: step["td_error"])

    def sequence(length: int, conditions: list[Any]) -> structured.Config:
        names = ("obs", "action", "reward", "discount", "td_error")
        pattern = structured.pattern_from_transform(STEP, lambda ref: {name: ref[name][-length:] for name in names})
        return structured.create_config(pattern, "sequences", conditions, priority)

    index = structured.Condition.step_index()
    last = structured.Condition.data(STEP)["last"]
    return [
        structured.create_config(structured.pattern_from_transform(STEP, transition), "transitions"),
        sequence(LENGTH, [index >= LENGTH - 1, index % PERIOD == PERIOD - 1]),
        sequence(LENGTH, [last == 1, index >= LENGTH - 1, index % PERIOD != PERIOD - 1]),
        *(sequence(length, [last == 1, index == length - 1]) for length in range(1, LENGTH)),
    ]


def n_step_returns(rewards: np.ndarray, discounts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both [B, N]. The target is returns + factors * value(next_obs); each is [B]."""
    products = np.cumprod(discounts, axis=1)
    returns = rewards[:, 0] + np.sum(rewards[:, 1:] * products[:, :-1], axis=1)
    return returns, products[:, -1]


def make_server(configs: list[structured.Config]) -> reverie.Server:
    def table(name: str) -> reverie.Table:
        return reverie.Table(
            name=name,
            sampler=reverie.selectors.Prioritized(0.6),
            remover=reverie.selectors.Fifo(),
            max_size=10_000,
            rate_limiter=reverie.rate_limiters.MinSize(1),
            signature=structured.infer_signature([config for config in configs if config.table == name], STEP),
        )

    return reverie.Server([table("transitions"), table("sequences")], in_process=True)


def observation(t: int) -> np.ndarray:
    """Stands for an environment's."""
    return np.full(4, t, np.float32)


def write_episode(writer: structured.StructuredWriter, rewards: Sequence[float], terminated: bool) -> None:
    """An episode with these rewards that terminated, or else was cut; N rows with its last observation follow the last step."""
    nothing = dict.fromkeys(STEP)  # None: no row of that leaf
    for t, reward in enumerate(rewards):
        writer.append(nothing | {"obs": observation(t)}, partial_step=True)
        action = np.int32(t % 3)  # chosen while the observation is already on its way
        ends = t == len(rewards) - 1
        discount = np.float32(0.0 if ends and terminated else GAMMA)
        rest = {
            "action": action,
            "reward": np.float32(reward),
            "discount": discount,
            "td_error": np.float32(t),
            "last": np.bool_(ends),
        }
        writer.append(nothing | rest)
        writer.flush(100, timeout_ms=10_000)  # at most 100 items unconfirmed
    after = {"obs": observation(len(rewards)), "action": np.int32(0), "reward": np.float32(0)}
    for _ in range(N):
        writer.append(nothing | after | {"discount": np.float32(0.0 if terminated else 1.0)})
    writer.end_episode(timeout_ms=10_000)


def main() -> None:
    configs = make_configs()
    server = make_server(configs) if len(sys.argv) == 1 else None
    client = reverie.Client(sys.argv[1] if server is None else server)
    with client.structured_writer(configs) as writer:
        for episode in range(10):
            terminated = episode % 2 == 0
            write_episode(writer, [0.0] * 21 + [1.0] if terminated else [1.0] * 22, terminated)
    transitions, sequences = (client.server_info()[name].current_size for name in ("transitions", "sequences"))
    print(f"{transitions} transitions, {sequences} sequences")
    batch = client.sample_batch("transitions", 32)
    returns, factors = n_step_returns(batch.data["rewards"], batch.data["discounts"])
    print(
        f"a batch of transitions: returns {returns.min():.2f} to {returns.max():.2f}, {(factors == 0).sum()} without a value after them"
    )
    batch = client.sample_batch("sequences", 32, unequal="pad")
    spread = {name: column.shape for name, column in batch.data.items()}
    print(f"a batch of sequences: {spread}, priorities {batch.priorities.min():.2f} to {batch.priorities.max():.2f}")


if __name__ == "__main__":
    main()
