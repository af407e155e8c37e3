"""Reverie's client with dm-reverb's server: a smoke test of the whole path."""

from __future__ import annotations

import numpy as np
import pytest
import reverie
from peer import Peer

_SERVER = """
import tensorflow as tf
server = reverb.Server([
    reverb.Table("replay", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(1),
                 signature={"action": tf.TensorSpec([], tf.int64), "obs": tf.TensorSpec([3, 2], tf.float32)}),
    reverb.Table("prioritized", reverb.selectors.Prioritized(1.0), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(1)),
    reverb.Table.queue("queue", 10),
])
answer(server.port)
sys.stdin.read()
server.stop()
"""


@pytest.fixture(scope="module")
def address():
    with Peer(_SERVER) as peer:
        yield f"127.0.0.1:{peer.receive()}"


def test_trajectories_written_to_their_server_are_read_back(address):
    client = reverie.Client(address)
    writer = client.trajectory_writer(num_keep_alive_refs=3)
    for step in range(5):
        writer.append({"obs": np.full(2, step, np.float32), "action": np.int64(step)})
        if step >= 2:
            writer.create_item("replay", 1.5, {"obs": writer.history["obs"][-3:], "action": writer.history["action"][-1]})
    writer.flush(timeout_ms=60_000)
    sample = next(client.sample("replay", 1, emit_timesteps=False, unpack_as_table_signature=True))
    np.testing.assert_array_equal(sample.data["obs"], [[0, 0], [1, 1], [2, 2]])
    assert (int(sample.data["action"]), sample.info.priority) == (2, 1.5)
    assert client.server_info(timeout=60)["replay"].current_size == 3


def test_rows_batches_and_priorities_work_with_their_server(address):
    client = reverie.Client(address)
    added = client.add_batch("prioritized", {"x": np.arange(6, dtype=np.float32), "name": np.array([b"a", b"b"] * 3, object)})
    assert added == 6 or len(added) == 6
    batch = client.sample_batch("prioritized", 4)
    assert len(batch.keys) == 4
    client.update_priorities("prioritized", batch.keys, np.full(4, 2.0))
    client.reset("prioritized")
    assert client.server_info(timeout=60)["prioritized"].current_size == 0


def test_without_a_signature_their_samples_are_lists(address):
    client = reverie.Client(address)
    client.add("prioritized", {"x": np.float32(1), "y": np.float32(2)})
    assert client.sample_batch("prioritized", 1).data == [[1], [2]]
    client.reset("prioritized")


def test_a_batch_larger_than_their_queue_comes_back_short(address):
    client = reverie.Client(address)
    for value in range(3):
        client.insert([np.float32(value)], {"queue": 1.0})
    batch = client.sample_batch("queue", 8, timeout=5.0)
    assert len(batch.keys) <= 3


def test_what_their_server_lacks_is_said(address):
    client = reverie.Client(address)
    with pytest.raises(NotImplementedError, match="not a Reverie server"):
        list(client.items("replay"))
