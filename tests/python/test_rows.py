"""Rows that go in, one or many, and come out as they were: add, add_batch, sample_batch."""

import collections
import threading
import types

import attrs
import ml_dtypes
import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie.errors import DeadlineExceededError
from waiting import TooSlowError, says_at_its_deadline, until, with_a_deadline

Row = collections.namedtuple("Row", "obs reward")


def rows(n, start=0):
    return {"obs": np.arange(start * 2, (start + n) * 2, dtype=np.float32).reshape(n, 2), "reward": np.arange(start, start + n)}


def test_a_row_comes_back_in_its_structure(connect):
    client = connect()
    key = client.add("t", Row(np.arange(2, dtype=np.float32), 3.0), 2.5)
    batch = client.sample_batch("t", 2)
    assert isinstance(batch, reverie.ReplayBatch)
    assert isinstance(batch.data, Row)
    assert batch.data.obs.tolist() == [[0, 1], [0, 1]]
    assert batch.data.reward.tolist() == [3, 3]
    assert batch.keys.tolist() == [key, key]
    assert batch.priorities.tolist() == [2.5, 2.5]
    assert batch.probabilities.tolist() == [1, 1]
    assert batch.times_sampled.tolist() == [1, 2]
    assert (len(batch), batch.table_size, batch.lengths) == (2, 1, None)
    assert [array.dtype.name for array in (batch.keys, batch.probabilities, batch.priorities, batch.times_sampled)] == [
        "uint64", "float64", "float64", "int32",
    ]  # fmt: skip
    assert "2 items" in repr(batch)


@pytest.mark.parametrize("size", [1, 45, 1023, 1024, 2111, 8191, 8192, 8193, 10303, 28_225, 70_000])
def test_rows_of_any_size_come_back_whole_in_a_batch(connect, size):
    client = connect()
    images = np.random.default_rng(size).integers(0, 256, (20, size), np.uint8)
    client.add_batch("t", {"image": images, "number": np.arange(20)})
    batch = client.sample_batch("t", 40)
    assert np.array_equal(batch.data["image"], images[batch.data["number"]])


@pytest.mark.parametrize("num_columns", [1, 23, 24, 60])
def test_a_row_of_many_columns_each_of_which_is_converted_comes_back(connect, num_columns):
    client = connect()
    row = [np.arange(i, i + 6).reshape(2, 3).T for i in range(num_columns)]
    client.add("t", row)
    client.add_batch("t", [column[None] for column in row])
    batch = client.sample_batch("t", 1)
    assert all((column == given).all() for column, given in zip(batch.data, row, strict=True))


