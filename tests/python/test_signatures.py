"""Signatures: what they accept, what they check, and that they come back as they were."""

import collections
import collections.abc
import contextlib

import numpy as np
import pytest
from conftest import make_table
from reverie import BoundedTensorSpec, TensorSpec, _fitting, _structured_value, structured
from reverie.errors import InvalidArgumentError

Pair = collections.namedtuple("Pair", "b a")

SIGNATURES = {
    "leaf": TensorSpec([2], "float32", "x"),
    "dict": {"b": TensorSpec([], "int64"), "a": TensorSpec([None, 3], "uint8", "img")},
    "list": [TensorSpec([1], "bool"), TensorSpec(None, "float64")],
    "tuple": (TensorSpec([0], str),),
    "nested": {"x": [TensorSpec([2], "int8"), (TensorSpec([], "bfloat16"),)], "e": {}, "l": [], "t": ()},
    "bounded": BoundedTensorSpec([2], "float32", [-1.0, -2.0], 1.0, "action"),
    "bounded string": BoundedTensorSpec([], str, "a", b"z"),
}


class DictSpace(collections.abc.Mapping):
    """As gymnasium.spaces.Dict: a mapping of spaces that takes no other."""

    def __init__(self, spaces):
        assert all(not isinstance(space, TensorSpec) for space in spaces.values())
        self.spaces = dict(spaces)

    def __getitem__(self, key):
        return self.spaces[key]

    def __iter__(self):
        return iter(self.spaces)

    def __len__(self):
        return len(self.spaces)


class TupleSpace(collections.abc.Sequence):
    """As gymnasium.spaces.Tuple."""

    dtype = shape = None

    def __init__(self, spaces):
        self.spaces = tuple(spaces)

    def __getitem__(self, index):
        return self.spaces[index]

    def __len__(self):
        return len(self.spaces)


class Box:
    shape, dtype = (3,), np.dtype(np.float32)


def test_spaces_that_hold_spaces_are_dicts_and_tuples(connect):
    goal = DictSpace({"observation": Box(), "goals": TupleSpace([Box(), Box()])})
    box = TensorSpec([3], "float32")
    expected = {"observation": box, "goals": (box, box)}
    assert make_table(signature=goal).info.signature == expected
    client = connect(make_table(signature={"obs": goal, "action": (Box(), [goal])}))
    assert client.server_info()["t"].signature == {"obs": expected, "action": (box, [expected])}
    value = {"observation": np.ones(3, np.float32), "goals": (np.ones(3, np.float32),) * 2}
    client.add("t", {"obs": value, "action": (np.ones(3, np.float32), [value])})
    assert client.sample_batch("t", 1).data["obs"]["goals"][1].tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_comes_back_as_it_was(connect, name):
    signature = SIGNATURES[name]
    table = make_table(signature=signature)
    assert table.info.signature == signature
    client = connect(table)
    assert client.server_info()["t"].signature == signature
    assert table.info.signature == signature


def test_a_named_tuple_comes_back_as_another_of_the_same_name_and_fields(connect):
    signature = Pair(b=TensorSpec([], "int8"), a=TensorSpec([], "int16"))
    found = connect(make_table(signature=signature)).server_info()["t"].signature
    assert type(found) is not Pair
    assert type(found).__name__ == "Pair"
    assert found._asdict() == signature._asdict()


def test_an_ordered_dict_comes_back_as_a_dict(connect):
    signature = collections.OrderedDict(b=TensorSpec([], "int8"), a=TensorSpec([], "int16"))
    found = connect(make_table(signature=signature)).server_info()["t"].signature
    assert type(found) is dict
    assert found == dict(signature)


@pytest.mark.parametrize("empty", [None, {}, [], ()])
def test_an_empty_signature_is_none(connect, empty):
    assert connect(make_table(signature=empty)).server_info()["t"].signature is None


@pytest.mark.parametrize("leaf", [np.float32, np.zeros(2), np.dtype("int8"), None, "float32", 3])
def test_leaves_that_are_no_specs_are_refused(leaf):
    with pytest.raises(ValueError, match="Unsupported signature spec"):
        make_table(signature={"x": leaf})


def test_an_array_in_the_place_of_a_spec_is_told_how_to_make_one_of_it():
    with pytest.raises(ValueError, match=r"at \('x',\): an array is a value and no spec; give reverie\.TensorSpec\(array\.shape"):
        make_table(signature={"x": np.zeros(2)})


def test_keys_that_are_no_strings_are_refused():
    with pytest.raises(TypeError, match="strings"):
        make_table(signature={1: TensorSpec([], "int8")})


