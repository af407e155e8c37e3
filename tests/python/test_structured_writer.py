"""The structured writer: which items it makes, on every transport, and how it waits, fails and leaves."""

import gc
import logging
from typing import Any, NamedTuple

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie import structured

STEP = {"a": 0, "b": 0}


def config_of(transform, table="t", step=STEP, **options):
    return structured.create_config(structured.pattern_from_transform(step, transform), table, **options)


def made(client, table="t"):
    """All items of a table in order: their data and priorities."""
    out = []
    for item in client.items(table):
        data = client.get(table, item.key).data
        out.append((reverie.nest.map_structure(lambda column: column.tolist(), data), round(item.priority, 6)))
    return out


def rows(client, table="t"):
    return [data for data, _ in made(client, table)]


def write(client, configs, steps, end=True):
    writer = client.structured_writer(configs)
    for a, b in steps:
        writer.append({"a": a, "b": b})
    if end:
        writer.end_episode(timeout_ms=20_000)
    writer.flush(timeout_ms=20_000)
    return writer


# ---- items ----


def test_rows_are_those_that_were_asked_for(connect):
    client = connect()
    config = config_of(
        lambda r: {
            "last": r["a"][-1],
            "three": r["a"][-3:],
            "before": r["b"][-3:-1],
            "every": r["a"][-5::2],
            "third": r["a"][-5:-1:3],
        }
    )
    write(client, [config], [(i, 10 * i) for i in range(30)])
    expected = [
        {
            "before": [10 * (i - 2), 10 * (i - 1)],
            "every": [i - 4, i - 2, i],
            "last": i,
            "third": [i - 4, i - 1],
            "three": [i - 2, i - 1, i],
        }
        for i in range(4, 30)
    ]
    assert rows(client) == expected


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_both_ends_of_transitions_are_one_stride(connect, n):
    """As Acme's structured adder takes them, also of fewer steps where an episode begins or ends. dm-reverb 0.14 reads other rows of such
    strides now and then, so tests/consumers have none."""
    client = connect()
    when = structured.Condition
    whole = [(n, [when.step_index() >= n])]
    beginning = [(k, [when.step_index() == k]) for k in range(1, n)]
    end = [(k, [when.is_end_episode(), when.step_index() >= n]) for k in range(n - 1, 0, -1)]
    writer = client.structured_writer(
        [
            config_of(lambda r, k=k: {"ends": r["a"][-(k + 1) :: k], "between": r["b"][-(k + 1) : -1]}, conditions=conditions)
            for k, conditions in whole + beginning + end
        ]
    )
    expected = []
    for first, length in ((100, 7), (200, 1), (300, n), (400, n + 1)):
        for i in range(length + 1):
            writer.append({"a": first + i, "b": -first - i})
        writer.end_episode(timeout_ms=20_000)
        spans = [(max(0, i - n), i) for i in range(1, length + 1)]
        spans += [(length - k, length) for k in range(n - 1, 0, -1) if length >= n]
        expected += [{"ends": [first + i, first + j], "between": [-first - k for k in range(i, j)]} for i, j in spans]
    assert rows(client) == expected


def test_configs_of_different_lengths_go_over_one_stream_of_steps(connect):
    client = connect(make_table("t"), make_table("u"))
    configs = [
        config_of(lambda r: {"o": r["a"][-3], "next": r["a"][-1]}, conditions=[structured.Condition.step_index() >= 2]),
        config_of(lambda r: {"o": r["a"][-1]}, "u"),
        config_of(lambda r: {"s": r["a"][-4:]}, "u", conditions=[structured.Condition.steps_since_applied() >= 3]),
    ]
    write(client, configs, [(i, 0) for i in range(8)])
    assert rows(client) == [{"next": i, "o": i - 2} for i in range(2, 8)]
    # Items of two structures are lists where no signature says otherwise.
    flat = [next(iter(data.values() if isinstance(data, dict) else data)) for data in rows(client, "u")]
    assert flat == [0, 1, 2, 3, [0, 1, 2, 3], 4, 5, 6, [3, 4, 5, 6], 7]


