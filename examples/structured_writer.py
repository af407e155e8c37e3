"""N-step transitions and overlapping sequences from one stream of steps, with priorities from TD errors.

    python examples/structured_writer.py [ADDRESS]

Without the address of a server with tables "transitions" and "sequences" it makes them in this process.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import reverie
from reverie import structured

N, LENGTH, PERIOD = 3, 8, 4
STEP = {"obs": np.zeros(4, np.float32), "action": np.int32(0), "reward": np.float32(0), "td_error": np.float32(0)}


def make_configs() -> list[structured.Config]:
    """Transitions after every step; sequences every PERIOD steps and at the end of the episode."""

    def transition(ref: Any) -> dict[str, Any]:
        old = -N - 1
        return {
            "obs": ref["obs"][old],
            "action": ref["action"][old],
            "rewards": ref["reward"][old:-1],
            "next_obs": ref["obs"][-1],
        }

    def sequence(ref: Any) -> dict[str, Any]:
        return {name: ref[name][-LENGTH:] for name in STEP}

    index = structured.Condition.step_index()
    priority = structured.td_error(0.9, STEP, lambda step: step["td_error"])
    whenever = [
        [index >= LENGTH - 1, index % PERIOD == PERIOD - 1],
        [structured.Condition.is_end_episode(), index % PERIOD != PERIOD - 1],
    ]
    configs = [structured.create_config(structured.pattern_from_transform(STEP, transition), "transitions")]
    for conditions in whenever:
        configs.append(
            structured.create_config(structured.pattern_from_transform(STEP, sequence), "sequences", conditions, priority)
        )
    return configs


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


def main() -> None:
    configs = make_configs()
    server = make_server(configs) if len(sys.argv) == 1 else None
    client = reverie.Client(sys.argv[1] if server is None else server)
    random = np.random.default_rng(1)
    with client.structured_writer(configs) as writer:
        for _ in range(10):
            for t in range(22):
                obs = np.full(4, t, np.float32)
                writer.append({"obs": obs, "action": None, "reward": None, "td_error": None}, partial_step=True)
                error = np.float32(random.normal())
                writer.append({"obs": None, "action": np.int32(t % 3), "reward": np.float32(1), "td_error": error})
                writer.flush(100, timeout_ms=10_000)
            writer.end_episode(timeout_ms=10_000)
    transitions, sequences = (client.server_info()[name].current_size for name in ("transitions", "sequences"))
    print(f"{transitions} transitions, {sequences} sequences")
    batch = client.sample_batch("sequences", 32)
    spread = {name: column.shape for name, column in batch.data.items()}
    print(f"a batch of sequences: {spread}, priorities {batch.priorities.min():.2f} to {batch.priorities.max():.2f}")


if __name__ == "__main__":
    main()
