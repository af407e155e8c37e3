"""Datasets for tf.data."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import reverie
import tensorflow as tf
from reverie import ReplaySample, SampleInfo, TFClient, TimestepDataset, TrajectoryDataset, _tensorflow
from reverie._graph import op
from reverie._tensorflow import _Sources


def dataset(address, **options):
    return TrajectoryDataset.from_table_signature(address, "replay", options.pop("ahead", 100), **options)


def sequences(serve, lengths, **table):
    server = serve("127.0.0.1:0", signature={"x": reverie.TensorSpec((None,), np.int64)}, **table)
    with reverie.Client(server).trajectory_writer(num_keep_alive_refs=max(lengths)) as writer:
        for length in lengths:
            for i in range(length):
                writer.append({"x": np.int64(i)})
            writer.create_item("replay", 1.0, {"x": writer.history["x"][-length:]})
            writer.end_episode()
    return server.address


FIFO = {"sampler": reverie.selectors.Fifo(), "max_times_sampled": 1}


def test_elements_are_samples_with_the_nest_of_the_signature(address):
    made = dataset(address)
    assert isinstance(made, tf.data.Dataset)
    assert isinstance(made.element_spec, ReplaySample)
    assert made.element_spec.data["obs"] == tf.TensorSpec((3, 2), tf.float32)
    assert made.element_spec.info.key == tf.TensorSpec((), tf.uint64)
    for sample in made.take(50):
        assert isinstance(sample, ReplaySample)
        assert isinstance(sample.info, SampleInfo)
        action = int(sample.data["action"])
        assert sample.data["obs"].shape == (3, 2)
        assert float(sample.data["obs"][0, 0]) == action
        assert sample.data["name"].numpy() == f"row {action}".encode()
        assert float(sample.info.priority) == action + 1
        assert int(sample.info.table_size) == 100


def test_dtypes_and_shapes_may_be_named_instead(address):
    made = TrajectoryDataset(
        address,
        "replay",
        [np.int64, tf.string, tf.float32],
        [tf.TensorShape([]), tf.TensorShape([]), tf.TensorShape([3, None])],
        4,
    )
    assert isinstance(made.element_spec.data, tuple)
    action, name, obs = next(iter(made)).data
    assert name.numpy() == f"row {int(action)}".encode()
    assert obs.shape == (3, 2)


@pytest.mark.parametrize("kind", [TrajectoryDataset, TimestepDataset])
def test_shapes_may_be_unknown_and_the_table_empty(serve, kind):
    address = sequences(serve, [2, 3], **FIFO)
    made = kind(address, "replay", [tf.int64], [tf.TensorShape(None)], 4, rate_limiter_timeout_ms=100)
    found = [sample.data[0].numpy().tolist() for sample in made]
    assert found == ([[0, 1], [0, 1, 2]] if kind is TrajectoryDataset else [0, 1, 0, 1, 2])
    assert list(made) == []


@pytest.mark.parametrize("drop", [False, True])
def test_batches_are_those_of_the_elements(address, drop):
    made = dataset(address, max_samples=150).batch(64, drop_remainder=drop)
    assert made.element_spec.data["obs"].shape.as_list() == [64 if drop else None, 3, 2]
    batches = list(made)
    assert [batch.data["obs"].shape[0] for batch in batches] == ([64, 64] if drop else [64, 64, 22])
    for batch in batches:
        assert np.array_equal(batch.data["obs"][:, 0, 0], batch.data["action"])
        assert np.array_equal(batch.info.priority, batch.data["action"].numpy() + 1)


def test_batches_of_one_have_a_dimension_for_it(address):
    assert [batch.data["obs"].shape for batch in dataset(address, max_samples=3).batch(1)] == [(1, 3, 2)] * 3


@pytest.mark.parametrize("drop", [False, True])
def test_large_batches_are_those_of_the_elements(serve, drop):
    """They are not taken apart in the graph."""
    server = serve("127.0.0.1:0", signature=reverie.TensorSpec((30_000,), np.float32), **FIFO)
    reverie.Client(server).add_batch("replay", np.repeat(np.arange(10, dtype=np.float32)[:, None], 30_000, axis=1))
    made = dataset(server.address, rate_limiter_timeout_ms=50).batch(4, drop_remainder=drop)
    assert made.element_spec.data.shape.as_list() == [4 if drop else None, 30_000]
    batches = [batch.data.numpy() for batch in made.prefetch(2)]
    assert np.array_equal(np.concatenate(batches), np.repeat(np.arange(8 if drop else 10)[:, None], 30_000, axis=1))


def numbered(serve, n, floats, **table):
    """A server of n rows of so many floats, each the row's number, which is its priority, too."""
    server = serve("127.0.0.1:0", signature=reverie.TensorSpec((floats,), np.float32), **{**FIFO, **table})
    add_numbered(server, range(n), floats)
    return server


