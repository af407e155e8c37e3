"""Operations over every dtype and size: insert, the legacy writer, the trajectory writer, and long runs of items."""

from __future__ import annotations

import numpy as np
from matrix_values import DTYPES, INTEGERS, bits, flatten, info, sample, values

SHAPES = ((), (3,), (2, 0), (2, 3, 1))
# Bytes of one item's column, with the shape of uint8 rows that has them.
SIZES = {
    "0 B": (0,), "1 B": (1,), "400 B": (400,), "4 kB": (4000,), "40 kB": (200, 200), "400 kB": (400_000,), "4 MB": (2000, 2000),
    "16 MB": (16, 1000, 1000), "64 MB": (64_000_000,),
}  # fmt: skip
SHORT_SIZES = ("0 B", "1 B", "4 kB", "400 kB", "64 MB")


def queue(module, name="queue", size=1000, **options):
    return module.Table.queue(name, size, **options)


def drain(client, name="queue", **options):
    """Everything in a queue, in order."""
    count = client.server_info()[name].current_size
    return [sample(each) for each in client.sample(name, count, emit_timesteps=False, **options)] if count else []


def drain_steps(client, name):
    """The same as lists of steps."""
    count = client.server_info()[name].current_size
    found = client.sample(name, count) if count else []
    return [[[bits(leaf) for leaf in flatten(step.data)] + [info(step.info)] for step in steps] for steps in found]


class Insert:
    """`Client.insert`: rows of one step, in nests, into one or two tables; read as trajectories and as steps."""

    name = "insert"
    steps = ("write", "read")
    cells = [({"dtype": dtype, "shape": shape}, shape in ((), (2, 3, 1))) for dtype in DTYPES for shape in SHAPES] + [
        ({"dtype": "uint8", "shape": shape}, size in SHORT_SIZES) for size, shape in SIZES.items()
    ]

    @staticmethod
    def tables(module, dtype, shape):
        return [queue(module), queue(module, "steps"), queue(module, "nest")]

    @staticmethod
    def write(module, client, dtype, shape):
        if np.prod(shape) > 1e7:
            client.insert([values(dtype, shape, 0)], {"queue": 1.0, "steps": 2.0})
            return
        for seed in range(3):
            first, second = values(dtype, shape, seed), values(dtype, (2,), 10 + seed)
            client.insert([first, second], {"queue": 1.5 + seed, "steps": 2})
        client.insert({"b": first, "a": (second, [np.float32(seed)])}, priorities={"nest": np.float32(0.25)})

    @staticmethod
    def read(module, client, dtype, shape):
        return [drain(client), drain_steps(client, "steps"), drain(client, "nest")]


class LegacyWriter:
    """`Client.writer`: items over the last steps, chunks of several lengths, delta coded or not."""

    name = "Writer"
    steps = ("write", "read")
    cells = [
        ({"dtype": dtype, "shape": shape, "delta": delta, "chunk": chunk}, short)
        for dtype in DTYPES
        for shape in ((), (2, 3), (5,))
        for delta in (False, True)
        for chunk in (1, 3, None)
        for short in [shape == (2, 3) and chunk == 3 and (delta or dtype in ("bool", "float32", "string"))]
    ] + [({"dtype": "int32", "shape": (1000, 1000), "delta": delta, "chunk": 2}, delta) for delta in (False, True)]

    @staticmethod
    def tables(module, dtype, shape, delta, chunk):
        return [queue(module), queue(module, "steps")]

    @staticmethod
    def write(module, client, dtype, shape, delta, chunk):
        with client.writer(max_sequence_length=5, delta_encoded=delta, chunk_length=chunk) as writer:
            for step in range(7):
                writer.append({"x": values(dtype, shape, step), "y": np.int64(step)})
                writer.create_item("queue", 1 + step % min(5, step + 1), step / 4)
                if step >= 2:
                    writer.create_item(table="steps", num_timesteps=3, priority=step)
            writer.append_sequence({"x": values(dtype, (4, *shape), 20), "y": np.arange(4)})
            writer.create_item("queue", 4, 9.0)
            writer.flush()
            writer.append({"x": values(dtype, shape, 30), "y": np.int64(30)})
            # Across a flush Reverb's writer may have forgotten the chunks of five steps: see matrix_differences.py.
            writer.create_item("queue", 2 if chunk is None else 5, 10.0)

    @staticmethod
    def read(module, client, dtype, shape, delta, chunk):
        return [drain(client), drain_steps(client, "steps")]