@pytest.mark.parametrize("kind", ["?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "f", "d", "F", "D"])
def test_a_scalar_keeps_its_dtype(connect, kind):
    client = connect()
    client.add("t", {"value": np.dtype(kind).type(1), "other": 2.5})
    data = client.sample_batch("t", 1).data
    assert data["value"].dtype == np.dtype(kind)
    assert data["value"].tolist() == [1]
    assert data["other"].dtype == np.float64


SIGNATURE = {"obs": reverie.TensorSpec((2,), np.float32), "reward": reverie.TensorSpec((), np.int64)}


def what_comes_of(client, data):
    """The newest row's leaves, or the error."""
    try:
        added = client.add_batch("t", data)
        leaves = reverie.nest.flatten(client.sample_batch("t", 1).data)
        return added, [(str(leaf.dtype), leaf.tolist()) for leaf in leaves]
    except (ValueError, TypeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("signature", [SIGNATURE, None], ids=["signature", "none"])
@pytest.mark.parametrize(
    "change",
    [
        {"reward": [4, 5]},
        {"obs": [[1, 2], [3, 4]]},
        {"obs": [np.zeros(2, np.float32), np.ones(2, np.float32)]},
        {"obs": (np.zeros(2, np.float32), np.ones(2, np.float32))},
        {"obs": {"obs": np.zeros((2, 2), np.float32)}},
        {"reward": np.int64(3)},
        {"reward": 3},
        {"reward": None},
        {"reward": np.array(["a", "b"])},
        {"reward": np.zeros(3, np.int64)},
        {"reward": np.zeros(2, np.int64).view(np.recarray)},
        {"more": np.zeros(2)},
    ],
)
def test_what_comes_of_a_batch_does_not_depend_on_those_before_it(signature, change):
    options = {"sampler": reverie.selectors.Lifo(), "signature": signature}
    fresh, used = (reverie.Client(reverie.Server([make_table(**options)], in_process=True)) for _ in range(2))
    for start in range(3):
        used.add_batch("t", rows(2, start))
    assert what_comes_of(used, rows(2) | change) == what_comes_of(fresh, rows(2) | change)
    assert what_comes_of(used, rows(2, 5))[0] == 2


def test_a_batch_of_rows_is_inserted_in_order(connect):
    client = connect(make_table(sampler=reverie.selectors.Fifo(), max_times_sampled=1))
    assert client.add_batch("t", rows(5), [1, 2, 3, 4, 5]) == 5
    batch = client.sample_batch("t", 5)
    np.testing.assert_array_equal(batch.data["obs"], rows(5)["obs"])
    assert batch.data["reward"].tolist() == [0, 1, 2, 3, 4]
    assert batch.priorities.tolist() == [1, 2, 3, 4, 5]


def test_large_rows_and_batches_come_back(connect):
    client = connect(make_table(max_times_sampled=1))
    images = np.random.default_rng(0).integers(0, 255, (40, 84, 84, 4), np.uint8)
    assert client.add_batch("t", {"image": images}) == 40
    client.add("t", {"image": images[7]})
    batch = client.sample_batch("t", 41)
    np.testing.assert_array_equal(batch.data["image"][:40], images)
    np.testing.assert_array_equal(batch.data["image"][40], images[7])


def test_no_rows_are_no_error(connect):
    assert connect().add_batch("t", rows(0)) == 0


@pytest.mark.parametrize(
    ("data", "priorities", "words"),
    [
        ({"a": np.zeros(3), "b": np.zeros(2)}, None, "rows"),
        ({"a": 1.0}, None, "scalar"),
        ({"a": np.zeros(3)}, [1.0, 2.0], "priorities"),
        ({"a": np.zeros(3)}, [[1.0, 2.0, 3.0]], "priorities"),
        ({"a": np.zeros(3)}, [1.0, float("nan"), 1.0], "(?i)nan"),
        ({}, None, "no leaves"),
    ],
)
def test_bad_batches_of_rows_are_refused(connect, data, priorities, words):
    client = connect()
    with pytest.raises(ValueError, match=words):
        client.add_batch("t", data, priorities)


Pair = collections.namedtuple("Pair", "first second")
LISTS = {
    "numbers": ([1, 2, 3], np.array([1, 2, 3])),
    "a tuple": ((1.5, 2.5), np.array([1.5, 2.5])),
    "numbers of NumPy": ([np.float32(1), np.float32(2)], np.array([1, 2], np.float32)),
    "truths": ([True, False], np.array([True, False])),
    "text": (["a", "bc"], np.array([b"a", b"bc"], object)),
    "text with zeros at its end": (["a\0", "\0\0"], np.array([b"a\0", b"\0\0"], object)),
    "bytes with zeros at their end": ((b"a\0\xff\0", b"", b"\0"), np.array([b"a\0\xff\0", b"", b"\0"], object)),
    "bytes and text": ([b"a\0", "\xe9"], np.array([b"a\0", b"\xc3\xa9"], object)),
    "in a dict": ({"x": [1, 2], "y": np.zeros((2, 3))}, {"x": np.array([1, 2]), "y": np.zeros((2, 3))}),
    "columns": ([[1, 2, 3], [4.0, 5.0, 6.0]], [np.array([1, 2, 3]), np.array([4.0, 5.0, 6.0])]),
    "in a named tuple": (Pair([1, 2], [3.0, 4.0]), Pair(np.array([1, 2]), np.array([3.0, 4.0]))),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_numbers_or_text_is_a_column_of_rows(connect, name):
    lists, arrays = LISTS[name]
    client = connect(make_table(max_times_sampled=1))
    n = client.add_batch("t", arrays)
    assert client.add_batch("t", lists) == n
    data = client.sample_batch("t", 2 * n).data
    assert reverie.nest.paths(data) == reverie.nest.paths(arrays)
    assert type(data) is type(arrays)
    for found, wanted in zip(reverie.nest.flatten(data), reverie.nest.flatten(arrays), strict=True):
        assert found.dtype == wanted.dtype
        assert found.tolist() == 2 * wanted.tolist()


def test_where_a_signature_has_text_it_keeps_the_zeros_at_its_end(connect):
    client = connect(make_table(signature={"words": reverie.TensorSpec((2,), np.object_)}, max_times_sampled=1))
    assert client.add_batch("t", {"words": [[b"a\0", "b\0"], (b"\0", "")]}) == 2
    assert client.sample_batch("t", 2).data["words"].tolist() == [[b"a\0", b"b\0"], [b"\0", b""]]


SIGNATURE = {
    "obs": reverie.TensorSpec((2,), np.float32),
    "action": reverie.TensorSpec((), np.uint8),
    "half": reverie.TensorSpec((), ml_dtypes.bfloat16),
}


def test_where_a_signature_has_a_column_lists_are_what_numpy_makes_of_them(connect):
    client = connect(make_table(signature=SIGNATURE))
    for obs in ([[1, 2], [3, 4]], ((1.0, 2.0), [3, 4]), [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]):
        assert client.add_batch("t", {"obs": obs, "action": [0, 255], "half": [1, 0.5]}) == 2
        data = client.sample_batch("t", 2).data
        assert [(name, data[name].dtype) for name in sorted(data)] == [(name, SIGNATURE[name].dtype) for name in sorted(data)]
        assert data["obs"].shape == (2, 2)
    assert client.add_batch("t", {"obs": np.zeros((0, 2), np.float32), "action": [], "half": []}) == 0


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            {"obs": [[1, 2], [3]]},
            TypeError,
            r"obs.*a list cannot be made an array of.*; where rows differ in shape, add them one by one$",
        ),
        ({"obs": [[1, 2, 3], [4, 5, 6]]}, ValueError, r'"obs" is float32\[2\], got float32\[3\]'),
        ({"obs": [1, 2]}, ValueError, r'"obs" is float32\[2\], got float32\[\]'),
        ({"action": [0, 256]}, ValueError, r"action.*the integer 256 does not fit into uint8"),
        ({"action": [-1, 0]}, ValueError, r"action.*the integer -1 does not fit into uint8"),
        ({"action": [0, 2**70]}, TypeError, r"cannot be stored"),
        ({"action": [0.5, 1]}, ValueError, r'"action" is uint8\[\], got float64\[\]'),
        ({"action": [np.int64(0), np.int64(1)]}, ValueError, r'"action" is uint8\[\], got int64\[\]'),
        ({"action": [1, 2, 3]}, ValueError, "rows"),
        ({"action": [None, None]}, TypeError, "cannot be stored"),
        ({"more": [1, 2]}, ValueError, "signature has 3 columns"),
    ],
)
def test_lists_that_do_not_fit_are_refused_as_arrays_are(connect, change, error, words):
    client = connect(make_table(signature=SIGNATURE))
    good = {"obs": [[1, 2], [3, 4]], "action": [0, 255], "half": [1, 0.5]}
    with pytest.raises(error, match=words):
        client.add_batch("t", good | change)
    assert client.server_info()["t"].current_size == 0
    assert client.add_batch("t", good) == 2


@pytest.mark.parametrize("obs", [[1, 2], (1, 2)], ids=["a list", "a tuple"])
def test_a_row_with_a_list_for_a_vector_is_told_to_make_an_array_of_it(connect, obs):
    client = connect(make_table(signature=SIGNATURE))
    row = {"obs": obs, "action": 1, "half": 1.0}
    with pytest.raises(ValueError, match=r"got 4.*data\['obs'\] is of type .* a single value; numpy\.asarray makes one of it"):
        client.add("t", row)
    with pytest.raises(ValueError, match=r"data\['action'\] is of type dict, but should be a single value\)$"):
        client.add("t", row | {"obs": np.zeros(2, np.float32), "action": {"x": 1, "y": 2}})
    client.add("t", row | {"obs": np.asarray(obs, np.float32)})


ONE = {"obs": np.zeros(2, np.float32), "action": np.uint8(1), "half": ml_dtypes.bfloat16(1)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"half": [1.0, 2.0]}, r'column 1 "half" has 2 rows, column 0 "action" has 3; add_batch takes .*, and add takes one row'),
        ({"action": 1}, r'column 0 "action" is a scalar; add_batch takes .* rows along dimension 0, and add takes one row'),
    ],
)
def test_a_column_of_a_batch_is_called_by_its_name(connect, change, words):
    data = {"obs": np.zeros((3, 2), np.float32), "action": [1, 2, 3], "half": [1.0, 2.0, 3.0]}
    for tables in ([make_table(signature=SIGNATURE)], [make_table()]):
        with pytest.raises(ValueError, match=words):
            connect(*tables).add_batch("t", data | change)


