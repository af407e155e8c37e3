"""The legacy Writer."""

import gc
import pickle
import threading

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie.errors import FailedPreconditionError, NotFoundError


def sampled(client, n=1):
    return [[column.tolist() for column in sample.data] for sample in client.sample("t", n, emit_timesteps=False)]


@pytest.fixture
def client(connect):
    return connect(reverie.Table.queue("t", 100))


def test_items_are_the_last_steps(client):
    with client.writer(3) as writer:
        for value in range(4):
            writer.append({"x": value, "y": [value * 2]})
            if value >= 1:
                writer.create_item("t", min(value + 1, 3), 1.0)
    assert sampled(client, 3) == [[[0, 1], [0, 2]], [[0, 1, 2], [0, 2, 4]], [[1, 2, 3], [2, 4, 6]]]


def test_sequences_are_appended_at_once(client):
    with client.writer(5) as writer:
        writer.append_sequence([np.arange(4), np.zeros((4, 2))])
        writer.create_item("t", 4, 1.0)
    assert sampled(client)[0][0] == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [[], [1.0], [np.arange(3), np.arange(4)], [np.zeros((0, 2))]])
def test_bad_sequences_are_refused(client, bad):
    with pytest.raises(ValueError, match=r"\w+"):
        client.writer(3).append_sequence(bad)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((0,), ValueError), ((-1,), ValueError), ((1.5,), TypeError), ((3, False, 4), ValueError), ((3, False, 0), ValueError),
     ((3, False, 2, 0), ValueError), ((3, False, "2"), TypeError)],
)  # fmt: skip
def test_lengths_are_checked(client, arguments, error):
    with pytest.raises(error, match="integer"):
        client.writer(*arguments)


@pytest.mark.parametrize(
    ("item", "error", "words"),
    [
        (("t", 0, 1.0), ValueError, "num_timesteps"),
        (("t", -1, 1.0), ValueError, "num_timesteps"),
        (("t", 3, 1.0), ValueError, "larger than|num_timesteps"),
        (("t", 4, 1.0), ValueError, "larger than|num_timesteps"),
        (("t", 1, float("nan")), ValueError, "(?i)nan"),
        (("t", 1, "high"), TypeError, "priority"),
        (("u", 1, 1.0), ValueError, "u"),
        (("t", 1.5, 1.0), TypeError, "integer|interpreted"),
    ],
)
def test_bad_items_are_refused(client, item, error, words):
    writer = client.writer(3)
    writer.append([1])
    writer.append([2])
    with pytest.raises(error, match=words):
        writer.create_item(*item)
    writer.create_item("t", 2, 1.0)
    writer.close()
    assert sampled(client) == [[[1, 2]]]


def test_steps_must_have_the_same_columns(client):
    writer = client.writer(3)
    writer.append([1, 2.0])
    for wrong in ([1], [1, 2.0, 3], [1.0, 2.0], [1, np.zeros(2)]):
        with pytest.raises(ValueError, match=r"\w+"):
            writer.append(wrong)
    with pytest.raises(TypeError, match="None"):
        writer.append([1, None])


def kinds(client, n):
    samples = client.sample("t", n, emit_timesteps=False)
    return [[(column.dtype.name, column.shape, column.ravel().tolist()) for column in sample.data] for sample in samples]


# dm-reverb 0.14.0, run as a black box: rows of another dtype, shape or number are taken where a chunk begins (after chunk_length
# steps, and after a flush that sent an item), and are a ValueError elsewhere. It takes an item over both, too, which then cannot be
# read (dtypes: ValueError, shapes: the reader aborts, fewer columns: ValueError) or has only the columns of its first step.
def test_columns_change_where_a_chunk_begins(client):
    with client.writer(4, chunk_length=2) as writer:
        for step in ({"x": np.zeros(2, np.float32)}, {"x": np.ones(3, np.int32)}, {"y": 2.0, "x": "text"}, {"x": np.ones(1)}):
            for _ in range(2):
                writer.append(step)
            writer.create_item("t", 2, 1.0)
    assert kinds(client, 4) == [
        [("float32", (2, 2), [0.0] * 4)],
        [("int32", (2, 3), [1] * 6)],
        [("object", (2,), [b"text"] * 2), ("float64", (2,), [2.0] * 2)],
        [("float64", (2, 1), [1.0] * 2)],
    ]


