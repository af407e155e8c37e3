"""Random programs of calls, which end alike with every mix of clients and servers; random_programs.py makes them.

`Run` makes the calls. It leaves out what cannot be compared: a sample or an insert that the limiter would keep waiting, and what Reverb is
known to do wrong or otherwise (matrix_differences.py, docs/migrating-from-reverb.md). Before a call looks at a table, what the writers have
made is flushed, and so it is before another writer makes items: what two of them send at once comes in any order.
"""

from __future__ import annotations

import math
import time

import numpy as np
from matrix_info import spec, table_info
from matrix_tables import DRAWS
from matrix_tables import table as make_table
from matrix_tensorflow import dtype_of, tensorflow
from matrix_values import bits, flatten, outcome
from matrix_values import sample as sample_of
from random_programs import NAMES, PATHS, STYLES, program

PATIENCE = 20_000  # ms that a flush may take which nothing should keep waiting
SKIPPED = "left out"


def made(dtype, shape, count):
    if dtype == "string":
        out = np.empty(shape, object)
        out[...] = f"{count}" if count % 3 else ""
        return out
    return np.full(shape, count % 2 if dtype == "bool" else count, dtype)


def attempt(call):
    """What a call returned, or as what a program may catch what it raised, and its text, which `difference` does not compare."""
    found = {}

    def kept():
        try:
            found["returned"] = call()
        except Exception as error:
            found["text"] = str(error)[:200]
            raise

    raised = outcome(kept)
    return raised | found if raised["raised"] else found


