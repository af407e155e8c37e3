"""Acme's own adders, as PyPI has them, at work: what they ask of Reverb and what items come of it, as a record (recording.py).

Which Reverb that is, `import reverb` says. Run as a program, this prints the record; with --tolerant as the argument where
Reverb is one that Acme 0.4.0 is too old for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
import recording
import reverb
import tensorflow as tf
import tree
from acme import specs
from acme.adders import reverb as adders

DICT = specs.EnvironmentSpec(
    observations={"image": specs.Array((2, 3), np.uint8), "speed": specs.Array((), np.float32)},
    actions=specs.DiscreteArray(4, np.int32),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0, 1),
)
PLAIN = DICT._replace(observations=specs.Array((3,), np.float64), actions=specs.BoundedArray((2,), np.float32, -1, 1))
EXTRAS = {"logits": specs.Array((4,), np.float32), "core": (specs.Array((2,), np.float16), specs.Array((), bool))}


def _value(spec: Any, number: int) -> Any:
    """Another one for each number, and none that a sum of several would give."""
    return np.asarray((np.arange(np.prod(spec.shape, dtype=int)).reshape(spec.shape) + 7 * number) % 23).astype(spec.dtype)


def _nest(spec: Any, number: int) -> Any:
    if isinstance(spec, dict):
        return {key: _nest(each, number + i) for i, (key, each) in enumerate(spec.items())}
    if isinstance(spec, tuple):
        return tuple(_nest(each, number + i) for i, each in enumerate(spec))
    return _value(spec, number)


def feed(adder: Any, spec: Any, extras: Any, lengths: list[int]) -> None:
    """Episodes of so many steps, the last of which ends in a discount of 0."""
    for episode, length in enumerate(lengths):
        kinds = [dm_env.StepType.FIRST, *[dm_env.StepType.MID] * (length - 1), dm_env.StepType.LAST]
        for i, kind in enumerate(kinds):
            number = 40 * episode + i
            discount = np.float32(kind is not dm_env.StepType.LAST)
            step = dm_env.TimeStep(kind, np.float32(number / 4), discount, _nest(spec.observations, number))
            if kind is dm_env.StepType.FIRST:
                adder.add_first(step)
            else:
                adder.add(_nest(spec.actions, number), step, *([_nest(extras, number)] if extras else []))
    del adder  # which flushes and closes


Made = tuple[Callable[[Any, dict[str, Any]], Any], Any]  # adder of client and priority functions, signature


def transitions(spec: Any, n: int, extras: Any = ()) -> Made:
    signature = adders.NStepTransitionAdder.signature(spec, extras)
    return lambda client, tables: adders.NStepTransitionAdder(client, n, 0.5, priority_fns=tables), signature


def sequences(spec: Any, length: int, period: int, end: Any, extras: Any = (), **options: Any) -> Made:
    fixed = None if end is adders.EndBehavior.TRUNCATE else length
    signature = adders.SequenceAdder.signature(spec, extras, fixed)
    options = {"sequence_length": length, "period": period, "end_of_episode_behavior": end, **options}
    return lambda client, tables: adders.SequenceAdder(client, priority_fns=tables, **options), signature


def episodes(spec: Any, most: int, extras: Any = (), **options: Any) -> Made:
    signature = adders.EpisodeAdder.signature(spec, extras, most if options else None)
    return lambda client, tables: adders.EpisodeAdder(client, most, priority_fns=tables, **options), signature


class StructuredAdder:
    """The calls of the adder over a structured writer that Acme's repository has, and its releases on PyPI do not."""

    def __init__(self, client: Any, configs: list[Any], step: Any) -> None:
        self._writer = client.structured_writer(tuple(configs))
        self._nothing = tree.map_structure(lambda _: None, step)

    def _observe(self, timestep: dm_env.TimeStep) -> None:
        seen = self._nothing._replace(observation=timestep.observation, start_of_episode=timestep.first())
        self._writer.append(data=seen, partial_step=True)
        self._writer.flush(2)

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        self._observe(timestep)

    def add(self, action: Any, timestep: dm_env.TimeStep, extras: Any = ()) -> None:
        assert self._writer.step_is_open
        done = self._nothing._replace(action=action, reward=timestep.reward, discount=timestep.discount, extras=extras)
        self._writer.append(done)
        self._observe(timestep)
        if timestep.last():
            self._writer.append(tree.map_structure(lambda x: None if x is None else np.zeros_like(x), done))
            self._writer.end_episode(clear_buffers=True, timeout_ms=None)

    def __del__(self) -> None:
        self._writer.flush(0, timeout_ms=10_000)


def structured(table: str, spec: Any, extras: Any, configs: Callable[[Any, str], list[Any]]) -> Made:
    step = adders.Step(*spec, start_of_episode=tf.TensorSpec([], tf.bool, "start_of_episode"), extras=extras)
    made = configs(step, table)
    return lambda client, _: StructuredAdder(client, made, step), reverb.structured.infer_signature(made, step)


