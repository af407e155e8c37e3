"""The client of TensorFlow operations, and how errors pass through a graph."""

from __future__ import annotations

import pytest
import reverie
import tensorflow as tf
from reverie import TFClient
from reverie._graph import operation


@pytest.fixture
def steps(serve):
    return TFClient(serve("127.0.0.1:0", sampler=reverie.selectors.MaxHeap()).address)


ROW = [tf.constant([1.0, 2.0]), tf.constant(b"text")]
DTYPES = {"a": tf.float32, "b": tf.string}
ONE = tf.constant([1.0], tf.float64)


def put(client, priority=1.0):
    return client.insert(ROW, tf.constant(["replay"]), tf.constant([priority], tf.float64))


def test_what_is_inserted_is_sampled(steps):
    assert put(steps, 3.0) is None
    sample = steps.sample("replay", DTYPES)
    assert sample.data["a"].numpy().tolist() == [1, 2]
    assert sample.data["b"].numpy() == b"text"
    assert float(sample.info.priority) == 3
    assert steps.server_address


def test_a_name_may_be_bytes_of_utf8(steps):
    dataset = reverie.TrajectoryDataset
    put(steps, 2.0)
    shapes = {"a": tf.TensorShape(None), "b": tf.TensorShape(None)}
    (sample,) = dataset(steps.server_address, b"replay", DTYPES, shapes, 1, max_samples=1)
    assert float(sample.info.priority) == 2
    assert float(steps.sample(b"replay", DTYPES).info.priority) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"table must be a str, or bytes of UTF-8, got b'\\xff'"):
        steps.sample(b"\xff", DTYPES)


def test_a_signature_is_asked_for_by_bytes_too(address):
    made = reverie.TrajectoryDataset.from_table_signature(address, b"replay", 1, max_samples=1)
    assert set(next(iter(made)).data) == {"action", "name", "obs"}
    with pytest.raises(TypeError, match="table must be a str, got 3"):
        reverie.TrajectoryDataset.from_table_signature(address, 3, 1)


def test_a_subclass_that_was_not_initialised_names_what_is_missing():
    bare = type("Bare", (TFClient,), {"__init__": lambda self: None})()
    for call in (
        lambda: bare.server_address,
        lambda: bare.sample("replay", DTYPES),
        lambda: put(bare),
        lambda: bare.update_priorities("replay", [1], [1.0]),
    ):
        with pytest.raises(AttributeError, match=r"Bare was not initialised.*super\(\).__init__\("):
            call()


def test_a_subclass_may_override_what_is_called(steps):
    class Doubling(TFClient):
        def insert(self, data, tables, priorities, name=None, **options):
            return super().insert(data, tables, 2 * priorities, name, **options)

    put(Doubling(steps.server_address), 3.0)
    assert float(steps.sample("replay", DTYPES).info.priority) == 6


def test_columns_are_converted_as_tensorflow_converts_and_each_table_named_gets_an_item(steps):
    steps.insert([1.0, 2, "text"], tf.constant(["replay", "replay"]), tf.constant([1.0, 2.0], tf.float64))
    sample = steps.sample(tf.constant("replay"), [tf.float32, tf.int32, tf.string])
    assert [leaf.numpy() for leaf in sample.data] == [1.0, 2, b"text"]
    assert [int(sample.info.table_size), float(sample.info.priority)] == [2, 2.0]


def test_what_does_not_fit_the_signature_is_refused_as_tensorflow_refuses(address):
    with pytest.raises(tf.errors.InvalidArgumentError, match="its signature has 3 columns"):
        put(TFClient(address))


def test_an_unknown_table_is_not_found_in_a_graph_whatever_of_the_sample_is_used(steps):
    for use in (lambda sample: sample.info.key, lambda sample: sample.data["a"]):
        with pytest.raises(tf.errors.NotFoundError, match='"nowhere"'):
            tf.function(lambda use=use: use(steps.sample("nowhere", DTYPES)))()