def add_numbered(server, numbers, floats):
    rows = np.repeat(np.array(numbers, np.float32)[:, None], floats, axis=1)
    reverie.Client(server).add_batch("replay", rows, np.array(numbers, np.float64))


@pytest.mark.parametrize("floats", [4, 2_000, 30_000])
@pytest.mark.parametrize("batch", [None, 4])
def test_many_elements_keep_their_order_and_what_is_said_of_each(serve, floats, batch):
    """Whether they are held or copied as they arrive, and taken apart or not."""
    server = numbered(serve, 62, floats)
    made = dataset(server.address, ahead=10, rate_limiter_timeout_ms=50)
    made = list(made if batch is None else made.batch(batch))
    data = np.concatenate([np.reshape(sample.data, (-1, floats)) for sample in made])
    assert np.array_equal(data, np.repeat(np.arange(62)[:, None], floats, axis=1))
    infos = [np.concatenate([np.reshape(sample.info[i], -1) for sample in made]) for i in range(5)]
    assert len(set(infos[0])) == 62
    assert np.array_equal(infos[1], np.ones(62))
    assert np.array_equal(infos[2], np.arange(62, 0, -1))
    assert np.array_equal(infos[3], np.arange(62))
    assert np.array_equal(infos[4], np.ones(62))


@pytest.mark.parametrize("floats", [4, 30_000])
def test_a_batch_waits_for_the_rest_of_it(serve, floats):
    server = numbered(serve, 11, floats)
    batches = iter(dataset(server.address).batch(4))
    got = [next(batches), next(batches)]
    reader = threading.Thread(target=lambda: got.append(next(batches)))
    reader.start()
    add_numbered(server, [11], floats)
    reader.join(30)
    assert [batch.data.numpy()[:, -1].tolist() for batch in got] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("floats", [4, 30_000])
def test_a_batch_goes_on_after_a_long_pause_in_the_middle_of_it(serve, floats):
    server = numbered(serve, 6, floats)
    shape = tf.TensorShape([floats])
    batches = iter(TrajectoryDataset(server.address, "replay", tf.float32, shape, 100).batch(4))
    first = next(batches)
    late = threading.Timer(0.3, add_numbered, (server, range(6, 12), floats))
    late.start()
    got = [first, next(batches), next(batches)]
    late.join()
    assert np.concatenate([batch.data.numpy()[:, -1] for batch in got]).tolist() == list(range(12))


# taken apart to samples, to batches, not at all
SIZES = pytest.mark.parametrize(("floats", "batch"), [(4, None), (4, 4), (30_000, 4)])


