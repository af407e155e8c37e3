"""Where Reverb does not do what it promises, or Reverie promises more (docs/architecture.md, "Where Reverb is wrong").

Run in every direction like all operations, but compared with what is `stated`, by whose client or whose server it was.
"""

from __future__ import annotations

import numpy as np
from matrix_bulk import queue
from matrix_tables import table
from matrix_tensorflow import tensorflow
from matrix_values import number, outcome


class Differences:
    name = "differs on purpose"
    steps = ("run",)

    @staticmethod
    def tables(module, how):
        signed = table(module, "signed", signature={"a": tensorflow().TensorSpec([], tensorflow().int64)})
        return [queue(module), table(module, "prioritized", "Prioritized(1)"), signed]

    @staticmethod
    def run(module, client, how):
        return getattr(Differences, how)(module, client)

    @staticmethod
    def strided_rows_of_a_chunk(module, client):
        writer = client.trajectory_writer(num_keep_alive_refs=6)
        writer.configure((0,), num_keep_alive_refs=6, max_chunk_length=6)
        for step in range(6):
            writer.append([np.int64(step)])
        for rows in (writer.history[0][::2], writer.history[0][[0, 3]]):
            writer.create_item("queue", 1.0, [rows])
        writer.end_episode()
        return [each.data[0].tolist() for each in client.sample("queue", 2, emit_timesteps=False)]

    @staticmethod
    def big_endian_arrays(module, client):
        client.insert([np.arange(3, dtype=">i4")], {"queue": 1.0})
        return next(client.sample("queue", 1, emit_timesteps=False)).data[0].tolist()

    @staticmethod
    def a_legacy_item_across_a_flush(module, client):
        with client.writer(max_sequence_length=4, chunk_length=4) as writer:
            for step in range(8):
                writer.append([np.int64(step)])
            writer.create_item("queue", 4, 1.0)
            for step in (8, 9):  # chunks of one step each
                writer.append([np.int64(step)])
                writer.create_item("queue", 1, 1.0)
                writer.flush()
            writer.append([np.int64(10)])
            writer.create_item("queue", 4, 2.0)
        count = client.server_info()["queue"].current_size
        return [count, outcome(lambda: list(client.sample("queue", count, emit_timesteps=False)), "Cannot slice")]

    @staticmethod
    def a_legacy_item_across_a_change_of_dtype(module, client):
        writer = client.writer(max_sequence_length=4, chunk_length=2)
        for step in (np.float32(0), np.float32(1), np.int32(2), np.int32(3)):
            writer.append([step])
        writer.create_item("queue", 2, 1.0)
        made = outcome(lambda: writer.create_item("queue", 3, 2.0), "dtypes")
        writer.close()
        count = client.server_info()["queue"].current_size
        return [made, count, outcome(lambda: list(client.sample("queue", count, emit_timesteps=False)), "data types")]

    @staticmethod
    def a_writer_one_of_whose_items_failed(module, client):
        writer = client.trajectory_writer(num_keep_alive_refs=1, validate_items=False)
        writer.append([np.int64(1)])
        writer.create_item("nothing", 1.0, [writer.history[0][-1:]])
        out = [outcome(lambda: writer.flush(timeout_ms=60_000)), outcome(lambda: writer.append([np.int64(2)]))]
        writer.close()
        return out

    @staticmethod
    def an_item_of_another_dtype_that_nobody_checked(module, client):
        writer = client.trajectory_writer(num_keep_alive_refs=1, validate_items=False)
        writer.append([np.float32(1)])
        writer.create_item("signed", 1.0, [writer.history[0][-1]])
        out = [outcome(lambda: writer.flush(timeout_ms=60_000))]
        writer.close()
        count = client.server_info()["signed"].current_size
        return [*out, count, outcome(lambda: [list(client.sample("signed", 1, emit_timesteps=False)) for _ in range(count)])]

    @staticmethod
    def a_refused_append_of_a_new_column(module, client):
        writer = client.trajectory_writer(num_keep_alive_refs=2)
        writer.append({"a": np.int64(1)})
        out = [outcome(lambda: writer.append({"a": np.float32(2), "b": np.float32(2)}), "wrong dtype")]
        out.append(outcome(lambda: writer.append({"b": np.int64(2)}), "wrong dtype"))
        writer.close()
        return out

    @staticmethod
    def names_that_are_not_the_signatures(module, client):
        return outcome(lambda: client.insert({"b": np.int64(1)}, {"signed": 1.0}))

    @staticmethod
    def seconds_that_are_not_whole(module, client):
        return outcome(lambda: client.server_info(1.5))

    @staticmethod
    def a_keyword_that_older_releases_had(module, client):
        return outcome(lambda: client.trajectory_writer(1, get_signature_timeout_ms=5000))

    @staticmethod
    def priorities_that_are_no_mapping(module, client):
        return outcome(lambda: client.insert([1], [1.0]))

    @staticmethod
    def minus_one_samples(module, client):
        return outcome(lambda: next(client.sample("queue", -1)))

    @staticmethod
    def an_open_step_at_the_end_of_an_episode(module, client):
        writer = client.trajectory_writer(num_keep_alive_refs=2)
        writer.append({"x": np.int64(1), "y": np.int64(1)})
        writer.append({"x": np.int64(2)}, partial_step=True)
        writer.end_episode()
        found = outcome(lambda: writer.append({"x": np.int64(3), "y": np.int64(3)}), "already been set")
        writer.close()
        return found

    @staticmethod
    def an_append_that_failed_in_its_second_column(module, client):
        writer = client.trajectory_writer(num_keep_alive_refs=4)
        for name in "ab":
            writer.configure((name,), num_keep_alive_refs=4, max_chunk_length=4)
        writer.append({"a": np.int64(1), "b": np.int64(1)})
        out = [outcome(lambda: writer.append({"a": np.int64(2), "b": np.float32(2)}), "wrong dtype")]
        out.append(outcome(lambda: writer.append({"a": np.int64(3), "b": np.int64(3)}), "AppendPartial"))
        writer.close()
        return out

    @staticmethod
    def a_refused_priority(module, client):
        client.insert([np.int64(1)], {"prioritized": 1.0})
        key = next(client.sample("prioritized", 1, emit_timesteps=False)).info.key
        out = [outcome(lambda: client.mutate_priorities("prioritized", {key: -1.0}), "must not be")]
        out.append(number(next(client.sample("prioritized", 1, emit_timesteps=False)).info.priority))
        return [*out, outcome(lambda: client.mutate_priorities("prioritized", {54321: -1.0}), "must not be")]  # of no item

    @staticmethod
    def an_item_whose_priority_is_refused(module, client):
        writer = client.trajectory_writer(num_keep_alive_refs=1)
        writer.append([np.int64(1)])

        def write():
            # Ours refuses it here if it knows the table already.
            writer.create_item("prioritized", -1.0, [writer.history[0][-1:]])
            writer.flush(timeout_ms=2000)

        out = [outcome(write)]
        writer.close()
        other = client.trajectory_writer(num_keep_alive_refs=1)
        other.append([np.int64(2)])
        other.create_item("prioritized", 1.0, [other.history[0][-1:]])
        out.append(outcome(lambda: other.flush(timeout_ms=2000)))
        other.close()
        return out

    @staticmethod
    def a_modulo_that_is_not_compared_for_equality(module, client):
        return outcome(lambda: module.structured.Condition.step_index() % 3 >= 1)

    @staticmethod
    def the_length_of_a_strided_column(module, client):
        structured = module.structured
        step = {"x": np.zeros((), np.float32)}
        pattern = structured.pattern_from_transform(step, lambda r: r["x"][-5::2])
        return list(structured.infer_signature([structured.create_config(pattern, "queue")], step).shape)

    @staticmethod
    def a_condition_that_no_step_meets(module, client):
        structured = module.structured
        condition = structured.Condition
        pattern = structured.create_reference_step({"x": 0})["x"][-1:]
        config = structured.create_config(pattern, "queue", [condition.step_index() >= 5, condition.step_index() < 5])
        return outcome(lambda: client.structured_writer([config]))


