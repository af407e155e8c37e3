"""Operations over what items are made of: late and partial columns, references of other episodes, structured patterns, shared chunks."""

from __future__ import annotations

import collections

import numpy as np
import structured_scenarios
from matrix_bulk import drain, queue
from matrix_values import bits, key, values

Pair = collections.namedtuple("Pair", ["left", "right"])


class TrajectoryShapes:
    """What a trajectory writer's items can be made of."""

    name = "trajectory shapes"
    steps = ("write", "read")

    @staticmethod
    def tables(module, how):
        return [queue(module)]

    @staticmethod
    def write(module, client, how):
        return getattr(TrajectoryShapes, how)(module, client)

    @staticmethod
    def read(module, client, how):
        return drain(client)

    @staticmethod
    def late_columns(module, client):
        """A column, and one within a list, that come in the middle of an episode."""
        writer = client.trajectory_writer(num_keep_alive_refs=5)
        seen = []
        for step in range(6):
            row = {"x": np.float32(step), "list": [np.int32(step)]}
            if step >= 2:
                row["late"] = values("uint16", (2,), step)
            if step >= 3:
                row["list"] = [np.int32(step), np.bool_(step % 2)]
            writer.append(row)
            history = writer.history
            seen.append([sorted(history), [len(column) for column in history["list"]]])
            trajectory = {"x": history["x"][-2:] if step else history["x"][-1:]}
            if step >= 2:
                trajectory["late"] = history["late"][2:]
            if step >= 3:
                trajectory["list"] = [history["list"][0][-3:], history["list"][1][-1]]
            writer.create_item("queue", step, trajectory)
        writer.end_episode()
        return seen

    @staticmethod
    def partial_steps(module, client):
        """Items over the open step, before and after the rest of it came."""
        writer = client.trajectory_writer(num_keep_alive_refs=4)
        steps = []
        for step in range(5):
            writer.append({"x": values("int8", (3,), step)}, partial_step=True)
            writer.create_item("queue", step, {"x": writer.history["x"][-1]})
            steps.append(writer.episode_steps)
            if step == 2:
                writer.append({"z": np.int64(step)}, partial_step=True)
            writer.append({"y": np.float64(step)})
            steps.append(writer.episode_steps)
            if step:
                writer.create_item("queue", step, {"x": writer.history["x"][-2:], "y": writer.history["y"][-1]})
        writer.create_item("queue", 9, {"z": writer.history["z"][2]})
        writer.end_episode()
        return steps

    @staticmethod
    def missing_values(module, client):
        """Steps without some columns, and what cannot be referred to then."""
        writer = client.trajectory_writer(num_keep_alive_refs=6)
        for step in range(6):
            writer.append({"x": np.int64(step), "y": np.int64(10 * step) if step % 2 else None})
        history = writer.history
        refused = []
        for slicing in (slice(-2, None), slice(None, None), slice(-3, -1)):
            try:
                history["y"][slicing]
            except ValueError as error:
                refused.append("None" in str(error))
        writer.create_item("queue", 1, {"x": history["x"][:], "y": [history["y"][1], history["y"][-1:]]})
        writer.append({})
        writer.create_item("queue", 2, {"x": history["x"][-2], "y": history["y"][-2]})
        writer.end_episode()
        return refused

    @staticmethod
    def across_episodes(module, client):
        """References that outlive an episode which is ended without clearing."""
        writer = client.trajectory_writer(num_keep_alive_refs=6)
        lengths = []
        for episode in range(3):
            for step in range(2):
                writer.append([values("float16", (2, 2), 10 * episode + step)])
            lengths.append([len(writer.history[0]), writer.episode_steps])
            writer.create_item("queue", episode, [writer.history[0][-2 * (episode + 1) :]])
            writer.end_episode(clear_buffers=False)
        writer.create_item("queue", 7, [writer.history[0][1:4]])
        writer.end_episode()
        return [lengths, len(writer.history[0])]

    @staticmethod
    def built_columns(module, client):
        """Columns put together from references of several columns and episodes, in other orders, each from a chunk of its own."""
        writer = client.trajectory_writer(num_keep_alive_refs=6)
        for path in ((0,), (1,)):
            writer.configure(path, num_keep_alive_refs=6, max_chunk_length=1)
        for step in range(5):
            writer.append([np.int32(step), np.int32(100 + step)])
        a, b = (list(column[:]) for column in writer.history)
        column = module.TrajectoryColumn
        built = [
            column(a[1:3] + b[3:]),
            column([b[4], a[0], a[2]]),
            column([a[3]], squeeze=True),
            column(a)[-2:],
            column(b)[[0, 2]],
        ]
        out = [[list(each.shape), str(each.dtype), bits(each.numpy()), each.is_squeezed, len(each)] for each in built]
        writer.create_item("queue", 1, built)
        writer.create_item("queue", 2, Pair(built[0], {"again": built[0], "one": built[2]}))
        writer.create_item("queue", 3, built[1])
        writer.create_item("queue", 4, [writer.history[0][[4, 1]], writer.history[1][::2], writer.history[1][::-1]])
        writer.end_episode()
        return out

    @staticmethod
    def nests(module, client):
        """Containers within containers; empty ones have no columns."""
        ordered = collections.OrderedDict(z=np.int8(1), a=np.int8(2))
        writer = client.trajectory_writer(num_keep_alive_refs=2)
        for step in range(3):
            writer.append(
                {"pair": Pair(np.float32(step), (np.int64(step), [])), "ordered": ordered, "empty": {}, "text": "ä" * step}
            )
        history = writer.history
        out = [type(history["pair"]).__name__, list(history["ordered"]), history["empty"], history["pair"].left.path(),
               history["pair"].right[0].path()]  # fmt: skip
        writer.create_item("queue", 1, {"pair": Pair(history["pair"].left[-2:], history["pair"].right[0][-1]),
                                        "text": history["text"][-2:], "rest": [history["ordered"]["z"][-1]]})  # fmt: skip
        writer.end_episode()
        return [str(each) for each in out]

    @staticmethod
    def with_block(module, client):
        """The block flushes and does not close; close drops what was not flushed."""
        with client.trajectory_writer(num_keep_alive_refs=2) as writer:
            for step in range(3):
                writer.append({"x": np.int64(step)})
                writer.create_item("queue", step, {"x": writer.history["x"][-1:]})
        writer.append({"x": np.int64(9)})
        writer.create_item("queue", 9, {"x": writer.history["x"][-2:]})
        writer.flush()
        writer.close()
        writer.close()
        return [writer.episode_steps, len(writer.history["x"]), bits(writer.history["x"][-1].numpy())]


