"""How patterns, conditions, priorities and signatures of structured writers are said, and what messages they become."""

import collections
import copy
import operator
import pickle
from typing import NamedTuple

import numpy as np
import pytest
import reverie
from reverie import structured
from reverie.cc import patterns_pb2


class Step(NamedTuple):
    obs: object
    act: object


STEP = Step(obs={"y": 0, "x": 0}, act=[0, (0,)])


def config_of(transform, step=STEP, table="t", **options):
    return structured.create_config(structured.pattern_from_transform(step, transform), table, **options)


def one_line(message):
    return " ".join(str(message).split())


# ---- rows ----


def test_leaves_of_a_reference_step_are_numbered_in_the_order_of_sorted_keys():
    ref = structured.create_reference_step(STEP)
    assert isinstance(ref, Step)
    leaves = (ref.obs["x"], ref.obs["y"], ref.act[0], ref.act[1][0])
    assert [leaf[-1].flat_source_index for leaf in leaves] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (-1, "stop: -1"),
        (0, "stop: 0"),
        (True, "stop: 1"),
        (slice(-3, None), "start: -3"),
        (slice(None, -1), "stop: -1"),
        (slice(-5, -1, 2), "start: -5 stop: -1 step: 2"),
        (slice(np.int64(-3), None), "start: -3"),
    ],
)
def test_an_index_says_which_rows(key, text):
    assert one_line(structured.create_reference_step([0, 0])[1][key]) == f"flat_source_index: 1 {text}"


@pytest.mark.parametrize("key", [np.int64(-1), None, "a", [1], (1, 2), 1.0])
def test_other_indices_are_refused(key):
    with pytest.raises(ValueError, match="Key must be"):
        structured.create_reference_step(0)[key]


def test_a_reference_is_not_iterated():
    with pytest.raises(TypeError, match="index it"):
        list(structured.create_reference_step(0))


# ---- configs ----


def test_a_config_holds_the_pattern_flat_and_its_nest():
    config = config_of(lambda r: {"o": r.obs["x"][-2:], "n": Step(r.obs["y"][-1], [r.act[0][-3::2]])})
    assert [node.flat_source_index for node in config.flat] == [1, 2, 0]
    pattern = structured.unpack_pattern(config)
    assert pattern["o"] == patterns_pb2.PatternNode(flat_source_index=0, start=-2)
    assert pattern["n"].obs.stop == -1
    assert pattern["n"].act[0].step == 2
    assert config.table == "t"
    assert config.priority.constant_fn.value == 1.0
    config.ClearField("pattern_structure")
    assert structured.unpack_pattern(config) == config.flat
    assert structured.unpack_pattern(structured.create_config(pattern["o"], "t")) == pattern["o"]


@pytest.mark.parametrize("leaf", [1, None, structured.create_reference_step(0), "x"])
def test_a_leaf_that_is_no_rows_is_refused(leaf):
    with pytest.raises(TypeError, match=r"leaf at \('a',\)"):
        structured.create_config({"a": leaf}, "t")


def test_other_arguments_of_a_config_are_checked():
    row = structured.create_reference_step(0)[-1]
    with pytest.raises(TypeError, match="table"):
        structured.create_config(row, 5)
    with pytest.raises(TypeError, match="compared"):
        structured.create_config(row, "t", [structured.Condition.step_index()])
    with pytest.raises(TypeError, match="Condition"):
        structured.create_config(row, "t", [1])
    with pytest.raises(TypeError, match="Priority"):
        structured.create_config(row, "t", priority=1.0)
    with pytest.raises(TypeError, match="dict keys"):
        structured.create_config({1: row}, "t")


def test_conditions_and_priority_are_copied():
    condition = structured.Condition.step_index() >= 1
    config = config_of(lambda r: r.act[0][-1], conditions=[condition])
    condition.ge = 7
    assert config.conditions[0].ge == 1


# ---- conditions ----


@pytest.mark.parametrize(
    ("compare", "text"),
    [
        (lambda c: c == 3, "eq: 3"),
        (lambda c: c != 3, "eq: 3 inverse: true"),
        (lambda c: c > 3, "ge: 4"),
        (lambda c: c >= 3, "ge: 3"),
        (lambda c: c < 3, "ge: 3 inverse: true"),
        (lambda c: c <= 3, "ge: 4 inverse: true"),
        (lambda c: 3 < c, "ge: 4"),  # noqa: SIM300
        (lambda c: 3 == c, "eq: 3"),  # noqa: SIM300
        (lambda c: c == np.int64(3), "eq: 3"),
        (lambda c: c % 3 == 1, "mod_eq { mod: 3 eq: 1 }"),
        (lambda c: c % np.int64(3) != 1, "mod_eq { mod: 3 eq: 1 } inverse: true"),
    ],
)
def test_comparing_gives_a_condition(compare, text):
    assert one_line(compare(structured.Condition.step_index())) == f"step_index: true {text}"