class Run:
    def __init__(self, module, client, style, tables):
        self.module, self.client = module, client
        self.style, self.tables = style, {each["name"]: each for each in tables}
        self.writers = {slot: client.trajectory_writer(4) for slot in ("w0", "w1")}
        self.opened = dict.fromkeys(self.writers, False)  # a step is
        self.validating = dict.fromkeys(self.writers, True)
        self.keeps = dict.fromkeys(self.writers, 4)
        self.legacy, self.since_flush, self.structured = client.writer(4), 0, None
        self.closed = set()
        self.awaited = {}  # how many items a table will have counted
        self.busy = None  # the writer whose items may be on their way
        self.keys, self.made = [], 0

    def nest(self, row):
        return STYLES[self.style]({name: made(*value) for name, value in row.items()})

    def column(self, slot, name):
        found = self.writers[slot].history
        for part in PATHS[self.style][name]:
            found = found[part]
        return found

    def rows(self, slot, name, index):
        """None where Reverb's history has ideas of its own: about rows that are not there yet, and about slices of no rows."""
        column = self.column(slot, name)
        size = len(column)
        ends = [index] if isinstance(index, int) else index[:2]
        if any(end is not None and end >= size for end in ends):
            return None
        if isinstance(index, int):
            return column[index]
        start, stop, _ = slice(*index).indices(size)
        if index[0] is None and index[1] is not None:
            start = max(0, size - self.keeps[slot])
        if stop <= start and (index[0] is None or index[0] >= -size):
            return None
        return column[slice(*index)]

    # what is on its way

    def turn(self, who):
        if self.busy not in (None, who):
            self.settle()
        self.busy = None if who in self.closed else who

    def settle(self):
        """Until all items that were made are in their tables."""
        who, self.busy, self.made = self.busy, None, 0
        if who in self.writers:
            self.writers[who].flush(timeout_ms=PATIENCE)
        elif who == "legacy":
            self.since_flush = 0
            self.legacy.flush()
            self.legacy.flush()  # the first sends, the second waits
        elif who == "structured":
            self.structured.flush(timeout_ms=PATIENCE)
        end = time.monotonic() + 2
        for table, count in self.awaited.items():  # Reverb's server may tell of an item that is not in yet
            while self.state(table)[2] < count and time.monotonic() < end:
                time.sleep(0.001)
        self.awaited = {}

    def state(self, table):
        found = self.client.server_info()[table]
        limiter = found.rate_limiter_info
        return found, limiter, limiter.insert_stats.completed, limiter.sample_stats.completed

    def has_room(self, table):
        """For one more item, and those that are on their way."""
        found, limiter, inserts, samples = self.state(table)
        if self.made:
            busy = self.busy
            self.settle()
            self.busy = busy
            found, limiter, inserts, samples = self.state(table)
        return found.current_size < limiter.min_size_to_sample or (
            (inserts + 1) * limiter.samples_per_insert - samples <= limiter.max_diff
        )

    def can_sample(self, table, count):
        """How many of so many samples the limiter lets through."""
        found, limiter, inserts, samples = self.state(table)
        spare = found.current_size - limiter.min_size_to_sample + 1
        if spare < 1:
            return 0
        if found.max_times_sampled > 0:
            count = min(count, spare)
        while count and inserts * limiter.samples_per_insert - samples - count < limiter.min_diff:
            count -= 1
        return count

    def is_random(self, table):
        """Whether its sampler draws: then what it gives is compared where it has one item, and at the end."""
        return self.tables[table]["sampler"][0] in "UP"

    # calls

    def insert(self, row, priorities):
        self.turn("insert")
        if not all(self.has_room(table) for table in priorities):
            return SKIPPED
        before = {table: self.state(table)[2] for table in priorities}
        self.client.insert(self.nest(row), priorities)
        self.awaited = {table: count + 1 for table, count in before.items()}
        self.settle()
        return None

    def append(self, slot, row, partial):
        if slot in self.closed:
            return SKIPPED
        out = attempt(lambda: self.writers[slot].append(self.nest(row), partial_step=partial))
        if "returned" in out:
            self.opened[slot] = partial
        return [out, self.writers[slot].episode_steps]

    def append_wrong(self, slot, name, value):
        """Maybe of another dtype or shape than the column's, and of no other column: Reverb's writers end where a second one fails."""
        if len(self.column(slot, name)) == 0:
            return SKIPPED
        return self.append(slot, {name: value}, False)

    def item(self, slot, table, priority, columns, nest):
        self.turn(slot)
        if slot in self.closed or not self.has_room(table) or (self.tables[table]["signature"] and not self.validating[slot]):
            return SKIPPED
        found = {name: self.rows(slot, name, index) for name, index in columns.items()}
        if any(each is None for each in found.values()) or (len(found) > 1 and any(len(each) == 0 for each in found.values())):
            return SKIPPED
        trajectory = STYLES[self.style](found) if nest and self.style != "list" else list(found.values())
        self.writers[slot].create_item(table, priority, trajectory)
        self.made += 1
        return None

    def history(self, slot, name, index):
        found = self.rows(slot, name, index)
        if found is None or len(found) == 0:
            return SKIPPED
        return [len(self.column(slot, name)), list(found.shape), found.is_squeezed, bits(found.numpy())]

    def flush(self, slot, leave):
        self.turn(slot)
        return self.writers[slot].flush(leave, PATIENCE)

    def overfull(self, slot, table):
        """An item that its table does not let in until something was sampled."""
        self.turn(slot)
        given = self.tables[table]
        if self.is_random(table) or given["signature"] or given["max_times_sampled"] or slot in self.closed or self.opened[slot]:
            return SKIPPED
        if self.has_room(table):
            return SKIPPED
        _, limiter, inserts, samples = self.state(table)
        needed = math.ceil(
            (inserts + 1) * limiter.samples_per_insert - samples - limiter.max_diff
        )  # only after the last is there room
        if self.can_sample(table, needed) < needed:
            return SKIPPED
        writer = self.writers[slot]
        writer.create_item(table, 1.0, [self.column(slot, "b")[-1:]])
        waited = [
            attempt(lambda: writer.flush(timeout_ms=100)),
            attempt(lambda: writer.end_episode(True, 100)),
            writer.episode_steps,
        ]
        found = [sample_of(each) for each in self.client.sample(table, needed, emit_timesteps=False)]
        writer.end_episode(True, PATIENCE)
        return [waited, found, writer.episode_steps, self.state(table)[2:]]

    def end_episode(self, slot, clear):
        if self.opened[slot]:
            return SKIPPED
        self.turn(slot)
        self.writers[slot].end_episode(clear, PATIENCE)
        return self.writers[slot].episode_steps

    def reopen(self, slot, keep, validate):
        self.settle()
        self.writers[slot].close()
        self.writers[slot] = self.client.trajectory_writer(keep, validate_items=validate)
        self.opened[slot], self.validating[slot] = False, validate
        self.closed.discard(slot)
        self.keeps[slot] = keep

    def close(self, slot):
        self.settle()
        self.closed.add(slot)
        return self.writers[slot].close()

    def configure(self, slot, name, chunk):
        if slot in self.closed:
            return SKIPPED
        return self.writers[slot].configure(PATHS[self.style][name], num_keep_alive_refs=self.keeps[slot], max_chunk_length=chunk)

    def legacy_append(self, row):
        self.legacy.append(self.nest(row))
        self.since_flush += 1

    def legacy_sequence(self, row, rows):
        repeated = {
            name: np.stack([made(dtype, shape, count + i) for i in range(rows)]) for name, (dtype, shape, count) in row.items()
        }
        self.legacy.append_sequence(STYLES[self.style](repeated))
        self.since_flush += rows

    def legacy_item(self, table, rows, priority):
        self.turn("legacy")
        if not self.has_room(table) or rows > self.since_flush:
            return SKIPPED
        before = self.awaited.get(table, self.state(table)[2])
        self.legacy.create_item(table, rows, priority)
        self.awaited[table] = before + 1
        self.made += 1
        return None

    def legacy_flush(self):
        self.turn("legacy")
        self.settle()

    def legacy_reopen(self, most, chunk):
        self.settle()
        self.legacy_close()
        self.legacy, self.since_flush = self.client.writer(most, chunk_length=chunk), 0
        self.closed.discard("legacy")

    def legacy_close(self):
        self.settle()
        self.closed.add("legacy")
        return attempt(self.legacy.close)

    def structured_open(self, configs):
        self.settle()
        self.structured = None
        self.structured = self.client.structured_writer([self.config(**each) for each in configs])

    def config(self, table, nodes, conditions, priority):
        structured = self.module.structured
        step = structured.create_reference_step(STYLES[self.style](dict.fromkeys(NAMES, 0)))

        def reference(name):
            found = step
            for part in PATHS[self.style][name]:
                found = found[part]
            return found

        pattern = {}
        for name, (start, stop) in nodes.items():
            pattern[name] = reference(name)[stop if start is None else slice(start, stop)]
        priority = structured.constant_priority_fn(priority)
        return structured.create_config(pattern, table, [self.condition(*each) for each in conditions], priority)

    def condition(self, kind, operator, operand):
        condition = self.module.structured.Condition
        if kind == "end":
            return condition.is_end_episode()
        if kind == "data":
            left = condition.data(STYLES[self.style](dict.fromkeys(NAMES, 0)))
            for part in PATHS[self.style]["a"]:
                left = left[part]
        else:
            left = getattr(condition, kind)()
        return {
            "==": lambda: left == operand,
            "!=": lambda: left != operand,
            ">=": lambda: left >= operand,
            "<": lambda: left < operand,
            "%": lambda: left % (operand + 1) == operand % 2,
            "%!": lambda: left % (operand + 1) != operand % 2,
        }[operator]()

    def structured_append(self, row, partial):
        if self.structured is None:
            return SKIPPED
        self.turn("structured")
        row = {name: made(*row[name]) if name in row else None for name in NAMES}
        self.structured.append(STYLES[self.style](row), partial_step=partial)
        return self.structured.step_is_open

    def structured_end(self, clear):
        if self.structured is None:
            return SKIPPED
        self.turn("structured")
        self.structured.end_episode(clear, PATIENCE)
        return self.structured.step_is_open

    def sample(self, table, count, how):
        self.settle()
        if not self.can_sample(table, 1):
            return SKIPPED
        if self.is_random(table) and self.state(table)[0].current_size > 1:
            return SKIPPED
        count = self.can_sample(table, 1 if how == "timesteps" else count)
        asked = {"emit_timesteps": how == "timesteps", "unpack_as_table_signature": how == "unpacked"}
        try:
            found = list(self.client.sample(table, count, **asked))
        except (TypeError, ValueError):
            if how != "timesteps":
                raise
            return "cannot be split"  # where there are two reasons each package has its own
        found = [step for each in found for step in (each if isinstance(each, list) else [each])]
        self.keys += [each.info.key for each in found]
        return [sample_of(each) for each in found]

    def mutate(self, table, updates, deletes):
        self.settle()
        keys = dict(enumerate(self.keys[-10:]))
        return self.client.mutate_priorities(
            table, {keys.get(i, i): priority for i, priority in updates}, [keys.get(i, i) for i in deletes]
        )

    def reset(self, table):
        self.legacy_reopen(4, None)  # who waits for its items at its end counts those of its tables
        return self.client.reset(table)

    def info(self, table):
        self.settle()
        found = self.client.server_info()[table]
        return [table_info(found), signature_of(found.signature)]

    def wrong(self, what, slot, table):
        self.settle()
        if self.opened[slot] or slot in self.closed:
            return SKIPPED
        writer, client, nan = self.writers[slot], self.client, float("nan")

        def rows():
            return [self.column(slot, "a")[-1:]]

        return {
            "insert unknown": lambda: client.insert([1], {"nowhere": 1.0}),
            "insert nan": lambda: client.insert([1], {table: nan}),
            "insert nothing": lambda: client.insert([1], {}),
            "insert none": lambda: client.insert([None], {table: 1.0}),
            "item unknown": lambda: SKIPPED if not self.validating[slot] else writer.create_item("nowhere", 1.0, rows()),
            "item nan": lambda: writer.create_item(table, nan, rows()),
            "item text": lambda: writer.create_item(table, "a", rows()),
            "item no column": lambda: writer.create_item(table, 1.0, [1]),
            "item nothing": lambda: writer.create_item(table, 1.0, []),
            "flush negative": lambda: writer.flush(-1),
            "configure zero": lambda: writer.configure(("z",), num_keep_alive_refs=0, max_chunk_length=1),
            "configure long": lambda: writer.configure(("z",), num_keep_alive_refs=1, max_chunk_length=2),
            "mutate to text": lambda: client.mutate_priorities(table, {(1 << 63) + 5: "a"}),
            "mutate text": lambda: client.mutate_priorities(table, {"a": 1.0}),
            "mutate unknown": lambda: client.mutate_priorities("nowhere", {1: 1.0}),
            "reset unknown": lambda: client.reset("nowhere"),
            "sample unknown": lambda: next(client.sample("nowhere")),
            "sample zero": lambda: next(client.sample(table, 0)),
            "legacy unknown": lambda: self.legacy.create_item("nowhere", 1, 1.0),
            "legacy nan": lambda: self.legacy.create_item(table, 1, nan),
            "append object": lambda: [len(self.column(slot, "a")), writer.append(STYLES[self.style]({"a": object()}))],
            "column gather": lambda: bits(self.column(slot, "a")[[-1, -2]].numpy()),
        }[what]()

    def draws(self, name):
        """What many draws show, but how often: items by their data."""
        if not self.can_sample(name, 1) or self.state(name)[0].current_size > 9:
            return SKIPPED
        found = {}
        for each in self.client.sample(name, DRAWS, emit_timesteps=False):
            seen = found[each.info.key] = sample_of(each)
            del seen["info"]["key"], seen["info"]["times_sampled"]
        return sorted(found.values(), key=str)

    def end(self):
        """All tables as they are at the end, and all items that can be sampled in an order."""
        self.settle()
        out = []
        for name, table in self.tables.items():
            out.append([name, attempt(lambda name=name: self.info(name))])
            if self.is_random(name):
                if table["max_times_sampled"] == 0 and table["limiter"][0] == "MinSize":
                    out.append(attempt(lambda name=name: self.draws(name)))
            else:
                size = self.state(name)[0].current_size
                out.append(attempt(lambda name=name, size=size: self.sample(name, max(size, 1), "columns")))
                out.append(attempt(lambda name=name: self.info(name)))
        for writer in self.writers.values():
            writer.close()
        attempt(self.legacy.close)
        return out