def test_an_array_alone_has_no_name(connect):
    with pytest.raises(ValueError, match="^column 0 is a scalar"):
        connect().add_batch("t", 1.0)


def test_rows_for_add_and_a_row_for_add_batch_are_told_of_the_other(connect):
    client = connect(make_table(signature=SIGNATURE), make_table("vectors", signature=[reverie.TensorSpec((2,), np.float32)]))
    rows = {name: np.stack([value] * 3) for name, value in ONE.items()}
    with pytest.raises(ValueError, match=r"inconsistent with it; add takes one row, and add_batch rows along dimension 0$"):
        client.add("t", rows)
    with pytest.raises(ValueError, match=r"and add takes one row$"):
        client.add_batch("t", ONE)
    with pytest.raises(ValueError, match=r"inconsistent with it; add_batch takes rows along dimension 0, and add takes one row$"):
        client.add_batch("vectors", [np.zeros(2, np.float32)])
    for wrong in (ONE | {"obs": np.zeros(3, np.float32)}, rows | {"obs": np.zeros((2, 2), np.float32)}):
        with pytest.raises(ValueError, match="inconsistent with it$"):
            client.add("t", wrong)
    client.add("t", ONE)
    client.add_batch("t", rows)


ROW = np.arange(3, dtype=np.float32)
Point = collections.namedtuple("Point", "b a")
SHAPES = {"known": (3,), "of any length": (None,), "of any shape": None}


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_list_of_rows_is_a_column_however_many_there_are(connect, shape, kind, n):
    spec = reverie.TensorSpec(shape, np.float32)
    rows = kind([ROW + i for i in range(n)])
    columns = [rows] if n == 0 else [rows, list(rows), tuple(rows), np.asarray(rows)]
    for signature, makes in (
        (spec, [lambda column: column]),
        ({"a": spec}, [lambda column: {"a": column}, lambda column: (column,), lambda column: [column]]),
        ([spec], [lambda column: [column], lambda column: (column,), lambda column: {"x": column}]),
        (
            {"a": spec, "b": spec},
            [lambda column: {"b": column, "a": rows}, lambda column: [column, rows], lambda column: (rows, column)],
        ),
        (Point(spec, spec), [lambda column: Point(column, rows), lambda column: (column, rows)]),
        ({"a": {"b": spec}}, [lambda column: {"a": {"b": column}}, lambda column: [[column]]]),
    ):
        client = connect(make_table("lists", signature=signature))
        for make in makes:
            for column in columns:
                client.reset("lists")
                assert client.add_batch("lists", make(column)) == n
                stored = [reverie.nest.flatten(client.get("lists", key).data) for key in client.keys("lists")]
                assert all(np.array_equal(leaf, item[0]) for item in stored for leaf in item)
                assert sorted(item[0].tolist() for item in stored) == [[i, i + 1, i + 2] for i in range(n)]


