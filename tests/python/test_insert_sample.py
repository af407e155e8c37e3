"""Client.insert and Client.sample, as Reverb has them."""

import concurrent.futures
import copy
import itertools
import multiprocessing
import pickle
import threading

import numpy as np
import pytest
import reverie
from conftest import flat, make_table
from reverie.errors import NotFoundError
from waiting import until


def test_an_insert_gives_each_table_an_item_of_one_step(connect):
    client = connect(make_table("a"), make_table("b"))
    client.insert({"y": np.arange(3), "x": 1.5}, {"a": 1.0, "b": np.float32(2.0)})
    (one,), (two,) = (list(client.sample(name, emit_timesteps=False)) for name in "ab")
    assert one.data[0].tolist() == [1.5]
    assert one.data[1].tolist() == [[0, 1, 2]]
    assert (one.info.priority, two.info.priority) == (1.0, 2.0)
    assert one.info.key != two.info.key


def test_insert_returns_when_the_tables_have_it(connect):
    client = connect(reverie.Table.queue("t", 1))
    client.insert(1, {"t": 1.0})
    blocked = threading.Thread(target=client.insert, args=(2, {"t": 1.0}))
    blocked.start()
    assert flat(client.sample("t", 2, emit_timesteps=False)) == [[1], [2]]
    blocked.join()


@pytest.mark.parametrize("priorities", [{}, None])
def test_insert_needs_a_table(connect, priorities):
    with pytest.raises(ValueError, match="at least one item"):
        connect().insert(1, priorities)


@pytest.mark.parametrize(
    ("data", "priorities", "error", "words"),
    [
        (1, {"t": float("nan")}, ValueError, "nan"),
        (1, {"t": "high"}, TypeError, "priority"),
        (1, {"u": 1.0}, ValueError, "u"),
        ({"a": None}, {"t": 1.0}, TypeError, "None"),
        ([], {"t": 1.0}, ValueError, "no leaves"),
        ({}, {"t": 1.0}, ValueError, "no leaves"),
        (1, [("t", 1.0)], TypeError, "priorities must be a dict"),
        (1, "t", TypeError, "priorities must be a dict"),
        (1, {"t": [1.0, 2.0]}, TypeError, "priority for table 't' must be a number"),
    ],
)
def test_bad_inserts_are_refused_and_insert_nothing(connect, data, priorities, error, words):
    client = connect()
    with pytest.raises(error, match=words):
        client.insert(data, priorities)
    assert client.server_info()["t"].current_size == 0
    client.insert(1, {"t": 1.0})


@pytest.mark.parametrize("leaf", [np.zeros(1, "datetime64[s]"), np.zeros(1, [("x", "i4")]), object(), 2**70, None])
def test_a_leaf_that_cannot_be_stored_is_named(connect, leaf):
    client = connect()
    data = {"act": [np.zeros(1), leaf], "obs": np.zeros(1)}
    with pytest.raises(TypeError, match=r"^\('act', 1\): .* cannot be stored"):
        client.insert(data, {"t": 1.0})
    with client.writer(2) as writer:
        for append in (writer.append, writer.append_sequence):
            with pytest.raises(TypeError, match=r"^\('act', 1\): .* cannot be stored"):
                append(data)
    client.insert({"act": [np.zeros(1), 1], "obs": np.zeros(1)}, {"t": 1.0})


def test_inserts_may_differ_in_structure_dtype_and_shape(connect):
    client = connect()
    given = [1, 1.5, [1, 2], {"a": np.zeros(3)}, "text", np.zeros((2, 2), np.int8)]
    for data in given:
        client.insert(data, {"t": 1.0})
    assert client.server_info()["t"].num_episodes == len(given)


def test_nothing_happens_before_the_first_next(connect):
    client = connect()
    generators = [client.sample("nowhere"), client.sample("t", 0), client.sample("t", -5)]
    with pytest.raises(RuntimeError, match="nowhere"):
        next(generators[0])
    for generator in generators[1:]:
        with pytest.raises(ValueError, match="max_samples"):
            next(generator)


def test_exactly_the_number_asked_for_is_sampled(connect):
    client = connect()
    client.insert(1, {"t": 1.0})
    assert len(list(client.sample("t", 5))) == 5
    assert client.server_info()["t"].rate_limiter_info.sample_stats.completed == 5
    next(client.sample("t"))
    assert client.server_info()["t"].rate_limiter_info.sample_stats.completed == 6


