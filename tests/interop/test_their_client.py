"""dm-reverb's client with Reverie's server: a smoke test of the whole path (the full matrix is a later tier)."""

from __future__ import annotations

import numpy as np
import pytest
import reverie
from peer import run


@pytest.fixture
def server():
    tables = [
        reverie.Table(
            name="replay",
            sampler=reverie.selectors.Fifo(),
            remover=reverie.selectors.Fifo(),
            max_size=100,
            rate_limiter=reverie.rate_limiters.MinSize(1),
            signature={"obs": reverie.TensorSpec((3, 2), np.float32), "action": reverie.TensorSpec((), np.int64)},
        ),
        reverie.Table.queue("queue", 10),
        reverie.Table(
            name="prioritized",
            sampler=reverie.selectors.Prioritized(1.0),
            remover=reverie.selectors.Fifo(),
            max_size=100,
            rate_limiter=reverie.rate_limiters.MinSize(1),
        ),
    ]
    with reverie.Server(tables, address="127.0.0.1:0") as server:
        yield server


def test_trajectories_written_by_their_client_are_read_back_by_it_and_by_ours(server):
    theirs = run(
        """
        client = reverb.Client(sys.argv[1])
        with client.trajectory_writer(num_keep_alive_refs=3) as writer:
            for step in range(5):
                writer.append({"obs": np.full(2, step, np.float32), "action": np.int64(step)})
                if step >= 2:
                    writer.create_item("replay", 1.5, {"obs": writer.history["obs"][-3:], "action": writer.history["action"][-1]})
            writer.flush()
        samples = list(client.sample("replay", 3, emit_timesteps=False, unpack_as_table_signature=True))
        answer([[s.data["obs"].tolist(), int(s.data["action"]), s.info.priority] for s in samples])
        """,
        f"127.0.0.1:{server.port}",
    )
    expected = [[[[float(row)] * 2 for row in range(last - 2, last + 1)], last, 1.5] for last in (2, 3, 4)]
    # A sampler asks for one sample ahead; the first item of a Fifo table is always the same.
    assert theirs == [expected[0]] * 3
    batch = reverie.Client(f"127.0.0.1:{server.port}").sample_batch("replay", 2)
    np.testing.assert_array_equal(batch.data["obs"], [expected[0][0]] * 2)
    np.testing.assert_array_equal(batch.data["action"], [2, 2])


def test_their_insert_mutate_info_and_reset_work(server):
    answer = run(
        """
        client = reverb.Client(sys.argv[1])
        client.insert([np.arange(4, dtype=np.uint8), b"text"], {"prioritized": 1.0})
        client.insert([np.arange(4, dtype=np.uint8) + 4, b"more"], {"prioritized": 0.0})
        first = next(client.sample("prioritized", 1, emit_timesteps=False))
        client.mutate_priorities("prioritized", updates={first.info.key: 0.0, 12345: 1.0})
        before = client.server_info()["prioritized"]
        signature = client.server_info()["replay"].signature
        client.reset("prioritized")
        after = client.server_info()["prioritized"].current_size
        try:
            client.mutate_priorities("nothing", updates={1: 1.0})
            unknown = "no error"
        except RuntimeError as error:
            unknown = str(error)
        answer([
            [column.tolist() if column.dtype != object else [value.decode() for value in column.ravel()] for column in first.data],
            first.info.probability, before.current_size, before.rate_limiter_info.insert_stats.completed, after, unknown,
            sorted(signature), str(signature["obs"].dtype.name), list(signature["obs"].shape),
        ])
        """,
        f"127.0.0.1:{server.port}",
    )
    data, probability, size, inserts, after, unknown, names, dtype, shape = answer
    assert data == [[[0, 1, 2, 3]], ["text"]]
    assert (probability, size, inserts, after) == (1.0, 2, 2, 0)
    assert "was not found" in unknown
    assert (names, dtype, shape) == (["action", "obs"], "float32", [3, 2])


def test_their_legacy_writer_and_queue_work(server):
    answer = run(
        """
        client = reverb.Client(sys.argv[1])
        with client.writer(max_sequence_length=2, delta_encoded=True) as writer:
            for step in range(4):
                writer.append([np.full((3, 3), step * 100, np.int32)])
                if step >= 1:
                    writer.create_item("queue", num_timesteps=2, priority=1.0)
        samples = list(client.sample("queue", 3, emit_timesteps=False))
        answer([[s.data[0][:, 0, 0].tolist() for s in samples], client.server_info()["queue"].current_size])
        """,
        f"127.0.0.1:{server.port}",
    )
    assert answer == [[[0, 100], [100, 200], [200, 300]], 0]