def test_a_flush_that_sends_an_item_ends_its_chunk(client):
    with client.writer(4, chunk_length=4) as writer:
        writer.append([1])
        writer.flush()  # of nothing
        with pytest.raises(ValueError, match="wrong dtype for column 0"):
            writer.append([1.5])
        writer.create_item("t", 1, 1.0)
        writer.flush()
        writer.append([1.5, 2])
        writer.create_item("t", 1, 1.0)
    assert sampled(client, 2) == [[[1]], [[1.5], [2]]]


def test_within_a_chunk_the_error_names_the_column_and_where_the_next_begins(client):
    writer = client.writer(4, chunk_length=3)
    writer.append({"a": 1, "b": np.zeros(2)})
    with pytest.raises(
        ValueError, match=r'shape for column 1 "b": got float64\[3\].* have float64\[2\].*, 2 more .*chunk_length 3'
    ):
        writer.append({"a": 1, "b": np.zeros(3)})
    with pytest.raises(ValueError, match="inconsistent with those before it in its chunk, which have 2 leaves"):
        writer.append({"a": 1})
    writer.append({"a": 2, "b": np.ones(2)})
    writer.create_item("t", 2, 1.0)
    writer.close()
    assert sampled(client) == [[[1, 2], [[0, 0], [1, 1]]]]


def test_no_item_has_steps_from_before_and_after_a_change(client):
    with client.writer(4, chunk_length=1) as writer:
        writer.append({"a": np.zeros(2), "b": 1})
        writer.append({"a": np.zeros(2), "b": 2})
        writer.append({"a": np.zeros(3), "b": 3})
        words = (
            r'column 0 "a": .* incompatible shapes .* float64\[2\] before step 2, and float64\[3\] from it on.* last 1 at most'
        )
        with pytest.raises(ValueError, match=words):
            writer.create_item("t", 2, 1.0)
        writer.create_item("t", 1, 1.0)
        writer.append({"a": np.zeros(3), "b": 3.5})
        with pytest.raises(ValueError, match=r'column 1 "b": .* different dtypes .* int64\[\] .* float64\[\]'):
            writer.create_item("t", 3, 1.0)
        writer.append({"a": np.zeros(3)})
        with pytest.raises(ValueError, match="number of their columns is 2 before step 4, and 1 from it on"):
            writer.create_item("t", 2, 1.0)
        writer.create_item("t", 1, 1.0)
    assert sampled(client, 2) == [[[[0, 0, 0]], [3]], [[[0, 0, 0]]]]


def test_a_sequence_is_as_so_many_steps(client):
    with client.writer(4, chunk_length=2) as writer:
        writer.append_sequence([np.arange(4)])
        writer.create_item("t", 4, 1.0)
        writer.append_sequence([np.arange(3.0), np.arange(3)])
        with pytest.raises(ValueError, match="inconsistent"):
            writer.append_sequence([np.arange(3)])
        writer.create_item("t", 3, 1.0)
    assert sampled(client, 2) == [[[0, 1, 2, 3]], [[0, 1, 2], [0, 1, 2]]]


def test_items_of_changed_columns_must_fit_the_signature(connect):
    signature = {"x": reverie.TensorSpec([2], np.float32, "x")}
    client = connect(reverie.Table.queue("t", 100, signature=signature))
    with client.writer(1) as writer:
        for size in (2, 3, 2):
            writer.append({"x": np.zeros(size, np.float32)})
            if size == 2:
                writer.create_item("t", 1, 1.0)
                continue
            with pytest.raises(ValueError, match="inconsistent with"):
                writer.create_item("t", 1, 1.0)
    assert len(sampled(client, 2)) == 2


def test_a_step_that_was_refused_says_nothing_of_those_after_it(client):
    with client.writer(2) as writer:
        for refused in ({"a": None}, {}):
            with pytest.raises((TypeError, ValueError)):
                writer.append(refused)
        writer.append({"a": 1, "b": 2})
        with pytest.raises(TypeError):
            writer.append({"c": None, "d": 3})
        writer.create_item("t", 1, 1.0)
    assert client.sample_batch("t", 1).data.keys() == {"a", "b"}


def test_structures_that_flatten_alike_are_alike(client):
    with client.writer(2) as writer:
        writer.append({"a": 1, "b": 2})
        writer.append([3, 4])
        writer.create_item("t", 2, 1.0)
    assert sampled(client) == [[[1, 3], [2, 4]]]


def test_flush_sends_pending_items_without_waiting(connect):
    client = connect(reverie.Table.queue("t", 1))
    writer = client.writer(2)
    for value in range(3):
        writer.append([value])
        writer.create_item("t", 1, 1.0)
    writer.flush()
    assert sampled(client, 3) == [[[0]], [[1]], [[2]]]
    writer.flush()
    writer.close()


