"""Items of a stream of steps by patterns, without a table: those that a structured writer makes."""

from __future__ import annotations

import itertools
import os
import random

import numpy as np
import pytest
import reverie
from reverie import structured

pattern_items = structured.pattern_items
STEP = {"x": 0, "y": (0, 0), "end": False}


def config_of(transform, conditions=(), step=STEP, table="t", **options):
    return structured.create_config(structured.pattern_from_transform(step, transform), table, conditions, **options)


def steps_of(n, ends=()):
    return [{"x": np.int64(i), "y": (np.full(2, i, np.float32), str(i)), "end": i in ends} for i in range(n)]


def ended(step):
    return step["end"]


def values(items):
    return [reverie.nest.map_structure(lambda leaf: leaf.tolist(), item) for item in items]


def test_items_have_the_nest_of_the_pattern_and_the_rows_of_its_slices():
    config = config_of(lambda ref: {"last": ref["x"][-1], "two": [ref["y"][0][-2:], ref["y"][1][-2]]})
    item = next(pattern_items(steps_of(3), [config], True, ended))
    assert values([item]) == [{"last": 1, "two": [[[0, 0], [1, 1]], b"0"]}]
    assert item["last"].shape == ()
    assert item["two"][0].dtype == np.float32
    assert item["two"][1].dtype == object


@pytest.mark.parametrize("text", [b"a\0", b"\0\0", "b\0", np.bytes_(b"c\0"), np.str_("\0")])
def test_text_keeps_the_zeros_at_its_end(text):
    expected = text.encode() if isinstance(text, str) else bytes(text)
    config = config_of(lambda ref: [ref["x"][-1], ref["x"][-2:]], step={"x": 0})
    assert values(pattern_items([{"x": text}] * 2, [config], True, lambda _: False)) == [[expected, [expected] * 2]]


@pytest.mark.parametrize(("respect", "expected"), [(True, [[0, 1], [2, 3], [3, 4]]), (False, [[0, 1], [1, 2], [2, 3], [3, 4]])])
def test_an_item_reaches_across_episodes_only_where_it_may(respect, expected):
    got = pattern_items(steps_of(5, ends={1}), [config_of(lambda ref: ref["x"][-2:])], respect, ended)
    assert values(got) == expected


def test_a_step_is_read_only_when_the_items_before_it_were_taken():
    read = []
    source = (read.append(step["x"]) or step for step in steps_of(10))
    items = pattern_items(source, [config_of(lambda ref: ref["x"][-2:])], True, ended)
    for count in (2, 3, 4):
        next(items)
        assert len(read) == count


def test_a_step_may_be_changed_once_the_next_is_asked_for():
    def one_array():
        x = np.zeros(3)
        for i in range(5):
            x[:] = i
            yield {"x": x}

    config = config_of(lambda ref: ref["x"][-3:], step={"x": 0})
    assert [item[:, 0].tolist() for item in pattern_items(one_array(), [config], True, lambda _: False)] == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
    ]


def test_no_item_is_made_of_rows_that_are_missing():
    steps = [{"x": i if i != 3 else None, "z": i} for i in range(8)]
    config = config_of(lambda ref: [ref["x"][-2:], ref["z"][-1]], step={"x": 0, "z": 0})
    assert values(pattern_items(steps, [config], True, lambda _: False)) == [[[i - 1, i], i] for i in (1, 2, 5, 6, 7)]


def test_a_column_may_come_late():
    steps = [{"x": i, "z": None if i < 4 else i} for i in range(6)]
    config = config_of(lambda ref: [ref["x"][-2:], ref["z"][-1]], step={"x": 0, "z": 0})
    assert values(pattern_items(steps, [config], True, lambda _: False)) == [[[3, 4], 4], [[4, 5], 5]]


def test_what_is_no_function_is_refused_before_any_step():
    with pytest.raises(ValueError, match="is_end_of_episode must be a function of a step, got True"):
        pattern_items([], [config_of(lambda ref: ref["x"][-1])], True, True)


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ([], "At least one config"),
        ([config_of(lambda ref: ref["x"][0])], "position 0"),
        ([config_of(lambda ref: ref["x"][-1], [structured.Condition.step_index() < 0])], "position 0"),
    ],
)
def test_configs_are_refused_before_any_step(configs, text):
    with pytest.raises(ValueError, match=text):
        pattern_items([], configs, True, ended)


