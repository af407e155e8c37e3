"""Items by key: update_priorities, mutate_priorities, keys, items, get, reset."""

import gc
import threading

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie.errors import NotFoundError
from waiting import Call, until


@pytest.fixture
def client(connect):
    client = connect()
    client.add_batch("t", {"x": np.arange(5)}, np.arange(1.0, 6.0))
    return client


def priorities(client):
    return [item.priority for item in client.items("t")]


def test_keys_and_items_are_listed_in_order_of_insertion(client):
    keys = client.keys("t")
    assert keys.dtype == np.uint64
    items = list(client.items("t"))
    assert [item.key for item in items] == keys.tolist()
    assert [item.priority for item in items] == [1, 2, 3, 4, 5]
    assert all(item.times_sampled == 0 and item.length == 1 for item in items)
    assert all(1.7e9 < item.inserted_at < 1e11 for item in items)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_listing_goes_page_by_page(client, size):
    assert [item.key for item in client.items("t", page_size=size)] == client.keys("t").tolist()


def test_listing_an_empty_table(connect):
    client = connect()
    assert list(client.items("t")) == []
    assert client.keys("t").shape == (0,)


@pytest.mark.parametrize("size", [0, -1, 10**7])
def test_page_sizes_are_checked(client, size):
    with pytest.raises(ValueError, match="page_size"):
        list(client.items("t", page_size=size))


def test_priorities_are_updated_and_unknown_keys_returned(client):
    keys = client.keys("t")
    unknown = client.update_priorities("t", [keys[0], 12345, keys[2]], [10, 11, 12])
    assert unknown.tolist() == [12345]
    assert priorities(client) == [10, 2, 12, 4, 5]
    assert client.update_priorities("t", keys, np.zeros(5, np.float32)).tolist() == []
    assert client.update_priorities("t", [], []).tolist() == []


FORMS = {
    "as C has them": lambda array: array,
    "every second": lambda array: np.repeat(array, 2)[::2],
    "backwards in memory": lambda array: array[::-1].copy()[::-1],
    "not aligned": lambda array: np.frombuffer(b"-" + array.tobytes(), np.uint8)[1:].view(array.dtype),
    "of the other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "not to be written": lambda array: np.frombuffer(array.tobytes(), array.dtype),
    "a list": lambda array: array.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32])
def test_keys_and_priorities_are_read_as_they_come(client, form, dtype):
    keys, values = client.keys("t"), np.array([3, 1, 4, 1, 5], dtype)
    assert client.update_priorities("t", FORMS[form](keys), FORMS[form](values)).tolist() == []
    assert priorities(client) == [3, 1, 4, 1, 5]
    client.update_priorities("t", keys.astype(np.int64), FORMS[form](values + values.dtype.type(1)))
    assert priorities(client) == [4, 2, 5, 2, 6]
    with pytest.raises(ValueError, match="5"):
        client.update_priorities("t", keys, FORMS[form](values[:4]))


class Tensor:
    """As PyTorch's tensors of uint64 are: from 2**63 on a number of theirs is an array, and no int."""

    def __init__(self, array):
        self.array = np.asarray(array, np.uint64)

    def __array__(self, dtype=None, copy=None):
        return self.array.astype(dtype or np.uint64)

    def __len__(self):
        return len(self.array)

    def __getitem__(self, i):
        return Tensor(self.array[i])

    def __index__(self):
        if self.array >= 2**63:
            raise RuntimeError("value cannot be converted to type int64_t without overflow")
        return int(self.array)


LARGE = [2**63, 7, 2**64 - 1]


@pytest.mark.parametrize("keys", [Tensor(LARGE), list(Tensor(LARGE))], ids=["a tensor", "a list of tensors' elements"])
def test_keys_of_a_framework_may_have_64_bits(client, keys):
    assert client.update_priorities("t", keys, [1.0, 2.0, 3.0]).tolist() == LARGE
    with pytest.raises(NotFoundError, match=str(2**64 - 1)):
        client.get("t", keys[2])


def test_what_numpy_makes_no_keys_of_is_read_one_by_one(client):
    class OnADevice(Tensor):
        def __array__(self, dtype=None, copy=None):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

    assert client.update_priorities("t", OnADevice([5, 6]), [1.0, 2.0]).tolist() == [5, 6]
    with pytest.raises(TypeError, match="keys must be integers"):
        client.update_priorities("t", [OnADevice(2**63)], [1.0])


@pytest.mark.parametrize("kind", [set, frozenset])
def test_keys_without_an_order_are_refused_for_priorities_go_by_it(client, kind):
    keys = kind(client.keys("t").tolist())
    with pytest.raises(TypeError, match="keys must have an order"):
        client.update_priorities("t", keys, [9.0] * 5)
    assert priorities(client) == [1, 2, 3, 4, 5]
    client.mutate_priorities("t", deletes=keys)
    assert client.keys("t").tolist() == []


def test_an_update_is_all_or_nothing(client):
    keys = client.keys("t")
    with pytest.raises(ValueError, match="(?i)nan"):
        client.update_priorities("t", keys[:2], [9.0, float("nan")])
    assert priorities(client) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("keys", "values", "error"),
    [
        ([1.5], [1.0], TypeError),
        (np.array([1.5]), [1.0], TypeError),
        (["a"], [1.0], TypeError),
        ([-1], [1.0], TypeError),
        ([2**64], [1.0], TypeError),
        ([1, 2], [1.0], ValueError),
        ([[1]], [[1.0]], (ValueError, TypeError)),
        (3, [1.0], TypeError),
        ([1], ["a"], (ValueError, TypeError)),
    ],
)
def test_bad_updates_are_refused(client, keys, values, error):
    with pytest.raises(error):
        client.update_priorities("t", keys, values)