def test_anything_with_a_shape_and_a_dtype_is_a_spec():
    class Like:
        shape = (2, None)
        dtype = np.dtype("int16")
        name = "like"

    class Bounded(Like):
        minimum, maximum = 0, 5

    assert make_table(signature=Like()).info.signature == TensorSpec([2, None], "int16", "like")
    found = make_table(signature=Bounded()).info.signature
    assert isinstance(found, BoundedTensorSpec)
    assert (found.minimum, found.maximum) == (0, 5)


@pytest.mark.parametrize("name", ["float128", "datetime64[s]", "void"])
def test_dtypes_that_cannot_be_stored_are_refused_in_specs(name):
    with pytest.raises(TypeError, match="cannot be stored"):
        TensorSpec([], name)


def test_negative_sizes_are_refused_in_specs():
    with pytest.raises(ValueError, match="negative"):
        TensorSpec([-2], "int8")


def test_specs_are_values():
    import pickle

    for spec in (TensorSpec([2, None], "float32", "x"), BoundedTensorSpec([2], "int8", 0, [1, 2])):
        again = pickle.loads(pickle.dumps(spec))
        assert again == spec
        assert hash(again) == hash(spec)
    assert TensorSpec([2], "float32") != TensorSpec([3], "float32")
    assert "TensorSpec" in repr(TensorSpec([2]))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"obs": np.zeros(4, np.float32), "a": np.int32(0)}, "int32"),
        ({"obs": np.zeros(5, np.float32), "a": np.int64(0)}, "5"),
        ({"obs": np.zeros((4, 1), np.float32), "a": np.int64(0)}, "4,1"),
        ({"obs": np.zeros(4, np.float32)}, "1"),
        ({"obs": np.zeros(4, np.float32), "a": np.int64(0), "x": 1}, "3"),
    ],
    ids=["dtype", "size", "rank", "too few", "too many"],
)
def test_rows_that_do_not_fit_are_refused_with_what_was_expected(connect, wrong, words):
    client = connect(make_table(signature={"obs": TensorSpec([4], "float32", "obs"), "a": TensorSpec([], "int64", "a")}))
    with pytest.raises(ValueError, match=words):
        client.add("t", wrong)
    assert client.server_info()["t"].current_size == 0
    client.add("t", {"obs": np.zeros(4, np.float32), "a": np.int64(0)})


def test_only_leaves_count_not_containers_or_names(connect):
    client = connect(make_table(signature={"x": TensorSpec([2], "float32"), "y": TensorSpec([], "int64")}))
    client.add("t", (np.zeros(2, np.float32), np.int64(3)))
    assert set(client.sample_batch("t", 1).data) == {"x", "y"}


def test_wildcards_fit_anything(connect):
    client = connect(make_table(signature=[TensorSpec([None, 2], "int8"), TensorSpec(None, "int8")]))
    client.add("t", [np.zeros((5, 2), np.int8), np.zeros((1, 2, 3), np.int8)])
    with pytest.raises(ValueError, match="int8"):
        client.add("t", [np.zeros((5, 3), np.int8), np.zeros((), np.int8)])


def test_a_signature_sees_the_time_dimension_of_a_trajectory(connect):
    client = connect(make_table(signature=[TensorSpec([3, 2], "int8"), TensorSpec([], "int8")]))
    writer = client.trajectory_writer(3)
    for i in range(3):
        writer.append([np.full(2, i, np.int8), np.int8(i)])
    rows, last = writer.history[0], writer.history[1]
    writer.create_item("t", 1.0, [rows[-3:], last[-1]])
    with pytest.raises(ValueError, match=r"int8\[3,2\], got int8\[2,2\]"):
        writer.create_item("t", 1.0, [rows[-2:], last[-1]])
        writer.flush()


def test_a_misfit_shows_the_shape_that_was_given(connect):
    rows = make_table("rows", signature={"x": TensorSpec([2], "float32", "x")})
    runs = make_table("runs", signature={"x": TensorSpec([None, 2], "float32", "x")})
    client = connect(rows, runs)
    row = {"x": np.zeros(3, np.float32)}
    with pytest.raises(ValueError, match=r"is float32\[2\], got float32\[3\], which is inconsistent with it"):
        client.insert(row, {"rows": 1.0})
    with pytest.raises(
        ValueError, match=r'is float32\[2\], got float64\[2\], .*; convert it first \(NumPy: .astype\("float32"\)\)'
    ):
        client.insert({"x": np.zeros(2)}, {"rows": 1.0})
    writer = client.writer(2)
    writer.append(row)
    writer.append(row)
    with pytest.raises(ValueError, match=r"is float32\[2\], got float32\[3\]"):
        writer.create_item("rows", 2, 1.0)
    with pytest.raises(ValueError, match=r"is float32\[\?,2\], got float32\[2,3\]"):  # of what an item has
        writer.create_item("runs", 2, 1.0)
    trajectories = client.trajectory_writer(2)
    trajectories.append(row)
    with pytest.raises(ValueError, match=r"is float32\[2\], got float32\[1,3\]"):
        trajectories.create_item("rows", 1.0, {"x": trajectories.history["x"][:]})