def test_conditions_say_when(connect):
    client = connect(*(make_table(name) for name in ("mod", "end", "since", "data", "odd", "length")))
    step = structured.Condition.data(STEP)
    configs = [
        config_of(lambda r: r["a"][-1], "mod", conditions=[structured.Condition.step_index() % 3 == 1]),
        config_of(lambda r: r["a"][-2:], "end", conditions=[structured.Condition.is_end_episode()]),
        config_of(lambda r: r["a"][-1], "since", conditions=[structured.Condition.steps_since_applied() == 3]),
        config_of(lambda r: r["a"][-1], "data", conditions=[step["b"] >= 3, step["b"] != 4]),
        config_of(lambda r: r["a"][-1], "odd", conditions=[step["b"] % 2 == 1]),
        config_of(lambda r: r["a"][-1], "length", conditions=[structured.ConditionProto(buffer_length=True, eq=1)]),
    ]
    writer = client.structured_writer(configs)
    for first, n in ((0, 4), (4, 3)):
        for i in range(first, first + n):
            writer.append({"a": i, "b": i})
        writer.end_episode()
    got = {name: rows(client, name) for name in ("mod", "end", "since", "data", "odd", "length")}
    assert got == {"mod": [1, 5], "end": [[2, 3], [5, 6]], "since": [2, 5], "data": [3, 5, 6], "odd": [1, 3, 5], "length": [0, 4]}


@pytest.mark.parametrize("value", [np.bool_(True), np.int8(1), np.uint64(1), np.array([[1]], np.int32)])
def test_data_conditions_take_one_integer_or_bool(serve, value):
    _, client = serve()
    write(client, [config_of(lambda r: r["a"][-1], conditions=[structured.Condition.data(STEP)["b"] == 1])], [(7, value)])
    assert rows(client) == [7]


@pytest.mark.parametrize("value", [1.0, np.array([1, 1]), "1", None])
def test_data_conditions_on_anything_else_never_hold(serve, value):
    _, client = serve()
    step = structured.Condition.data(STEP)
    conditions = [[step["b"] == 1], [step["b"] != 1]]
    write(client, [config_of(lambda r: r["a"][-1], conditions=each) for each in conditions], [(7, value)])
    assert rows(client) == []


def test_td_errors_make_priorities(connect):
    client = connect()
    config = config_of(
        lambda r: {"e": r["b"][-3:], "a": r["a"][-1]}, priority=structured.td_error(0.9, STEP, lambda step: step["b"])
    )
    write(client, [config], [(i, np.float32(e)) for i, e in enumerate((1, -2, 3, -10))])
    assert [priority for _, priority in made(client)] == [2.9, 9.5]


def test_a_config_makes_one_item_a_step_as_soon_as_its_rows_are_there(connect):
    client = connect(make_table("a"), make_table("both"))
    writer = client.structured_writer(
        [config_of(lambda r: r["a"][-1], "a"), config_of(lambda r: {"a": r["a"][-2:], "b": r["b"][-1]}, "both")]
    )
    assert not writer.step_is_open
    for i in range(3):
        writer.append({"a": i, "b": None}, partial_step=True)
        assert writer.step_is_open
        writer.flush()
        assert rows(client, "a") == list(range(i + 1))
        assert len(rows(client, "both")) == max(0, i - 1)
        writer.append({"a": None, "b": 10 * i})
        assert not writer.step_is_open
    writer.end_episode()
    assert rows(client, "both") == [{"a": [0, 1], "b": 10}, {"a": [1, 2], "b": 20}]


def test_a_row_that_is_missing_skips_the_items_that_need_it(connect):
    client = connect()
    write(
        client, [config_of(lambda r: {"a": r["a"][-2:], "b": r["b"][-1]})], [(0, 0), (1, None), (2, 2), (None, 3), (4, 4), (5, 5)]
    )
    assert rows(client) == [{"a": [1, 2], "b": 2}, {"a": [4, 5], "b": 5}]


def test_patterns_reach_across_episodes_only_where_buffers_are_kept(connect):
    client = connect()
    writer = client.structured_writer([config_of(lambda r: r["a"][-2:])])
    for i, clear in ((0, True), (1, False), (2, True), (3, True)):
        writer.append({"a": i, "b": 0})
        writer.end_episode(clear)
    assert rows(client) == [[1, 2]]


