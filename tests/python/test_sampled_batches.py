"""What sample_batch gives: in arrays of the caller's, of unequal lengths, and whose memory it is."""

import contextlib
import gc
import re

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie.errors import FailedPreconditionError, ResourceExhaustedError
from waiting import Call, wait_until_waiting


def rows(n, start=0):
    return {"obs": np.arange(start * 2, (start + n) * 2, dtype=np.float32).reshape(n, 2), "reward": np.arange(start, start + n)}


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


OTHER_ITEMS = {
    "shape": {"i": np.ones((4, 3))},
    "dtype": {"i": np.ones((4, 2), np.float32)},
    "columns": {"i": np.ones((4, 2)), "j": np.ones(4, np.int64)},
}


@pytest.mark.parametrize("others", OTHER_ITEMS.values(), ids=OTHER_ITEMS)
def test_out_for_the_items_that_are_there_now_is_filled(connect, others):
    """What a table's items look like is known from the batch before, and the table has got others since."""
    client = connect()
    client.add_batch("t", {"i": np.zeros((4, 2))})
    client.sample_batch("t", 4)
    client.reset("t")
    client.add_batch("t", others)
    for _ in range(2):
        out = {name: np.zeros_like(column) for name, column in others.items()}
        batch = client.sample_batch("t", 4, out=out)
        for name, column in others.items():
            assert batch.data[name] is out[name]
            np.testing.assert_array_equal(out[name], column)
    with pytest.raises(ValueError, match=r"out\['i'\] has"):
        client.sample_batch("t", 4, out=out | {"i": np.zeros((4, 7))})


# ---- the table's size at each draw ----


def weights(batch, beta=1.0):
    """Importance weights as docs/getting-started.md has them: of equal priorities 1."""
    return (batch.table_sizes * batch.probabilities) ** -beta


def prioritized(**options):
    return make_table(sampler=reverie.selectors.Prioritized(1.0), **options)


@pytest.mark.parametrize("unequal", ["error", "pad", "list"])
def test_equal_priorities_weigh_the_same_where_items_go_with_their_draws(connect, unequal):
    client = connect(prioritized(max_times_sampled=1))
    for _ in range(2):  # what the items look like is known the second time
        client.add_batch("t", {"i": np.arange(10)})
        batch = client.sample_batch("t", 10, unequal=unequal)
        np.testing.assert_allclose(weights(batch), np.ones(10))
        assert batch.table_sizes.tolist() == list(range(10, 0, -1))
        assert batch.table_sizes.dtype == np.int64
        assert batch.table_sizes is batch.table_sizes
        assert batch.table_size == 1


def test_the_sizes_of_a_batch_into_out_and_of_a_short_one_are_those_at_its_draws(connect):
    client = connect(prioritized(max_times_sampled=1))
    client.add_batch("t", {"i": np.arange(4)})
    batch = client.sample_batch("t", 4, out={"i": np.empty(4, np.int64)})
    assert batch.table_sizes.tolist() == [4, 3, 2, 1]
    client.add_batch("t", {"i": np.arange(4)})
    batch = client.sample_batch("t", 10, timeout=0)
    assert batch.table_sizes.tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize("size", [1, 3000])
def test_equal_priorities_weigh_the_same_where_a_batch_waits_for_inserts(team, size):
    sampler, writer = team(2, prioritized(rate_limiter=reverie.rate_limiters.SampleToInsertRatio(1.0, 1, (0.0, 1000.0))))
    row = {"i": np.zeros((1, size), np.uint8)}
    writer.add_batch("t", {"i": np.zeros((5, size), np.uint8)})
    call = Call(sampler.sample_batch, "t", 20)
    wait_until_waiting([call], writer, "t", "samples")
    for _ in range(15):
        writer.add_batch("t", row)
    batch = call.join()
    np.testing.assert_allclose(weights(batch), np.ones(20))
    assert batch.table_sizes[[0, -1]].tolist() == [5, batch.table_size]
    assert batch.table_size > 5