def test_data_is_unpacked_as_the_signature(connect):
    client = connect(make_table(signature={"x": TensorSpec([1, 2], "int8"), "y": (TensorSpec([1], "int64"),)}))
    client.insert({"x": np.zeros(2, np.int8), "y": (3,)}, {"t": 1.0})
    sample = next(client.sample("t", emit_timesteps=False, unpack_as_table_signature=True))
    assert sample.data["x"].shape == (1, 2)
    assert sample.data["y"][0].tolist() == [3]
    (step,) = next(client.sample("t", unpack_as_table_signature=True))
    assert step.data["x"].shape == (2,)
    assert isinstance(next(client.sample("t", emit_timesteps=False)).data, list)


def test_without_a_signature_data_is_unpacked_flat(connect):
    client = connect()
    client.insert({"x": 1}, {"t": 1.0})
    assert isinstance(next(client.sample("t", emit_timesteps=False, unpack_as_table_signature=True)).data, list)


@pytest.mark.parametrize(
    "data",
    [b"\xff", b"\x9a\x03\x05\x0a", b"\x08" * 3, b"\xaa\x03\x02\x0a\x50", b"\x9a\x03\x02\x0a\x00" * 3, bytes(range(256))],
    ids=["open varint", "cut", "wrong type", "cut entry", "repeated", "noise"],
)
def test_a_broken_structure_is_a_value_error_at_worst(data):
    with contextlib.suppress(ValueError):
        _structured_value.decode(data)


def test_a_structure_nested_without_end_is_a_value_error():
    data = b""
    for _ in range(10_000):
        data = _structured_value.field_bytes(51, _structured_value.field_bytes(1, data))
        if len(data) > 60_000:
            break
    with pytest.raises(ValueError, match="deep"):
        _structured_value.decode(data)
    deep = TensorSpec([], "int8")
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        make_table(signature=deep)
    deep = {}
    deep["x"] = deep
    with pytest.raises(ValueError, match="deep"):
        make_table(signature=deep)


def test_random_bytes_never_do_worse_than_a_value_error():
    random = np.random.default_rng(7)
    good = _structured_value.encode(SIGNATURES["nested"]) + _structured_value.encode(SIGNATURES["bounded"])
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(random.integers(1, 6)):
            data[random.integers(len(data))] = random.integers(256)
        with contextlib.suppress(ValueError):
            _structured_value.decode(bytes(data[: random.integers(len(data) + 1)]))


# ---- names ----

Step = collections.namedtuple("Step", "obs act")
SWAPPABLE = {"a": TensorSpec([], "int64"), "b": TensorSpec([], "int64")}
ONE_STEP = {"a": TensorSpec([1], "int64"), "b": TensorSpec([1], "int64")}


def write_item(client, step, trajectory=None):
    with client.trajectory_writer(1) as writer:
        writer.append(step)
        columns = {key: column[-1] for key, column in writer.history.items()}
        writer.create_item("t", 1.0, columns if trajectory is None else trajectory(writer.history))
        writer.flush(0)


def write_step(client, step):
    with client.writer(1) as writer:
        writer.append(step)
        writer.create_item("t", 1, 1.0)