def test_conditions_that_python_would_combine_by_leaving_one_out_are_refused():
    step = structured.Condition.step_index
    for combine in (
        lambda: step() >= 10 and step() % 2 == 0,
        lambda: step() == 10 or step() == 12,
        lambda: 3 <= step() <= 7,
        lambda: not step() >= 3,
        lambda: structured.Condition.data({"done": None})["done"] and step() >= 3,
        lambda: step() % 2 or step() >= 3,
    ):
        with pytest.raises(TypeError, match=r"conditions=\[a, b\]"):
            combine()


def test_one_condition_that_is_no_list_is_told_to_be_one():
    for condition in (structured.Condition.step_index() >= 3, structured.Condition.step_index()):
        with pytest.raises(TypeError, match=r"conditions must be a sequence of conditions, such as \[Condition"):
            config_of(lambda r: r.act[0][-1], conditions=condition)


def test_conditions_are_on_steps_data_and_the_end():
    assert one_line(structured.Condition.steps_since_applied() >= 2) == "steps_since_applied: true ge: 2"
    assert one_line(structured.Condition.data(STEP).act[1][0] >= 2) == "flat_source_index: 3 ge: 2"
    assert one_line(structured.Condition.is_end_episode()) == "is_end_episode: true eq: 1"


@pytest.mark.parametrize("value", [3.0, None, "3"])
def test_conditions_compare_with_ints(value):
    index = structured.Condition.step_index()
    for compare in (operator.eq, operator.ge, operator.lt, operator.mod):
        with pytest.raises(TypeError):
            compare(index, value)
    with pytest.raises(TypeError, match="unhashable"):
        hash(index)
    with pytest.raises(ValueError, match="out of range"):
        operator.gt(index, 2**31 - 1)


@pytest.mark.parametrize(
    "wrong", [lambda c: c % 0, lambda c: c % -3, lambda c: c % 3 % 2, lambda c: (c % 3) >= 1, lambda c: (c % 3) < 1]
)
def test_remainders_that_cannot_be_written_down_are_refused(wrong):
    with pytest.raises(ValueError, match="remainder"):
        wrong(structured.Condition.step_index())


# ---- priorities ----


def test_priorities_are_messages():
    assert structured.constant_priority_fn(2).constant_fn.value == 2.0
    error = structured.td_error(0.9, STEP, lambda step: step.act[1][0])
    assert (error.td_error.max_priority_weight, error.td_error.flat_source_index) == (0.9, 3)
    with pytest.raises(TypeError):
        structured.td_error(0.9, STEP, lambda step: step.obs)
    with pytest.raises(TypeError):
        structured.constant_priority_fn("1")


# ---- messages ----


def test_messages_keep_protocol_buffers_rules():
    condition = structured.ConditionProto(step_index=True, eq=0)
    assert condition.WhichOneof("left") == "step_index"
    assert condition.HasField("eq")
    assert condition.eq == 0
    condition.ge = 4
    assert condition.WhichOneof("cmp") == "ge"
    assert condition.eq == 0
    assert not condition.HasField("eq")
    condition.mod_eq.mod = 3
    assert condition.WhichOneof("cmp") == "mod_eq"
    assert condition == structured.ConditionProto(step_index=True, mod_eq={"mod": 3})
    assert condition != structured.ConditionProto(step_index=True)
    config = structured.Config()
    assert config.priority.constant_fn.value == 0.0
    assert not config.HasField("priority")
    config.priority.constant_fn.value = 2.0
    assert config.HasField("priority")
    config.ClearField("priority")
    assert config == structured.Config()


def test_messages_refuse_what_protocol_buffers_refuse():
    config = structured.Config()
    with pytest.raises(AttributeError, match="nope"):
        config.nope = 1
    with pytest.raises(AttributeError, match="CopyFrom"):
        config.priority = structured.constant_priority_fn(1)
    with pytest.raises(ValueError, match="nope"):
        config.HasField("nope")
    with pytest.raises(ValueError, match="does not have presence"):
        config.HasField("table")
    with pytest.raises(TypeError):
        config.table = 1
    with pytest.raises(ValueError, match="out of range"):
        structured.ConditionProto(eq=2**31)
    with pytest.raises(TypeError):
        structured.ConditionProto(eq=1.5)
    with pytest.raises(TypeError, match="unhashable"):
        hash(config)
    for data in (b"\xff\xff", b"\x0a\x05\x08", b"\x12\x02\x0a\x05", b"\x1a\x01\xff", b"\x12\x02\x9a\x03" * 100):
        with pytest.raises(ValueError, match="StructuredWriterConfig"):
            structured.Config.FromString(data)