def test_ending_an_episode_closes_an_open_step(connect):
    client = connect()
    writer = client.structured_writer([config_of(lambda r: r["a"][-1], conditions=[structured.Condition.is_end_episode()])])
    writer.append({"a": 1, "b": None}, partial_step=True)
    writer.end_episode()
    assert not writer.step_is_open
    writer.end_episode()
    writer.append({"a": 2, "b": 0})
    writer.end_episode()
    assert rows(client) == [1, 2]


class Transition(NamedTuple):
    observation: Any
    extras: Any


def test_namedtuples_and_nests_work_and_none_leaves_a_leaf_out(connect):
    client = connect()
    step = Transition({"pixels": np.zeros((2, 2), np.uint8), "velocity": 0.0}, (0, [0]))
    config = config_of(lambda r: Transition(r.observation["pixels"][-1], {"e": r.extras[1][0][-2:]}), step=step)
    writer = client.structured_writer([config])
    for i in range(3):
        writer.append(Transition({"pixels": np.full((2, 2), i, np.uint8), "velocity": None}, (None, [None])), partial_step=True)
        writer.append(Transition({"pixels": None, "velocity": 1.0}, (i, [i])))
    writer.end_episode()
    batch = client.sample_batch("t", 1)
    assert isinstance(batch.data, Transition)
    assert batch.data.observation.shape == (1, 2, 2)
    assert [data.extras["e"] for data in rows(client)] == [[0, 1], [1, 2]]


def test_steps_may_come_in_other_containers_of_as_many_leaves(serve):
    _, client = serve()
    writer = client.structured_writer([config_of(lambda r: r["a"][-1])])
    writer.append({"a": 1, "b": 2})
    writer.append([3, 4])
    writer.append((5, {"x": 6}))
    with pytest.raises(ValueError, match="unexpected length"):
        writer.append({"a": 1})
    writer.flush()
    assert rows(client) == [1, 3, 5]


def test_leaves_that_no_config_refers_to_may_change(serve):
    _, client = serve()
    write(client, [config_of(lambda r: r["a"][-1])], [(1, np.zeros(3)), (2, "text"), (3, None)])
    assert rows(client) == [1, 2, 3]


def test_configs_of_other_libraries_are_taken_by_their_wire_form(serve):
    _, client = serve()

    class StructuredWriterConfig:
        def SerializeToString(self):
            return config_of(lambda r: {"x": r["a"][-1]}).SerializeToString()

    write(client, [StructuredWriterConfig()], [(1, 0)])
    assert rows(client) == [{"x": 1}]
    with pytest.raises(TypeError, match="StructuredWriterConfig"):
        client.structured_writer([object()])


def test_the_signature_that_is_inferred_fits_the_items(connect):
    spec = {"a": np.zeros((2,), np.float32), "b": np.int64(0)}
    configs = [config_of(lambda r: {"x": r["a"][-5::2], "y": [r["b"][-1]]}, step=spec)]
    client = connect(make_table("t", signature=structured.infer_signature(configs, spec)))
    writer = client.structured_writer(configs)
    for i in range(6):
        writer.append({"a": np.full(2, i, np.float32), "b": np.int64(i)})
    writer.end_episode()
    batch = client.sample_batch("t", 2)
    assert batch.data["x"].shape == (2, 3, 2)
    assert batch.data["y"][0].shape == (2,)


# ---- configs that cannot be ----