def test_a_list_of_one_row_of_another_shape_is_refused_as_its_array_is(connect):
    client = connect(make_table(signature={"a": reverie.TensorSpec((), np.float32), "b": reverie.TensorSpec((), np.float32)}))
    for n in (1, 2, 3):
        for column in ([ROW] * n, np.stack([ROW] * n)):
            for data in ({"a": column, "b": [1.0] * n}, (column, np.zeros(n, np.float32))):
                with pytest.raises(ValueError, match=r'"a" is float32\[\], got float32\[3\]'):
                    client.add_batch("t", data)
    assert client.add_batch("t", {"a": [np.array(1, np.float32)], "b": [np.float32(2)]}) == 1
    assert client.server_info()["t"].current_size == 1


NESTED = {"a": reverie.TensorSpec(None, np.float32), "b": {"c": reverie.TensorSpec(None, np.float32)}}


@pytest.mark.parametrize(
    ("signature", "data"),
    [
        ({"a": reverie.TensorSpec(None, np.float32)}, [{"a": ROW}]),
        (reverie.TensorSpec(None, np.float32), {"a": [ROW]}),
        ({"a": reverie.TensorSpec(None, np.float32)}, {"a": {"x": [ROW]}}),
        (NESTED, {"a": [ROW], "c": [ROW]}),
    ],
)
def test_a_list_that_may_be_a_column_or_a_container_is_refused(connect, signature, data):
    client = connect(make_table(signature=signature))
    with pytest.raises(ValueError, match=r"may be a column or a container.*numpy\.asarray"):
        client.add_batch("t", data)
    assert client.server_info()["t"].current_size == 0