def one(priority):
    return tf.constant([priority], tf.float64)


WRONG_IN_GRAPHS = [
    (lambda c: c.sample("nowhere", [tf.float32]).info.key, tf.errors.NotFoundError, '"nowhere" was not found'),
    (lambda c: c.update_priorities("nowhere", [1], [1.0]), tf.errors.NotFoundError, '"nowhere" was not found'),
    (lambda c: c.update_priorities("replay", [1, 2], [1.0]), tf.errors.InvalidArgumentError, "equally long"),
    (lambda c: c.insert([1.0], tf.constant(["nowhere"]), one(1.0)), tf.errors.InvalidArgumentError, '"nowhere" was not found'),
    (lambda c: c.insert([1.0], tf.constant(["replay"]), one(float("nan"))), tf.errors.InvalidArgumentError, "nan"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG_IN_GRAPHS)
def test_what_fails_in_a_graph_has_the_kind_of_the_error_though_nobody_asks_for_it(steps, call, error, text):
    put(steps)

    @tf.function
    def run():
        call(steps)
        return tf.constant(1)

    with pytest.raises(error, match=text):
        run()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = call(steps)
        with pytest.raises(error, match=text):
            session.run(made)


KINDS = [each for each in vars(reverie.errors).values() if isinstance(each, type) and hasattr(tf.errors, each.__name__)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_keeps_its_kind_and_its_text_eagerly_and_in_a_graph(kind):
    def fail(*_):
        raise kind("what was wrong: ä")

    def run():
        operation(fail, [1])

    wanted = getattr(tf.errors, kind.__name__)
    with pytest.raises(wanted, match="what was wrong: ä"):
        run()
    in_a_graph = (
        tf.errors.InternalError if kind is reverie.UnavailableError else wanted
    )  # TensorFlow does that to every operation's
    with pytest.raises(in_a_graph, match="what was wrong: ä"):
        tf.function(run)()


def test_priorities_are_updated_inside_a_function(steps):
    put(steps)

    @tf.function
    def update():
        sample = steps.sample("replay", DTYPES)
        with tf.control_dependencies([steps.update_priorities("replay", [sample.info.key], [9.0])]):
            return steps.sample("replay", DTYPES).info.priority

    assert float(update()) == 9


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda c: c.sample("replay", [tf.float32]), tf.errors.InvalidArgumentError, "did not match"),
        (lambda c: c.sample("replay", [tf.float32, tf.int64]), tf.errors.InvalidArgumentError, "Type mismatch"),
        (lambda c: c.sample("nowhere", [tf.float32]), tf.errors.NotFoundError, "nowhere"),
        (lambda c: c.update_priorities("nowhere", [1], [1.0]), tf.errors.NotFoundError, "nowhere"),
        (lambda c: c.update_priorities("replay", [1, 2], [1.0]), tf.errors.InvalidArgumentError, "equally long"),
        (lambda c: c.insert(ROW, tf.constant("replay"), tf.constant([1.0], tf.float64)), ValueError, "tables must"),
        (lambda c: c.insert(ROW, tf.constant(["replay"]), tf.constant([1.0])), ValueError, "priorities must"),
        (lambda c: c.insert(ROW, tf.constant(["replay"]), tf.constant([1.0, 2.0], tf.float64)), ValueError, "same shape"),
        (lambda c: c.insert(ROW, ["replay"], [1.0]), AttributeError, "dtype"),
        (lambda c: c.insert(ROW, tf.constant(["nowhere"]), ONE), tf.errors.InvalidArgumentError, "nowhere"),
        (lambda c: c.insert(ROW, tf.constant(["replay"]), float("nan") * ONE), tf.errors.InvalidArgumentError, "nan"),
        (lambda c: c.insert([], tf.constant(["replay"]), ONE), tf.errors.InvalidArgumentError, "no leaves"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(steps, call, error, text):
    put(steps)
    with pytest.raises(error, match=text):
        call(steps)