def edited(edit, *conditions):
    config = config_of(lambda r: r["a"][-1], conditions=conditions)
    edit(config)
    return config


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (edited(lambda c: c.ClearField("flat")), "`flat` must not be empty"),
        (edited(lambda c: c.ClearField("table")), "`table` must not be empty"),
        (edited(lambda c: c.ClearField("priority")), "Priority function"),
        (edited(lambda c: c.flat[0].ClearField("stop")), "node 0 has neither start nor stop"),
        (edited(lambda c: setattr(c.flat[0], "start", 0)), "node 0 has start 0"),
        (edited(lambda c: setattr(c.flat[0], "start", -1)), "node 0 has no rows"),
        (edited(lambda c: setattr(c.flat[0], "stop", 1)), "node 0 has stop 1"),
        (edited(lambda c: setattr(c.flat[0], "stop", 0)), "row 0"),
        (edited(lambda c: setattr(c.flat[0], "stop", -(2**31))), "reaches 2147483648 rows back"),
        (edited(lambda c: setattr(c.flat[0], "step", 2)), "step 2 but no start"),
        (edited(lambda c: c.flat[0].MergeFrom(structured.create_reference_step(0)[-3::0])), "step 0"),
        (edited(lambda c: setattr(c.flat[0], "flat_source_index", -1)), "column -1"),
        (edited(lambda c: None, structured.ConditionProto(eq=1)), "condition 0 is on nothing"),
        (edited(lambda c: None, structured.ConditionProto(step_index=True)), "condition 0 tests nothing"),
        (edited(lambda c: None, structured.ConditionProto(step_index=True, mod_eq={"mod": 0})), "mod must be positive"),
        (edited(lambda c: None, structured.ConditionProto(is_end_episode=True, eq=0)), "end of the episode"),
        (edited(lambda c: None, structured.Condition.step_index() < 0), "no value of the step index"),
        (
            edited(lambda c: None, structured.Condition.step_index() == 1, structured.Condition.step_index() == 2),
            "meets them all",
        ),
        (edited(lambda c: None, structured.ConditionProto(buffer_length=True, ge=9)), "can never hold"),
        (
            config_of(lambda r: r["a"][-1], priority=structured.td_error(0.9, STEP, lambda step: step["b"])),
            "TD error of column 1, to which no node refers",
        ),
    ],
)
def test_configs_that_never_make_an_item_are_refused(serve, config, text):
    _, client = serve()
    with pytest.raises(ValueError, match=f"Invalid configuration at position 1.*{text}"):
        client.structured_writer([config_of(lambda r: r["a"][-1]), config])


@pytest.mark.parametrize("configs", [None, [], ()])
def test_at_least_one_config_is_needed(serve, configs):
    _, client = serve()
    with pytest.raises(ValueError, match="At least one config"):
        client.structured_writer(configs)


def test_a_pattern_of_leaves_that_steps_do_not_have_is_refused(serve):
    _, client = serve()
    writer = client.structured_writer(
        [config_of(lambda r: r["a"][-1]), config_of(lambda r: r["c"][-1], step={"a": 0, "b": 0, "c": 0})]
    )
    with pytest.raises(ValueError, match="position 1.*node 0 refers to column 2, but steps have 2"):
        writer.append({"a": 1, "b": 2})


# ---- steps that cannot be ----


def test_a_step_that_is_refused_leaves_the_writer_as_it_was(connect):
    client = connect()
    writer = client.structured_writer([config_of(lambda r: r["a"][-2:])])
    writer.append({"a": 0, "b": 0})
    with pytest.raises(ValueError, match=r"wrong dtype for column 0 \(path=\('a',\)\)"):
        writer.append({"a": 0.5, "b": 0})
    with pytest.raises(ValueError, match=r"incompatible shape for column 0 \(path=\('a',\)\)"):
        writer.append({"a": np.zeros(2, np.int64), "b": 0})
    with pytest.raises(TypeError, match=r"\('b',\)"):
        writer.append({"a": 1, "b": object()})
    writer.append({"a": 1, "b": 0}, partial_step=True)
    with pytest.raises(RuntimeError, match="provided by multiple"):
        writer.append({"a": 2, "b": None})
    writer.append({"a": None, "b": None})
    writer.end_episode()
    assert rows(client) == [[0, 1]]


def test_a_first_step_that_is_refused_says_nothing_of_the_next(connect):
    client = connect()
    writer = client.structured_writer([config_of(lambda r: r["a"][-1])])
    for wrong in ({"a": object(), "b": 0, "c": 0}, {"a": 0, "b": object(), "c": 0}):
        with pytest.raises(TypeError, match="cannot be stored"):
            writer.append(wrong)
    for value in (1, 2):
        writer.append({"a": value, "b": 0})
    with pytest.raises(ValueError, match="unexpected length"):
        writer.append({"a": 3, "b": 0, "c": 0})
    writer.end_episode()
    with pytest.raises(ValueError, match="unexpected length"):  # nor does a later episode's
        writer.append({"a": 3, "b": 0, "c": 0})
    assert rows(client) == [1, 2]