def _structured_transitions(n: int) -> Callable[[Any, str], list[Any]]:
    """Observations at both ends of up to n steps, and all rewards between, also where an episode begins or ends.

    Acme takes both ends by one stride, ``x[-(n + 1)::n]``; dm-reverb 0.14 reads wrong rows of strides now and then, so here it does for
    n = 1 only.
    """

    def configs(step: Any, table: str) -> list[Any]:
        condition, row = reverb.structured.Condition, reverb.structured.create_reference_step(step)

        def part(steps: slice, *nests: Any) -> Any:
            return tree.map_structure(lambda x: x[steps], nests)

        def pattern(k: int) -> Any:
            first = slice(-(k + 1), -k)
            ends = (
                part(slice(-2, None, 1), row.observation)
                if n == 1
                else part(first, row.observation) + part(slice(-1, None), row.observation)
            )
            action, start, extras = part(first, row.action, row.start_of_episode, row.extras)
            reward, discount = part(slice(-(k + 1), -1), row.reward, row.discount)
            return adders.Step(ends, action, reward, discount, start, extras)

        whole = [(n, [condition.step_index() >= n])]
        beginning = [(k, [condition.step_index() == k]) for k in range(1, n)]
        end = [(k, [condition.is_end_episode(), condition.step_index() >= n]) for k in range(n - 1, 0, -1)]
        return [
            reverb.structured.create_config(pattern=pattern(k), table=table, conditions=conditions)
            for k, conditions in whole + beginning + end
        ]

    return configs


def _structured_sequences(length: int, period: int) -> Callable[[Any, str], list[Any]]:
    """Sequences at every period, and the last one of the episode whatever its place."""

    def configs(step: Any, table: str) -> list[Any]:
        condition = reverb.structured.Condition
        pattern = reverb.structured.pattern_from_transform(step, lambda row: tree.map_structure(lambda x: x[-length:], row))
        regular = [condition.step_index() >= length - 1, condition.step_index() % period == (length - 1) % period]
        last = [
            condition.is_end_episode(),
            condition.step_index() >= length - 1,
            condition.step_index() % period != (length - 1) % period,
        ]
        return [reverb.structured.create_config(pattern=pattern, table=table, conditions=each) for each in (regular, last)]

    return configs


def reward_of(item: Any) -> float:
    return float(np.sum(item.reward)) + 1


End = adders.EndBehavior
SCENARIOS: dict[str, tuple[Made, Any, Any, list[int]]] = {
    "transitions": (transitions(DICT, 1), DICT, (), [3, 1, 2]),
    "transitions_with_extras": (transitions(DICT, 1, EXTRAS), DICT, EXTRAS, [3, 2]),
    "three_step_transitions": (transitions(PLAIN, 3, EXTRAS), PLAIN, EXTRAS, [7, 1, 3]),
    "five_step_transitions_of_short_episodes": (transitions(DICT, 5), DICT, (), [2, 1, 6]),
    "sequences_padded": (sequences(DICT, 4, 2, End.ZERO_PAD, EXTRAS), DICT, EXTRAS, [9, 2, 5]),
    "sequences_truncated": (sequences(PLAIN, 4, 3, End.TRUNCATE), PLAIN, (), [9, 2, 5]),
    "sequences_written_at_the_end": (sequences(PLAIN, 4, 3, End.WRITE), PLAIN, (), [9, 2, 5]),
    "sequences_across_episodes": (sequences(PLAIN, 4, 2, End.CONTINUE, EXTRAS), PLAIN, EXTRAS, [5, 2, 4]),
    "sequences_side_by_side": (sequences(DICT, 3, 3, End.ZERO_PAD, delta_encoded=True), DICT, (), [8, 6]),
    "episodes": (episodes(DICT, 10, EXTRAS), DICT, EXTRAS, [6, 1, 8]),
    "episodes_padded": (episodes(PLAIN, 8, padding_fn=np.zeros), PLAIN, (), [5, 1, 6]),
    "structured_transitions": (structured("structured_transitions", PLAIN, (), _structured_transitions(1)), PLAIN, (), [3, 1, 4]),
    "structured_longer": (structured("structured_longer", DICT, EXTRAS, _structured_transitions(3)), DICT, EXTRAS, [6, 2, 4]),
    "structured_sequences": (structured("structured_sequences", PLAIN, (), _structured_sequences(4, 3)), PLAIN, (), [9, 2, 6]),
}
# Two tables share the data, each with a priority of its own.
PRIORITIES = {
    "transitions": {"transitions": None, "by_reward": reward_of},
    "sequences_padded": {"sequences_padded": reward_of, "all_alike": None},
}


def run_all(before: Callable[[Any], Any]) -> dict[str, Any]:
    """The record. `before` may put something between the adders and the client."""
    functions = {name: PRIORITIES.get(name, {name: None}) for name in SCENARIOS}
    signatures = {table: SCENARIOS[name][0][1] for name in SCENARIOS for table in functions[name]}
    server = reverb.Server([reverb.Table.queue(table, 1000, signature=signatures[table]) for table in signatures])
    client = reverb.Client(f"localhost:{server.port}")
    record = {}
    for name, ((make, signature), spec, extras, lengths) in SCENARIOS.items():
        calls: list[Any] = []
        feed(make(recording.Client(calls, before(client)), functions[name]), spec, extras, lengths)
        found = recording.items(client, list(functions[name]))
        record[name] = {"signature": recording.encode(signature), "calls": calls, "tables": found}
    server.stop()
    return record


class Tolerant:
    """A client of dm-reverb 0.14, which takes no get_signature_timeout_ms since 2022, before adders that give it."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def trajectory_writer(self, num_keep_alive_refs: int, get_signature_timeout_ms: int) -> Any:
        return self._client.trajectory_writer(num_keep_alive_refs)

    def structured_writer(self, configs: Any) -> Any:
        return self._client.structured_writer(configs)


if __name__ == "__main__":
    recording.dump(run_all(Tolerant if "--tolerant" in sys.argv else lambda client: client))
