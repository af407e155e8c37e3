"""Mistakes, and the errors that both packages answer with."""

from __future__ import annotations

import numpy as np
from matrix_bulk import queue
from matrix_tables import table
from matrix_tensorflow import tensorflow
from matrix_values import bits, flatten, outcome, structure


class Errors:
    """The kinds of the errors of calls that fail, and the texts that programs look for."""

    name = "errors"
    steps = ("run",)
    cells = [({"what": what}, True) for what in ("unknown tables", "signatures", "arguments", "writers", "datasets")]

    @staticmethod
    def tables(module, what):
        tf = tensorflow()
        signature = {"x": tf.TensorSpec([2], tf.float32), "y": tf.TensorSpec([None], tf.int64)}
        return [queue(module), table(module, "signed", signature=signature), table(module, "plain")]

    @staticmethod
    def run(module, client, what):
        return getattr(Errors, what.replace(" ", "_"))(module, client)

    @staticmethod
    def _with_writer(client, call, **options):
        """call(writer) after one step of {"x": 1}."""
        writer = client.trajectory_writer(**{"num_keep_alive_refs": 2, **options})
        writer.append({"x": np.int64(1)})
        try:
            return call(writer)
        finally:
            writer.close()

    @staticmethod
    def unknown_tables(module, client):
        def history(writer):
            return {"x": writer.history["x"][-1:]}

        def unvalidated(writer):
            writer.create_item("nothing", 1.0, history(writer))
            out = [outcome(lambda: writer.flush(timeout_ms=60_000), "was not found")]
            return [*out, outcome(lambda: writer.end_episode(timeout_ms=60_000), "was not found")]

        def written():
            writer = client.writer(2)
            writer.append([np.int64(1)])
            found = outcome(lambda: writer.create_item("nothing", 1, 1.0))
            writer.close()
            return found

        structured = module.structured
        config = structured.create_config(structured.create_reference_step({"x": 0})["x"][-1:], "nothing")
        steps = client.structured_writer([config])
        steps.append({"x": 1})
        return [
            outcome(lambda: next(client.sample("nothing")), "was not found"),
            outcome(lambda: next(client.sample("nothing", unpack_as_table_signature=True))),
            outcome(lambda: client.insert([1], {"nothing": 1.0})),
            Errors._with_writer(client, lambda writer: outcome(lambda: writer.create_item("nothing", 1.0, history(writer)))),
            Errors._with_writer(client, unvalidated, validate_items=False),
            written(),
            outcome(lambda: steps.flush(timeout_ms=60_000), "was not found"),
            client.server_info()["queue"].current_size,
        ]

    @staticmethod
    def signatures(module, client):
        x, y = np.zeros(2, np.float32), np.zeros(3, np.int64)
        bad = {
            "dtype": {"x": x.astype(np.float64), "y": y},
            "shape": {"x": np.zeros(3, np.float32), "y": y},
            "rank": {"x": np.zeros((2, 2), np.float32), "y": y},
            "fewer": {"x": x},
            "more": {"x": x, "y": y, "z": y},
        }
        out = {name: outcome(lambda data=data: client.insert(data, {"signed": 1.0})) for name, data in bad.items()}

        def by_trajectory(data):
            writer = client.trajectory_writer(num_keep_alive_refs=1)
            writer.append(data)
            trajectory = {path: column[-1] for path, column in writer.history.items()}
            found = outcome(lambda: writer.create_item("signed", 1.0, trajectory))
            writer.close()
            return found

        out |= {f"{name} by trajectory": by_trajectory(data) for name, data in bad.items()}
        client.insert({"x": x, "y": y}, {"signed": 1.0})
        unpacked = next(client.sample("signed", 1, emit_timesteps=False, unpack_as_table_signature=True))
        return [out, structure(unpacked.data), [bits(leaf) for leaf in flatten(unpacked.data)]]

    @staticmethod
    def arguments(module, client):
        calls = {
            "insert nowhere": lambda: client.insert([1], {}),
            "insert text": lambda: client.insert([1], {"queue": "high"}),
            "insert nan": lambda: client.insert([1], {"queue": np.nan}),
            "insert None": lambda: client.insert([1, None], {"queue": 1.0}),
            "insert object": lambda: client.insert([object()], {"queue": 1.0}),
            "insert longdouble": lambda: client.insert([np.longdouble(1)], {"queue": 1.0}),
            "insert datetime": lambda: client.insert([np.datetime64(0, "s")], {"queue": 1.0}),
            "insert huge int": lambda: client.insert([2**64], {"queue": 1.0}),
            "insert ragged": lambda: client.insert([np.array([1, [2]], dtype=object)], {"queue": 1.0}),
            "writer of 0": lambda: client.writer(0),
            "writer chunk 0": lambda: client.writer(3, chunk_length=0),
            "writer chunk 4": lambda: client.writer(3, chunk_length=4),
            "writer float": lambda: client.writer(2.5),
            "writer in flight 0": lambda: client.writer(2, max_in_flight_items=0),
            "trajectory 0": lambda: client.trajectory_writer(0),
            "trajectory float": lambda: client.trajectory_writer(1.5),
            "sample 0": lambda: next(client.sample("queue", 0)),
            "sample -2": lambda: next(client.sample("queue", -2)),
        }
        texts = {
            "insert nowhere": "at least one item", "insert nan": "nan", "writer of 0": "positive integer",
            "trajectory 0": "positive integer", "sample 0": "max_samples", "sample -2": "max_samples",
        }  # fmt: skip
        out = {name: outcome(call, *([texts[name]] if name in texts else [])) for name, call in calls.items()}
        return [out, client.server_info()["queue"].current_size]

    @staticmethod
    def writers(module, client):
        def written(*calls):
            writer = client.writer(3)
            for value in range(2):
                writer.append([np.int64(value), np.float32(value)])
            out = [outcome(lambda call=call: call(writer), *texts) for call, *texts in calls]
            writer.close()
            return out

        def after_close():
            writer = client.writer(2)
            writer.append([1])
            writer.close()
            calls = (lambda: writer.append([1]), lambda: writer.create_item("queue", 1, 1.0), writer.flush)
            return [outcome(call, "after Close") for call in calls] + [outcome(writer.close, "already been called")]

        def appended(*rows):
            def call(writer):
                out = []
                for row, texts in rows:
                    out.append([outcome(lambda row=row: writer.append(row), *texts), writer.episode_steps])
                return out

            return Errors._with_writer(client, call)

        def closed(writer):
            trajectory = {"x": writer.history["x"][-1:]}
            writer.close()
            calls = (
                lambda: writer.append({"x": 1}),
                lambda: writer.create_item("queue", 1.0, trajectory),
                writer.flush,
                writer.end_episode,
            )
            return [outcome(call, "Close has been called") for call in calls]

        def items(writer):
            x = writer.history["x"]
            calls = {
                "history": lambda: writer.create_item("queue", 1.0, writer.history),
                "array": lambda: writer.create_item("queue", 1.0, {"x": np.zeros(2)}),
                "no columns": lambda: writer.create_item("queue", 1.0, {}),
                "empty column": lambda: writer.create_item("queue", 1.0, {"x": x[1:1]}),
                "nan": lambda: writer.create_item("queue", np.nan, {"x": x[-1:]}),
                "text": lambda: writer.create_item("queue", "high", {"x": x[-1:]}),
                "numpy index": lambda: x[np.int64(0)],
                "tuple index": lambda: x[(0,)],
                "far index": lambda: x[5],
                "negative index": lambda: x[-5],
                "squeezed two": lambda: module.TrajectoryColumn(list(x[:]) * 2, squeeze=True),
                "column index": lambda: x[:][3],
                "configure 0": lambda: writer.configure(("x",), num_keep_alive_refs=0, max_chunk_length=None),
                "configure chunk": lambda: writer.configure(("z",), num_keep_alive_refs=1, max_chunk_length=2),
                "negative flush": lambda: writer.flush(-2),
            }
            texts = {"history": "TrajectoryColumn", "array": "TrajectoryColumn", "no columns": "must not be empty", "nan": "nan",
                     "numpy index": "indices", "tuple index": "indices", "squeezed two": "exactly one"}  # fmt: skip
            return {name: outcome(call, *([texts[name]] if name in texts else [])) for name, call in calls.items()}

        def early():
            writer = client.trajectory_writer(1)
            return outcome(lambda: writer.history, "history")

        return [
            written(
                (lambda w: w.append([1]), "inconsistent"),
                (lambda w: w.create_item("queue", 0, 1.0), "num_timesteps"),
                (lambda w: w.create_item("queue", 3, 1.0), "larger than"),
                (lambda w: w.create_item("queue", 4, 1.0),),
                (lambda w: w.create_item("queue", 1, np.nan), "nan"),
                (lambda w: w.append_sequence([np.zeros(2), np.zeros(3)]), "AppendSequence"),
                (lambda w: w.append_sequence([np.float32(1), np.zeros(1)]), "AppendSequence"),
                (lambda w: w.append_sequence([]),),
            ),
            after_close(),
            appended(({"x": np.float32(1)}, ["wrong dtype", "('x',)"]), ({"x": np.int64(2)}, [])),
            appended(({"x": np.zeros(2, np.int64)}, ["incompatible shape", "('x',)"]), ({"x": np.int64(2)}, [])),
            appended(({"x": {"y": 1}}, []), ({"x": np.int64(2)}, [])),
            appended(({"x": object()}, []), ({"x": np.int64(2)}, [])),
            Errors._with_writer(client, closed),
            Errors._with_writer(client, items),
            early(),
            client.server_info()["queue"].current_size,
        ]

    @staticmethod
    def datasets(module, client):
        tf = tensorflow()
        address = client.server_address
        x, y = np.zeros(2, np.float32), np.zeros(3, np.int64)
        client.insert({"x": x, "y": y}, {"signed": 1.0, "plain": 1.0})

        def made(table, dtypes, shapes, *more, **options):
            return module.TrajectoryDataset(
                address, table, dtypes, shapes, *(more or (1,)), rate_limiter_timeout_ms=1000, **options
            )

        def first(*arguments):
            return lambda: next(iter(made(*arguments)))

        shape, both = tf.TensorShape, (tf.float32, tf.int64)
        calls = {
            "unknown table": (first("nothing", both, (shape([1, 2]), shape([1, 3]))), "was not found"),
            "of no table": (lambda: module.TrajectoryDataset.from_table_signature(address, "nothing", 1), "does not contain"),
            "of no signature": (
                lambda: module.TrajectoryDataset.from_table_signature(address, "plain", 1),
                "does not have a signature",
            ),
            "structure": (lambda: made("plain", both, (shape([2]),)),),
            "in flight 0": (lambda: made("plain", both, (shape([2]), shape([3])), 0),),
            "workers 0": (lambda: made("plain", both, (shape([2]), shape([3])), num_workers_per_iterator=0),),
            "samples 0": (lambda: made("plain", both, (shape([2]), shape([3])), max_samples=0),),
            "stream 0": (lambda: made("plain", both, (shape([2]), shape([3])), max_samples_per_stream=0),),
            "dtype of signature": (first("signed", (tf.float64, tf.int64), (shape([None, 2]), shape([None, None]))),),
            "columns of signature": (first("signed", (tf.float32,), (shape([None, 2]),)),),
            "dtype of data": (first("plain", (tf.float64, tf.int64), (shape([None, 2]), shape([None, 3]))),),
            "shape of data": (first("plain", both, (shape([None, 4]), shape([None, 3]))),),
            "columns of data": (first("plain", (tf.float32,), (shape([None, 2]),)),),
        }
        reader = module.TFClient(address)
        calls |= {
            "sample of no table": (lambda: reader.sample("nothing", [tf.float32]), "was not found"),
            "sample of fewer": (lambda: reader.sample("signed", [tf.float32]), "did not match"),
            "sample of others": (lambda: reader.sample("signed", [tf.float64, tf.int64]), "Type mismatch"),
            "update no table": (
                lambda: reader.update_priorities("nothing", tf.constant([1], tf.uint64), tf.constant([1.0], tf.float64)), "was not found",
            ),
            "update of others": (
                lambda: reader.update_priorities("signed", tf.constant([1], tf.int64), tf.constant([1.0], tf.float64)),
            ),
            "update of unequal": (
                lambda: reader.update_priorities("signed", tf.constant([1], tf.uint64), tf.constant([1.0, 2.0], tf.float64)),
            ),
            "insert list": (lambda: reader.insert([x], ["queue"], [1.0]),),
            "insert unequal": (lambda: reader.insert([x], tf.constant(["queue"]), tf.constant([1.0, 2.0], tf.float64)), "same shape"),
            "insert float32": (lambda: reader.insert([x], tf.constant(["queue"]), tf.constant([1.0])), "priorities must"),
        }  # fmt: skip
        return {name: outcome(call, *texts) for name, (call, *texts) in calls.items()}