def test_td_errors_must_be_numbers(serve):
    _, client = serve()
    writer = client.structured_writer(
        [config_of(lambda r: r["b"][-1], priority=structured.td_error(0.9, STEP, lambda step: step["b"]))]
    )
    for wrong in (np.int16(1), np.zeros(2), "1"):
        with pytest.raises(ValueError, match="TD Error"):
            writer.append({"a": 0, "b": wrong})
    writer.append({"a": 0, "b": 2.0})
    with pytest.raises(ValueError, match="nan"):
        writer.append({"a": 0, "b": float("nan")})
    writer.append({"a": 0, "b": 4.0})
    writer.end_episode()
    assert made(client) == [(2.0, 2.0), (4.0, 4.0)]


def test_a_table_that_is_not_there_is_told(connect):
    client = connect()
    writer = client.structured_writer([config_of(lambda r: r["a"][-1], "nowhere")])
    with pytest.raises(RuntimeError, match="nowhere"):
        writer.append({"a": 1, "b": 1})
        writer.flush()
    writer.close()


def test_items_that_do_not_fit_the_tables_signature_are_told_and_the_writer_goes_on(connect):
    client = connect(make_table("t", signature={"x": reverie.TensorSpec((), np.float32)}), make_table("u"))
    writer = client.structured_writer([config_of(lambda r: {"x": r["a"][-1]}), config_of(lambda r: {"x": r["a"][-1]}, "u")])
    with pytest.raises(ValueError, match="float32"):
        writer.append({"a": 1, "b": 1})
        writer.flush()
    writer.discard_failed()
    writer.flush()
    assert rows(client) == []
    assert rows(client, "u") == [{"x": 1}]


# ---- waiting and leaving ----


def queue_of_two(connect):
    return connect(reverie.Table.queue("t", 2))


def test_timeouts_say_what_they_wait_for_and_lose_nothing(connect):
    client = queue_of_two(connect)
    writer = client.structured_writer([config_of(lambda r: r["a"][-1])])
    for i in range(4):
        writer.append({"a": i, "b": 0})
    writer.flush(2, 20_000)
    for call in (
        lambda: writer.flush(timeout_ms=20),
        lambda: writer.flush(1, 0),
        lambda: writer.end_episode(timeout_ms=-1),
        lambda: writer.end_episode(True, 20),
    ):
        with pytest.raises(reverie.DeadlineExceededError, match="2 items"):
            call()
    assert [sample.data[0].tolist() for sample in client.sample("t", 4, emit_timesteps=False, timeout=20)] == [0, 1, 2, 3]
    writer.end_episode(timeout_ms=20_000)
    with pytest.raises(ValueError, match="block_until_num_items"):
        writer.flush(-1)
    with pytest.raises(TypeError):
        writer.flush(0, 1.5)


def test_dropping_a_writer_waits_for_its_items_and_no_longer_than_a_second(connect, caplog):
    client = queue_of_two(connect)
    writer = client.structured_writer([config_of(lambda r: r["a"][-1])])
    writer.append({"a": 0, "b": 0})
    del writer
    gc.collect()
    assert client.server_info()["t"].current_size == 1
    writer = client.structured_writer([config_of(lambda r: r["a"][-1])])
    for i in range(4):
        writer.append({"a": i, "b": 0})
    with caplog.at_level(logging.WARNING, "reverie"):
        del writer
        gc.collect()
    assert "a writer was dropped with 3 items unconfirmed" in caplog.text


def test_a_with_block_ends_when_items_are_in(connect):
    client = connect()
    with client.structured_writer([config_of(lambda r: r["a"][-1])]) as writer:
        writer.append({"a": 1, "b": 0})
    assert rows(client) == [1]
    assert writer.status().items_confirmed == 1


def test_a_closed_writer_takes_nothing(connect):
    client = connect()
    writer = client.structured_writer([config_of(lambda r: r["a"][-1])])
    writer.close()
    writer.close()
    for call in (lambda: writer.append({"a": 1, "b": 1}), writer.flush, writer.end_episode, lambda: writer.step_is_open):
        with pytest.raises(RuntimeError, match="Close has been called"):
            call()


def test_a_writer_is_made_without_asking_the_server():
    client = reverie.Client("127.0.0.1:1")
    writer = client.structured_writer([config_of(lambda r: r["a"][-1])])
    writer.append({"a": 1, "b": 1})
    with pytest.raises(reverie.DeadlineExceededError):
        writer.flush(timeout_ms=0)
    writer.close()