@SIZES
def test_threads_that_share_an_iterator_get_each_element_once(serve, floats, batch):
    made = dataset(numbered(serve, 400, floats).address, max_samples=400)
    iterator, got = iter(made if batch is None else made.batch(batch)), []
    readers = [threading.Thread(target=lambda: got.extend(np.reshape(each.info.key, -1) for each in iterator)) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    keys = np.concatenate(got)
    assert len(keys) == len(set(keys)) == 400


@SIZES
def test_each_wait_ends_at_its_timeout_also_after_samples_and_after_a_timeout(serve, floats, batch):
    made = dataset(numbered(serve, 8, floats).address, timeout=0.3)
    iterator, said = iter(made if batch is None else made.batch(batch)), []
    for _ in range(8 if batch is None else 2):
        next(iterator)

    def wait_thrice():
        for _ in range(3):
            try:
                next(iterator)
            except tf.errors.DeadlineExceededError as error:
                said.append("timed out after 0.3 s" in str(error))

    reader = threading.Thread(target=wait_thrice, daemon=True)
    reader.start()
    reader.join(60)
    assert said == [True, True, True]


@SIZES
def test_an_iterator_that_has_ended_keeps_no_connection(serve, monkeypatch, floats, batch):
    begun = []
    monkeypatch.setattr(_tensorflow, "_Sources", lambda *arguments: begun.append(_Sources(*arguments)) or begun[-1])
    made = dataset(numbered(serve, 10, floats).address, max_samples=10)
    iterator = iter(made if batch is None else made.batch(batch))
    next(iterator)
    assert sum(len(sources._running) for sources in begun) == 1
    assert len(list(iterator)) == (9 if batch is None else 2)
    assert sum(len(sources._running) for sources in begun) == 0


@SIZES
def test_it_runs_in_a_session_and_in_another_dataset(serve, floats, batch):
    address = numbered(serve, 48, floats).address

    def some(_=None):
        made = TrajectoryDataset(address, "replay", tf.float32, tf.TensorShape([floats]), 100, max_samples=12)
        return made if batch is None else made.batch(batch, drop_remainder=True)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        following, seen = tf.compat.v1.data.make_one_shot_iterator(some()).get_next(), []
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                seen.append(session.run(following))
    seen.extend(tf.data.Dataset.range(3).interleave(some, cycle_length=2, num_parallel_calls=2))
    numbers = [np.reshape(each.data, (-1, floats))[:, -1] for each in seen]
    assert sorted(np.concatenate(numbers)) == list(range(48))


@pytest.mark.parametrize(("alike", "text"), [(10, "look different"), (8, "Received incompatible tensor")])
def test_items_that_look_different_from_those_before_are_not_batched_with_them(serve, alike, text):
    address = sequences(serve, [2] * alike + [3], **FIFO)
    made = TrajectoryDataset(address, "replay", {"x": tf.int64}, {"x": tf.TensorShape([2])}, 20, rate_limiter_timeout_ms=50)
    batches = iter(made.batch(4))
    for _ in range(2):
        assert next(batches).data["x"].numpy().tolist() == [[0, 1]] * 4
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        next(batches)


@pytest.mark.parametrize("ahead", [1, 20])
def test_a_dataset_goes_on_after_items_that_do_not_fit(serve, ahead):
    address = sequences(serve, [2, 2, 3, 2, 3, 3, 2], **FIFO)
    shapes = {"x": tf.TensorShape([2])}
    made = TrajectoryDataset(address, "replay", {"x": tf.int64}, shapes, ahead, rate_limiter_timeout_ms=50).ignore_errors()
    assert [sample.data["x"].numpy().tolist() for sample in made] == [[0, 1]] * 4


@pytest.mark.parametrize("ahead", [1, 20])
@pytest.mark.parametrize("shape", [2, None])
@pytest.mark.parametrize("before", [0, 1, 8, 10])
def test_batches_go_on_after_an_item_that_does_not_fit(serve, before, shape, ahead):
    address = sequences(serve, [2] * before + [3] + [2] * 40, **FIFO)
    made = TrajectoryDataset(
        address, "replay", {"x": tf.int64}, {"x": tf.TensorShape([shape])}, ahead, rate_limiter_timeout_ms=50
    )
    batches = [batch.data["x"].numpy().tolist() for batch in made.batch(4).ignore_errors()]
    assert all(row == [0, 1] for batch in batches for row in batch)
    assert sum(len(batch) for batch in batches) > before + 40 - 2 * 4  # what was to be in a batch with it is left out


def test_each_item_that_does_not_fit_is_one_error(serve):
    address = sequences(serve, [2, 2, 3, 2, 3, 2], **FIFO)
    made = iter(TrajectoryDataset(address, "replay", {"x": tf.int64}, {"x": tf.TensorShape([2])}, 1, rate_limiter_timeout_ms=50))
    found = []
    while len(found) < 10:
        try:
            found.append(next(made).data["x"].shape[0])
        except StopIteration:
            break
        except tf.errors.InvalidArgumentError:
            found.append("error")
    assert found == [2, 2, "error", 2, "error", 2]


def test_steps_go_on_after_an_item_that_cannot_be_decomposed(serve):
    server = serve("127.0.0.1:0", **FIFO)
    with reverie.Client(server).trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append({"x": np.int64(i), "y": np.int64(i)})
        for rows in (2, 3, 2):
            writer.create_item("replay", 1.0, {"x": writer.history["x"][-rows:], "y": writer.history["y"][-2:]})
    sizes = {name: tf.TensorShape([]) for name in "xy"}
    made = TimestepDataset(server.address, "replay", {"x": tf.int64, "y": tf.int64}, sizes, 1, rate_limiter_timeout_ms=50)
    assert [int(step.data["x"]) for step in made.ignore_errors()] == [1, 2, 1, 2]


DTYPES_OF_ITEMS = [
    np.bool_,
    np.int8,
    np.uint16,
    np.int32,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
    np.complex128,
]


@pytest.mark.parametrize("batch", [None, 3])
def test_every_dtype_comes_as_it_was_inserted(serve, batch):
    rows = {np.dtype(dtype).name: np.arange(6).astype(dtype) for dtype in DTYPES_OF_ITEMS}
    rows["bfloat16"] = np.arange(6).astype(tf.bfloat16.as_numpy_dtype)
    signature = {name: reverie.TensorSpec((), column.dtype) for name, column in rows.items()}
    server = serve("127.0.0.1:0", signature=signature, **FIFO)
    reverie.Client(server).add_batch("replay", rows)
    made = dataset(server.address, max_samples=6)
    made = list(made if batch is None else made.batch(batch))
    for name, column in rows.items():
        tensors = [sample.data[name] for sample in made]
        assert {tensor.dtype for tensor in tensors} == {tf.as_dtype(column.dtype)}
        assert np.array_equal((tf.stack if batch is None else tf.concat)(tensors, 0).numpy(), column)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("kind", [TrajectoryDataset, TimestepDataset])
def test_a_column_without_elements_comes_with_the_others(serve, kind, batch, known):
    server = serve("127.0.0.1:0", **FIFO)
    with reverie.Client(server).trajectory_writer(num_keep_alive_refs=2) as writer:
        for i in range(5):
            writer.append({"empty": np.zeros((2, 0), np.float32), "x": np.int64(i)})
            if i > 0:
                writer.create_item("replay", 1.0, {name: column[-2:] for name, column in writer.history.items()})
    leading = [2] if kind is TrajectoryDataset else []
    shapes = {"empty": tf.TensorShape([*leading, 2, 0]), "x": tf.TensorShape(leading)}
    if not known:
        shapes = {name: tf.TensorShape([None] * shape.rank) for name, shape in shapes.items()}
    made = kind(server.address, "replay", {"empty": tf.float32, "x": tf.int64}, shapes, 10, max_samples=4)
    made = list(made if batch is None else made.batch(batch))
    rows = [0, 1, 1, 2, 2, 3, 3, 4]
    assert np.concatenate([np.ravel(sample.data["x"]) for sample in made]).tolist() == rows
    batched = [] if batch is None else [batch]
    assert {tuple(sample.data["empty"].shape) for sample in made} == {(*batched, *leading, 2, 0)}


@pytest.mark.parametrize("ahead", [1, 100])
@pytest.mark.parametrize("kind", [TrajectoryDataset, TimestepDataset])
def test_columns_with_and_without_elements_come_in_turn(serve, kind, ahead):
    widths = [3, 3, 2, 0, 0, 2, 0, 3, 3, 3]
    server = serve("127.0.0.1:0", **FIFO)
    for i, width in enumerate(widths):
        with reverie.Client(server).trajectory_writer(num_keep_alive_refs=1) as writer:
            writer.append({"x": np.full(width, i, np.float32), "i": np.int64(i)})
            writer.create_item("replay", 1.0, {name: column[-1:] for name, column in writer.history.items()})
    leading = [None] if kind is TrajectoryDataset else []
    shapes = {"x": tf.TensorShape([*leading, None]), "i": tf.TensorShape(leading)}
    made = kind(server.address, "replay", {"x": tf.float32, "i": tf.int64}, shapes, ahead, max_samples=len(widths))
    got = [(int(np.ravel(sample.data["i"])[0]), np.ravel(sample.data["x"]).tolist()) for sample in made]
    assert got == [(i, [i] * width) for i, width in enumerate(widths)]


@pytest.mark.parametrize("batch", [None, 2])
def test_strings_of_any_length_come_as_they_were_inserted(serve, batch):
    words = [b"", b"a", b"x" * 22, b"x" * 23, b"\0 in \xff between", b"long" * 10_000]
    server = serve("127.0.0.1:0", signature=reverie.TensorSpec((), str), **FIFO)
    for word in words:
        reverie.Client(server).add("replay", word)
    made = dataset(server.address, max_samples=6)
    made = list(made if batch is None else made.batch(batch))
    assert [word for sample in made for word in np.atleast_1d(sample.data.numpy())] == words


def test_tensors_outlive_the_iterator_and_the_server(serve):
    server = serve("127.0.0.1:0", signature=reverie.TensorSpec((100_000,), np.float32), **FIFO)
    reverie.Client(server).add_batch("replay", np.repeat(np.arange(12, dtype=np.float32)[:, None], 100_000, axis=1))
    made = dataset(server.address, max_samples=12).batch(2)
    batches = [batch.data for batch in made]
    del made
    server.stop()
    found = np.concatenate([batch.numpy() for batch in batches])
    assert np.array_equal(found, np.repeat(np.arange(12)[:, None], 100_000, axis=1))


def test_a_graph_that_names_no_iterator_of_this_process_says_so():
    attributes = {"dtypes": tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue())}
    of_another = tf.function(lambda: op("ReverieSamples", [tf.constant(1 << 40, tf.int64)], SampleInfo.dtypes(), attributes)[0])
    with pytest.raises(tf.errors.FailedPreconditionError, match="make a new one"):
        of_another()