def raised(*kinds, says=()):
    return {"raised": list(kinds), "says": list(says)}


# By how: whose doing it is ("both": of either alone), what Reverb does, what Reverie does; or by direction.
STATED = {
    "strided_rows_of_a_chunk": ("client", [[0, 1, 2], [0, 1]], [[0, 2, 4], [0, 3]]),
    "big_endian_arrays": ("client", [[0, 1 << 24, 2 << 24]], [[0, 1, 2]]),
    "an_open_step_at_the_end_of_an_episode": ("client", raised("ValueError", says=["already been set"]), raised()),
    "an_append_that_failed_in_its_second_column": (
        "client",
        [raised("ValueError", says=["wrong dtype"]), raised("RuntimeError", says=["AppendPartial"])],
        [raised("ValueError", says=["wrong dtype"]), raised()],
    ),
    "a_refused_priority": (
        "server",
        [raised("ValueError", says=["must not be"]), "-1.0", raised()],
        [raised("ValueError", says=["must not be"]), "1.0", raised("ValueError", says=["must not be"])],
    ),
    "an_item_whose_priority_is_refused": (
        "both",
        [raised("DeadlineExceededError"), raised("DeadlineExceededError")],
        [raised("ValueError"), raised()],
    ),
    # Theirs makes an item whose rows begin before its chunks: their server takes it, and nobody can read it; ours refuses it.
    "a_legacy_item_across_a_flush": {
        "T>T": [4, raised("ValueError", says=["Cannot slice"])],
        "T>O": [3, raised()],
        "O>T": [4, raised()],
        "O>O": [4, raised()],
    },
    # Theirs makes an item of both, which nobody can read; our server refuses it.
    "a_legacy_item_across_a_change_of_dtype": {
        "T>T": [raised(), 2, raised("ValueError", says=["data types"])],
        "T>O": [raised(), 1, raised()],
        "O>T": [raised("ValueError", says=["dtypes"]), 1, raised()],
        "O>O": [raised("ValueError", says=["dtypes"]), 1, raised()],
    },
    "a_writer_one_of_whose_items_failed": (
        "client",
        [raised("RuntimeError"), raised("RuntimeError")],
        [raised("RuntimeError"), raised()],
    ),
    "an_item_of_another_dtype_that_nobody_checked": {
        "T>T": [raised(), 1, raised()],
        "T>O": [raised("ValueError"), 0, raised()],
        "O>T": [raised(), 1, raised("ValueError")],
        "O>O": [raised("ValueError"), 0, raised()],
    },
    "a_refused_append_of_a_new_column": (
        "client",
        [raised("ValueError", says=["wrong dtype"]), raised("ValueError", says=["wrong dtype"])],
        [raised("ValueError", says=["wrong dtype"]), raised()],
    ),
    "names_that_are_not_the_signatures": ("client", raised(), raised("ValueError")),
    "a_modulo_that_is_not_compared_for_equality": ("client", raised(), raised("ValueError")),
    "the_length_of_a_strided_column": ("client", [2], [3]),
    "a_condition_that_no_step_meets": ("client", raised(), raised("ValueError")),
    "seconds_that_are_not_whole": ("client", raised("TypeError"), raised()),
    "a_keyword_that_older_releases_had": ("client", raised("TypeError"), raised()),
    "priorities_that_are_no_mapping": ("client", raised("AttributeError"), raised("TypeError")),
    "minus_one_samples": ("client", raised("StopIteration"), raised("ValueError")),
}
Differences.cells = [({"how": how}, True) for how in STATED]


def stated(parameters, direction):
    """What a cell of this operation must give."""
    found = STATED[parameters["how"]]
    if isinstance(found, dict):
        return found[direction]
    client, server = direction.split(">")
    whose, theirs, ours = found
    return ours if "O" in {"client": client, "server": server, "both": client + server}[whose] else theirs
