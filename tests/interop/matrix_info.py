"""What a server says of its tables: info and signatures."""

from __future__ import annotations

import collections

import numpy as np
from matrix_tables import table
from matrix_tensorflow import dtype_of, tensorflow
from matrix_values import DTYPES, flatten, number, structure


def table_info(found):
    """All of a TableInfo but its signature and times."""
    limiter = found.rate_limiter_info

    def options(given):
        kind = given.WhichOneof("distribution")
        more = [number(given.prioritized.priority_exponent)] if kind == "prioritized" else []
        return [kind, given.is_deterministic, *more, *([given.heap.min_heap] if kind == "heap" else [])]

    return {
        "name": found.name,
        "sampler": options(found.sampler_options),
        "remover": options(found.remover_options),
        "max_size": found.max_size,
        "max_times_sampled": found.max_times_sampled,
        "limiter": [
            number(limiter.samples_per_insert),
            number(limiter.min_diff),
            number(limiter.max_diff),
            limiter.min_size_to_sample,
        ],
        "completed": [limiter.insert_stats.completed, limiter.sample_stats.completed],
        "size": found.current_size,
        "episodes": [found.num_episodes, found.num_deleted_episodes],
        "unique": found.num_unique_samples,
    }


Step = collections.namedtuple("Step", ["observation", "action"])


def signatures():
    """Signatures by name, in TensorFlow's words, which both packages take."""
    tf = tensorflow()
    leaf = tf.TensorSpec([2, None], tf.float32)
    return {
        "none": None,
        "leaf": leaf,
        "dict": {"b": leaf, "a": tf.TensorSpec([], tf.int64, name="called")},
        "list": [leaf, tf.TensorSpec(None, tf.uint8)],
        "tuple": (leaf, (leaf, [leaf]), {}),
        "namedtuple": Step(leaf, {"x": tf.TensorSpec([0], tf.bool)}),
        "bounded": [
            tf.TensorSpec([1], tf.int32),
            _bounded(tf, [2], tf.float32, -1.5, 2.5),
            _bounded(tf, [2], tf.int32, [0, 1], [4, 5]),
        ],
        "dtypes": [tf.TensorSpec([i], dtype_of(dtype)) for i, dtype in enumerate((*DTYPES, "bfloat16"))],
    }


def _bounded(tf, shape, dtype, low, high):
    from tensorflow.python.framework import tensor_spec

    return tensor_spec.BoundedTensorSpec(shape, dtype, low, high)


def spec(leaf):
    """A leaf of a signature, of either package."""
    dtype = getattr(leaf.dtype, "name", None) or np.dtype(leaf.dtype).name
    shape = leaf.shape
    if hasattr(shape, "rank"):
        shape = None if shape.rank is None else shape.as_list()
    bounds = [np.asarray(getattr(leaf, name)).ravel().tolist() for name in ("minimum", "maximum") if hasattr(leaf, name)]
    return [
        "string" if dtype.startswith(("str", "object")) else dtype,
        None if shape is None else list(shape),
        leaf.name or "",
        bounds,
    ]


class Info:
    """`server_info`: signatures of every form, and the settings and counters of tables of every kind."""

    name = "server_info"
    steps = ("write", "read")
    cells = [({"what": what}, True) for what in ("signatures", "tables")]
    forms = ("none", "leaf", "dict", "list", "tuple", "namedtuple", "bounded", "dtypes")
    kinds = ("Fifo", "Lifo", "Uniform", "MaxHeap", "MinHeap", "Prioritized(0)", "Prioritized(0.25)")

    @staticmethod
    def tables(module, what):
        if what == "signatures":
            return [table(module, form, signature=signature) for form, signature in signatures().items()]
        limiters = module.rate_limiters
        made = [table(module, kind, kind, other, 7) for kind, other in zip(Info.kinds, reversed(Info.kinds), strict=True)]
        made += [module.Table.queue("queue", 5), module.Table.stack("stack", 6), table(module, "ä/ü", max_times_sampled=3)]
        return [*made, table(module, "ratio", limiter=limiters.SampleToInsertRatio(1.5, 4, 6.0))]

    @staticmethod
    def write(module, client, what):
        if what == "tables":
            with client.writer(2) as writer:
                for value in range(9):
                    writer.append([np.int64(value)])
                    writer.create_item("Uniform", 1, value)
                    writer.create_item("ä/ü", 1, value)
            for value in range(3):
                client.insert([np.int64(value)], dict.fromkeys((*Info.kinds, "queue", "stack", "ratio"), 1.0))
            list(client.sample("Lifo", 3, emit_timesteps=False))
            list(client.sample("queue", 1, emit_timesteps=False))
            list(client.sample("ä/ü", 5, emit_timesteps=False))
        return Info.read(module, client, what)

    @staticmethod
    def read(module, client, what):
        found = client.server_info()
        if what == "tables":
            return {name: table_info(found[name]) for name in sorted(found)}
        return {
            name: [structure(found[name].signature), [spec(leaf) for leaf in flatten(found[name].signature) if leaf is not None]]
            for name in sorted(found)
        }