@pytest.mark.parametrize(
    "follow", [lambda d: d, lambda d: d.batch(3), lambda d: d.batch(3).prefetch(1), lambda d: d.take(9).repeat(2)]
)
def test_an_eager_loop_and_a_graph_see_the_same_elements(serve, follow):
    server = serve(
        "127.0.0.1:0", signature={"b": (reverie.TensorSpec((), np.int64),), "a": reverie.TensorSpec((2,), np.float32)}, **FIFO
    )
    reverie.Client(server).add_batch("replay", {"b": (np.arange(30),), "a": np.zeros((30, 2), np.float32)})
    iterator = iter(follow(dataset(server.address, max_samples=30)))
    assert isinstance(iterator, tf.data.Iterator)

    @tf.function
    def in_graph(iterator):
        return next(iterator)

    for i, sample in enumerate([next(iterator), in_graph(iterator), next(iterator), in_graph(iterator)]):
        tf.nest.map_structure(lambda spec, leaf: spec.shape.assert_is_compatible_with(leaf.shape), iterator.element_spec, sample)
        assert list(sample.data) == list(iterator.element_spec.data)
        assert isinstance(sample.info, SampleInfo)
        expected = [i] if sample.data["b"][0].shape.rank == 0 else [3 * i, 3 * i + 1, 3 * i + 2]
        assert tf.reshape(sample.data["b"][0], [-1]).numpy().tolist() == expected


