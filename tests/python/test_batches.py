"""Client.batches: a thread that draws ahead."""

import contextlib
import gc
import itertools
import pickle
import socket
import threading
import weakref

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie._feeding import Source, Stream
from reverie.errors import DeadlineExceededError
from waiting import Call, until


def drawers():
    return [thread for thread in threading.enumerate() if thread.name == "reverie-batches"]


def wait_until_no_drawer():
    for thread in drawers():
        thread.join(60)
    assert drawers() == []


@pytest.fixture(autouse=True)
def nothing_left_by_an_earlier_test():
    gc.collect()  # an error that a test expected holds on to its frames, and to the iterators in them
    wait_until_no_drawer()


@pytest.fixture
def client(connect):
    client = connect()
    client.add_batch("t", {"x": np.arange(100)})
    yield client
    wait_until_no_drawer()


def test_batches_come_without_end(client):
    with client.batches("t", 8) as batches:
        for _, batch in zip(range(20), batches, strict=False):
            assert batch.data["x"].shape == (8,)
    assert list(batches) == []


def test_so_many_are_drawn_ahead_and_no_more(client):
    with client.batches("t", 1, prefetch=3) as batches:
        next(batches)
        until(lambda: client.server_info()["t"].rate_limiter_info.sample_stats.completed >= 4)
        assert client.server_info()["t"].rate_limiter_info.sample_stats.completed == 4


def test_nothing_is_drawn_before_the_first_next(client):
    batches = client.batches("t", 1)
    assert drawers() == []
    batches.close()
    batches.close()


def test_dropping_the_iterator_ends_its_thread(client):
    batches = client.batches("t", 1)
    next(batches)
    del batches
    gc.collect()
    wait_until_no_drawer()


class OwnBatches(reverie.Client):
    def sample_batch(self, *arguments, **options):
        return super().sample_batch(*arguments, **options)


@pytest.mark.parametrize("kind", [reverie.Client, OwnBatches])
def test_an_error_that_nobody_takes_keeps_neither_iterator_nor_client(kind):
    server = reverie.Server([make_table()], address="127.0.0.1:0")
    client = kind(server.address)
    client.held = client.batches("t", 2, prefetch=1, timeout=0.05)
    with pytest.raises(DeadlineExceededError):
        next(client.held)
    results = client.held._drawer.results
    until(lambda: results.qsize() > 0)  # the next error lies there
    dropped = weakref.ref(client)
    del client
    until(lambda: gc.collect() >= 0 and dropped() is None)
    wait_until_no_drawer()
    server.stop()


def test_closing_ends_a_thread_that_waits(connect):
    client = connect()
    batches = client.batches("t", 4, timeout=None)
    failures = []

    def consume():
        failures.extend(batches)

    consumer = threading.Thread(target=consume)
    consumer.start()
    until(lambda: client.server_info()["t"].num_waiting_samples > 0)
    batches.close()
    consumer.join()
    assert failures == []


def test_a_deadline_is_raised_and_iteration_may_go_on(connect):
    client = connect()
    with client.batches("t", 2, prefetch=1, timeout=0.2) as batches:
        with pytest.raises(DeadlineExceededError):
            next(batches)
        client.add("t", 5)
        for _ in range(3):
            try:
                assert next(batches).data.tolist() == [5, 5]
                break
            except DeadlineExceededError:
                continue


def test_errors_reach_the_consumer(client):
    with client.batches("nowhere", 2) as batches, pytest.raises(reverie.errors.NotFoundError):
        next(batches)


@pytest.mark.parametrize(
    ("options", "error"), [({"prefetch": 0}, ValueError), ({"prefetch": "2"}, TypeError), ({"unequal": "cut"}, ValueError)]
)
def test_options_are_checked(client, options, error):
    with pytest.raises(error):
        client.batches("t", 2, **options)


def test_closing_ends_a_thread_that_still_asks_a_server_what_the_table_is_like():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        batches = reverie.Client(f"127.0.0.1:{listener.getsockname()[1]}").batches("t", 1, timeout=None)
        consumer = threading.Thread(target=lambda: list(batches), daemon=True)
        consumer.start()
        peer, _ = listener.accept()  # and never answers
        with peer:
            batches.close()
            consumer.join(60)
            assert not consumer.is_alive()
            wait_until_no_drawer()


def test_unequal_lengths_are_padded(connect):
    client = connect(make_table(max_times_sampled=1))
    with client.trajectory_writer(3) as writer:
        for value in range(3):
            writer.append([value])
            writer.create_item("t", 1.0, [writer.history[0][:]])
    with client.batches("t", 3, unequal="pad", prefetch=1) as batches:
        assert next(batches).lengths.tolist() == [1, 2, 3]


def test_a_stopped_server_ends_iteration_with_its_error():
    server = reverie.Server([make_table()], in_process=True)
    client = reverie.Client(server)
    with client.batches("t", 1) as batches:
        client.add("t", 1)
        next(batches)
        server.stop()
        with pytest.raises(reverie.errors.CancelledError):
            for _ in range(5):
                next(batches)
    wait_until_no_drawer()