def signature_of(nest):
    return None if nest is None else [spec(leaf) for leaf in flatten(nest)]


class RandomPrograms:
    """The program of a `seed`, or one that is `given`: to look for the call that a difference comes of, leave out one after another."""

    name = "random program"
    steps = ("run",)
    cells = [({"seed": seed}, seed < 60) for seed in range(600)]

    @staticmethod
    def tables(module, seed=None, given=None):
        given = given or program(seed)
        tables = []
        for each in given["tables"]:
            limiter, *arguments = each["limiter"]
            signature = each["signature"] and STYLES[given["style"]]({
                name: tensorflow().TensorSpec(shape, dtype_of(dtype)) for name, (dtype, shape) in each["signature"].items()
            })  # fmt: skip
            each = each | {"limiter": getattr(module.rate_limiters, limiter)(*arguments), "signature": signature}
            tables.append(make_table(module, **each))
        return tables

    @staticmethod
    def run(module, client, seed=None, given=None):
        given = given or program(seed)
        run = Run(module, client, given["style"], given["tables"])
        results = []
        for name, arguments in given["calls"]:
            results.append([name, attempt(lambda name=name, arguments=arguments: getattr(run, name)(**arguments))])
        return [*results, *run.end()]


class RandomCheckpoints(RandomPrograms):
    """The tables that a program leaves, after a checkpoint, in another server."""

    name = "random checkpoint"
    steps = ("write", "read")
    servers = 2
    cells = [({"seed": seed}, seed < 1002) for seed in range(1000, 1020)]

    @staticmethod
    def write(module, client, seed=None, given=None):
        results = RandomPrograms.run(module, client, seed, given)
        client.checkpoint()
        return results

    @staticmethod
    def read(module, client, seed=None, given=None):
        given = given or program(seed)
        return Run(module, client, given["style"], given["tables"]).end()