class Trajectory:
    """`Client.trajectory_writer`: columns of a dtype, whole, in part and squeezed, over two episodes, in chunks of several lengths."""

    name = "TrajectoryWriter"
    steps = ("write", "read")
    cells = [
        (
            {"dtype": dtype, "shape": shape, "chunk": chunk},
            shape == (2, 3) and chunk in ((None, 3) if dtype in INTEGERS else (None,)),
        )
        for dtype in DTYPES
        for shape in ((), (2, 3), (0,))
        for chunk in (None, 1, 3)
    ] + [({"dtype": "uint8", "shape": shape, "chunk": None}, size in SHORT_SIZES) for size, shape in SIZES.items()]

    @staticmethod
    def tables(module, dtype, shape, chunk):
        return [queue(module)]

    @staticmethod
    def write(module, client, dtype, shape, chunk):
        big = np.prod(shape) > 1e6
        writer = client.trajectory_writer(num_keep_alive_refs=4)
        if chunk is not None:
            writer.configure(("x",), num_keep_alive_refs=4, max_chunk_length=chunk)
        shapes, steps = [], []
        for episode in range(1 if big else 2):
            for step in range(2 if big else 6):
                writer.append({"x": values(dtype, shape, 10 * episode + step), "y": np.int64(step)})
                x, y = writer.history["x"], writer.history["y"]
                trajectories = [{"last": x[-1], "y": y[-1]}]
                if step >= 2 and not big:
                    trajectories += [
                        {"x": x[-3:]},
                        {"a": x[-3:-1], "b": [y[-1:], x[-2]], "c": y[:]} if step < 4 else {"x": x[-4:]},
                    ]
                for trajectory in trajectories:
                    flat = list(_columns(trajectory))
                    shapes.append([[list(column.shape), str(column.dtype)] for column in flat])
                    writer.create_item("queue", step + 0.5, trajectory)
                if step == 4:
                    writer.flush(block_until_num_items=1)
                if big:  # two of them are more than may be on its way to a server
                    writer.flush()
            steps.append(writer.episode_steps)
            writer.end_episode()
            steps.append(writer.episode_steps)
        writer.close()
        return [shapes, steps]

    @staticmethod
    def read(module, client, dtype, shape, chunk):
        return drain(client)


def _columns(trajectory):
    if isinstance(trajectory, dict):
        for each in trajectory.values():
            yield from _columns(each)
    elif isinstance(trajectory, list):
        for each in trajectory:
            yield from _columns(each)
    else:
        yield trajectory


class LongRun:
    """Thousands of items: batches and streams grow, chunks get longer, old items go."""

    name = "long runs"
    steps = ("write", "read")
    cells = [({"how": how, "count": count}, count == 500) for how in ("insert", "writer", "trajectory") for count in (500, 3000)]

    @staticmethod
    def tables(module, how, count):
        return [queue(module, size=count), module.Table("last", module.selectors.Lifo(), module.selectors.Fifo(), 100,
                                                        module.rate_limiters.MinSize(1))]  # fmt: skip

    @staticmethod
    def write(module, client, how, count):
        row = np.arange(30, dtype=np.float32)
        if how == "insert":
            for step in range(count // 5):
                client.insert([row + step, np.int64(step)], {"queue": step, "last": 1.0})
        elif how == "writer":
            with client.writer(max_sequence_length=4, delta_encoded=True) as writer:
                for step in range(count):
                    writer.append([row + step, np.int64(step)])
                    if step >= 3:
                        writer.create_item("queue", 4, step)
                        writer.create_item("last", 1, step)
        else:
            writer = client.trajectory_writer(num_keep_alive_refs=6)
            for step in range(count):
                writer.append([row + step, np.int64(step)])
                if step % 100 >= 5:
                    writer.create_item("queue", step, [writer.history[0][-6:], writer.history[1][-1]])
                    writer.create_item("last", step, [writer.history[1][-2:]])
                if step % 100 == 99:
                    writer.end_episode()
            writer.end_episode()

    @staticmethod
    def read(module, client, how, count):
        table = client.server_info()["last"]
        last = [sample(each)["data"] for each in client.sample("last", 1, emit_timesteps=False)]
        return [table.current_size, table.rate_limiter_info.insert_stats.completed, last, drain(client)]
