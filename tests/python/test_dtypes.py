"""What goes in comes out, dtype by dtype, in process and over the wire."""

import dataclasses
import enum
import warnings

import ml_dtypes
import numpy as np
import pytest
import reverie
from conftest import make_table

NUMBERS = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "longlong", "ulonglong",
    ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn,
]  # fmt: skip


def values(dtype):
    return np.array([[0, 1, 2], [3, 1, 0]]).astype(dtype)


def round_trip(client, value):
    """The value through insert and through add, as they are sampled."""
    client.reset("t")
    client.insert([value], {"t": 1.0})
    inserted = next(client.sample("t", emit_timesteps=False)).data[0]
    client.reset("t")
    client.add("t", [value])
    added = client.sample_batch("t", 1).data[0]
    assert inserted.shape[0] == added.shape[0] == 1
    assert inserted.dtype == added.dtype
    return inserted[0:1].reshape(inserted.shape[1:]), added.reshape(added.shape[1:])


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_every_dtype_comes_back_as_it_was(connect, dtype):
    array = values(dtype)
    for back in round_trip(connect(), array):
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"),
        (3, "int64"),
        (-3, "int64"),
        (2**63, "uint64"),
        (2**64 - 1, "uint64"),
        (1.5, "float64"),
        (1 + 2j, "complex128"),
    ],
)
def test_python_scalars_take_numpys_dtype(connect, value, dtype):
    for back in round_trip(connect(), value):
        assert back.dtype == np.dtype(dtype)
        assert back == value


@pytest.mark.parametrize("value", [np.float32(2), np.int8(-3), np.bool_(True), np.complex64(1j), np.uint64(2**64 - 1)])
def test_numpy_scalars_keep_their_dtype(connect, value):
    for back in round_trip(connect(), value):
        assert back.dtype == value.dtype
        assert back == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("grüße", "grüße".encode()),
        (b"a\0b\0", b"a\0b\0"),
        ("", b""),
        (np.array(["a", "bc"]), [b"a", b"bc"]),
        (np.array([b"a", b"bc"]), [b"a", b"bc"]),
        (np.array(["x", b"y\0"], dtype=object), [b"x", b"y\0"]),
        (np.array([["x"]], dtype=object), [[b"x"]]),
        (np.zeros((0, 2), dtype="U3"), np.zeros((0, 2)).tolist()),
    ],
)
def test_strings_come_back_as_object_arrays_of_bytes(connect, value, expected):
    for back in round_trip(connect(), value):
        assert back.dtype == np.dtype(object)
        assert back.tolist() == expected


def test_big_endian_arrays_keep_their_values(connect):
    array = np.arange(6, dtype=">i4").reshape(2, 3)
    for back in round_trip(connect(), array):
        assert back.dtype == np.dtype("int32")
        np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(5)[::-1],
        np.zeros((0, 3), np.float32),
        np.broadcast_to(np.float32(3), (2, 2)),
        np.ma.masked_array([1, 2, 3], mask=[0, 0, 0]),
        np.float32(1).reshape(()),
        np.frombuffer(b"\0" + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64),
    ],
    ids=["strided", "fortran", "reversed", "no rows", "broadcast", "nothing masked", "0-d", "unaligned"],
)
def test_arrays_of_any_layout_are_copied_right(connect, array):
    for back in round_trip(connect(), array):
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, np.asarray(array))


MASKED = np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0])


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.add("t", {"x": MASKED}),
        lambda client: client.add("t", {"x": np.ma.masked}),
        lambda client: client.add_batch("t", {"x": MASKED}),
        lambda client: client.add_batch("t", {"x": [MASKED, MASKED]}),
        lambda client: client.add_batch("t", {"x": np.zeros((3, 3))}, MASKED),
        lambda client: client.insert({"x": MASKED}, {"t": 1.0}),
        lambda client: client.trajectory_writer(1).append({"x": MASKED}),
        lambda client: client.update_priorities("t", [1, 2, 3], MASKED),
        lambda client: client.update_priorities("t", np.ma.masked_array([1, 2], [0, 1], np.uint64), [1.0, 1.0]),
    ],
    ids=["add", "constant", "add_batch", "lists", "priorities of rows", "insert", "append", "priorities", "keys"],
)
@pytest.mark.parametrize("signature", [None, {"x": reverie.TensorSpec((3,), np.float64)}], ids=["without signature", "signature"])
def test_what_is_masked_is_refused_with_what_to_give_instead(connect, call, signature):
    client = connect(make_table(signature=signature))
    with pytest.raises(
        (TypeError, ValueError), match=r"with masked elements, .*give array\.filled\(value\)|masked, .*give array\.filled"
    ):
        call(client)
    assert client.server_info()["t"].current_size == 0