AS_REVERB = """
import reverie
reverie.install_as_reverb()
import reverb
signature = {"x": (reverie.TensorSpec([None, 2], "float32", "x"),), "y": reverie.TensorSpec([], str),
             "z": reverie.specs.BoundedTensorSpec([], "int64", 0, 9)}
table = reverb.Table.queue("queue", 10, signature=signature)
server = reverb.Server([table], port=None)
ours = table.info.signature
assert isinstance(ours["y"], reverie.TensorSpec), ours
import tensorflow as tf
for given in (table.info.signature, server.localhost_client().server_info()["queue"].signature):
    assert given["x"][0] == tf.TensorSpec([None, 2], tf.float32, "x"), given
    assert given["y"].dtype == tf.string and given["y"].shape.as_list() == [], given
    assert given["z"].maximum == 9 and isinstance(given["z"], tf.TensorSpec), given
    assert table.replace(signature=given).info.signature == given
    dtypes, shapes = (tf.nest.map_structure(lambda spec: getattr(spec, name), given) for name in ("dtype", "shape"))
    made = reverb.TrajectoryDataset(f"localhost:{server.port}", "queue", dtypes, shapes, 1)
    assert made.element_spec.data["x"][0] == tf.TensorSpec([None, 2], tf.float32)
assert reverb.TrajectoryDataset.from_table_signature(f"localhost:{server.port}", "queue", 1).element_spec == made.element_spec
pattern = reverb.structured.pattern_from_transform(given, lambda step: {"y": step["y"][-2:]})
config = reverb.structured.create_config(pattern, "queue")
assert reverb.structured.infer_signature([config], given) == {"y": tf.TensorSpec([2], tf.string, "y")}
server.stop()
"""