@attrs.define(frozen=True)
class Step:
    b: object
    a: object


class Rows(list):
    pass


@pytest.mark.parametrize("n", [1, 2, 3])
def test_containers_of_every_kind_may_hold_lists_of_rows(connect, n):
    spec = reverie.TensorSpec(None, np.float32)
    rows, stacked = [ROW] * n, np.stack([ROW] * n)
    for signature, containers in (
        ({"a": spec, "b": spec}, [collections.OrderedDict(b=rows, a=rows), types.MappingProxyType({"b": rows, "a": stacked})]),
        ({"a": spec, "b": spec}, [{"a": Rows(rows), "b": tuple(rows)}]),
        (Point(spec, spec), [Step(rows, rows), Step(stacked, rows), Step(stacked, stacked), Point(rows, Rows(rows))]),
    ):
        client = connect(make_table("lists", signature=signature))
        for data in containers:
            client.reset("lists")
            assert client.add_batch("lists", data) == n
            for key in client.keys("lists"):
                assert [leaf.tolist() for leaf in reverie.nest.flatten(client.get("lists", key).data)] == [[0, 1, 2]] * 2


def test_columns_one_after_another_stand_for_any_signature(connect):
    client = connect(make_table(signature=NESTED))
    for data in ([ROW, ROW], (ROW, ROW), [list(ROW), ROW]):
        assert client.add_batch("t", data) == 3


def test_a_deque_is_a_column_of_rows_and_of_one_row_a_container(connect):
    client = connect(make_table(signature={"obs": reverie.TensorSpec((2, 3), "float32")}))
    frames = collections.deque([np.zeros(3, np.float32), np.ones(3, np.float32)])
    stack = np.stack(frames)
    assert client.add_batch("t", {"obs": collections.deque([stack, stack])}) == 2
    assert client.add_batch("t", {"obs": [frames]}) == 1
    client.add("t", {"obs": stack})
    with pytest.raises(ValueError, match=r'1 columns \("obs"\), got 2'):
        client.add("t", {"obs": frames})
    assert client.server_info()["t"].current_size == 4
    assert (client.sample_batch("t", 4).data["obs"] == stack).all()


def test_a_deque_of_numbers_is_a_column_without_a_signature_too(connect):
    client = connect()
    assert client.add_batch("t", {"x": collections.deque([1, 2, 3])}) == 3
    assert sorted(client.sample_batch("t", 3).data) == ["x"]


@pytest.mark.parametrize("signature", [None, SIGNATURE])
@pytest.mark.parametrize("kind", [list, dict, collections.deque, "twice"])
def test_a_batch_that_holds_itself_is_refused_as_nested_too_deep(connect, signature, kind):
    endless = [] if kind == "twice" else kind()
    if kind is dict:
        endless["obs"] = endless
    else:
        endless.extend([endless, endless] if kind == "twice" else [endless])
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        connect(make_table(signature=signature)).add_batch("t", endless)