def test_a_sample_tells_of_its_item(connect):
    client = connect()
    for value in range(3):
        client.insert(value, {"t": 2.0 + value})
    first, second = client.sample("t", 2, emit_timesteps=False)
    assert isinstance(first, reverie.ReplaySample)
    assert isinstance(first.info, reverie.SampleInfo)
    assert [type(field) for field in first.info] == [int, float, int, float, int]
    assert (first.info.probability, first.info.table_size, first.info.priority, first.info.times_sampled) == (1.0, 3, 2.0, 1)
    assert second.info.times_sampled == 2
    assert first.info.key == second.info.key == int(client.keys("t")[0])


def test_timesteps_are_rows_that_share_one_info(connect):
    client = connect()
    with client.trajectory_writer(3) as writer:
        for value in range(3):
            writer.append({"a": np.full(2, value), "b": float(value)})
        writer.create_item("t", 1.0, {name: column[:] for name, column in writer.history.items()})
    (steps,) = client.sample("t")
    assert isinstance(steps, list)
    assert [step.data[0].tolist() for step in steps] == [[0, 0], [1, 1], [2, 2]]
    assert [step.data[1].shape for step in steps] == [(), (), ()]
    assert all(step.info is steps[0].info for step in steps)
    steps[0].data[0][...] = 9
    assert steps[1].data[0].tolist() == [1, 1]


def test_columns_of_unequal_length_cannot_be_split(connect):
    client = connect()
    with client.trajectory_writer(3) as writer:
        for value in range(3):
            writer.append([value, value])
        writer.create_item("t", 1.0, [writer.history[0][-3:], writer.history[1][-2:]])
    with pytest.raises(ValueError, match="Can't split"):
        next(client.sample("t"))
    assert len(next(client.sample("t", emit_timesteps=False)).data) == 2


def test_a_column_that_cannot_be_split_is_named_where_the_signature_has_names(serve):
    signature = {"x": reverie.TensorSpec((None,), np.int64), "y": reverie.TensorSpec((None,), np.int64)}
    _, client = serve(make_table(signature=signature))
    client.add("t", {"x": np.arange(3), "y": np.arange(2)})
    with pytest.raises(ValueError, match='column 0 "x" has 3 rows, column 1 "y" has 2; use emit_timesteps=False'):
        next(client.sample("t", unpack_as_table_signature=True))


def test_squeezed_scalars_cannot_be_split(connect):
    client = connect()
    client.add("t", 5)
    with pytest.raises(TypeError, match="scalar"):
        next(client.sample("t"))
    client.reset("t")
    client.add("t", np.arange(3))
    assert [step.data[0].item() for step in next(client.sample("t"))] == [0, 1, 2]


def test_closing_or_dropping_a_sequence_ends_it(connect):
    client = connect()
    client.insert(1, {"t": 1.0})
    samples = client.sample("t", 100)
    next(samples)
    samples.close()
    assert list(samples) == []
    del samples
    assert len(list(itertools.islice(client.sample("t", 100), 3))) == 3


def test_sampling_waits_for_an_insert(connect):
    client = connect()
    found = []
    waiting = threading.Thread(target=lambda: found.extend(client.sample("t")))
    waiting.start()
    until(lambda: client.server_info()["t"].num_waiting_samples > 0)
    client.insert(7, {"t": 1.0})
    waiting.join()
    assert found[0][0].data[0].item() == 7


def test_samples_are_pickled_and_compared_like_tuples(connect):
    client = connect()
    client.insert(1, {"t": 1.0})
    sample = next(client.sample("t", emit_timesteps=False))
    again = pickle.loads(pickle.dumps(sample))
    assert again.info == sample.info
    assert again.data[0].tolist() == [1]
    assert reverie.SampleInfo.zeros() == (0, 0.0, 0, 0.0, 0)
    assert [dtype.name for dtype in reverie.SampleInfo.dtypes()] == ["uint64", "float64", "int64", "float64", "int32"]


