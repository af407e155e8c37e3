"""Operations through TensorFlow: datasets and `TFClient`."""

from __future__ import annotations

import numpy as np
from matrix_values import DTYPES, bits, flatten, info, values

WAYS = ("signature", "specs", "steps", "steps of specs", "without a signature")


def tensorflow():
    import tensorflow as tf

    return tf


def dtype_of(dtype):
    tf = tensorflow()
    return tf.string if dtype == "string" else tf.as_dtype(dtype)


def elements(dataset):
    return [[[bits(leaf) for leaf in flatten(each.data)], info(each.info)] for each in dataset]


class Dataset:
    """Trajectory and timestep datasets, of signatures and of specs, to their end by the limiter's timeout and by max_samples."""

    name = "datasets"
    steps = ("write", "read")
    cells = [
        ({"dtype": dtype, "way": way}, dtype in ("float32", "string", "uint64") or way == "signature")
        for dtype in DTYPES
        for way in WAYS
    ]

    @staticmethod
    def tables(module, dtype, way):
        tf = tensorflow()
        shape = [2, 3] if "steps" in way else [None, 2, 3]
        signature = {"x": tf.TensorSpec(shape, dtype_of(dtype)), "y": (tf.TensorSpec(shape[:-2], tf.int64),)}
        signature = None if way == "without a signature" else signature
        return [module.Table.queue(name, 100, signature=signature) for name in ("queue", "counted")]

    @staticmethod
    def write(module, client, dtype, way):
        with client.trajectory_writer(num_keep_alive_refs=3, validate_items="steps" not in way) as writer:
            for step in range(6):
                writer.append({"x": values(dtype, (2, 3), step), "y": (np.int64(step),)})
                for name in ("queue", "counted"):
                    length = 1 + step % 3
                    writer.create_item(name, step, {"x": writer.history["x"][-length:], "y": (writer.history["y"][0][-length:],)})

    @staticmethod
    def read(module, client, dtype, way):
        tf = tensorflow()
        kind = module.TimestepDataset if "steps" in way else module.TrajectoryDataset
        shape = [2, 3] if "steps" in way else [None, 2, 3]
        if way in ("signature", "steps"):

            def made(table, **options):
                return kind.from_table_signature(client.server_address, table, 4, **options)
        else:

            def made(table, **options):
                dtypes = {"x": dtype_of(dtype), "y": (tf.int64,)}
                shapes = {"x": tf.TensorShape(shape), "y": (tf.TensorShape(shape[:-2]),)}
                return kind(client.server_address, table, dtypes, shapes, 4, **options)

        whole = made("queue", rate_limiter_timeout_ms=300)
        spec = [[each.dtype.name, str(each.shape)] for each in tf.nest.flatten(whole.element_spec)]
        out = [spec, elements(whole), elements(made("counted", max_samples=4))]
        return [*out, client.server_info()["counted"].current_size]


class TensorFlowClient:
    """`TFClient`: insert, sample, update_priorities; what it wrote is read by datasets, too. The only way for bfloat16 into Reverb."""

    name = "TFClient"
    steps = ("write", "read")
    cells = [({"dtype": dtype}, dtype in ("bfloat16", "string", "uint64", "float16")) for dtype in (*DTYPES, "bfloat16")]

    @staticmethod
    def tables(module, dtype):
        heap = module.Table("heap", module.selectors.MaxHeap(), module.selectors.Fifo(), 100, module.rate_limiters.MinSize(1))
        return [module.Table.queue("queue", 100), heap, module.Table.queue("again", 100)]

    @staticmethod
    def row(dtype, seed):
        tf = tensorflow()
        if dtype == "bfloat16":
            return tf.bitcast(tf.constant(values("uint16", (2, 3), seed)), tf.bfloat16)
        return tf.constant(values(dtype, (2, 3), seed), dtype_of(dtype))

    @staticmethod
    def write(module, client, dtype):
        tf = tensorflow()
        writer = module.TFClient(client.server_address)
        for step in range(3):
            writer.insert(
                [TensorFlowClient.row(dtype, step), tf.constant(step, tf.int64)],
                tf.constant(["queue", "heap", "again"]),
                tf.constant([1.0, step, 0.5], tf.float64),
            )
        return writer.server_address == client.server_address

    @staticmethod
    def read(module, client, dtype):
        tf = tensorflow()
        reader = module.TFClient(client.server_address)
        dtypes = {"a": dtype_of(dtype), "b": [tf.int64]}

        def drawn(table):
            sample = reader.sample(table, dtypes)
            return [[bits(leaf) for leaf in flatten(sample.data)], info(sample.info)]

        first = reader.sample("heap", dtypes).info.key
        reader.update_priorities("heap", tf.reshape(first, [1]), tf.constant([-1.0], tf.float64))
        shapes = (tf.TensorShape([None, 2, 3]), tf.TensorShape([None]))
        dataset = module.TrajectoryDataset(
            client.server_address, "again", tuple(flatten(dtypes)), shapes, 2, rate_limiter_timeout_ms=300
        )
        return [[drawn("queue") for _ in range(3)], drawn("heap"), elements(dataset)]
