"""What waits in TensorFlow ends at its timeout and by Ctrl-C, eagerly and in a graph, and says what it waited for."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import threading
from concurrent import futures

import pytest
import reverie
import tensorflow as tf
from reverie import TFClient, TimestepDataset, TrajectoryDataset
from waiting import AT_MOST, INSERTING, SAMPLING, SOON, interrupted, says_at_its_deadline


def eagerly(call):
    return call


def in_a_function(call):
    def run():
        call()
        return tf.constant(1)

    return tf.function(run, autograph=False).get_concrete_function()


def in_a_session(call):
    with tf.Graph().as_default() as graph:
        made = call()
    session = tf.compat.v1.Session(graph=graph)
    return lambda: session.run(made)


HOW = [eagerly, in_a_function, in_a_session]

CALLS = {
    "sample": (lambda c, t: c.sample("few", [tf.int64], timeout=t).info.key, SAMPLING),
    "insert": (lambda c, t: c.insert([tf.zeros([])], tf.constant(["full"]), tf.ones([1], tf.float64), timeout=t), INSERTING),
    "update_priorities": (lambda c, t: c.update_priorities("few", [1], [1.0], timeout=t), None),
}
HELD = [name for name, (_, reason) in CALLS.items() if reason is not None]


def of_signature(address, timeout):
    return TrajectoryDataset.from_table_signature(address, "few", 4, timeout=timeout)


def of_steps(address, timeout):
    return TimestepDataset(address, "few", tf.int64, tf.TensorShape([]), 4, timeout=timeout)


DATASETS = {
    "single": of_signature,
    "steps": of_steps,
    "batches": lambda address, timeout: of_signature(address, timeout).batch(2),
    "ahead": lambda address, timeout: of_signature(address, timeout).batch(2).prefetch(2),
    "interleaved": lambda address, timeout: tf.data.Dataset.range(2).interleave(
        lambda _: TrajectoryDataset(address, "few", tf.int64, tf.TensorShape([]), 4, timeout=timeout), num_parallel_calls=2
    ),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", HELD)
def test_a_call_that_its_table_holds_says_at_its_timeout_what_it_waits_for(holding, name, how):
    call, reason = CALLS[name]
    client = TFClient(holding.address)
    says_at_its_deadline(lambda timeout: how(lambda: call(client, timeout))(), reason, SOON, tf.errors.DeadlineExceededError)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_server_that_went_says_so_at_its_timeout(holding, name, how):
    client = TFClient(holding.address)
    client.update_priorities("few", [1], [1.0])
    run = how(lambda: CALLS[name][0](client, SOON))
    holding.stop()
    with pytest.raises(tf.errors.DeadlineExceededError, match=holding.address):
        run()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", HELD)
def test_a_call_ends_by_ctrl_c(holding, name, how):
    call, _ = CALLS[name]
    client = TFClient(holding.address)
    interrupted(how(lambda: call(client, AT_MOST)), in_a_graph=how is not eagerly)


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_says_at_its_timeout_what_it_waits_for(holding, name):
    said = rf"timed out after [\d.]+ s: {SAMPLING}"
    says_at_its_deadline(
        lambda timeout: next(iter(DATASETS[name](holding.address, timeout))), said, SOON, tf.errors.DeadlineExceededError
    )


def next_in_time(samples):
    """The next element, however often a busy machine lets its short timeout pass."""
    for _ in range(100):
        with contextlib.suppress(tf.errors.DeadlineExceededError):
            return next(samples)
    raise AssertionError("nothing came")


def test_a_dataset_goes_on_after_its_timeout(holding):
    samples = iter(of_signature(holding.address, SOON))
    for _ in range(2):
        with pytest.raises(tf.errors.DeadlineExceededError):
            next(samples)
    reverie.Client(holding).set_rate_limiter("few", reverie.rate_limiters.MinSize(1))
    assert int(next_in_time(samples).data) == 0


def test_a_dataset_of_a_server_that_went_says_so_at_its_timeout(holding):
    reverie.Client(holding).set_rate_limiter("few", reverie.rate_limiters.MinSize(1))
    samples = iter(of_signature(holding.address, SOON))
    next_in_time(samples)
    holding.stop()
    with pytest.raises(tf.errors.DeadlineExceededError, match=holding.address):
        for _ in range(100):  # what was fetched ahead is given first
            next(samples)


class Answering:
    """A server whose SampleStream does as told, and which counts the calls of every method."""

    def __init__(self, grpc, sample_stream):
        self.calls = collections.Counter()
        self.over = threading.Event()
        self.answers = {"SampleStream": sample_stream}
        self.grpc = grpc

    def service(self, details):
        name = details.method.rsplit("/")[-1]
        self.calls[name] += 1
        answer = self.answers.get(name, lambda context: context.abort(self.grpc.StatusCode.UNIMPLEMENTED, "not here"))
        return self.grpc.stream_stream_rpc_method_handler(lambda _, context: answer(context))


@pytest.fixture
def answering():
    """answering(what SampleStream does with its context, timeout): the server, and a dataset of it."""
    import grpc  # TensorFlow depends on it

    made = []

    def call(sample_stream, timeout):
        handler = Answering(grpc, sample_stream)
        server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        made.append((server, handler))
        return handler, TrajectoryDataset(f"127.0.0.1:{port}", "few", tf.int64, tf.TensorShape([]), 4, timeout=timeout)

    yield call
    for server, handler in made:
        handler.over.set()
        server.stop(None)


def test_a_server_that_says_a_deadline_has_passed_ends_a_dataset(answering):
    import grpc

    _, made = answering(lambda context: context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "their own"), AT_MOST)
    samples = iter(made)
    with pytest.raises(tf.errors.DeadlineExceededError, match="their own"):
        next(samples)
    with pytest.raises(StopIteration):
        next(samples)


def test_a_dataset_that_waits_asks_its_server_why_only_when_it_gives_up(answering):
    def nothing(_):
        handler.over.wait(AT_MOST)
        return iter(())

    handler, made = answering(nothing, 5 * SOON)
    with pytest.raises(tf.errors.DeadlineExceededError, match="timed out after"):
        next(iter(made))
    assert handler.calls["ServerInfo"] == 2  # the first is for the signature, when it begins


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_ends_by_ctrl_c(holding, name):
    samples = iter(DATASETS[name](holding.address, AT_MOST))
    interrupted(lambda: next(samples), in_a_graph=name == "interleaved")


def test_a_dataset_in_a_function_ends_by_ctrl_c(holding):
    client = reverie.Client(holding)
    dataset = of_signature(holding.address, AT_MOST).take(2)

    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        for sample in dataset:
            result += sample.data
        return result

    client.set_rate_limiter("few", reverie.rate_limiters.MinSize(1))
    assert int(total()) == 0  # it is made
    client.set_rate_limiter("few", reverie.rate_limiters.MinSize(1005))
    interrupted(total, in_a_graph=True)


def test_everything_goes_on_after_ctrl_c(holding):
    client = reverie.Client(holding)
    samples = iter(of_signature(holding.address, AT_MOST))
    interrupted(lambda: next(samples))
    client.set_rate_limiter("few", reverie.rate_limiters.MinSize(1))
    assert int(next(samples).data) == 0


def test_a_program_that_ignores_ctrl_c_goes_on_waiting(holding):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    late = threading.Timer(SOON, signal.raise_signal, (signal.SIGINT,))
    try:
        late.start()
        with pytest.raises(tf.errors.DeadlineExceededError):
            next(iter(of_signature(holding.address, 2 * SOON)))
    finally:
        late.join()
        signal.signal(signal.SIGINT, before)


def test_an_element_that_is_waited_for_after_a_ctrl_c_that_was_handled_is_not_ended_by_it(holding):
    samples = iter(of_signature(holding.address, 4 * SOON))
    with pytest.raises(tf.errors.DeadlineExceededError):
        next(samples)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(tf.errors.DeadlineExceededError):
        next(samples)


def test_who_notes_ctrl_c_in_a_function_gets_a_cancelled_error_and_may_go_on(holding):
    noted = threading.Event()
    samples = iter(of_signature(holding.address, AT_MOST))
    before = signal.signal(signal.SIGINT, lambda *_: noted.set())
    timer = threading.Timer(SOON, signal.raise_signal, (signal.SIGINT,))
    try:
        timer.start()
        with pytest.raises(tf.errors.CancelledError):
            next(samples)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert noted.is_set()
    reverie.Client(holding).set_rate_limiter("few", reverie.rate_limiters.MinSize(1))
    assert int(next(samples).data) == 0


def test_a_forked_child_drops_an_iterator_that_waits_in_its_parent(holding, monkeypatch):
    sources = []
    make = reverie._core.TensorSource
    monkeypatch.setattr(reverie._core, "TensorSource", lambda *given: sources.append(make(*given)) or sources[-1])
    samples = iter(of_signature(holding.address, AT_MOST))
    reader = threading.Thread(target=lambda: next(samples))
    reader.start()
    client = reverie.Client(holding)
    while client.server_info(60)["few"].num_waiting_samples < 1:
        pass
    child = os.fork()
    if child == 0:
        signal.alarm(int(AT_MOST))  # it ends a child that hangs
        sources.pop().close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client.set_rate_limiter("few", reverie.rate_limiters.MinSize(1))
    reader.join()


@pytest.mark.parametrize("bad", [-1, float("nan"), "1"])
def test_a_bad_timeout_is_refused_at_once(bad):
    error = TypeError if isinstance(bad, str) else ValueError
    client = TFClient("localhost:1")
    for make in (*(lambda call=call: call(client, bad) for call, _ in CALLS.values()), lambda: of_steps("localhost:1", bad)):
        with pytest.raises(error, match="timeout"):
            make()