def test_code_that_was_written_for_reverb_gets_the_specs_of_tensorflow():
    subprocess.run([sys.executable, "-W", "ignore", "-c", AS_REVERB], check=True, timeout=120)


def test_exactly_max_samples_are_drawn(address):
    assert len(list(dataset(address, ahead=7, max_samples=25))) == 25
    assert reverie.Client(address).server_info()["replay"].rate_limiter_info.sample_stats.completed == 25


def test_order_is_kept_and_each_item_comes_once(serve):
    server = serve("127.0.0.1:0", signature=reverie.TensorSpec((), np.int64), **FIFO)
    reverie.Client(server).add_batch("replay", np.arange(100))
    got = dataset(server.address, ahead=9, rate_limiter_timeout_ms=50)
    assert [int(sample.data) for sample in got] == list(range(100))


def test_trajectories_of_different_lengths_follow_each_other(serve):
    address = sequences(serve, [3, 3, 1, 2, 2, 2], **FIFO)
    got = [sample.data["x"].numpy().tolist() for sample in dataset(address, rate_limiter_timeout_ms=50)]
    assert got == [[0, 1, 2], [0, 1, 2], [0], [0, 1], [0, 1], [0, 1]]


def test_different_lengths_are_batched_with_padding_by_tf(serve):
    address = sequences(serve, [3, 1], **FIFO)
    (batch,) = dataset(address, rate_limiter_timeout_ms=50).padded_batch(2)
    assert batch.data["x"].numpy().tolist() == [[0, 1, 2], [0, 0, 0]]


def test_steps_come_one_by_one(serve):
    address = sequences(serve, [3, 2], **FIFO)
    made = TimestepDataset(address, "replay", {"x": tf.int64}, {"x": tf.TensorShape([])}, 10, rate_limiter_timeout_ms=50)
    got = list(made)
    assert [int(step.data["x"]) for step in got] == [0, 1, 2, 0, 1]
    assert len({int(step.info.key) for step in got}) == 2


def squeezed(serve, length):
    """An item of `length` rows of x, and of one squeezed row of y."""
    server = serve("127.0.0.1:0")
    with reverie.Client(server).trajectory_writer(num_keep_alive_refs=2) as writer:
        for i in range(2):
            writer.append({"x": np.full(3, i, np.float32), "y": np.int64(i)})
        x = writer.history["x"][-1] if length is None else writer.history["x"][-length:]
        writer.create_item("replay", 1.0, {"x": x, "y": writer.history["y"][-1]})
    return server.address


@pytest.mark.parametrize("length", [None, 1])
def test_a_squeezed_item_is_one_step(serve, length):
    address = squeezed(serve, length)
    made = TimestepDataset(address, "replay", [tf.float32, tf.int64], [tf.TensorShape([3]), tf.TensorShape([])], 1, max_samples=2)
    for step in (*made, TFClient(address).sample("replay", [tf.float32, tf.int64])):
        assert [leaf.numpy().tolist() for leaf in step.data] == [[1, 1, 1], 1]
        assert int(step.info.table_size) == 1