WAYS = {
    "add": lambda client, step: client.add("t", step),
    "add_batch": lambda client, step: client.add_batch("t", {key: np.array([value]) for key, value in step.items()}),
    "insert": lambda client, step: client.insert(step, {"t": 1.0}),
    "writer": write_step,
    "trajectory_writer": write_item,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_misspelt_column_is_refused_whatever_fits_besides(connect, way):
    signature = ONE_STEP if way in ("insert", "writer") else SWAPPABLE
    client = connect(make_table(signature=signature))
    with pytest.raises(ValueError, match='column 1 of the item is called "c", the table\'s signature calls it "b"; call the'):
        WAYS[way](client, {"a": np.int64(1), "c": np.int64(2)})
    assert client.server_info()["t"].current_size == 0
    WAYS[way](client, {"a": np.int64(1), "b": np.int64(2)})
    assert client.server_info()["t"].current_size == 1


def test_columns_in_another_order_than_the_signatures_are_refused(connect):
    client = connect(make_table(signature=Step(obs=TensorSpec([], "int64"), act=TensorSpec([], "int64"))))
    with pytest.raises(ValueError, match='column 0 of the item is called "act".* calls it "obs"'):
        client.add("t", {"obs": np.int64(1), "act": np.int64(2)})  # a dict comes in the order of its keys
    client.add("t", Step(np.int64(1), np.int64(2)))
    assert client.sample_batch("t", 1).data.obs.tolist() == [1]


def test_the_place_in_the_item_counts_and_not_the_name_of_the_history(connect):
    client = connect(make_table(signature=SWAPPABLE))
    write_item(client, {"x": np.int64(1), "y": np.int64(2)}, lambda history: {"b": history["x"][-1], "a": history["y"][-1]})
    assert {key: column.tolist() for key, column in client.sample_batch("t", 1).data.items()} == {"a": [2], "b": [1]}
    with pytest.raises(ValueError, match='"x"'):
        write_item(client, {"x": np.int64(1), "y": np.int64(2)})


def test_names_inside_the_nest_are_compared_too(connect):
    client = connect(make_table(signature={"obs": {"pos": TensorSpec([], "int64"), "vel": TensorSpec([], "int64")}}))
    with pytest.raises(ValueError, match='called "obs/speed".* calls it "obs/vel"'):
        client.add("t", {"obs": {"pos": np.int64(1), "speed": np.int64(2)}})
    client.add("t", {"obs": {"pos": np.int64(1), "vel": np.int64(2)}})


@pytest.mark.parametrize(
    ("signature", "row"),
    [
        (SWAPPABLE, [1, 2]),
        ([TensorSpec([], "int64"), TensorSpec([], "int64")], {"x": 1, "y": 2}),
        ({"a": TensorSpec([], "int64", "left"), "b": TensorSpec([], "int64", "right")}, {"a": 1, "b": 2}),
        ({"x": [TensorSpec([], "int64"), TensorSpec([], "int64")]}, {"x": {"p": 1, "q": 2}}),
        ({"inner": SWAPPABLE}, {"p": 1, "q": 2}),
        ([TensorSpec([], "int64", "p"), TensorSpec([], "int64", "q")], {"p": 1, "q": 2}),
        (TensorSpec([], "int64", "only"), {"p": 1}),
        ({"a/b": TensorSpec([], "int64"), "c": TensorSpec([], "int64")}, {"a": {"b": 1}, "c": 2}),
        ({"k" * 500: TensorSpec([], "int64")}, {"k" * 500: 1}),
    ],
    ids=["list", "no names", "specs' own names", "an index", "depth", "flat list", "leaf", "slash", "long"],
)
def test_where_one_side_has_no_name_the_order_decides(connect, signature, row):
    client = connect(make_table(signature=signature))
    client.add("t", row)
    assert client.server_info()["t"].current_size == 1


def test_names_of_a_flat_list_are_those_of_its_specs(connect):
    client = connect(make_table(signature=[TensorSpec([], "int64", "p"), TensorSpec([], "int64", "q")]))
    with pytest.raises(ValueError, match='column 1 of the item is called "r".* calls it "q"'):
        client.add("t", {"p": 1, "r": 2})


def test_without_validation_names_are_not_compared(connect):
    client = connect(make_table(signature=SWAPPABLE))
    with client.trajectory_writer(1, validate_items=False) as writer:
        writer.append({"a": np.int64(1), "c": np.int64(2)})
        writer.create_item("t", 1.0, {"a": writer.history["a"][-1], "c": writer.history["c"][-1]})
    assert client.server_info()["t"].current_size == 1


# ---- time dimensions ----


def test_a_trajectory_with_a_time_dimension_that_the_signature_lacks_is_refused(connect):
    client = connect(make_table(signature={"x": TensorSpec([2], "float32")}))
    step = {"x": np.zeros(2, np.float32)}
    with pytest.raises(ValueError, match=r"float32\[2\], got float32\[1,2\], which is inconsistent with it; squeeze its one row"):
        write_item(client, step, lambda history: {"x": history["x"][-1:]})
    write_item(client, step, lambda history: {"x": history["x"][-1]})
    assert client.server_info()["t"].current_size == 1


def test_a_writer_of_steps_takes_a_signature_of_one_step(connect):
    client = connect(make_table(signature={"x": TensorSpec([2], "float32")}))
    with client.writer(3) as writer:
        for _ in range(3):
            writer.append({"x": np.zeros(2, np.float32)})
        writer.create_item("t", 3, 1.0)
    client.insert({"x": np.zeros(2, np.float32)}, {"t": 1.0})
    assert client.server_info()["t"].current_size == 2


@pytest.mark.parametrize("validate", [True, False])
def test_columns_whose_specs_have_no_names_are_called_by_their_place(connect, validate):
    signature = {"action": TensorSpec([], "int32"), "obs": {"pixels": [TensorSpec([2], "float32")]}}
    client = connect(make_table("t", signature=signature))
    step = {"action": np.int32(0), "obs": {"pixels": [np.zeros(3, np.float32)]}}
    with pytest.raises(ValueError, match='column 1 "obs/pixels/0" is'):
        client.add("t", step)
    writer = client.trajectory_writer(1, validate_items=validate)
    writer.append(step)
    item = {"action": writer.history["action"][-1], "obs": {"pixels": [writer.history["obs"]["pixels"][0][-1]]}}
    with pytest.raises(ValueError, match='column 1 "obs/pixels/0" is'), writer:  # here, or on the server
        writer.create_item("t", 1.0, item)
    assert client.server_info()["t"].signature == signature


def test_a_structured_writers_columns_are_called_as_in_the_signature(connect):
    spec = TensorSpec((), np.float32)
    client = connect(make_table(signature={"reward": spec, "value": spec}))
    step = {"action": np.float32(1), "reward": np.float32(2)}

    def writer(pattern):
        return client.structured_writer([structured.create_config(structured.pattern_from_transform(step, pattern), "t")])

    with pytest.raises(InvalidArgumentError, match='is called "action", the table\'s signature calls it "reward"'):
        wrong = writer(lambda ref: {"action": ref["action"][-1], "reward": ref["reward"][-1]})
        wrong.append(step)
        wrong.flush(timeout_ms=30_000)
    assert client.server_info()["t"].current_size == 0
    right = writer(lambda ref: {"reward": ref["reward"][-1], "value": ref["action"][-1]})
    right.append(step)
    right.flush(timeout_ms=30_000)
    assert client.sample_batch("t", 1, timeout=30).data == {"reward": [2], "value": [1]}


FLOAT32, FLOAT64, STRING, QINT8, INT8 = 1, 2, 7, 11, 6


@pytest.mark.parametrize(
    ("spec", "wanted", "timesteps"),
    [
        ((FLOAT32, (2, -1)), (FLOAT32, (2, 5)), False),
        ((FLOAT32, (2,)), (FLOAT32, None), False),
        ((FLOAT32, None), (FLOAT32, (7, 7)), True),
        ((FLOAT32, (2,)), (FLOAT32, (9, 2)), False),  # an item of nine rows fits the signature of a row
        ((FLOAT32, (2,)), (FLOAT32, (2,)), True),
        ((FLOAT32, (-1, 2)), (FLOAT32, (2,)), True),
        ((FLOAT32, ()), (FLOAT32, ()), True),
        ((STRING, ()), (STRING, ()), False),
        ((QINT8, ()), (INT8, ()), False),
    ],
)
def test_a_dataset_that_items_of_a_signature_may_fit_is_taken(spec, wanted, timesteps):
    _fitting.check("t", [("x", *spec)], [wanted], timesteps)


@pytest.mark.parametrize(
    ("spec", "wanted", "timesteps", "text"),
    [
        ((FLOAT32, ()), (FLOAT64, ()), False, r'tensor 0 "x" is float32 \[\] in its signature, .* made for float64 \[\]$'),
        ((STRING, None), (FLOAT32, (None,)), False, r"is string of any shape in .* made for float32 \[None\]$"),
        ((FLOAT32, (2,)), (FLOAT32, (3,)), False, r"float32 \[2\] in its signature"),
        ((FLOAT32, (2,)), (FLOAT32, (2, 3)), False, "incompatible"),
        ((FLOAT32, (-1, 2)), (FLOAT32, (9, 9, 9, 2)), False, "incompatible"),
        ((FLOAT32, (5, 2)), (FLOAT32, (3,)), True, "steps have no time dimension"),
    ],
)
def test_a_dataset_that_no_item_of_a_signature_fits_is_refused(spec, wanted, timesteps, text):
    with pytest.raises(InvalidArgumentError, match=text):
        _fitting.check("t", [("x", *spec)], [wanted], timesteps)


def test_a_dataset_of_another_number_of_columns_than_the_signature_is_refused():
    with pytest.raises(InvalidArgumentError, match=r'"t" has 2 \("a", "b"\), the dataset was made for 1$'):
        _fitting.check("t", [("a", FLOAT32, ()), ("b", FLOAT32, ())], [(FLOAT32, ())], False)
    _fitting.check("t", [], [(FLOAT32, ())], False)  # no signature
