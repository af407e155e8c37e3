"""Checkpoints: saved by one server, loaded by another."""

from __future__ import annotations

import os

import numpy as np
from matrix_bulk import drain
from matrix_info import table_info
from matrix_tables import everything, keys_by_value, table
from matrix_tensorflow import tensorflow
from matrix_values import DTYPES, sample, structure, values


class Checkpoint:
    """Saved by one server and read by another: items, order, priorities, counters, limiters, signatures, and what comes afterwards."""

    name = "checkpoint"
    steps = ("write", "read")
    servers = 2
    cells = [({"what": what}, True) for what in ("everything", "dtypes", "empty")]

    @staticmethod
    def tables(module, what):
        tf = tensorflow()
        signature = {"x": tf.TensorSpec([None, 2], tf.float32), "y": tf.TensorSpec([], tf.int64)}
        limiter = module.rate_limiters.SampleToInsertRatio(2.0, 2, 1e5)
        return [
            table(module, "signed", "Lifo", "MinHeap", 5, signature=signature),
            table(module, "t", "Prioritized(0.5)", "Lifo", 40, limiter, max_times_sampled=1000),
            module.Table.queue("queue", 50),
            module.Table.stack("stack", 50),
        ]

    @staticmethod
    def write(module, client, what):
        if what == "everything":
            with client.trajectory_writer(num_keep_alive_refs=3) as writer:
                for step in range(9):
                    writer.append({"x": np.full(2, step, np.float32), "y": np.int64(step)})
                    trajectory = {"x": writer.history["x"][-min(step + 1, 3) :], "y": writer.history["y"][-1]}
                    for name in ("signed", "queue", "stack"):
                        writer.create_item(name, (step * 5) % 9, trajectory)
            for value in range(6):
                client.insert([np.int64(value)], {"t": 1.0 + value})
            keys = keys_by_value(client)
            client.mutate_priorities("t", {keys[1]: 0.5}, [keys[2]])
            list(client.sample("queue", 2, emit_timesteps=False))
        elif what == "dtypes":
            with client.writer(4, delta_encoded=True, chunk_length=3) as writer:
                for step in range(7):
                    writer.append([values(dtype, (2, 2), 100 * i + step) for i, dtype in enumerate(DTYPES)])
                    if step >= 3:
                        writer.create_item("queue", 4, step)
        path = client.checkpoint()
        files = sorted(name for name in os.listdir(path) if name.endswith(".tfrecord") or name == "DONE")
        return [files, Checkpoint.counters(client)]

    @staticmethod
    def counters(client):
        found = client.server_info()
        return {name: [table_info(found[name]), structure(found[name].signature)] for name in sorted(found)}

    @staticmethod
    def read(module, client, what):
        out = [Checkpoint.counters(client)]
        if what == "everything":
            out.append(everything(client))
            out.append(
                [sample(each) for each in client.sample("signed", 1, emit_timesteps=False, unpack_as_table_signature=True)]
            )
        out += [drain(client), drain(client, "stack")]
        client.insert([np.int64(9)], {"t": 1.0})
        client.insert({"x": np.zeros((1, 2), np.float32), "y": np.int64(3)}, {"queue": 1.0})
        return [*out, drain(client), client.server_info()["t"].current_size]