def test_where_the_table_stays_as_it_is_every_draw_has_its_size(connect):
    client = connect(prioritized())
    client.add_batch("t", {"i": np.arange(10)})
    for unequal in ("error", "error", "pad", "list"):
        batch = client.sample_batch("t", 7, unequal=unequal)
        assert batch.table_sizes.tolist() == [10] * 7
        np.testing.assert_allclose(weights(batch), np.ones(7))
        client.add_batch("t", {"i": np.arange(5)})
        assert batch.table_sizes.tolist() == [10] * 7
        client.mutate_priorities("t", deletes=client.keys("t")[10:])


def test_batches_drawn_ahead_have_the_size_at_each_draw(team):
    sampler, writer = team(2, prioritized())
    writer.add_batch("t", {"i": np.arange(10)})
    for _ in range(200):
        batch = sampler.sample_batch("t", 16)
        writer.add("t", {"i": 0})
        np.testing.assert_allclose(weights(batch), np.ones(16))


def arrays(*names):
    """One nest of arrays for rows(4), with these names in sorted order."""
    return dict(zip(sorted(names), (np.zeros((4, 2), np.float32), np.zeros(4, np.int64)), strict=True))


@pytest.mark.parametrize("signed", [True, False])
def test_out_with_other_keys_than_the_items_is_refused(connect, signed):
    signature = {"obs": reverie.TensorSpec((2,), np.float32), "reward": reverie.TensorSpec((), np.int64)}
    client = connect(make_table(signature=signature if signed else None))
    client.add_batch("t", rows(4))
    for _ in range(2):  # what the items look like is known the second time
        with pytest.raises(ValueError, match=r"out\['action'\] is for column 0, which is .obs. in the items of table .t."):
            client.sample_batch("t", 4, out=arrays("action", "reward"))
    with pytest.raises(ValueError, match=r"out\['obs'\]\['x'\] is for column 0, which is .obs."):
        client.sample_batch("t", 4, out={"obs": {"x": arrays("obs", "reward")["obs"]}, "reward": np.zeros(4, np.int64)})
    with pytest.raises(ValueError, match=r"out\['sum'\] is for column 1"):
        client.sample_batch("t", 4, out=arrays("obs", "sum"), unequal="pad")
    drawn = client.server_info()["t"].rate_limiter_info.sample_stats.completed
    assert (drawn == 0) == signed  # else their keys come with the items
    for out in (arrays("obs", "reward"), list(arrays("obs", "reward").values()), tuple(arrays("obs", "reward").values())):
        assert set(client.sample_batch("t", 4, out=out).data) == {"obs", "reward"}


def test_out_may_have_any_keys_where_nobody_knows_the_items_names(team):
    sampler, writer = team(2)
    writer.add_batch("t", rows(4))
    out = arrays("a", "b")
    data = sampler.sample_batch("t", 4, out=out).data
    assert data[0] is out["a"]
    assert data[1] is out["b"]


# ---- short batches ----


def test_what_made_a_batch_short_is_raised_by_the_next_call(serve):
    server, writer = serve(make_table(max_times_sampled=1), address="127.0.0.1:0")
    client = reverie.Client(server.address, max_message_bytes=100_000)
    small, large = {"x": np.zeros(10, np.uint8)}, {"x": np.zeros(200_000, np.uint8)}
    for row in (small, small, large, small):
        writer.add("t", row)
    assert len(client.sample_batch("t", 4, unequal="list")) == 2
    writer.add("t", small)
    with pytest.raises(ResourceExhaustedError, match=r"2 of 4 items.*max_message_bytes"):
        client.sample_batch("t", 1)
    assert len(client.sample_batch("t", 1)) == 1


def test_what_makes_every_other_batch_short_does_not_stay_untold(serve):
    server, writer = serve(make_table(sampler=reverie.selectors.Uniform()), address="127.0.0.1:0")
    client = reverie.Client(server.address, max_message_bytes=100_000)
    for size in [10] * 9 + [200_000]:
        writer.add("t", {"x": np.zeros(size, np.uint8)})
    short = told = 0
    for _ in range(40):
        try:
            short += len(client.sample_batch("t", 64, unequal="list")) < 64
        except ResourceExhaustedError as error:
            told += "of 64 items" in str(error)
    assert short > 0
    assert told in (short, short - 1)


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


