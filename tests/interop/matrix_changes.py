"""Operations that change what is there: priorities, deletions, reset."""

from __future__ import annotations

import numpy as np
from matrix_bulk import drain, queue
from matrix_info import table_info
from matrix_tables import everything, keys_by_value, table
from matrix_values import key, outcome, sample


class Mutate:
    """`mutate_priorities`: updates, deletes, both, unknown keys, NumPy's types, and what is refused."""

    name = "mutate_priorities"
    steps = ("run", "read")
    cells = [({"sampler": sampler}, True) for sampler in ("Uniform", "Prioritized(1)")]

    @staticmethod
    def tables(module, sampler):
        return [table(module, "t", sampler), queue(module)]

    @staticmethod
    def run(module, client, sampler):
        for value in range(8):
            client.insert([np.int64(value)], {"t": 1.0})
        keys = keys_by_value(client)
        out = [[key(keys[value]) for value in sorted(keys)], everything(client)]
        client.mutate_priorities("t", {keys[0]: 2, np.uint64(keys[1]): np.float32(2.5), 12345: 1.0})
        out.append(everything(client))
        client.mutate_priorities("t", deletes=[keys[2], 54321])
        client.mutate_priorities("t", deletes=np.array([keys[3]], np.uint64))
        client.mutate_priorities(table="t", updates={keys[4]: 9.0, keys[5]: 3.0}, deletes=[keys[4]])
        client.mutate_priorities("t", {}, [])
        client.mutate_priorities("t")
        out.append(everything(client))
        client.mutate_priorities("t", {keys[6]: np.inf} if sampler == "Uniform" else {keys[6]: 0.0})
        client.mutate_priorities("t", {keys[7]: -1.5} if sampler == "Uniform" else {keys[7]: 0.5})
        calls = {
            "float key": lambda: client.mutate_priorities("t", {1.5: 1.0}),
            "negative key": lambda: client.mutate_priorities("t", {-1: 1.0}),
            "large key": lambda: client.mutate_priorities("t", {2**64: 1.0}),
            "text": lambda: client.mutate_priorities("t", {1: "high"}),
            "float delete": lambda: client.mutate_priorities("t", deletes=[1.0]),
            "unknown table": lambda: client.mutate_priorities("nothing", {1: 1.0}),
            "unknown table, no change": lambda: client.mutate_priorities("nothing"),
        }
        texts = {"unknown table": ("was not found",)}
        out.append({name: outcome(call, *texts.get(name, ())) for name, call in calls.items()})
        if sampler != "Uniform":
            out += [outcome(lambda p=p: client.mutate_priorities("t", {keys[1]: p}), "must not be") for p in (-1.0, np.nan)]
            client.mutate_priorities("t", {keys[1]: 2.5})  # what it has after a refusal: see matrix_differences.py
        return [*out, [client.server_info()["t"].current_size, client.server_info()["t"].num_unique_samples]]

    @staticmethod
    def read(module, client, sampler):
        return everything(client)


class Reset:
    """`reset`: what is gone, what is counted anew, and who goes on."""

    name = "reset"
    steps = ("run", "read")
    cells = [({}, True)]

    @staticmethod
    def tables(module):
        return [table(module, "t", "Uniform"), queue(module, size=2)]

    @staticmethod
    def run(module, client):
        out = []
        writer = client.trajectory_writer(num_keep_alive_refs=3)
        for value in range(5):
            writer.append([np.int64(value)])
            writer.create_item("t", 1.0, [writer.history[0][-3 if value > 1 else -1 :]])
        writer.flush()
        client.insert([np.int64(9)], {"t": 1.0, "queue": 1.0})
        list(client.sample("t", 20, emit_timesteps=False))
        before = table_info(client.server_info()["t"])
        before.pop("unique")  # depends on the draws
        client.reset("t")
        out += [before, table_info(client.server_info()["t"])]
        writer.append([np.int64(5)])
        writer.create_item("t", 2.0, [writer.history[0][-3:]])  # rows of items that are gone
        for value in range(3):
            writer.create_item("queue", value, [writer.history[0][-1:]])
        writer.flush(2)  # those are in that there is room for
        out.append(outcome(lambda: writer.flush(timeout_ms=50)))
        client.reset("queue")
        writer.flush()  # the items that waited are in the queue now
        out.append([sample(each) for each in client.sample("t", 1, emit_timesteps=False)])
        out.append(outcome(lambda: client.reset("nothing"), "was not found"))
        return [*out, table_info(client.server_info()["t"])]

    @staticmethod
    def read(module, client):
        return [drain(client), table_info(client.server_info()["queue"])]