@pytest.mark.parametrize(
    ("steps", "error", "text"),
    [
        ([{"x": 1}, {"x": 1.5}], ValueError, "'x'"),
        ([{"x": [1]}, {"x": [1, 2]}], ValueError, "structure"),
        ([{"x": np.zeros(2)}, {"x": np.zeros(3)}], ValueError, "'x'"),
        ([{"x": np.datetime64("2020-01-01")}], TypeError, "datetime64"),
        ([{"y": 1}, {"x": 1}], ValueError, "structure"),
    ],
)
def test_a_step_of_another_kind_is_refused(steps, error, text):
    config = config_of(lambda ref: ref["x"][-1], step={"x": 0})
    with pytest.raises(error, match=text):
        list(pattern_items(steps, [config], True, lambda _: False))


def test_a_config_for_a_leaf_that_steps_lack_is_refused():
    config = config_of(lambda ref: ref["end"][-1])
    with pytest.raises(ValueError, match="column"):
        list(
            pattern_items([(1,)], [structured.create_config(structured.create_reference_step([0] * 4)[3][-1], "t")], True, ended)
        )
    assert values(pattern_items(steps_of(1), [config], True, ended)) == [False]


def random_config(choose):
    def rows(reference):
        start = -choose.randint(1, 6)
        if choose.random() < 0.3:
            return reference[start]
        stop = choose.choice([None, *range(start + 1, 0)])
        return reference[start : stop : choose.choice([None, 1, 2, 3])]

    condition = structured.Condition
    possible = [
        condition.step_index() >= choose.randint(0, 4),
        condition.step_index() % choose.randint(2, 4) == choose.randint(0, 1),
        condition.steps_since_applied() >= choose.randint(1, 5),
        condition.is_end_episode(),
        condition.data(STEP)["x"] % 3 != 1,
        structured.ConditionProto(buffer_length=True, ge=1),
    ]
    return config_of(
        lambda ref: {"a": rows(ref["x"]), "b": [rows(ref["y"][0])], "c": rows(ref["y"][1])},
        choose.sample(possible, choose.choice([0, 0, 1, 2])),
    )


@pytest.mark.parametrize("seed", [random.randrange(10**6) for _ in range(5)])
def test_items_are_those_of_a_structured_writer(seed):
    choose = random.Random(int(os.environ.get("RV_TEST_SEED", seed)))
    for _ in range(20):
        try:
            configs = [random_config(choose) for _ in range(choose.randint(1, 3))]
            structured.infer_signature(configs, {"x": np.int64(0), "y": (np.zeros(2), "s"), "end": False})
        except ValueError:
            pass  # a leaf is squeezed in one and not in another: no table's signature, but items all the same
        respect = choose.random() < 0.5
        steps = steps_of(60, ends={i for i in range(60) if choose.random() < 0.15})
        table = reverie.Table(
            name="t",
            sampler=reverie.selectors.Fifo(),
            remover=reverie.selectors.Fifo(),
            max_size=1000,
            rate_limiter=reverie.rate_limiters.MinSize(1),
            max_times_sampled=1,
        )
        with reverie.Server([table], in_process=True) as server:
            client = reverie.Client(server)
            try:
                writer = client.structured_writer(configs)
            except ValueError:
                with pytest.raises(ValueError):
                    pattern_items(steps, configs, respect, ended)
                continue
            for step in steps:
                writer.append(step)
                if step["end"]:
                    writer.end_episode(clear_buffers=respect)
            writer.flush()
            count = client.server_info()["t"].current_size
            written = [sample.data for sample in itertools.islice(client.sample("t", count or 1, emit_timesteps=False), count)]
        got = list(pattern_items(steps, configs, respect, ended))
        assert len(got) == count
        for ours, theirs in zip(got, written, strict=True):
            leaves = reverie.nest.flatten(theirs)
            assert [leaf.tolist() for leaf in reverie.nest.flatten(ours)] == [leaf.tolist() for leaf in leaves]
            assert [leaf.dtype for leaf in reverie.nest.flatten(ours)] == [leaf.dtype for leaf in leaves]
