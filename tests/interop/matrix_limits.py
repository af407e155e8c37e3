"""Operations about which item comes, and when: selectors, limiters, timeouts."""

from __future__ import annotations

import time

import numpy as np
from matrix_bulk import queue
from matrix_tables import NOWHERE, everything, keys_by_value, table
from matrix_tensorflow import tensorflow
from matrix_values import outcome, sample

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
        writer.flush(2)  # by now those that there is room for may not be in
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
