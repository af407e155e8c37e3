"""Checkpoints both ways: dm-reverb's server begins with ours, Reverie's with theirs, and nothing is lost on the way there and back."""

from __future__ import annotations

import pathlib
import shutil

import ml_dtypes
import numpy as np
import pytest
import reverie
from peer import Peer, run
from reverie.checkpointers import DefaultCheckpointer

DTYPES = [
    np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64,
    np.complex64, np.complex128, ml_dtypes.bfloat16,
]  # fmt: skip


def column(dtype, n, shape=(2,)):
    """n rows that differ, with the extremes of integers."""
    values = np.arange(n * int(np.prod(shape))).reshape(n, *shape)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        values = values % (int(info.max) // 2)
        out = values.astype(dtype)
        out.flat[0], out.flat[-1] = info.min, info.max
        return out
    if np.dtype(dtype).kind == "b":
        return values % 3 == 0
    if np.dtype(dtype).kind == "c":
        return (values - 1.5j * values).astype(dtype)
    return (values / 4 - 3).astype(dtype)


def tables():
    prioritized = reverie.Table(
        "prioritized", reverie.selectors.Prioritized(0.7), reverie.selectors.MinHeap(), 500,
        reverie.rate_limiters.SampleToInsertRatio(3.0, 5, 1000.0),
    )  # fmt: skip
    dtypes = reverie.Table("dtypes", reverie.selectors.Fifo(), reverie.selectors.Lifo(), 100, reverie.rate_limiters.MinSize(1))
    signature = {"obs": reverie.TensorSpec([None, 3], np.float32), "text": reverie.TensorSpec([], np.str_)}
    shared = reverie.Table(
        "shared", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 40, reverie.rate_limiters.MinSize(1), signature=signature
    )
    return [prioritized, dtypes, shared, reverie.Table.queue("queue", 10)]


THEIR_TABLES = """
import reverb
from reverb import rate_limiters, selectors
def tables():
    return [reverb.Table(name, selectors.Uniform(), selectors.Fifo(), 1000, rate_limiters.MinSize(1))
            for name in ["prioritized", "dtypes", "shared", "queue"]]
def info(server):
    found = reverb.Client(f"localhost:{server.port}").server_info()
    return {name: {"size": t.current_size, "max_size": t.max_size, "times": t.max_times_sampled,
                   "inserts": t.rate_limiter_info.insert_stats.completed, "samples": t.rate_limiter_info.sample_stats.completed,
                   "min_size": t.rate_limiter_info.min_size_to_sample, "min_diff": t.rate_limiter_info.min_diff,
                   "max_diff": t.rate_limiter_info.max_diff, "ratio": t.rate_limiter_info.samples_per_insert,
                   "unique": t.num_unique_samples, "exponent": t.sampler_options.prioritized.priority_exponent,
                   "deleted_episodes": t.num_deleted_episodes}
            for name, t in found.items()}
"""


def our_info(client):
    return {
        name: {
            "size": t.current_size,
            "max_size": t.max_size,
            "times": t.max_times_sampled,
            "inserts": t.rate_limiter_info.insert_stats.completed,
            "samples": t.rate_limiter_info.sample_stats.completed,
            "min_size": t.rate_limiter_info.min_size_to_sample,
            "min_diff": t.rate_limiter_info.min_diff,
            "max_diff": t.rate_limiter_info.max_diff,
            "ratio": t.rate_limiter_info.samples_per_insert,
            "unique": t.num_unique_samples,
            "exponent": t.sampler_options.prioritized.priority_exponent,
            "deleted_episodes": t.num_deleted_episodes,
        }
        for name, t in client.server_info().items()
    }


def fill(server):
    """Rows of this process, trajectories of several columns over the network, one item in two tables, updates and deletes."""
    local, remote = reverie.Client(server), reverie.Client(server.address)
    for client in (local, remote):
        client.add_batch(
            "prioritized", {"x": np.arange(30, dtype=np.float32), "y": np.ones((30, 4), np.uint8)}, np.arange(30) / 3
        )
    everything = {np.dtype(dtype).name: column(dtype, 12) for dtype in DTYPES}
    everything["text"] = np.array([b"", b"row", b"\x00\xff"] * 4, object)
    local.add_batch("dtypes", everything)
    remote.add_batch("dtypes", everything)
    with remote.trajectory_writer(num_keep_alive_refs=6) as writer:
        for step in range(9):
            writer.append({"obs": np.full(3, step, np.float32), "text": f"step {step}", "count": np.int64(step)})
            if step >= 4:
                trajectory = {"obs": writer.history["obs"][-4:], "text": writer.history["text"][-1]}
                for name in ("shared", "queue"):
                    writer.create_item(name, 1.0 + step, trajectory)
        writer.flush()
    local.sample_batch("prioritized", 20)
    list(remote.sample("dtypes", 3, emit_timesteps=False))
    keys = [item.key for item in local.items("prioritized")]
    local.update_priorities("prioritized", keys[::3], np.linspace(0, 9, len(keys[::3])))
    local.mutate_priorities("prioritized", deletes=keys[1::7])


def contents(server):
    """All that a checkpoint must bring back, table by table."""
    client = reverie.Client(server)
    found = {}
    for name in client.server_info():
        found[name] = [
            (item.key, item.priority, item.times_sampled, item.inserted_at, client.get(name, item.key))
            for item in client.items(name)
        ]
    return found


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert [x[:4] for x in a[name]] == [y[:4] for y in b[name]], name
        for x, y in zip(a[name], b[name], strict=True):
            left, right = reverie.nest.flatten(x[4].data), reverie.nest.flatten(y[4].data)
            assert len(left) == len(right)
            for p, q in zip(left, right, strict=True):
                assert np.asarray(p).dtype == np.asarray(q).dtype
                np.testing.assert_array_equal(p, q)


def in_their_order(found):
    """They save by time of insertion; rows of one batch have the same, and come in any order then."""
    return {name: sorted(items, key=lambda item: (item[3], item[0])) for name, items in found.items()}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.mark.parametrize("incremental", [False, True])
def test_ours_goes_to_their_server_and_comes_back_equal(root, tmp_path, incremental):
    checkpointer = DefaultCheckpointer(root, incremental=incremental)
    with reverie.Server(tables(), address="localhost:0", checkpointer=checkpointer) as server:
        if incremental:
            reverie.Client(server).add_batch("prioritized", {"x": np.ones(5, np.float32), "y": np.ones((5, 4), np.uint8)})
            reverie.Client(server).checkpoint()
        fill(server)
        before, info = contents(server), our_info(reverie.Client(server))
        path = pathlib.Path(reverie.Client(server.address).checkpoint())
    assert path.parent == root
    theirs = tmp_path / "theirs"
    if incremental:
        assert len(list(path.glob("chunks-*"))) == 2
        reverie.checkpointers.export(path, theirs)
    else:
        shutil.copytree(root, theirs)
    answer = run(
        THEIR_TABLES
        + """
checkpointer = reverb.checkpointers.DefaultCheckpointer(sys.argv[1])
server = reverb.Server(tables(), checkpointer=checkpointer)
client = reverb.Client(f"localhost:{server.port}")
before = info(server)
path = client.checkpoint()
sample = next(client.sample("shared", 1, emit_timesteps=False))
answer([before, path, [[str(column.dtype), list(np.shape(column))] for column in sample.data]])
""",
        str(theirs),
    )
    their_info, their_path, first = answer
    assert their_info == info
    assert first == [["float32", [4, 3]], ["object", []]]
    assert pathlib.Path(their_path).parent == theirs
    with reverie.Server(tables(), in_process=True, checkpointer=DefaultCheckpointer(theirs)) as back:
        same(in_their_order(contents(back)), in_their_order(before))
        assert our_info(reverie.Client(back)) == info


THEIRS = (
    THEIR_TABLES
    + """
import tensorflow as tf
signature = {"obs": tf.TensorSpec([None, 3], tf.float32)}
tables = [
    reverb.Table("prioritized", selectors.Prioritized(0.7), selectors.MinHeap(), 500,
                 rate_limiters.SampleToInsertRatio(3.0, 5, 1000.0)),
    reverb.Table("dtypes", selectors.Fifo(), selectors.Lifo(), 100, rate_limiters.MinSize(1)),
    reverb.Table("shared", selectors.Uniform(), selectors.Fifo(), 5, rate_limiters.MinSize(1), signature=signature),
    reverb.Table.queue("queue", 10),
]
server = reverb.Server(tables, checkpointer=reverb.checkpointers.DefaultCheckpointer(sys.argv[1]))
client = reverb.Client(f"localhost:{server.port}")
dtypes = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32,
          np.float64, np.complex64, np.complex128]  # their Python takes no bfloat16
with client.trajectory_writer(num_keep_alive_refs=8) as writer:
    for step in range(12):
        writer.append([np.asarray(step % 2 if d is np.bool_ else step, d) for d in dtypes] + [np.asarray(f"row {step}", object)])
        if step >= 3:
            writer.create_item("dtypes", 0.5 + step, [column[-4:] for column in writer.history])
    writer.flush()
with client.trajectory_writer(num_keep_alive_refs=8) as writer:
    for step in range(9):
        writer.append({"obs": np.full(3, step, np.float32), "count": np.int64(step)})
        if step >= 1:
            writer.create_item("shared", 1.0 + step, {"obs": writer.history["obs"][-2:]})
            writer.create_item("prioritized", step / 3.0, {"obs": writer.history["obs"][-2:], "count": writer.history["count"][-1]})
    writer.flush()
for value in range(4):
    client.insert([np.float32(value)], {"queue": 1.0})
for _ in range(10_000):  # their server ends a writer's stream before its last item is in
    if client.server_info()["queue"].current_size == 4:
        break
list(client.sample("dtypes", 6, emit_timesteps=False))
keys = [sample.info.key for sample in client.sample("prioritized", 30, emit_timesteps=False)]
client.mutate_priorities("prioritized", updates={keys[0]: 8.25})
path = client.checkpoint()
answer([info(server), path, keys[0]])
"""
)


def test_theirs_goes_to_our_server_with_everything(root):
    their_info, path, updated = run(THEIRS, str(root))
    assert pathlib.Path(path).parent == root
    with reverie.Server(tables(), in_process=True, checkpointer=DefaultCheckpointer(root)) as server:
        client = reverie.Client(server)
        assert our_info(client) == their_info
        items = contents(server)
        assert [item[1] for item in items["dtypes"]] == [0.5 + step for step in range(3, 12)]
        assert [item[2] for item in items["dtypes"]] == [6] + [0] * 8
        for step, item in enumerate(items["dtypes"], 3):
            columns = reverie.nest.flatten(item[4].data)
            for dtype, values in zip(DTYPES[:-1], columns[:-1], strict=True):
                expected = np.arange(step - 3, step + 1)
                expected = (expected % 2 if dtype is np.bool_ else expected).astype(dtype)
                assert np.asarray(values).dtype == expected.dtype
                np.testing.assert_array_equal(values, expected)
            assert [bytes(text) if isinstance(text, bytes) else str(text).encode() for text in columns[-1]] == [
                b"row %d" % row for row in range(step - 3, step + 1)
            ]
        assert [item[1] for item in items["shared"]] == [1.0 + step for step in range(4, 9)]  # the oldest had gone
        assert sum(item[2] for item in items["prioritized"]) == 30
        assert {item[0]: item[1] for item in items["prioritized"]}[updated] == 8.25
        assert [float(np.ravel(reverie.nest.flatten(item[4].data)[0])[0]) for item in items["queue"]] == [0, 1, 2, 3]
        again = client.checkpoint()
    with reverie.Server(tables(), in_process=True, checkpointer=DefaultCheckpointer(root)) as server:
        same(contents(server), items)
    assert pathlib.Path(path).is_dir(), "what they wrote is theirs to remove"
    assert pathlib.Path(again).is_dir()


def test_their_client_asks_our_server_for_a_checkpoint(root):
    with reverie.Server(tables(), address="localhost:0", checkpointer=DefaultCheckpointer(root)) as server:
        fill(server)
        path = run("answer(reverb.Client(sys.argv[1]).checkpoint())", server.address)
        before = contents(server)
    assert pathlib.Path(path).parent == root
    with reverie.Server(tables(), in_process=True, checkpointer=DefaultCheckpointer(root)) as server:
        same(contents(server), before)


def test_a_half_written_one_of_ours_is_no_checkpoint_to_their_server(root):
    with reverie.Server(tables(), address="localhost:0", checkpointer=DefaultCheckpointer(root)) as server:
        fill(server)
        path = pathlib.Path(reverie.Client(server).checkpoint())
    half = root / ".reverie-0123456789abcdef"
    shutil.copytree(path, half)
    with Peer(
        THEIR_TABLES
        + """
server = reverb.Server(tables(), checkpointer=reverb.checkpointers.DefaultCheckpointer(sys.argv[1]))
answer(info(server)["prioritized"]["size"])
""",
        str(root),
    ) as peer:
        assert peer.receive() > 0