def same_batches(a, b):
    assert type(a) is type(b) is reverie.ReplayBatch
    assert a is not b
    assert len(a) == len(b)
    assert a.table_size == b.table_size
    assert a.data.keys() == b.data.keys()
    for name in a.data:
        assert a.data[name].dtype == b.data[name].dtype
        assert a.data[name].tolist() == b.data[name].tolist()
    for field in ("keys", "probabilities", "priorities", "times_sampled", "lengths", "table_sizes"):
        mine, other = getattr(a, field), getattr(b, field)
        assert (mine is None) == (other is None)
        if mine is not None:
            assert mine.dtype == other.dtype
            assert mine.tolist() == other.tolist()
            assert not np.shares_memory(mine, other)


@pytest.mark.parametrize("unequal", ["error", "pad"])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_batches_are_pickled_and_copied_whole(connect, unequal, protocol):
    client = connect()
    for i in range(9):
        client.add("t", {"x": np.full(3, i, np.float32), "s": str(i)}, priority=float(i + 1))
    batch = client.sample_batch("t", 5, unequal=unequal)
    same_batches(batch, pickle.loads(pickle.dumps(batch, protocol)))
    same_batches(batch, copy.deepcopy(batch))
    same_batches(batch, copy.copy(batch))


def test_a_batch_of_a_shrinking_table_is_pickled_with_the_size_at_each_draw(connect):
    client = connect(make_table(max_times_sampled=1))
    client.add_batch("t", {"x": np.arange(4)})
    batch = client.sample_batch("t", 4)
    assert pickle.loads(pickle.dumps(batch)).table_sizes.tolist() == [4, 3, 2, 1]
    make, (*fields, sizes) = batch.__reduce__()
    assert sizes.tolist() == [4, 3, 2, 1]
    assert make(*fields).table_sizes.tolist() == [1] * 4  # of one that was pickled when batches had no such array


def test_another_process_may_sample_for_this_one():
    table = make_table("t")
    with reverie.Server([table], in_process=False, address="127.0.0.1:0") as server:
        client = reverie.Client(server.address)
        client.add("t", {"x": np.arange(4), "s": "text"})
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            batch = pool.submit(sample_there, server.address).result(timeout=60)
    assert batch.data[1].tolist() == [[0, 1, 2, 3]]
    assert batch.data[0].tolist() == [b"text"]
    assert batch.keys.dtype == np.uint64


def sample_there(address):
    return reverie.Client(address).sample_batch("t", 1)


@pytest.mark.parametrize("address", ["nonsense", "host:notaport", "host:99999", "unix:", "", ":::"])
def test_addresses_that_cannot_be_parsed_are_refused(address):
    with pytest.raises(ValueError, match=r"\w+"):
        reverie.Client(address)


def test_a_client_is_made_of_an_address_only():
    with pytest.raises(TypeError, match="server_address"):
        reverie.Client(3)
    assert reverie.Client(b"localhost:1234").server_address == "localhost:1234"
    assert repr(reverie.Client("localhost:1")) == "Client, server_address=localhost:1"


class ByAddress(reverie.Client):
    """As code that was written for Reverb subclasses its client."""

    def __init__(self, server_address):
        super().__init__(server_address)
        self.calls = 0


class WithLimit(reverie.Client):
    def __init__(self, server_address, max_message_bytes=1 << 16):
        super().__init__(server_address, max_message_bytes=max_message_bytes)


class WithItsOwn(reverie.Client):
    def __init__(self, server_address):
        super().__init__(server_address, max_message_bytes=1 << 16, peer_timeout=30.0)


class WithAny(reverie.Client):
    def __init__(self, server_address, **options):
        super().__init__(server_address, **options)


class WithSome(reverie.Client):
    def __init__(self, server_address, max_message_bytes, name="agent"):
        super().__init__(server_address, max_message_bytes=max_message_bytes, peer_timeout=30.0)


