"""Operations about which item comes when: selectors, limiters, timeouts, priorities, reset, what a server says of itself, checkpoints."""

from __future__ import annotations

import collections
import os
import time

import numpy as np
from matrix_bulk import drain, queue
from matrix_tensorflow import dtype_of, tensorflow
from matrix_values import DTYPES, bits, flatten, info, key, number, outcome, sample, structure, values

NOWHERE = "127.0.0.1:1"  # nobody listens there
DRAWS = 400  # from at most nine items, of which the rarest comes one time in thirty


def selector(module, name):
    made = getattr(module.selectors, name.split("(")[0])
    return made(float(name.split("(")[1].rstrip(")"))) if "(" in name else made()


def table(module, name="t", sampler="Fifo", remover="Fifo", max_size=100, limiter=None, **options):
    limiter = module.rate_limiters.MinSize(1) if limiter is None else limiter
    return module.Table(name, selector(module, sampler), selector(module, remover), max_size, limiter, **options)


def everything(client, name="t"):
    """What many draws show of a table, item by item in the order of their data: data, priority, probability, table size."""
    found = {}
    for each in client.sample(name, DRAWS, emit_timesteps=False):
        seen = info(each.info)
        del seen["times_sampled"]
        found[int(np.ravel(flatten(each.data)[0])[0])] = seen
    return [[value, found[value]] for value in sorted(found)]


def keys_by_value(client, name="t"):
    samples = client.sample(name, DRAWS, emit_timesteps=False)
    return {int(np.ravel(flatten(each.data)[0])[0]): each.info.key for each in samples}


FIXED = ("Fifo", "Lifo", "MaxHeap", "MinHeap")


class Selector:
    """Which items come and go, and with what probability, as priorities change and items are deleted."""

    name = "selectors"
    steps = ("write", "read")
    cells = [
        ({"sampler": sampler, "remover": remover}, remover == "Fifo" or sampler == "Uniform")
        for sampler in (*FIXED, "Uniform", "Prioritized(0)", "Prioritized(0.7)", "Prioritized(2)")
        for remover in FIXED
    ]

    @staticmethod
    def tables(module, sampler, remover):
        return [table(module, "t", sampler, remover, 6), table(module, "zero", sampler, remover)]

    @staticmethod
    def write(module, client, sampler, remover):
        for value, priority in enumerate((2.0, 3.0, 2.5, 1.5, 3.0, 1.5, 2.5, 2.0, 3.0)):
            client.insert([np.int64(value)], {"t": priority})
        for value in range(3):
            client.insert([np.int64(value)], {"zero": 0.0})

    @staticmethod
    def drawn(client, name, sampler):
        if sampler in FIXED:
            return [sample(each) for each in client.sample(name, 4, emit_timesteps=False)]
        return everything(client, name)

    @staticmethod
    def read(module, client, sampler, remover):
        out = [Selector.drawn(client, "t", sampler), Selector.drawn(client, "zero", sampler)]
        first = next(client.sample("t", 1, emit_timesteps=False)) if sampler in FIXED else None
        chosen = first.info.key if first is not None else keys_by_value(client)[min(keys_by_value(client))]
        client.mutate_priorities("t", {chosen: 2.25})
        out.append(Selector.drawn(client, "t", sampler))
        client.mutate_priorities("t", deletes=[chosen])
        out.append(Selector.drawn(client, "t", sampler))
        return [*out, client.server_info()["t"].current_size]


class Limiter:
    """How many inserts and samples each limiter lets through, in turns, until all are done."""

    name = "rate limiters"
    steps = ("run",)
    inserts = 12
    parameters = {  # samples per insert, least size, least and greatest difference, as the formulas have them
        "MinSize": (1.0, 3, -1e300, 1e300),
        "SampleToInsertRatio": (2.0, 3, 2.0, 10.0),
        "SampleToInsertRatio of a pair": (0.5, 4, -1.0, 3.0),
        "Queue": (1.0, 1, 0.0, 3.0),
        "Stack": (1.0, 1, 0.0, 4.0),
        "RateLimiter": (1.5, 2, 0.0, 5.0),
    }
    cells = [({"kind": kind}, True) for kind in parameters]

    @staticmethod
    def tables(module, kind):
        limiters = module.rate_limiters
        if kind == "Queue":
            return [module.Table.queue("t", 3)]
        if kind == "Stack":
            return [module.Table.stack("t", 4)]
        limiter = {
            "MinSize": lambda: limiters.MinSize(3),
            "SampleToInsertRatio": lambda: limiters.SampleToInsertRatio(2.0, 3, 4.0),
            "SampleToInsertRatio of a pair": lambda: limiters.SampleToInsertRatio(0.5, 4, (-1.0, 3.0)),
            "RateLimiter": lambda: limiters.RateLimiter(1.5, 2, 0.0, 5.0),
        }[kind]()
        return [table(module, "t", "Uniform", limiter=limiter)]

    @staticmethod
    def run(module, client, kind):
        ratio, least, low, high = Limiter.parameters[kind]
        once = kind in ("Queue", "Stack")
        writer = client.trajectory_writer(num_keep_alive_refs=1)
        inserts = samples = 0
        out = []
        for value in range(Limiter.inserts):
            writer.append([np.int64(value)])
            writer.create_item("t", 1.0, [writer.history[0][-1]])
        while inserts < Limiter.inserts:
            before = (inserts, samples)
            while inserts < Limiter.inserts and (
                inserts + 1 - samples * once <= least or (inserts + 1) * ratio - samples <= high
            ):
                inserts += 1
            _wait_for(client, inserts)
            late = outcome(lambda wait=50 if inserts < Limiter.inserts else 60_000: writer.flush(timeout_ms=wait))
            count = 0
            while count < 30 and inserts - (samples + count) * once >= least and inserts * ratio - (samples + count) - 1 >= low:
                count += 1
            for _ in client.sample("t", count, emit_timesteps=False) if count else ():
                samples += 1
            limiter = client.server_info()["t"].rate_limiter_info
            out.append([before, inserts, samples, late, limiter.sample_stats.completed])
            assert (inserts, samples) != before, "the limiter lets nothing through any more"
        writer.flush()
        return [*out, client.server_info()["t"].rate_limiter_info.insert_stats.completed]