def test_their_dataset_ends_at_the_rate_limiters_timeout(server):
    answer = run(
        """
        client = reverb.Client(sys.argv[1])
        for value in range(3):
            client.insert([np.float32(value)], {"queue": 1.0})
        import tensorflow as tf
        dataset = reverb.TrajectoryDataset(
            server_address=sys.argv[1], table="queue", dtypes=[np.dtype(np.float32)], shapes=[tf.TensorShape([1])],
            max_in_flight_samples_per_worker=10, rate_limiter_timeout_ms=200,
        )
        answer([float(sample.data[0][0]) for sample in dataset])
        """,
        f"127.0.0.1:{server.port}",
    )
    assert answer == [0.0, 1.0, 2.0]


def test_their_client_reads_rows_that_were_moved_out_of_its_chunks():
    table = reverie.Table(
        name="t",
        sampler=reverie.selectors.Fifo(),
        remover=reverie.selectors.Fifo(),
        max_size=5000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        max_times_sampled=1,
    )
    with reverie.Server([table], address="127.0.0.1:0") as server:
        address = f"127.0.0.1:{server.port}"
        run(
            """
            client = reverb.Client(sys.argv[1])
            with client.writer(max_sequence_length=40, chunk_length=40, delta_encoded=True) as writer:
                for step in range(2000):
                    writer.append([(np.arange(500) * 7919 + step * 104729).astype(np.int32), np.int64(step)])
                    if step >= 1:
                        writer.create_item("t", 2, float(step))
            answer(None)
            """,
            address,
        )
        ours = reverie.Client(address)
        assert ours.server_info()["t"].current_size == 1999
        keys = [int(key) for key in ours.keys("t")]
        ours.mutate_priorities("t", deletes=[key for i, key in enumerate(keys) if i % 20 != 7])
        for _ in range(100):
            memory = ours.server_info()["t"].memory_bytes
        assert memory < 2000 * 2000 / 3
        code = """
            client = reverb.Client(sys.argv[1])
            answer([[s.data[0][0].tolist(), s.data[1][0].tolist(), s.data[0][1].tolist(), s.data[1][1].tolist(), s.info.priority]
                    for s in client.sample("t", 50, emit_timesteps=False)])
            """
        theirs = run(code, address)
        assert [priority for *_, priority in theirs] == [float(i + 1) for i in range(7, 1000, 20)]
        for first, step, second, next_step, priority in theirs:
            assert (step, next_step) == (priority - 1, priority)
            assert first == (np.arange(500) * 7919 + step * 104729).astype(np.int32).tolist()
            assert second == (np.arange(500) * 7919 + next_step * 104729).astype(np.int32).tolist()


def test_their_timestep_dataset_takes_items_apart_before_and_after_a_restart(tmp_path):
    """Both columns are of one, a step apart: a checkpoint has their rows in pieces, which no item shows."""

    def serve():
        table = reverie.Table("t", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 200, reverie.rate_limiters.MinSize(1))
        saved = reverie.checkpointers.DefaultCheckpointer(str(tmp_path))
        return reverie.Server([table], address="127.0.0.1:0", checkpointer=saved)

    write = """
        client = reverb.Client(sys.argv[1])
        with client.trajectory_writer(num_keep_alive_refs=5, validate_items=False) as writer:
            for step in range(460):
                writer.append({"obs": np.full(2, step, np.float32)})
                if step == 0:
                    writer.configure(("obs",), num_keep_alive_refs=5, max_chunk_length=1)
                if step >= 4:
                    obs = writer.history["obs"]
                    writer.create_item("t", 1.0, {"next_obs": obs[-4:], "obs": obs[-5:-1]})
                    writer.flush()
        answer(None)
        """
    read = """
        import tensorflow as tf
        dataset = reverb.TimestepDataset(
            server_address=sys.argv[1], table="t", dtypes={"obs": np.float32, "next_obs": np.float32},
            shapes={"obs": tf.TensorShape([2]), "next_obs": tf.TensorShape([2])}, max_in_flight_samples_per_worker=10,
            rate_limiter_timeout_ms=500,
        )
        answer([[float(step.data["obs"][0]), float(step.data["next_obs"][0])] for step in dataset.take(100)])
        """
    expected = [[float(step), float(step + 1)] for step in range(256, 260)] * 25  # of the oldest item again and again
    with serve() as server:
        run(write, server.address)
        reverie.Client(server.address).checkpoint()
        assert run(read, server.address) == expected
    with serve() as server:
        assert run(read, server.address) == expected