def test_creating_items_waits_while_too_many_are_unconfirmed(connect):
    client = connect(reverie.Table.queue("t", 1))
    writer = client.writer(1, max_in_flight_items=1)
    done = []

    def write():
        for value in range(6):
            writer.append([value])
            writer.create_item("t", 1, 1.0)
            done.append(value)

    thread = threading.Thread(target=write)
    thread.start()
    assert sampled(client, 6) == [[[value]] for value in range(6)]
    thread.join()
    writer.close()


def test_a_closed_writer_says_so(client):
    writer = client.writer(1)
    writer.append([1])
    writer.close()
    with pytest.raises(ValueError, match=r"\w+"):
        writer.close()
    for call in (
        lambda: writer.append([1]),
        lambda: writer.create_item("t", 1, 1.0),
        writer.flush,
        lambda: writer.append_sequence([[1]]),
    ):
        with pytest.raises((FailedPreconditionError, ValueError)):
            call()
    for call in (lambda: writer.append([1, 2]), lambda: writer.append_sequence([[1], [2]])):  # not for the other reason
        with pytest.raises(FailedPreconditionError, match="Close has been called"):
            call()
    with pytest.raises(ValueError, match="closed Writer"):
        writer.__enter__()
    assert "closed: True" in repr(writer)


def test_the_with_block_flushes_and_closes_also_on_errors(client):
    with pytest.raises(KeyError, match="mine"), client.writer(1) as writer:
        writer.append([1])
        writer.create_item("t", 1, 1.0)
        raise KeyError("mine")
    assert sampled(client) == [[[1]]]
    assert "closed: True" in repr(writer)


def test_a_dropped_writer_warns_and_sends_its_items(client):
    writer = client.writer(3)
    writer.append([1])
    writer.create_item("t", 1, 1.0)
    with pytest.warns(ResourceWarning, match="close"):
        del writer
        gc.collect()
    assert sampled(client) == [[[1]]]


def test_repr_says_what_it_is(client):
    writer = client.writer(5, delta_encoded=True, chunk_length=2, max_in_flight_items=None)
    text = repr(writer)
    for words in ("chunk_length=2", "max_timesteps=5", "delta_encoded=1", "max_in_flight_items=1000000", "closed: False"):
        assert words in text
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(writer)


@pytest.mark.parametrize("chunk_length", [1, 2, 5])
@pytest.mark.parametrize("delta_encoded", [False, True])
def test_chunks_do_not_show(client, chunk_length, delta_encoded):
    values = np.arange(60).reshape(20, 3)
    with client.writer(5, delta_encoded, chunk_length) as writer:
        for row, value in enumerate(values):
            writer.append([value])
            if row % 4 == 3:
                writer.create_item("t", 4, 1.0)
    assert sampled(client, 5) == [[values[start : start + 4].tolist()] for start in range(0, 20, 4)]


def test_signatures_see_one_step_or_all(connect):
    client = connect(make_table("t", signature=[reverie.TensorSpec([2], "int64")]))
    with client.writer(3) as writer:
        writer.append([np.zeros(2, int)])
        writer.create_item("t", 1, 1.0)
        with pytest.raises(ValueError, match="t"):
            client.writer(1).__enter__().append([np.zeros(3, int)]) or client.insert([np.zeros(3, int)], {"t": 1.0})


def test_closing_gives_up_on_a_server_that_is_gone(tmp_path):
    address = f"unix:{tmp_path}/server"
    with reverie.Server([make_table()], address=address):
        writer = reverie.Client(address).writer(1)
        writer.append([1])
    writer.create_item("t", 1, 1.0)
    writer.close(retry_on_unavailable=False)


def test_a_writer_goes_on_after_an_item_that_was_refused(tmp_path):
    address = f"unix:{tmp_path}/server"
    with reverie.Server([make_table()], address=address):
        writer = reverie.Client(address).writer(1)
        writer.append([1])
    writer.create_item("t", 1, 1.0)
    with reverie.Server([make_table("u")], address=address):
        for _ in range(2):  # until it is discarded
            with pytest.raises(NotFoundError, match='"t"'):
                writer.flush(timeout=30)
        assert writer.discard_failed() == 1
        writer.flush(timeout=30)
    with reverie.Server([make_table()], address=address) as server:
        writer.create_item("t", 1, 1.0)
        writer.close(timeout=30)
        assert sampled(reverie.Client(server)) == [[[1]]]