def test_items_without_steps_are_not_decomposed(serve):
    address = squeezed(serve, 2)
    made = TimestepDataset(address, "replay", [tf.float32, tf.int64], [tf.TensorShape([3]), tf.TensorShape([])], 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="decomposed"):
        next(iter(made))
    with pytest.raises(tf.errors.InvalidArgumentError, match="decomposed"):
        TFClient(address).sample("replay", [tf.float32, tf.int64])


def test_the_sequence_ends_when_the_limiter_lets_nothing_through(address):
    reverie.Client(address).reset("replay")
    assert list(dataset(address, rate_limiter_timeout_ms=50)) == []
    assert list(dataset(address, rate_limiter_timeout_ms=50).batch(4)) == []


def test_what_comes_late_is_waited_for(address):
    client = reverie.Client(address)
    client.reset("replay")
    got = []
    reader = threading.Thread(target=lambda: got.extend(dataset(address, max_samples=2)))
    reader.start()
    client.add("replay", {"obs": np.zeros((3, 2), np.float32), "action": np.int64(7), "name": "late"})
    reader.join(120)
    assert [int(sample.data["action"]) for sample in got] == [7, 7]


def test_an_iterator_that_waits_can_be_dropped(address):
    reverie.Client(address).reset("replay")
    for made in (dataset(address).prefetch(1), dataset(address).batch(4).prefetch(2)):
        iterator = iter(made)
        del iterator  # its prefetching thread waits for samples


def test_an_iterator_that_waits_with_half_a_batch_can_be_dropped(serve):
    server = numbered(serve, 10, 30_000)
    iterator = iter(dataset(server.address).batch(4).prefetch(2))
    for _ in range(2):
        next(iterator)
    del iterator


def test_an_iterator_that_waits_for_a_server_can_be_dropped():
    made = TrajectoryDataset("127.0.0.1:1", "replay", tf.int64, tf.TensorShape([]), 4)
    for piped in (made.prefetch(1), tf.data.Dataset.range(2).interleave(lambda _: made, num_parallel_calls=2).prefetch(2)):
        iterator = iter(piped)
        del iterator  # its prefetching thread waits for a server


def test_several_iterators_may_be_interleaved(address):
    made = tf.data.Dataset.range(2).interleave(
        lambda _: TrajectoryDataset(
            address,
            "replay",
            (tf.int64, tf.string, tf.float32),
            (tf.TensorShape([]), tf.TensorShape([]), tf.TensorShape([3, 2])),
            4,
        ),
        cycle_length=2,
        num_parallel_calls=2,
    )
    assert len(list(made.take(40))) == 40


def test_autograph_leaves_datasets_alone(address, monkeypatch):
    warned = []
    monkeypatch.setattr(tf.get_logger(), "handle", warned.append)
    made = tf.data.Dataset.range(2).interleave(lambda _: dataset(address).batch(4, drop_remainder=True))
    assert next(iter(made)).data["obs"].shape == (4, 3, 2)
    assert [record.getMessage() for record in warned] == []


def test_it_runs_inside_a_function(address):
    made = dataset(address).batch(8)

    @tf.function
    def total():
        result = tf.constant(0.0)
        for batch in made.take(3):
            result += tf.reduce_sum(batch.data["obs"]) / 6 - tf.reduce_sum(tf.cast(batch.data["action"], tf.float32))
        return result

    assert float(total()) == pytest.approx(0, abs=1e-2)


