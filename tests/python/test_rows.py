"""add, add_batch, sample_batch."""

import collections
import gc
import threading

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie.errors import DeadlineExceededError
from waiting import TooSlowError, says_at_its_deadline, with_a_deadline

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


def test_adding_waits_until_the_timeout_and_inserts_nothing_then(connect):
    client = connect(reverie.Table.queue("t", 1))
    client.add("t", 0)
    with pytest.raises(DeadlineExceededError, match='"t"'):
        client.add("t", 1, timeout=0.05)
    while client.server_info()["t"].num_waiting_inserts > 0:
        pass  # a server elsewhere hears of it a little later
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


# ---- out ----


def test_out_is_filled(connect):
    client = connect(make_table(max_times_sampled=1))
    client.add_batch("t", rows(4))
    out = {"obs": np.full((4, 2), -1, np.float32), "reward": np.full(4, -1)}
    batch = client.sample_batch("t", 4, out=out)
    assert batch.data["obs"] is out["obs"]
    np.testing.assert_array_equal(out["obs"], rows(4)["obs"])
    np.testing.assert_array_equal(out["reward"], rows(4)["reward"])


def test_out_of_another_kind_is_refused_before_anything_is_counted(serve):
    _, client = serve()
    client.add_batch("t", rows(4))
    for out in (
        {"obs": np.zeros((4, 2)), "reward": np.zeros(4, np.int64)},
        {"obs": np.zeros((4, 3), np.float32), "reward": np.zeros(4, np.int64)},
    ):
        for _ in range(2):
            with pytest.raises(ValueError, match="out"):
                client.sample_batch("t", 4, out=out)
    assert client.server_info()["t"].rate_limiter_info.sample_stats.completed == 0


def test_a_batch_of_one_is_drawn_whatever_else_the_table_holds(connect):
    client = connect(reverie.Table.queue("t", 5))
    client.add("t", {"x": np.zeros(2)})
    client.add("t", {"x": np.zeros(3)})
    assert client.sample_batch("t", 1).data["x"].shape == (1, 2)
    assert client.sample_batch("t", 1).data["x"].shape == (1, 3)


def test_items_of_a_new_kind_are_sampled_as_they_are(connect):
    client = connect()
    client.add_batch("t", rows(4))
    assert client.sample_batch("t", 4).data["obs"].dtype == np.float32
    client.reset("t")
    client.add_batch("t", {"obs": np.arange(6).reshape(2, 3), "reward": np.zeros(2)})
    batch = client.sample_batch("t", 4)
    assert batch.data["obs"].shape == (4, 3)
    assert batch.data["obs"].dtype == np.int64
    assert set(batch.data["obs"][:, 0].tolist()) <= {0, 3}


def test_out_may_be_flat_and_hold_strings(connect):
    client = connect()
    client.add("t", {"s": "text", "x": 1})
    out = [np.empty(2, object), np.zeros(2, np.int64)]
    client.sample_batch("t", 2, out=out)
    assert out[0].tolist() == [b"text", b"text"]
    assert out[1].tolist() == [1, 1]


def test_a_short_batch_fills_the_first_rows_of_out(connect):
    client = connect(reverie.Table.queue("t", 5))
    out = np.full(4, -1)
    batch = with_a_deadline(lambda timeout: short_batch(client, 2, 4, timeout, out=out), 0.05)
    assert out.tolist() == [0, 1, -1, -1]
    assert batch.data.tolist() == [0, 1]
    assert np.shares_memory(batch.data, out)


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (np.zeros((2, 3), np.float32), ValueError, "batch_size = 4"),
        (np.zeros((4, 3), np.float64), ValueError, "float32"),
        (np.zeros((4, 2), np.float32), ValueError, "shape"),
        (np.zeros((4, 3, 1), np.float32), ValueError, "shape"),
        (np.zeros((4, 6), np.float32)[:, ::2], ValueError, "contiguous"),
        (np.zeros((4, 3), np.dtype(">f4")), ValueError, "byte order"),
        (np.zeros(()), ValueError, "dimension 0"),
        ([np.zeros((4, 3), np.float32)] * 2, ValueError, "2 arrays"),
        ([[0.0] * 4], TypeError, "not an array"),
        ("text", TypeError, "not an array"),
    ],
)
def test_out_is_checked(connect, out, error, words):
    client = connect()
    client.add("t", np.zeros(3, np.float32))
    with pytest.raises(error, match=words):
        client.sample_batch("t", 4, out=out)