def test_adding_waits_until_the_timeout_and_inserts_nothing_then(connect):
    client = connect(reverie.Table.queue("t", 1))
    client.add("t", 0)
    with pytest.raises(DeadlineExceededError, match='"t"'):
        client.add("t", 1, timeout=0.05)
    until(lambda: client.server_info()["t"].num_waiting_inserts == 0)  # a server elsewhere hears of it a little later
    assert client.sample_batch("t", 1).data.tolist() == [0]
    assert client.server_info()["t"].current_size == 0


def test_a_batch_of_rows_says_how_many_went_in_before_the_timeout(connect):
    client = connect(reverie.Table.queue("t", 3))

    def add(timeout):
        client.reset("t")
        try:
            added = client.add_batch("t", np.arange(5), timeout=timeout)
        except DeadlineExceededError as error:
            raise TooSlowError from error
        if added < 3:
            raise TooSlowError
        return added

    assert with_a_deadline(add, 0.05) == 3
    with pytest.raises(DeadlineExceededError):
        client.add_batch("t", np.arange(5), timeout=0.05)
    assert client.sample_batch("t", 3).data.tolist() == [0, 1, 2]


def test_a_batch_of_rows_goes_on_where_it_waited(connect):
    client = connect(reverie.Table.queue("t", 2))
    results = []
    adding = threading.Thread(target=lambda: results.append(client.add_batch("t", rows(7))))
    adding.start()
    batches = [client.sample_batch("t", 1).data["reward"][0] for _ in range(7)]
    adding.join()
    assert results == [7]
    assert batches == list(range(7))


def short_batch(client, n, wanted, timeout, **options):
    """A batch of `wanted` rows from a queue of only `n`, which comes at its deadline; on a busy machine that may be too soon for any."""
    client.reset("t")
    client.add_batch("t", np.arange(n))
    try:
        return client.sample_batch("t", wanted, timeout=timeout, **options)
    except DeadlineExceededError as error:
        raise TooSlowError from error


def test_a_batch_larger_than_a_queue_is_no_deadlock(connect):
    client = connect(reverie.Table.queue("t", 2))
    batch = with_a_deadline(lambda timeout: short_batch(client, 2, 10, timeout), 0.1)
    assert batch.data.tolist() == [0, 1]


def test_a_short_batch_fills_the_first_rows_of_out(connect):
    client = connect(reverie.Table.queue("t", 5))
    out = np.full(4, -1)
    batch = with_a_deadline(lambda timeout: short_batch(client, 2, 4, timeout, out=out), 0.05)
    assert out.tolist() == [0, 1, -1, -1]
    assert batch.data.tolist() == [0, 1]
    assert np.shares_memory(batch.data, out)


def test_an_empty_batch_is_a_deadline(connect):
    client = connect()
    says_at_its_deadline(lambda timeout: client.sample_batch("t", 3, timeout=timeout), "min_size_to_sample", 0.02)


@pytest.mark.parametrize("size", [0, -1, 1.5, "3", None, 2**64])
def test_batch_sizes_are_positive_integers(connect, size):
    with pytest.raises((ValueError, TypeError), match="batch_size"):
        connect().sample_batch("t", size)


def test_data_has_the_signatures_structure_if_there_is_one(connect):
    spec = reverie.TensorSpec
    client = connect(make_table(signature={"x": spec([], "int64"), "y": spec([2], "float32")}))
    client.add("t", (1, np.zeros(2, np.float32)))
    assert set(client.sample_batch("t", 1).data) == {"x", "y"}


@pytest.mark.parametrize("arguments", [(), ("t",), ("t", 1, 2, 3, 4)])
def test_calls_with_too_few_or_too_many_arguments(connect, arguments):
    client = connect()
    with pytest.raises(TypeError, match="add"):
        client.add(*arguments)


def test_calls_with_wrong_keywords(connect):
    client = connect()
    with pytest.raises(TypeError, match="bogus"):
        client.add("t", 1, bogus=1)
    with pytest.raises(TypeError, match="multiple values"):
        client.add("t", 1, data=2)