TrajectoryShapes.cells = [
    ({"how": how}, True)
    for how in ("late_columns", "partial_steps", "missing_values", "across_episodes", "built_columns", "nests", "with_block")
]


class Structured:
    """`Client.structured_writer`: the programs of structured_scenarios.py."""

    name = "StructuredWriter"
    steps = ("write", "read")
    cells = [
        ({"scenario": name}, not name.startswith("random") or name[-2:] in ("_0", "_1"))
        for name in (*structured_scenarios.SCENARIOS, "errors")
    ]

    @staticmethod
    def tables(module, scenario):
        return structured_scenarios.tables(module)

    @staticmethod
    def write(module, client, scenario):
        if scenario == "errors":
            return structured_scenarios.errors(module, client)
        return structured_scenarios.SCENARIOS[scenario](module, client)

    @staticmethod
    def read(module, client, scenario):
        return [structured_scenarios.items(client, table) for table in "ab"]


class SharedChunks:
    """Several tables whose items refer to the same chunks: what goes from one stays in the others."""

    name = "shared chunks"
    steps = ("write", "read")
    cells = [({"how": how}, True) for how in ("insert", "writer", "trajectory")]
    names = ("first", "second", "third")

    @staticmethod
    def tables(module, how):
        selectors = module.selectors
        return [
            module.Table(name, sampler(), selectors.Fifo(), 1000, module.rate_limiters.MinSize(1), max_times_sampled=1)
            for name, sampler in zip(SharedChunks.names, (selectors.Fifo, selectors.Lifo, selectors.MaxHeap), strict=True)
        ]

    @staticmethod
    def write(module, client, how):
        first, second, third = SharedChunks.names
        row = [values("uint8", (1000,), 0), np.int64(0)]
        if how == "insert":
            for step in range(12):
                row[1] = np.int64(step)
                client.insert(row, {first: 1.0, second: 2.0, third: step})
        elif how == "writer":
            with client.writer(max_sequence_length=4, chunk_length=4) as writer:
                for step in range(12):
                    writer.append([row[0], np.int64(step)])
                    for i, name in enumerate(SharedChunks.names):
                        if step >= i:
                            writer.create_item(name, i + 1, step)
        else:
            writer = client.trajectory_writer(num_keep_alive_refs=4)
            for step in range(12):
                writer.append([row[0], np.int64(step)])
                for i, name in enumerate(SharedChunks.names):
                    if step >= i:
                        writer.create_item(name, step, [column[-i - 1 :] for column in writer.history])
            writer.end_episode()

    @staticmethod
    def read(module, client, how):
        first, second, third = SharedChunks.names
        sizes = [client.server_info()[name].current_size for name in SharedChunks.names]
        gone = [each.info.key for each in client.sample(first, 5, emit_timesteps=False)]
        kept = [each.info for each in client.sample(second, 1, emit_timesteps=False)]
        client.mutate_priorities(third, updates={}, deletes=gone)  # keys of another table
        client.reset(first)
        out = [sizes, [key(each) for each in gone], [key(each.key) for each in kept]]
        return [*out, drain(client, second), drain(client, third), client.server_info()[first].current_size]