def test_what_has_the_array_protocol_is_an_array(connect):
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return np.array([1, 2], np.int16)

    for back in round_trip(connect(), Tensor()):
        assert back.dtype == np.int16


def test_a_shape_that_is_set_while_the_next_leaf_is_converted_changes_nothing(connect):
    first = np.arange(4.0)

    class Next:
        def __array__(self, dtype=None, copy=None):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                first.shape = (4, 1)
            self.kept = [np.broadcast_to(0.0, 10**9) for _ in range(20)]  # where the shape was
            return np.zeros(1)

    client = connect()
    client.add("t", {"a": first, "b": Next()})
    np.testing.assert_array_equal(client.sample_batch("t", 1).data["a"], [np.arange(4.0)])


@pytest.mark.parametrize("rank", [0, 1, 5, 31])
def test_shapes_of_many_dimensions(connect, rank):
    array = np.zeros((1,) * rank, np.float32)
    client = connect()
    client.add("t", array)
    assert client.sample_batch("t", 1).data.shape == (1, *array.shape)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.zeros(2, np.longdouble), "float128|longdouble"),
        (np.zeros(2, np.clongdouble), "complex256|clongdouble"),
        (np.zeros(2, "datetime64[s]"), "datetime64"),
        (np.zeros(2, "timedelta64[s]"), "timedelta64"),
        (np.zeros(2, [("a", "i4")]), "void|a"),
        (np.array([1, "a", None], dtype=object), "int|object"),
        (object(), "object"),
        (None, "None"),
        ({1, 2}, "set"),
        (2**64, "64 bits"),
        (np.array([None, "a"], dtype=object), "NoneType"),
    ],
    ids=[
        "longdouble",
        "clongdouble",
        "datetime",
        "timedelta",
        "struct",
        "mixed",
        "object",
        "None",
        "set",
        "large int",
        "None inside",
    ],
)
def test_what_cannot_be_stored_is_a_type_error_that_names_it(connect, value, name):
    client = connect()
    for call in (lambda: client.add("t", {"x": value}), lambda: client.insert({"x": value}, {"t": 1.0})):
        with pytest.raises(TypeError, match=name):
            call()
    writer = client.trajectory_writer(2)
    if value is not None:
        with pytest.raises(TypeError, match=name):
            writer.append({"x": value})
        assert writer.episode_steps == 0
    assert client.server_info()["t"].current_size == 0


def test_a_dataclass_is_refused_with_what_to_give_instead(connect):
    @dataclasses.dataclass
    class Step:
        x: float

    client = connect()
    with pytest.raises(
        TypeError, match=r"Step.* cannot be stored; .*; give a dict of the dataclass's fields, as vars\(\) makes it$"
    ):
        client.add("t", Step(1.0))
    client.add("t", vars(Step(1.0)))
    assert client.sample_batch("t", 1).data["x"].tolist() == [1.0]


def test_the_error_says_which_leaf_it_was(connect):
    with pytest.raises(TypeError, match=r"\('obs', 1\)"):
        connect().add("t", {"obs": [1, object()]})