AGAIN = {"pickle": lambda client: pickle.loads(pickle.dumps(client)), "copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_subclasses_of_a_client_are_pickled_by_address(again, monkeypatch):
    monkeypatch.setenv("REVERIE_TOKEN", "somebody")  # which their constructor does not take
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        made = again(ByAddress(server.address))
        assert type(made) is ByAddress
        assert made.server_address == server.address
        made.add("t", 1, timeout=10)


LIMITED = [
    WithLimit,
    WithItsOwn,
    lambda address: WithAny(address, max_message_bytes=1 << 16),
    lambda address: WithSome(address, 1 << 16),
    lambda address: reverie.Client(address, max_message_bytes=1 << 16),
]


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
@pytest.mark.parametrize("kind", LIMITED)
def test_the_longest_message_to_receive_is_pickled_too(again, kind):
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        client = kind(server.address)
        client.add("t", np.random.default_rng(1).bytes(1 << 17))
        for each in (client, again(client)):
            with pytest.raises(reverie.ResourceExhaustedError):
                list(each.sample("t", 1, timeout=10))


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_an_option_that_is_our_default_and_not_the_subclasss_is_kept(again):
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        client = WithLimit(server.address, 0)
        client.add("t", np.random.default_rng(1).bytes(1 << 17))
        for each in (client, again(client)):
            assert len(list(each.sample("t", 1, emit_timesteps=False, timeout=10))) == 1


def test_clients_are_pickled_by_address():
    with reverie.Server([make_table()], address="127.0.0.1:0", name="pickle") as server:
        for client in (reverie.Client(server.address), reverie.Client("inproc://pickle"), reverie.Client(server)):
            again = pickle.loads(pickle.dumps(client))
            assert again is not client
            assert again != client
            again.add("t", 1)
        assert reverie.Client(server).server_info()["t"].current_size == 3
    with reverie.Server([make_table()], in_process=True) as server, pytest.raises(TypeError, match="pickled"):
        pickle.dumps(reverie.Client(server))


def test_subclasses_work_as_their_bases():
    class Mine(reverie.Client):
        def __init__(self, server):
            super().__init__(server)
            self.extra = 1

    class Lazy(reverie.Client):
        def __init__(self):
            pass

    with reverie.Server([make_table()], in_process=True) as server:
        Mine(server).add("t", 1)
    with pytest.raises(RuntimeError, match="super"):
        Lazy().add("t", 1)
    with pytest.raises(RuntimeError, match="super"):
        Lazy().server_info()


def test_a_server_that_is_not_there_is_waited_for_until_the_timeout():
    client = reverie.Client("127.0.0.1:1")
    for call in (
        lambda: client.server_info(timeout=0.05),
        lambda: client.add("t", 1, timeout=0.05),
        lambda: client.sample_batch("t", 1, timeout=0.05),
        lambda: client.update_priorities("t", [1], [1.0], timeout=0.05),
        lambda: client.keys("t", timeout=0.05),
        lambda: client.get("t", 1, timeout=0.05),
        lambda: client.reset("t", timeout=0.05),
    ):
        with pytest.raises(reverie.DeadlineExceededError, match="127.0.0.1:1"):
            call()
    with pytest.raises(RuntimeError):
        client.checkpoint()


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), object()])
def test_timeouts_are_seconds(connect, timeout):
    with pytest.raises((TypeError, ValueError), match="timeout"):
        connect().add("t", 1, timeout=timeout)


def test_an_unknown_table_is_not_found_everywhere(connect):
    client = connect()
    for call in (
        lambda: client.add("u", 1),
        lambda: client.add_batch("u", [np.zeros(3)]),
        lambda: client.sample_batch("u", 1),
        lambda: next(client.sample("u")),
        lambda: next(client.sample("u", unpack_as_table_signature=True)),
        lambda: client.update_priorities("u", [1], [1.0]),
        lambda: client.mutate_priorities("u", {1: 1.0}),
        lambda: client.reset("u"),
        lambda: client.keys("u"),
        lambda: list(client.items("u")),
        lambda: client.get("u", 1),
        lambda: client.insert(1, {"u": 1.0}),
    ):
        with pytest.raises(NotFoundError, match="u"):
            call()


@pytest.mark.parametrize("name", [3, None, bytearray(b"t"), "nul\0", b"nul\0", b"\xff"])
def test_table_names_are_strings(connect, name):
    client = connect()
    for call in (lambda: client.add(name, 1), lambda: client.sample_batch(name, 1), lambda: client.reset(name)):
        with pytest.raises((TypeError, ValueError)):
            call()


@pytest.mark.parametrize(("number", "dtype"), [(1.5, "float64"), (1, "int64"), (True, "bool")])
def test_pythons_numbers_have_reverbs_dtypes_in_insert_whatever_the_signature_says(connect, number, dtype):
    client = connect(make_table("signed", signature=reverie.TensorSpec((), np.float32)), make_table("any"))
    client.insert(number, {"any": 1.0})
    assert next(client.sample("any", emit_timesteps=False)).data[0].dtype == dtype
    with pytest.raises(ValueError, match=f"float32\\[\\], got {dtype}"):
        client.insert(number, {"signed": 1.0})