@pytest.mark.parametrize(
    ("at_fault", "words"),
    [
        (np.zeros((4, 2)), r"out['obs'][1] has dtype float64, but should have float32"),
        (np.zeros((4, 3), np.float32), r"out['obs'][1] has shape (4, 3), but should have (4, 2)"),
        (np.zeros((3, 2), np.float32), r"out['obs'][1] must have batch_size = 4 rows"),
        (np.zeros((4, 4), np.float32)[:, ::2], r"out['obs'][1] must be C-contiguous"),
        (0.0, r"out['obs'][1] is a <class 'float'>, not an array"),
    ],
)
def test_an_array_of_out_that_does_not_fit_is_named_by_its_place(connect, at_fault, words):
    client = connect()
    client.add("t", {"name": "text", "obs": [np.int64(1), np.zeros(2, np.float32)]})
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        client.sample_batch("t", 4, out={"obs": [np.zeros(4, np.int64), at_fault], "name": np.empty(4, object)})


def test_an_array_of_out_for_strings_says_which_dtype_holds_them(connect):
    client = connect()
    client.add("t", {"name": "text", "x": 1})
    with pytest.raises(ValueError, match=re.escape("out['name'] has dtype <U4, but should have object")):
        client.sample_batch("t", 2, out={"name": np.empty(2, "<U4"), "x": np.zeros(2, np.int64)})


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


def test_memory_that_former_items_would_have_taken_is_not_asked_for_again(connect):
    client = connect()
    client.add("t", [np.zeros(2**27, np.uint8)])
    client.sample_batch("t", 1)
    client.reset("t")
    client.add("t", [np.zeros(2, np.uint8)])
    with contextlib.suppress(MemoryError):  # where the former item is remembered: a million of it are 128 TiB
        client.sample_batch("t", 2**20, timeout=0)
    assert client.sample_batch("t", 2**20, timeout=0).data[0].shape[1] == 2


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


@pytest.fixture
def ragged(connect):
    """Rows whose shapes differ, as a signature with None allows."""
    signature = {"x": reverie.TensorSpec([None, None], "float32"), "words": reverie.TensorSpec([None], str)}
    client = connect(make_table(max_times_sampled=2, signature=signature))
    for a, b in ((2, 1), (1, 3), (0, 2)):
        client.add("t", {"x": np.full((a, b), a + b, np.float32), "words": np.array([f"w{b}"] * a, object)})
    return client


def test_rows_of_different_shapes_are_padded_in_every_dimension(ragged):
    batch = ragged.sample_batch("t", 6, unequal="pad")
    assert batch.data["x"].shape == (6, 2, 3)
    assert batch.data["x"][0].tolist() == [[3, 0, 0], [3, 0, 0]]
    assert batch.data["x"][2].tolist() == [[4, 4, 4], [0, 0, 0]]
    assert not batch.data["x"][4:].any()
    assert batch.data["words"].tolist()[1:3] == [[b"w1", b"w1"], [b"w3", b""]]


def test_rows_of_different_shapes_are_told_of_padding(ragged):
    with pytest.raises(FailedPreconditionError, match=r'string\[\d\] in some .*unequal="pad"'):
        ragged.sample_batch("t", 2)


def test_sequences_of_rows_of_different_shapes_are_padded_in_time_and_in_every_dimension(connect):
    client = connect(make_table(max_times_sampled=1))
    for value, (length, width) in enumerate([(1, 3), (2, 2)], 1):
        with client.trajectory_writer(2) as writer:
            for _ in range(length):
                writer.append([np.full(width, value)])
            writer.create_item("t", 1.0, [writer.history[0][-length:]])
    batch = client.sample_batch("t", 2, unequal="pad")
    assert batch.data[0].shape == (2, 2, 3)
    assert batch.lengths.tolist() == [1, 2]
    assert batch.data[0].tolist() == [[[1, 1, 1], [0, 0, 0]], [[2, 2, 0], [2, 2, 0]]]


def test_items_that_padding_cannot_make_one_count_as_sampled_and_the_error_says_so(connect):
    client = connect(reverie.Table.queue("q", 4))
    for data in (np.zeros(3, np.float32), np.zeros(3, np.float64)) * 2:
        client.add("q", [data])
    with pytest.raises(FailedPreconditionError, match="count as sampled"):
        client.sample_batch("q", 2, unequal="pad")
    assert client.server_info()["q"].current_size == 2


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
