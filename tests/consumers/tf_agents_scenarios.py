"""TF-Agents' own observers at work: what they ask of Reverb and what items come of it, as a record (recording.py).

Which Reverb that is, `import reverb` says. Run as a program, this prints the record.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import recording
import reverb
import tensorflow as tf
from tf_agents.replay_buffers import reverb_utils
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import StepType, Trajectory

STEP = Trajectory(
    step_type=tf.TensorSpec([], tf.int32, "step_type"),
    observation={"image": tf.TensorSpec([2, 3], tf.uint8, "image"), "speed": tf.TensorSpec([], tf.float32, "speed")},
    action=tensor_spec.BoundedTensorSpec([2], tf.float32, -1, 1, "action"),
    policy_info=(tf.TensorSpec([4], tf.float32, "logits"), ()),
    next_step_type=tf.TensorSpec([], tf.int32, "next_step_type"),
    reward=tf.TensorSpec([], tf.float32, "reward"),
    discount=tf.TensorSpec([], tf.float32, "discount"),
)


def _step(number: int, kind: int, following: int) -> Any:
    def value(spec: Any) -> Any:
        size = int(np.prod(spec.shape.as_list(), dtype=int))
        return ((np.arange(size).reshape(spec.shape.as_list()) + 7 * number) % 23).astype(spec.dtype.as_numpy_dtype)

    filled = tf.nest.map_structure(value, STEP)
    return filled._replace(
        step_type=np.array(kind, np.int32),
        next_step_type=np.array(following, np.int32),
        discount=np.float32(following != StepType.LAST),
    )


def steps(lengths: list[int]) -> list[Any]:
    """Episodes of so many steps, each with the boundary step that follows its last."""
    made = []
    for episode, length in enumerate(lengths):
        kinds = [StepType.FIRST, *[StepType.MID] * (length - 1), StepType.LAST, StepType.FIRST]
        made += [_step(30 * episode + i, *map(int, pair)) for i, pair in enumerate(itertools.pairwise(kinds))]
    return made


def trajectories(length: int, **options: Any) -> Callable[[Any, list[str]], Any]:
    return lambda client, tables: reverb_utils.ReverbAddTrajectoryObserver(client, tables, length, **options)


def across_episodes(length: int, **options: Any) -> Callable[[Any, list[str]], Any]:
    return lambda client, tables: reverb_utils.ReverbTrajectorySequenceObserver(client, tables, length, **options)


def episodes(most: int, **options: Any) -> Callable[[Any, list[str]], Any]:
    return lambda client, tables: reverb_utils.ReverbAddEpisodeObserver(client, tables, most, **options)


SCENARIOS: dict[str, tuple[Callable[[Any, list[str]], Any], int | None, list[int], int]] = {
    # observer, length of its items or None, lengths of the episodes, tables
    "pairs": (trajectories(2), 2, [4, 1, 3], 1),
    "sequences_with_a_stride": (trajectories(3, stride_length=2, priority=5), 3, [7, 2], 2),
    "sequences_padded": (trajectories(4, pad_end_of_episodes=True), 4, [2, 5], 1),
    "sequences_tiled": (trajectories(3, pad_end_of_episodes=True, tile_end_of_episodes=True), 3, [2, 4], 1),
    "sequences_across_episodes": (across_episodes(4, stride_length=2), 4, [3, 1, 4], 1),
    "episodes": (episodes(8, priority=2.5), None, [4, 1, 6], 2),
    "episodes_that_are_too_long_are_left_out": (episodes(4, bypass_partial_episodes=True), None, [2, 6, 3], 1),
}


def run_all() -> dict[str, Any]:
    """The record."""
    names = {name: [f"{name}_{i}" for i in range(tables)] for name, (*_, tables) in SCENARIOS.items()}
    signatures = {name: tensor_spec.add_outer_dim(STEP, length) for name, (_, length, *_) in SCENARIOS.items()}
    server = reverb.Server(
        [reverb.Table.queue(table, 1000, signature=signatures[name]) for name, tables in names.items() for table in tables]
    )
    client = reverb.Client(f"localhost:{server.port}")
    record = {}
    for name, (make, _, lengths, _) in SCENARIOS.items():
        calls: list[Any] = []
        observer = make(recording.Client(calls, client), names[name])
        for step in steps(lengths):
            observer(step)
        observer.close()
        found = recording.items(client, names[name])
        record[name] = {"signature": recording.encode(signatures[name]), "calls": calls, "tables": found}
    server.stop()
    return record


if __name__ == "__main__":
    recording.dump(run_all())
