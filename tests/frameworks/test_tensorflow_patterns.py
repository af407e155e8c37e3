"""Pattern datasets where dm-reverb's cannot be compared: inside other datasets, several iterators, mistakes (the rest: tests/interop)."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf
from reverie import PatternDataset, ReplaySample, SampleInfo, structured
from reverie.pattern_dataset import pattern_dataset_with_info

STEP = {"x": 0, "end": False}


def steps(n, ends=(), offset=0):
    return tf.data.Dataset.range(n).map(lambda i: {"x": i + offset, "end": tf.reduce_any(tf.equal(i, list(ends) or [-1]))})


def config_of(transform, conditions=(), step=STEP, table="t"):
    return structured.create_config(structured.pattern_from_transform(step, transform), table, conditions)


def pairs(step_dataset, respect=True, transform=lambda ref: {"x": ref["x"][-2:]}):
    return PatternDataset(step_dataset, [config_of(transform)], respect, lambda step: step["end"])


def values(dataset):
    return [item["x"].numpy().tolist() for item in dataset]


def test_items_come_as_tensors_in_the_nest_of_the_pattern():
    made = pairs(steps(4), transform=lambda ref: {"x": [ref["x"][-2:], (ref["end"][-1],)]})
    assert isinstance(made, tf.data.Dataset)
    assert made.element_spec == {"x": (tf.TensorSpec([2], tf.int64), (tf.TensorSpec([], tf.bool),))}
    (first, *_) = made
    assert first["x"][0].numpy().tolist() == [0, 1]
    assert first["x"][1][0].numpy() == False  # noqa: E712


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 200])
def test_the_last_steps_are_not_lost(n):
    assert values(pairs(steps(n))) == [[i - 1, i] for i in range(1, n)]


def test_lists_are_tuples_also_where_items_differ_in_length():
    configs = [config_of(lambda ref, n=n: [ref["x"][-n:], ref["x"][-1]]) for n in (3, 1)]
    made = PatternDataset(steps(4), configs, True, lambda step: step["end"])
    assert made.element_spec == (tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64))
    got = [(rows.numpy().tolist(), int(last)) for rows, last in made]
    assert got == [([0], 0), ([1], 1), ([0, 1, 2], 2), ([2], 2), ([1, 2, 3], 3), ([3], 3)]


@pytest.mark.parametrize("lengths", [(2,), (2, 1)])
def test_a_column_without_elements_comes_with_the_others(lengths):
    numbered = steps(4).map(lambda step: {**step, "empty": tf.zeros([3, 0])})
    step = {**STEP, "empty": np.zeros((3, 0), np.float32)}
    configs = [config_of(lambda ref, n=n: {key: ref[key][-n:] for key in ("x", "empty")}, step=step) for n in lengths]
    made = list(PatternDataset(numbered, configs, True, lambda step: step["end"]))
    assert {item["x"].shape[0] for item in made} == set(lengths)
    assert all(item["empty"].shape == (item["x"].shape[0], 3, 0) for item in made)


def test_each_of_several_gives_all_its_items():
    flat = tf.data.Dataset.range(3).flat_map(lambda i: pairs(steps(4, offset=10 * i)))
    assert values(flat) == [[10 * i + k - 1, 10 * i + k] for i in range(3) for k in (1, 2, 3)]
    interleaved = tf.data.Dataset.range(2).interleave(lambda i: pairs(steps(3, offset=10 * i)), cycle_length=2)
    assert values(interleaved) == [[0, 1], [10, 11], [1, 2], [11, 12]]
    assert values(pairs(steps(3)).repeat(2)) == [[0, 1], [1, 2]] * 2


def test_iterators_do_not_know_of_each_other():
    made = pairs(steps(200))
    a, b = iter(made), iter(made)
    got = [[next(each)["x"].numpy().tolist() for each in (a, b)] for _ in range(100)]
    assert got == [[[i, i + 1]] * 2 for i in range(100)]


def test_what_an_iterator_keeps_goes_with_it():
    made = pairs(steps(200))
    iterator = iter(made)
    next(iterator)
    assert len(made._streams._running) == 1
    del iterator
    gc.collect()
    assert made._streams._running == {}


def test_it_runs_inside_a_function():
    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        for item in pairs(steps(100, ends=(49,))):
            result += tf.reduce_sum(item["x"])
        return result

    assert int(total()) == sum(2 * i - 1 for i in range(1, 100) if i != 50)


def test_infos_are_zeros():
    made = pattern_dataset_with_info(steps(3), [config_of(lambda ref: (ref["x"][-1],))], True, lambda step: step["end"])
    sample = next(iter(made))
    assert isinstance(sample, ReplaySample)
    assert sample.info == SampleInfo.zeros()
    assert isinstance(sample.data, tuple)


def test_columns_that_no_config_refers_to_may_be_anything():
    ragged = tf.data.Dataset.from_tensor_slices(
        {"x": np.arange(3), "end": [False] * 3, "z": tf.ragged.constant([[1], [1, 2], []])}
    )
    config = config_of(lambda ref: {"x": ref["x"][-1]}, step={"x": 0, "end": 0, "z": 0})
    assert values(PatternDataset(ragged, [config], True, lambda step: step["end"])) == [0, 1, 2]


@pytest.mark.parametrize(
    "config",
    [
        config_of(lambda ref: ref["x"][0]),
        config_of(lambda ref: ref["x"][-1:-2]),
        config_of(lambda ref: ref["x"][-1], [structured.ConditionProto(step_index=True)]),
        config_of(lambda ref: ref["x"][-1], [structured.Condition.step_index() < 0]),
        config_of(lambda ref: ref[8][-1], step=[0] * 9),
        config_of(lambda ref: ref["x"][-1], [structured.Condition.data([0] * 9)[8] == 1]),
        config_of(lambda ref: ref["x"][-1], table=""),
        structured.Config(table="t"),
    ],
)
def test_a_config_that_cannot_be_applied_is_refused_at_once(config):
    with pytest.raises(ValueError):
        PatternDataset(steps(3), [config], True, lambda step: step["end"])