def test_out_must_be_writable_and_is_checked_before_anything_is_drawn(connect):
    client = connect()
    client.add("t", np.zeros(3, np.float32))
    out = np.zeros((4, 3), np.float32)
    out.setflags(write=False)
    with pytest.raises(ValueError, match="writable"):
        client.sample_batch("t", 4, out=out)
    assert client.server_info()["t"].rate_limiter_info.sample_stats.completed == 0
    with pytest.raises(ValueError, match="list"):
        client.sample_batch("t", 4, out=np.zeros((4, 3), np.float32), unequal="list")


# ---- unequal lengths ----


@pytest.fixture
def unequal(connect):
    client = connect(make_table(max_times_sampled=3))
    with client.trajectory_writer(4) as writer:
        for value in range(1, 5):
            writer.append({"x": np.full(2, value, np.float32), "y": value})
        history = writer.history
        for length in (1, 3, 2):
            writer.create_item("t", 1.0, {"x": history["x"][-length:], "y": history["y"][-1]})
    return client


def test_unequal_lengths_are_an_error_before_anything_is_counted(unequal):
    with pytest.raises(RuntimeError, match="(?i)length|unequal"):
        unequal.sample_batch("t", 3)
    assert unequal.server_info()["t"].rate_limiter_info.sample_stats.completed == 0


def test_unequal_lengths_are_padded_with_zeros(unequal):
    batch = unequal.sample_batch("t", 9, unequal="pad")
    assert batch.data["x"].shape == (9, 3, 2)
    assert batch.lengths.tolist() == [1, 1, 1, 3, 3, 3, 2, 2, 2]
    assert batch.data["x"][0].tolist() == [[4, 4], [0, 0], [0, 0]]
    assert batch.data["x"][3].tolist() == [[2, 2], [3, 3], [4, 4]]
    assert batch.data["y"].tolist() == [4] * 9


@pytest.mark.parametrize("copy", [True, False])
def test_unequal_lengths_come_as_lists(unequal, copy):
    batch = unequal.sample_batch("t", 7, unequal="list", copy=copy)
    assert [len(x) for x in batch.data["x"]] == [1, 1, 1, 3, 3, 3, 2]
    assert [int(y) for y in batch.data["y"]] == [4] * 7
    assert all(x.flags.writeable == copy for x in batch.data["x"])


def test_unequal_must_be_known(connect):
    with pytest.raises(ValueError, match="pad"):
        connect().sample_batch("t", 1, unequal="cut")


# ---- memory ----


def test_what_was_sampled_outlives_everything(connect):
    client = connect(make_table(max_times_sampled=1))
    client.add_batch("t", rows(300))
    batch = client.sample_batch("t", 300)
    data, keys = batch.data, batch.keys
    client.reset("t")
    del batch, client
    gc.collect()
    np.testing.assert_array_equal(data["obs"], rows(300)["obs"])
    assert len(set(keys.tolist())) == 300


def test_batches_do_not_share_memory(serve):
    _, client = serve(make_table(sampler=reverie.selectors.Uniform()))
    client.add_batch("t", np.random.default_rng(0).random((100, 1000)))
    held = [client.sample_batch("t", 64).data for _ in range(5)]
    copies = [each.copy() for each in held]
    for _ in range(5):
        client.sample_batch("t", 64).data[...] = -1
    for each, copy in zip(held, copies, strict=True):
        np.testing.assert_array_equal(each, copy)


def test_batches_go_through_dlpack(connect):
    client = connect()
    client.add_batch("t", rows(5))
    batch = client.sample_batch("t", 3)
    again = np.from_dlpack(batch.data["obs"])
    np.testing.assert_array_equal(again, batch.data["obs"])
    assert np.shares_memory(again, batch.data["obs"])


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


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_large_batches_are_the_same_rows_whoever_copies_them(threads):
    n = 200
    table = reverie.Table("t", reverie.selectors.Uniform(), reverie.selectors.Fifo(), n, reverie.rate_limiters.MinSize(1))
    with reverie.Server([table], in_process=True, gather_threads=threads) as server:
        client = reverie.Client(server)
        for first in range(0, 3 * n, 100):
            numbers = np.arange(first, first + 100)
            image = np.broadcast_to((numbers % 251).astype(np.uint8)[:, None, None], (100, 84, 84))
            assert client.add_batch("t", {"number": numbers, "image": image}) == 100
        for _ in range(20):
            data = client.sample_batch("t", 256).data
            assert data["number"].min() >= 2 * n
            assert (data["image"] == (data["number"] % 251).astype(np.uint8)[:, None, None]).all()