def _wait_for(client, inserts):
    """Until so many were let in; more would be seen by the next look."""
    end = time.monotonic() + 30
    while (seen := client.server_info()["t"].rate_limiter_info.insert_stats.completed) != inserts:
        assert seen < inserts, f"{seen} inserts were let through instead of {inserts}"
        assert time.monotonic() < end, f"{seen} inserts were let through in 30 s instead of {inserts}"


class Timeouts:
    """What does not come in time, what it leaves behind, and that it comes later."""

    name = "timeouts"
    steps = ("run",)
    cells = [({"how": how}, True) for how in ("flush", "end_episode", "structured", "dataset", "nobody listens")]

    @staticmethod
    def tables(module, how):
        return [queue(module, size=2), queue(module, "other", 10)]

    @staticmethod
    def run(module, client, how):
        return getattr(Timeouts, how.replace(" ", "_"))(module, client)

    @staticmethod
    def _full(client):
        writer = client.trajectory_writer(num_keep_alive_refs=2)
        for value in range(4):
            writer.append([np.int64(value)])
            writer.create_item("queue", value, [writer.history[0][-1:]])
        return writer

    @staticmethod
    def _taken(client):
        """The values of all that is in the queue; others come in meanwhile."""
        count = client.server_info()["queue"].current_size
        return [int(each.data[0][0]) for each in client.sample("queue", count, emit_timesteps=False)]

    @staticmethod
    def flush(module, client):
        writer = Timeouts._full(client)
        out = [
            outcome(lambda: writer.flush(timeout_ms=50)),
            outcome(lambda: writer.flush(2)),
            outcome(lambda: writer.flush(1, 50)),
        ]
        out += [outcome(lambda: writer.flush(-1), "must be >= 0"), outcome(lambda: writer.flush(timeout_ms=1.5))]
        out.append([writer.episode_steps, len(writer.history[0])])
        first = Timeouts._taken(client)
        writer.flush(timeout_ms=60_000)
        return [*out, first, Timeouts._taken(client), outcome(lambda: writer.flush(timeout_ms=1))]

    @staticmethod
    def end_episode(module, client):
        writer = Timeouts._full(client)
        out = [outcome(lambda wait=wait: writer.end_episode(timeout_ms=wait)) for wait in (50, 0, -1)]
        out.append([writer.episode_steps, len(writer.history[0])])
        first = Timeouts._taken(client)
        writer.end_episode(timeout_ms=60_000)
        return [*out, first, [writer.episode_steps, len(writer.history[0])], Timeouts._taken(client)]

    @staticmethod
    def structured(module, client):
        structured = module.structured
        config = structured.create_config(structured.create_reference_step({"x": 0})["x"][-1:], "queue")
        writer = client.structured_writer([config])
        for value in range(4):
            writer.append({"x": np.int64(value)})
        out = [outcome(lambda: writer.flush(timeout_ms=50)), outcome(lambda: writer.flush(2))]
        out += [outcome(lambda wait=wait: writer.end_episode(timeout_ms=wait)) for wait in (50, 0)]
        first = Timeouts._taken(client)
        writer.end_episode(timeout_ms=60_000)
        return [*out, first, Timeouts._taken(client)]

    @staticmethod
    def dataset(module, client):
        tf = tensorflow()

        def made(table, **options):
            dataset = module.TrajectoryDataset(client.server_address, table, (tf.int64,), (tf.TensorShape([1]),), 5, **options)
            return [int(each.data[0][0]) for each in dataset]

        out = [made("other", rate_limiter_timeout_ms=50)]
        for value in range(7):
            client.insert([np.int64(value)], {"other": 1.0})
        return [*out, made("other", rate_limiter_timeout_ms=200), made("other", rate_limiter_timeout_ms=50)]

    @staticmethod
    def nobody_listens(module, client):
        lost = module.Client(NOWHERE)
        writer = lost.trajectory_writer(num_keep_alive_refs=1, validate_items=False)
        writer.append([np.int64(1)])
        writer.create_item("queue", 1.0, [writer.history[0][-1]])
        out = [
            outcome(lambda: lost.server_info(timeout=1)),
            outcome(lost.checkpoint),
            outcome(lambda: writer.flush(timeout_ms=50)),
        ]
        out.append(outcome(lambda: writer.end_episode(timeout_ms=50)))
        writer.append([np.int64(2)])
        writer.close()
        signature = outcome(
            lambda: module.TrajectoryDataset.from_table_signature(NOWHERE, "queue", 1, get_signature_timeout_secs=1)
        )
        return [*out, signature, sorted(client.server_info(timeout=30))]


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
        out.append(outcome(lambda: writer.flush(timeout_ms=50)))
        client.reset("queue")
        writer.flush()  # the items that waited are in the queue now
        out.append([sample(each) for each in client.sample("t", 1, emit_timesteps=False)])
        out.append(outcome(lambda: client.reset("nothing"), "was not found"))
        return [*out, table_info(client.server_info()["t"])]

    @staticmethod
    def read(module, client):
        return [drain(client), table_info(client.server_info()["queue"])]


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