def test_large_updates_work_too(connect):
    client = connect(make_table(max_size=10_000, sampler=reverie.selectors.Prioritized(1.0)))
    client.add_batch("t", np.arange(5000))
    keys = client.keys("t")
    assert client.update_priorities("t", keys, np.arange(5000.0)).size == 0
    assert priorities(client) == list(range(5000))


def test_mutations_delete_then_update(client):
    a, b, c, *_ = client.keys("t").tolist()
    assert client.mutate_priorities("t", {a: 7.0, b: 8.0}, [b, np.uint64(c), 99]) is None
    assert priorities(client) == [7, 4, 5]
    client.mutate_priorities("t", updates={np.uint64(a): np.float32(3)})
    client.mutate_priorities("t", deletes=client.keys("t")[:1])
    assert priorities(client) == [4, 5]
    client.mutate_priorities("t")


@pytest.mark.parametrize("key", [-1, 1.5, "a", None, 2**64])
def test_mutations_take_integer_keys(client, key):
    for arguments in ({"updates": {key: 1.0}}, {"deletes": [key]}):
        with pytest.raises(TypeError):
            client.mutate_priorities("t", **arguments)


def test_deleting_lets_blocked_inserts_through(connect):
    client = connect(make_table(rate_limiter=reverie.rate_limiters.Queue(1)))
    key = client.add("t", 0)
    added = threading.Thread(target=client.add, args=("t", 1))
    added.start()
    until(lambda: client.server_info()["t"].num_waiting_inserts > 0)
    client.mutate_priorities("t", deletes=[key])
    client.reset("t")
    added.join()


def test_an_item_is_got_without_being_counted(client):
    key = int(client.keys("t")[3])
    for copy in (True, False):
        sample = client.get("t", key, copy=copy)
        assert sample.info.key == key
        assert (sample.info.priority, sample.info.times_sampled) == (4.0, 0)
        assert sample.data["x"].item() == 3
        assert sample.data["x"].flags.writeable == copy
    assert client.server_info()["t"].rate_limiter_info.sample_stats.completed == 0


@pytest.mark.parametrize("key", [-1, 1.5, "a", None, 2**64])
def test_got_keys_are_integers(client, key):
    with pytest.raises(TypeError):
        client.get("t", key)


def test_an_item_that_is_gone_is_not_found(client):
    key = int(client.keys("t")[0])
    client.mutate_priorities("t", deletes=[key])
    with pytest.raises(NotFoundError, match=f'^table "t" has no item with key {key}; it may have been removed$'):
        client.get("t", key)
    with pytest.raises(NotFoundError, match='^table "u" .*"t"'):
        client.get("u", key)
    assert set(client.sample_batch("t", 1).data) == {"x"}


def test_views_hold_what_they_show(connect):
    client = connect(make_table(max_times_sampled=1))
    client.add("t", np.arange(1000))
    view = client.get("t", int(client.keys("t")[0]), copy=False).data
    sampled = next(client.sample("t", emit_timesteps=False, copy=False)).data[0]
    assert client.server_info()["t"].current_size == 0
    for value in range(50):
        client.add("t", np.full(1000, value))
    client.reset("t")
    del client
    gc.collect()
    np.testing.assert_array_equal(view, np.arange(1000))
    np.testing.assert_array_equal(sampled, np.arange(1000))
    for array in (view, sampled):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_reset_empties_a_table(client):
    client.reset("t")
    info = client.server_info()["t"]
    assert (info.current_size, info.num_episodes, info.num_unique_samples) == (0, 0, 0)


def test_server_info_says_who_waits_for_what(connect):
    client = connect(make_table(rate_limiter=reverie.rate_limiters.MinSize(10)))
    client.add("t", 0)
    cancel = reverie.Cancel()
    failures = []

    def wait():
        try:
            client.sample_batch("t", 2, timeout=100, cancel=cancel)
        except reverie.ReverieError as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting = until(lambda: client.server_info()["t"].waiting)
    assert (waiting[0].operation, waiting[0].reason) == ("sample", "min size")
    assert 0 <= waiting[0].waiting < 100
    cancel.fire()
    thread.join()
    assert isinstance(failures[0], reverie.errors.CancelledError)


@pytest.mark.parametrize("timeout", [None, 0, -1, 5, 2.5])
def test_server_info_takes_reverbs_timeouts(client, timeout):
    assert list(client.server_info(timeout)) == ["t"]


def test_each_call_that_waits_is_one_entry_that_says_how_much_of_it_waits(team):
    clients = team(3, reverie.Table.queue("q", 1))
    clients[0].add("q", 0)
    calls = [Call(client.add_batch, "q", np.arange(200), timeout=None) for client in clients[:2]]

    def waiting():
        info = clients[2].server_info()["q"]
        return info.waiting, info.num_waiting_inserts

    def all_wait():
        assert all(call.is_alive() for call in calls)
        return len(waiting()[0]) >= 2 and sum(caller.wanted for caller in waiting()[0]) >= 400

    until(all_wait)
    callers, inserts = waiting()
    assert [caller.wanted for caller in callers] == [200, 200]
    assert [(caller.operation, caller.reason) for caller in callers] == [("insert", "too many inserts"), ("insert", "turn")]
    assert inserts in (2, 400), "in process a call is one insert that has rows left; over the network each row is an insert"
    for _ in range(401):
        clients[2].sample_batch("q", 1)
    assert [call.join() for call in calls] == [200, 200]
    assert waiting() == ((), 0)