def test_iteration_that_has_ended_stays_ended_for_everybody_who_iterates():
    server = reverie.Server([make_table()], in_process=True)
    client = reverie.Client(server)
    client.add("t", 1)
    batches = client.batches("t", 1)
    next(batches)
    server.stop()

    def consume():
        for _ in range(3):
            with contextlib.suppress(reverie.errors.CancelledError):
                list(batches)

    consumers = [threading.Thread(target=consume, daemon=True) for _ in range(3)]
    for consumer in consumers:
        consumer.start()
    for consumer in consumers:
        consumer.join(60)
    assert not any(consumer.is_alive() for consumer in consumers)


def test_an_iteration_ends_behind_the_last_that_is_drawn():
    drawn = iter(range(5))
    batches = reverie.BatchIterator(lambda _: next(drawn), 2)
    assert list(batches) == [0, 1, 2, 3, 4]
    assert list(batches) == []
    wait_until_no_drawer()


def test_an_error_comes_in_its_place_and_the_iteration_goes_on_behind_it():
    numbers = itertools.count()
    with reverie.BatchIterator(lambda _: 12 // (next(numbers) - 1), 2) as batches:
        assert next(batches) == -12
        with pytest.raises(ZeroDivisionError):
            next(batches)
        assert next(batches) == 12


def test_closing_calls_what_makes_a_drawer_give_up():
    waits, given_up = threading.Event(), threading.Event()

    def draw(_):
        waits.set()
        given_up.wait()
        raise StopIteration

    batches = reverie.BatchIterator(draw, 1, give_up=given_up.set)
    consumer = Call(list, batches)
    waits.wait()
    Call(batches.close).join()
    assert consumer.join() == []
    assert drawers() == []


def test_closing_leaves_a_drawer_that_does_not_give_up_behind_and_ends_those_who_wait():
    waits, go_on = threading.Event(), threading.Event()

    def draw(_):
        waits.set()
        go_on.wait()
        return 1

    batches = reverie.BatchIterator(draw, 1, grace=0.01)
    consumer = Call(list, batches)
    waits.wait()
    batches.close()
    assert consumer.join() == []
    assert len(drawers()) == 1
    go_on.set()
    wait_until_no_drawer()


def test_where_no_thread_can_be_started_the_next_call_tries_again(client, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with client.batches("t", 1) as batches:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="new thread"):
                next(batches)
        assert len(next(batches)) == 1


@pytest.mark.parametrize("moment", ["before the thread is there", "when it is there"])
def test_where_ctrl_c_interrupts_the_start_of_the_thread_the_next_call_returns_a_batch(client, monkeypatch, moment):
    start = threading.Thread.start

    def interrupted(thread):
        if moment == "when it is there":
            start(thread)
        raise KeyboardInterrupt

    with client.batches("t", 1) as batches:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(batches)
        assert len(Call(next, batches).join()) == 1


def test_a_signal_handler_that_comes_while_the_thread_is_started_gets_a_batch_too(client, monkeypatch):
    start, got = threading.Thread.start, []

    def interrupted(thread):
        if thread.name == "reverie-batches" and not got:
            monkeypatch.undo()
            got.append(next(batches))
        start(thread)

    with client.batches("t", 1) as batches:
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        got.append(Call(next, batches).join())
    assert [len(batch) for batch in got] == [1, 1]


def test_an_iterator_of_batches_stays_in_its_process():
    with reverie.Server([make_table()], in_process=True) as server:
        batches = reverie.Client(server).batches("t", 1)
        with batches, pytest.raises(TypeError, match="make one in the other process"):
            pickle.dumps(batches)


def test_what_goes_to_another_process_knows_the_nest_that_its_client_inserted(tmp_path):
    with reverie.Server([make_table()], address=f"unix:{tmp_path}/server") as server:
        client = reverie.Client(server.address)
        client.add("t", {"x": 1.0, "y": [2, 3]})
        there = pickle.loads(pickle.dumps(Source(client, "t"))).client()
        assert there is not client
        assert there.sample_batch("t", 1).data == {"x": [1.0], "y": [[2], [3]]}
        assert isinstance(pickle.loads(pickle.dumps(Source(client))).client().sample_batch("t", 1).data, list)


def test_more_samples_and_time_than_64_bits_have_are_as_good_as_no_bound(connect):
    client = connect()
    client.add("t", [1.0])
    stream = Stream("t", 1, 1, 10**30, 10**30, 10**30)
    assert next(stream.sampler(client)).data == [1.0]


def test_more_streams_than_there_may_be_are_refused_however_many(connect):
    for streams in (10**6, 2**32, 10**30):
        with pytest.raises(ValueError, match="num_streams must be at most"):
            next(Stream("t", 1, streams, 1, -1, -1).sampler(connect()))