def test_quantized_and_bfloat16_specs_can_be_named(connect):
    client = connect(make_table(signature=[reverie.TensorSpec([2], "bfloat16"), reverie.TensorSpec([], ml_dtypes.float8_e5m2)]))
    client.add("t", [np.ones(2, ml_dtypes.bfloat16), 2.0])
    batch = client.sample_batch("t", 1)
    assert [column.dtype for column in batch.data] == [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


def test_python_numbers_take_the_signatures_dtype_in_add(connect):
    names = ["float32", "float16", "bfloat16", "int8", "uint64", "complex64"]
    client = connect(make_table(signature={name: reverie.TensorSpec([], name) for name in names}))
    client.add("t", dict.fromkeys(names, 3))
    data = client.sample_batch("t", 1).data
    assert {name: column.dtype.name for name, column in data.items()} == {name: name for name in names}
    assert all(float(column[0].real) == 3.0 for column in data.values())


class Action(enum.IntEnum):
    LEFT = 1


class Metres(float):
    pass


@pytest.mark.parametrize(("name", "value"), [("int32", Action.LEFT), ("float32", Action.LEFT), ("float32", Metres(1.0))])
def test_numbers_of_classes_of_ones_own_take_the_signatures_dtype_in_add(connect, name, value):
    client = connect(make_table(signature=reverie.TensorSpec([], name)))
    client.add("t", value)
    client.add_batch("t", [value, value])
    data = client.sample_batch("t", 3).data
    assert (data.dtype.name, data.tolist()) == (name, [1] * 3)


def test_a_bool_is_no_number_in_add(connect):
    client = connect(make_table(signature=reverie.TensorSpec([], "int32")))
    for call in (lambda: client.add("t", True), lambda: client.add_batch("t", [True, False])):
        with pytest.raises(ValueError, match=r"int32\[\], got bool"):
            call()


def test_an_integer_that_does_not_fit_the_signatures_dtype_is_refused(connect):
    client = connect(make_table(signature=reverie.TensorSpec([], "uint8")))
    for value in (256, -1):
        with pytest.raises(ValueError, match="does not fit into uint8"):
            client.add("t", value)


BOUNDS = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1)}


@pytest.mark.parametrize("name", BOUNDS)
def test_integers_up_to_the_bounds_of_the_signatures_dtype_are_stored_and_those_beyond_are_refused(connect, name):
    client = connect(make_table(signature=reverie.TensorSpec([], name), max_times_sampled=1))
    least, most = BOUNDS[name]
    client.add_batch("t", [least, most])
    client.add("t", least)
    client.add("t", most)
    assert [int(number) for number in client.sample_batch("t", 4).data] == [least, most] * 2
    for beyond in (least - 1, most + 1, 2**63 - 1):
        with pytest.raises(ValueError, match=f"does not fit into {name}"):
            client.add_batch("t", [least, beyond])
        with pytest.raises(ValueError, match=f"does not fit into {name}"):
            client.add("t", beyond)
    assert client.server_info()["t"].current_size == 0