@pytest.mark.parametrize(
    ("dtypes", "shapes", "text"),
    [
        ([tf.int64], [[]], "Inconsistent number"),
        ([tf.int32, tf.string, tf.float32], [[], [], [3, 2]], "incompatible tensor"),
        ([tf.int64, tf.string, tf.float32], [[], [], [3, 4]], "incompatible tensor"),
    ],
)
def test_other_columns_than_the_dataset_was_made_for_are_refused(address, dtypes, shapes, text):
    made = TrajectoryDataset(address, "replay", dtypes, [tf.TensorShape(shape) for shape in shapes], 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        next(iter(made))


@pytest.mark.parametrize("made", [TrajectoryDataset, TimestepDataset])
@pytest.mark.parametrize(
    ("dtypes", "shapes"),
    [([tf.int64], [[]]), ([tf.int32] * 2, [[], []]), ([tf.int64] * 2, [[], [5]])],
    ids=["count", "dtype", "shape"],
)
@pytest.mark.parametrize("behind", [lambda made: made, lambda made: made.batch(2).prefetch(1)], ids=["alone", "batches"])
def test_what_cannot_fit_the_signature_is_refused_before_an_item_is_asked_for(serve, made, dtypes, shapes, behind):
    signature = [reverie.TensorSpec((), np.int64), reverie.TensorSpec((3,), np.int64)]
    server = serve("127.0.0.1:0", signature=signature, rate_limiter=reverie.rate_limiters.Queue(10), **FIFO)
    wrong = behind(made(server.address, "replay", dtypes, [tf.TensorShape(shape) for shape in shapes], 1))
    for items in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Inconsistent number|Requested incompatible tensor"):
            next(iter(wrong))
        assert reverie.Client(server).server_info()["replay"].current_size == items
        reverie.Client(server).add("replay", [1, np.arange(3)])


def test_what_may_fit_the_signature_is_waited_for(serve):
    server = serve("127.0.0.1:0", signature=reverie.TensorSpec((3,), np.int64))
    steps = TimestepDataset(server.address, "replay", tf.int64, tf.TensorShape([3]), 1, timeout=60)
    items = TrajectoryDataset(server.address, "replay", tf.int64, tf.TensorShape([None, 3]), 1, timeout=60)
    reverie.Client(server).insert(np.arange(3), {"replay": 1.0})  # an item of one step, which the signature of a step takes
    assert next(iter(steps)).data.numpy().tolist() == [0, 1, 2]
    assert next(iter(items)).data.numpy().tolist() == [[0, 1, 2]]


def test_an_unknown_table_is_named(address):
    with pytest.raises(ValueError, match='does not contain any table named "nowhere"'):
        TrajectoryDataset.from_table_signature(address, "nowhere", 1)
    with pytest.raises(tf.errors.NotFoundError, match='"nowhere"'):
        next(iter(TrajectoryDataset(address, "nowhere", tf.int64, tf.TensorShape([]), 1)))


def test_a_table_without_a_signature_says_so(serve):
    with pytest.raises(ValueError, match="does not have a signature"):
        dataset(serve("127.0.0.1:0").address)


def test_a_server_that_is_not_there_is_not_waited_for_longer_than_told():
    with pytest.raises(reverie.DeadlineExceededError):
        TrajectoryDataset.from_table_signature("localhost:1", "replay", 1, get_signature_timeout_secs=1)


def test_the_signature_is_waited_for_no_longer_than_an_item():
    for dataset in (TrajectoryDataset, TimestepDataset):
        with pytest.raises(reverie.errors.DeadlineExceededError, match="localhost:1"):
            dataset.from_table_signature("localhost:1", "replay", 1, timeout=0.3)


def test_a_dataset_of_steps_that_was_given_shapes_of_whole_items_says_so(serve):
    server = serve("127.0.0.1:0", signature={"x": reverie.TensorSpec((None, 2), np.float32)})
    with reverie.Client(server).trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append({"x": np.full(2, i, np.float32)})
        writer.create_item("replay", 1.0, {"x": writer.history["x"][-3:]})
    address = f"localhost:{server.port}"
    with pytest.raises(tf.errors.InvalidArgumentError, match="steps have no time dimension: give their shapes without it"):
        next(iter(TimestepDataset.from_table_signature(address, "replay", 1)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtypes": (tf.int64, tf.int64)},
        {"shapes": (3,)},
        {"max_in_flight_samples_per_worker": 0},
        {"num_workers_per_iterator": 0},
        {"max_samples_per_stream": -2},
        {"max_samples": 0},
        {"rate_limiter_timeout_ms": -2},
    ],
)
def test_a_wrong_argument_is_refused_at_once(wrong):
    given = {"dtypes": tf.int64, "shapes": tf.TensorShape([]), "max_in_flight_samples_per_worker": 1, **wrong}
    with pytest.raises(ValueError):
        TrajectoryDataset("localhost:1", "replay", **given)