def test_messages_survive_copies_pickles_and_the_wire():
    config = config_of(
        lambda r: {"a": r.act[0][-3::2], "b": Step(r.obs["x"][-1], ())},
        conditions=[
            structured.Condition.step_index() % 3 == 0,
            structured.ConditionProto(buffer_length=True, ge=2, inverse=True),
        ],
        priority=structured.td_error(0.5, STEP, lambda step: step.act[0]),
    )
    assert structured.Config.FromString(config.SerializeToString()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    other = copy.deepcopy(config)
    other.flat[0].start = -5
    assert other != config
    other.CopyFrom(config)
    assert other == config
    assert 'table: "t"' in str(config)


def test_the_wire_form_is_reverbs():
    config = config_of(lambda r: {"o": r.obs["x"][-2:]}, conditions=[structured.Condition.step_index() >= 1])
    node = b"\x0a\x0b\x10" + b"\xfe" + b"\xff" * 8 + b"\x01"
    structure = b"\x12\x0c\xaa\x03\x09\x0a\x07\x0a\x01o\x12\x02\x0a\x00"
    assert (
        config.SerializeToString()
        == node + structure + b"\x1a\x01t\x22\x0b\x0a\x09\x09\0\0\0\0\0\0\xf0\x3f\x2a\x04\x08\x01\x30\x01"
    )


# ---- signatures ----

SPEC = {
    "a": reverie.TensorSpec((2, 3), np.float32),
    "b": reverie.TensorSpec((), np.int64),
    "n": reverie.TensorSpec((None, 3), np.float32),
}


def infer(*transforms, spec=SPEC, tables=("t", "t")):
    configs = [config_of(transform, spec, table) for transform, table in zip(transforms, tables, strict=False)]
    return structured.infer_signature(configs, spec)


def test_a_signature_has_the_patterns_nest_and_names():
    Pair = collections.namedtuple("Pair", "p q")
    signature = infer(lambda r: {"x": r["a"][-2:], "y": Pair(r["b"][-1], [r["n"][-3:-1]])})
    assert signature["x"] == reverie.TensorSpec((2, 2, 3), np.float32, "x")
    assert signature["y"].p == reverie.TensorSpec((), np.int64, "y/p")
    assert signature["y"].q == [reverie.TensorSpec((2, None, 3), np.float32, "y/q/0")]


def test_strided_lengths_are_rounded_up_as_the_rows_are():
    signature = infer(lambda r: {"x": r["b"][-5::2], "y": r["b"][-4::2], "z": r["b"][-5:-1:3]})
    assert [signature[name].shape for name in "xyz"] == [(3,), (2,), (2,)]


def test_lengths_that_differ_between_configs_are_open():
    assert infer(lambda r: {"x": r["a"][-2:]}, lambda r: {"x": r["a"][-3:]})["x"].shape == (None, 2, 3)
    assert infer(lambda r: {"x": r["a"][-2:]}, lambda r: {"x": r["a"][-3:-1]})["x"].shape == (2, 2, 3)


def test_configs_that_do_not_go_together_have_no_signature():
    with pytest.raises(ValueError, match="different tables: t, u"):
        infer(lambda r: r["a"][-1], lambda r: r["a"][-1], tables=("t", "u"))
    with pytest.raises(ValueError, match="different structures"):
        infer(lambda r: {"x": r["a"][-1]}, lambda r: {"y": r["a"][-1]})
    with pytest.raises(ValueError, match="dtypes at .'x'"):
        infer(lambda r: {"x": r["a"][-1]}, lambda r: {"x": r["b"][-1]})
    with pytest.raises(ValueError, match="shapes at .'x'"):
        infer(lambda r: {"x": r["a"][-1]}, lambda r: {"x": r["a"][-2:]})
    with pytest.raises(ValueError, match="shapes"):
        infer(lambda r: {"x": r["a"][-2:]}, lambda r: {"x": r["n"][-2:]})
    with pytest.raises(ValueError, match="At least one config"):
        structured.infer_signature([], SPEC)


def test_leaves_that_step_spec_lacks_have_no_signature():
    config = config_of(lambda r: r["n"][-1], SPEC)
    with pytest.raises(ValueError, match="leaf 2"):
        structured.infer_signature([config], {"a": SPEC["a"]})
    with pytest.raises(ValueError, match="dtype and a shape"):
        structured.infer_signature([config], {**SPEC, "n": 1.0})
    with pytest.raises(ValueError, match="rank"):
        structured.infer_signature([config], {**SPEC, "n": reverie.TensorSpec(None, np.float32)})


def test_step_specs_may_be_arrays():
    assert infer(lambda r: {"x": r["a"][-2:]}, spec={"a": np.zeros((2, 3), np.float16)})["x"] == reverie.TensorSpec(
        (2, 2, 3), np.float16, "x"
    )