WIDE = {"int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}


@pytest.mark.parametrize("name", WIDE)
def test_a_list_of_integers_of_64_bits_is_stored_up_to_the_bounds(connect, name):
    client = connect(make_table(signature=reverie.TensorSpec([], name), max_times_sampled=1))
    least, most = WIDE[name]
    for numbers in ([1, 2], [least, most], [most], [0, 2**63 - 1, most], [least]):
        client.add_batch("t", numbers)
        assert [int(number) for number in client.sample_batch("t", len(numbers)).data] == numbers


@pytest.mark.parametrize(
    ("name", "beyond"),
    [
        ("uint64", [-1]),
        ("uint64", [2**63, -1]),
        ("int64", [2**63]),
        ("int64", [-1, 2**63]),
        ("int8", [2**63]),
        ("int8", [2**64 - 1, 0]),
    ],
)
def test_a_list_of_integers_that_do_not_fit_is_refused(connect, name, beyond):
    client = connect(make_table(signature=reverie.TensorSpec([], name)))
    with pytest.raises(ValueError, match=f"does not fit into {name}"):
        client.add_batch("t", beyond)
    assert client.server_info()["t"].current_size == 0


@pytest.mark.parametrize("name", BOUNDS)
def test_a_float_is_no_integer_whatever_its_dtype(connect, name):
    client = connect(make_table(signature=reverie.TensorSpec([], name)))
    for numbers in ([1.5, 2], [2.0, 3.0]):
        with pytest.raises(ValueError, match=rf"{name}\[\], got float64"):
            client.add_batch("t", numbers)
        with pytest.raises(ValueError, match=rf"{name}\[\], got float64"):
            client.add("t", numbers[0])


LARGEST = {
    "float16": (65504.0, 65520.0),
    "bfloat16": (3.38e38, 3.4e38),
    "float32": (3.4e38, 3.5e38),
    "float64": (1.7e308, None),
    "float8_e5m2": (57344.0, 61440.0),
    "float8_e4m3fn": (448.0, 470.0),
    "complex64": (3.4e38, 1e39),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_too_large_for_the_signatures_dtype_is_refused(connect, name, sign):
    client = connect(make_table(signature=reverie.TensorSpec([], name)))
    fits, not_fits = LARGEST[name]
    client.add("t", sign * fits)
    client.add_batch("t", [sign * fits])
    if not_fits is not None:
        for large in (not_fits, 1e300):
            with pytest.raises(ValueError, match=f"does not fit into {name}"):
                client.add("t", sign * large)
            with pytest.raises(ValueError, match=f"does not fit into {name}"):
                client.add_batch("t", [sign * fits, sign * large])
    assert np.isfinite([complex(row) for row in client.sample_batch("t", 2).data]).all()


def test_an_integer_too_large_for_a_float_dtype_is_refused(connect):
    client = connect(make_table(signature=reverie.TensorSpec([], "float16")))
    for large in (65520, -(10**18)):
        with pytest.raises(ValueError, match="does not fit into float16"):
            client.add("t", large)
        with pytest.raises(ValueError, match="does not fit into float16"):
            client.add_batch("t", [large])


def test_infinities_and_nan_are_stored_as_they_are(connect):
    client = connect(make_table(signature=reverie.TensorSpec([], "float16")))
    client.add("t", float("inf"))
    client.add_batch("t", [float("-inf"), float("nan")])
    stored = sorted(str(client.get("t", key).data) for key in client.keys("t"))
    assert len(stored) == 3
    assert all(any(word in text for text in stored) for word in ("inf", "-inf", "nan"))


def test_arrays_that_are_sampled_are_the_callers_own(connect):
    client = connect()
    client.insert([np.arange(3)], {"t": 1.0})
    client.add("t", [np.arange(3)])
    for array in (next(client.sample("t", emit_timesteps=False)).data[0], client.sample_batch("t", 1, unequal="list").data[0][0]):
        assert array.flags.writeable
        assert array.flags.c_contiguous
        array[...] = 7
    again = next(client.sample("t", emit_timesteps=False)).data[0]
    np.testing.assert_array_equal(again, [[0, 1, 2]])


def test_scalars_come_back_as_arrays_without_dimensions(connect):
    client = connect()
    client.insert([1.5, "s"], {"t": 1.0})
    (step,) = next(client.sample("t"))
    assert [type(leaf) for leaf in step.data] == [np.ndarray, np.ndarray]
    assert [leaf.shape for leaf in step.data] == [(), ()]
    assert step.data[1].dtype == object
    assert step.data[1].item() == b"s"


def test_pythons_complex_numbers_take_the_signatures_dtype_in_add(connect):
    client = connect(make_table(signature=reverie.TensorSpec([], "complex64"), max_times_sampled=1))
    client.add("t", 1 + 2j)
    client.add_batch("t", [3 - 4j, 5, 0.5])
    data = client.sample_batch("t", 4).data
    assert (data.dtype, data.tolist()) == (np.complex64, [1 + 2j, 3 - 4j, 5, 0.5])
    for large in (complex(1e39, 0), complex(0, -1e39)):
        for call in (lambda large=large: client.add("t", large), lambda large=large: client.add_batch("t", [1j, large])):
            with pytest.raises(ValueError, match=r"does not fit into complex64"):
                call()
    client.add("t", complex("inf"))
    assert client.server_info()["t"].current_size == 1


def test_a_complex_number_is_no_real_one_and_complex128_without_a_signature(connect):
    client = connect(make_table("real", signature=reverie.TensorSpec([], "float32")), make_table())
    for call in (lambda: client.add("real", 1 + 0j), lambda: client.add_batch("real", [1 + 0j, 2])):
        with pytest.raises(ValueError, match=r"float32\[\], got complex128"):
            call()
    client.add("t", {"a": 1 + 2j})
    data = client.sample_batch("t", 1).data["a"]
    assert (data.dtype, data.tolist()) == (np.complex128, [1 + 2j])


@pytest.mark.parametrize(("value", "words"), [(None, "None cannot be stored"), (object(), "an object of type")])
def test_the_error_of_data_that_is_one_leaf_names_no_place_in_it(connect, value, words):
    client = connect()
    for call in (client.add, client.add_batch):
        with pytest.raises(TypeError, match=f"^{words}"):
            call("t", value)
    with pytest.raises(TypeError, match=f"^{words}"):
        client.insert(value, {"t": 1.0})


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("uint8", [1, 256], "the integer 256"),
        ("float32", [1e300], "the number 1e"),
        ("float32", [[1.0], [1.0, 2.0]], "a list cannot"),
    ],
)
def test_the_error_of_a_list_that_is_the_one_column_names_no_place_in_it(connect, name, given, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        connect(make_table(signature=reverie.TensorSpec([], name))).add_batch("t", given)
