"""Tables whose signatures are the specs and spaces of environments as they are: of dm_env, and of Gymnasium."""

import re

import numpy as np
import pytest
import reverie
from conftest import make_table
from dm_env import specs
from gymnasium import spaces
from reverie import BoundedTensorSpec, TensorSpec, structured

F4 = np.float32
POSITION = np.array([0.25, -0.5, 1.0], F4)
IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)


def stored(row):
    """The row as it comes back: strings are bytes."""
    of_text = np.vectorize(str.encode, otypes=[object])
    return reverie.nest.map_structure(lambda leaf: of_text(leaf) if np.asarray(leaf).dtype.kind in "UO" else leaf, row)


# A spec, a row that fits it, and rows that do not, each with what is said of it.
CASES = {
    "Array": (
        specs.Array((3,), F4, name="position"),
        POSITION,
        [
            (POSITION.astype(float), 'column 0 "position" is float32[3], got float64[3]'),
            (POSITION[:2], "float32[3], got float32[2]"),
        ],
    ),
    "BoundedArray": (
        specs.BoundedArray((3,), F4, minimum=-1, maximum=[1, 2, 3]),
        POSITION,
        [(POSITION > 0, "float32[3], got bool[3]"), (POSITION[None], "float32[3], got float32[1,3]")],
    ),
    "DiscreteArray": (
        specs.DiscreteArray(4),
        np.int32(3),
        [(np.int64(3), "int32[], got int64[]"), (np.zeros(1, np.int32), "int32[], got int32[1]")],
    ),
    "StringArray": (
        specs.StringArray((2,)),
        np.array(["left", "ä"], object),
        [(np.zeros(2), "string[2], got float64[2]"), (np.array(["left"], object), "string[2], got string[1]")],
    ),
    "arrays in dicts": (
        {
            "observation": {"image": specs.Array((2, 4, 3), np.uint8), "position": specs.Array((3,), F4)},
            "action": specs.DiscreteArray(4, np.int64),
        },
        {"observation": {"image": IMAGE, "position": POSITION}, "action": np.int64(1)},
        [
            (
                {"observation": {"image": IMAGE / 255, "position": POSITION}, "action": np.int64(1)},
                'column 1 "observation/image" is uint8[2,4,3], got float64[2,4,3]',
            ),
            (
                {"observation": {"image": IMAGE, "position": POSITION[1:]}, "action": np.int64(1)},
                'column 2 "observation/position" is float32[3], got float32[2]',
            ),
            ({"observation": {"image": IMAGE, "position": POSITION}}, "has 3 columns"),
        ],
    ),
    "Box": (
        spaces.Box(-1, 1, (3,)),
        POSITION,
        [(POSITION.astype(np.float16), "float32[3], got float16[3]"), (POSITION[:, None], "float32[3], got float32[3,1]")],
    ),
    "Box of pixels": (
        spaces.Box(0, 255, (2, 4, 3), np.uint8),
        IMAGE,
        [(IMAGE.astype(np.int8), "uint8[2,4,3], got int8[2,4,3]"), (IMAGE[..., 0], "uint8[2,4,3], got uint8[2,4]")],
    ),
    "Discrete": (
        spaces.Discrete(4, start=-2),
        np.int64(-2),
        [(np.int32(1), "int64[], got int32[]"), (np.zeros(4, np.int64), "int64[], got int64[4]")],
    ),
    "MultiBinary": (
        spaces.MultiBinary([2, 2]),
        np.array([[0, 1], [1, 0]], np.int8),
        [(np.eye(2, dtype=bool), "int8[2,2], got bool[2,2]"), (np.zeros(4, np.int8), "int8[2,2], got int8[4]")],
    ),
    "MultiDiscrete": (
        spaces.MultiDiscrete([3, 4]),
        np.array([2, 3]),
        [(np.array([2.0, 3.0]), "int64[2], got float64[2]"), (np.array([2]), "int64[2], got int64[1]")],
    ),
    "Text": (spaces.Text(5), "north", [(np.int64(3), "got int64[]")]),
    "Dict": (
        spaces.Dict(
            {"position": spaces.Box(-1, 1, (3,)), "inventory": spaces.Dict(keys=spaces.MultiBinary(2), coins=spaces.Discrete(9))}
        ),
        {"position": POSITION, "inventory": {"keys": np.array([1, 0], np.int8), "coins": np.int64(8)}},
        [
            (
                {"position": POSITION, "inventory": {"keys": np.array([1, 0], np.int8), "coins": np.float32(8)}},
                'column 0 "inventory/coins" is int64[], got float32[]',
            ),
            (
                {"position": POSITION, "inventory": {"keys": np.ones(3, np.int8), "coins": np.int64(8)}},
                'column 1 "inventory/keys" is int8[2], got int8[3]',
            ),
        ],
    ),
    "Tuple": (
        spaces.Tuple([spaces.Discrete(2), spaces.Tuple([spaces.Box(0, 1, ()), spaces.MultiDiscrete([5])])]),
        (np.int64(1), (F4(0.5), np.array([4]))),
        [
            ((np.int64(1), (np.float64(0.5), np.array([4]))), 'column 1 "1/0" is float32[], got float64[]'),
            ((np.int64(1), (F4(0.5), np.array([4, 4]))), 'column 2 "1/1" is int64[1], got int64[2]'),
        ],
    ),
    "both in one": (
        {
            "observation": spaces.Dict(position=spaces.Box(-1, 1, (3,))),
            "reward": specs.Array((), F4),
            "action": (spaces.Discrete(2),),
        },
        {"observation": {"position": POSITION}, "reward": F4(2), "action": (np.int64(1),)},
        [
            (
                {"observation": {"position": POSITION}, "reward": np.float64(2), "action": (np.int64(1),)},
                '"reward" is float32[], got float64[]',
            )
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_that_fit_a_spec_come_back_in_its_nest(connect, name):
    spec, row, _ = CASES[name]
    client = connect(make_table(signature=spec))
    client.add("t", row)
    data = client.sample_batch("t", 1).data
    reverie.nest.map_structure(lambda got, given: np.testing.assert_array_equal(got[0], given), data, stored(row))


@pytest.mark.parametrize("name", CASES)
def test_rows_that_do_not_fit_a_spec_are_refused_by_column_dtype_and_shape(connect, name):
    spec, row, others = CASES[name]
    client = connect(make_table(signature=spec))
    for other, said in others:
        with pytest.raises(ValueError, match=f'^table "t": .*{re.escape(said)}'):
            client.add("t", other)
    assert client.server_info()["t"].current_size == 0
    client.add("t", row)


def test_names_and_limits_of_arrays_are_kept(connect):
    signature = {
        "bounded": specs.BoundedArray((3,), F4, minimum=-1, maximum=[1, 2, 3], name="position"),
        "discrete": specs.DiscreteArray(4, name="action"),
        "unbounded": specs.Array((), np.bool_),
    }
    assert connect(make_table(signature=signature)).server_info()["t"].signature == {
        "bounded": BoundedTensorSpec((3,), F4, -1, [1, 2, 3], "position"),
        "discrete": BoundedTensorSpec((), np.int32, 0, 3, "action"),
        "unbounded": TensorSpec((), np.bool_),
    }


def test_signatures_of_patterns_are_inferred_from_specs_of_environments():
    step = {"position": specs.Array((3,), F4), "action": spaces.Discrete(4)}
    pattern = structured.pattern_from_transform(step, lambda row: {"position": row["position"][-2:], "action": row["action"][-1]})
    inferred = structured.infer_signature([structured.create_config(pattern, "t")], step)
    assert inferred == {"position": TensorSpec((2, 3), F4, "position"), "action": TensorSpec((), np.int64, "action")}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Box(0, 1, (2,)), None),
        spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_spaces_whose_values_have_no_dtype_are_refused_by_name(space):
    with pytest.raises(ValueError, match=rf"Unsupported signature spec at \('x',\): {type(space).__name__}\("):
        make_table(signature={"x": space, "y": spaces.Discrete(2)})
