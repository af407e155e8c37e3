"""What a program does with a structured writer, in words that Reverb and Reverie share: run under both, its items must be the same.

`module` is `reverb` or `reverie`. Nothing here imports either. Strided patterns are kept short: of long ones Reverb reads other rows than
were asked for.
"""

import collections

import numpy as np

Step = collections.namedtuple("Step", ["observation", "action", "reward"])


class Writer:
    """A structured writer and short words for what it is given."""

    def __init__(self, module, client, step, *configs):
        self.structured = module.structured
        made = [
            self.structured.create_config(
                self.structured.pattern_from_transform(step, transform), table, conditions(self), priority(self)
            )
            for table, transform, conditions, priority in configs
        ]
        self.writer = client.structured_writer(made)
        self.condition = self.structured.Condition


def always(_):
    return ()


def default(_):
    return None


def config(transform, conditions=always, priority=default, table="a"):
    return (table, transform, conditions, priority)


PAIR = {"x": 0, "y": 0}


def _append(writer, pairs):
    for x, y in pairs:
        writer.append({"x": x, "y": y})


# ---- scenarios ----


def transitions(module, client):
    """One-step and three-step transitions, over two episodes."""
    step = Step({"image": 0, "speed": 0}, 0, 0)
    configs = [
        config(
            lambda r: {"o": r.observation["image"][-2], "a": r.action[-2], "r": r.reward[-2], "next": r.observation["image"][-1]}
        ),
        config(lambda r: [r.observation["speed"][-4], r.action[-4], r.reward[-4:-1], r.observation["speed"][-1]], table="b"),
    ]
    w = Writer(module, client, step, *configs).writer
    for episode in range(2):
        for i in range(7):
            value = 10 * episode + i
            observation = {"image": np.full((2, 3), value, np.uint8), "speed": np.float32(value / 4)}
            w.append(Step(observation, np.int32(value), np.float64(value / 2)))
        w.end_episode()


def overlapping_sequences(module, client):
    """Sequences of four every two steps, and the rest at the end of the episode."""
    condition = module.structured.Condition
    w = Writer(
        module,
        client,
        PAIR,
        config(
            lambda r: {"x": r["x"][-4:], "y": r["y"][-4:]},
            lambda _: [condition.step_index() >= 3, condition.step_index() % 2 == 1],
        ),
        config(lambda r: {"x": r["x"][-4:]}, lambda _: [condition.is_end_episode()], table="b"),
    ).writer
    for n in (9, 3, 6):
        _append(w, [(np.int64(10 * n + i), np.float32(i)) for i in range(n)])
        w.end_episode()


def strides(module, client):
    w = Writer(module, client, PAIR, config(lambda r: {"x": r["x"][-5::2], "y": r["y"][-5:-1:3]})).writer
    _append(w, [(i, -i) for i in range(8)])
    w.flush()


def every_condition(module, client):
    condition, proto = module.structured.Condition, module.structured.ConditionProto
    data = condition.data(PAIR)
    lists = [
        lambda _: [condition.step_index() == 2],
        lambda _: [condition.step_index() != 2],
        lambda _: [condition.step_index() > 2],
        lambda _: [condition.step_index() <= 2],
        lambda _: [condition.step_index() % 3 != 1],
        lambda _: [condition.steps_since_applied() >= 3],
        lambda _: [condition.steps_since_applied() % 2 == 0],
        lambda _: [proto(buffer_length=True, ge=2)],
        lambda _: [proto(buffer_length=True, ge=2, inverse=True)],
        lambda _: [condition.is_end_episode()],
        lambda _: [condition.is_end_episode(), condition.step_index() >= 2],
        lambda _: [data["y"] == 1],
        lambda _: [data["y"] != 1],
        lambda _: [data["y"] < 2, data["y"] >= -1],
        lambda _: [data["y"] % 2 == 1],
    ]
    configs = [
        config(lambda r: [r["x"][-1]], each, lambda _, i=i: module.structured.constant_priority_fn(i))
        for i, each in enumerate(lists)
    ]
    configs.append(config(lambda r: [r["x"][-3:]], table="b"))
    w = Writer(module, client, PAIR, *configs).writer
    for n in (6, 2, 4):
        _append(w, [(np.int32(10 * n + i), np.int64(y)) for i, y in zip(range(n), (0, 1, 2, -1, -3, 1)[:n], strict=True)])
        w.end_episode(clear_buffers=n != 2)


def data_of_other_kinds(module, client):
    """Bools, one element in a shape, and what no condition can hold of."""
    condition = module.structured.Condition
    step = {"x": 0, "bool": 0, "one": 0, "float": 0, "two": 0, "none": 0}
    data = condition.data(step)
    names = ("bool", "one", "float", "two", "none")
    configs = [
        config(lambda r: [r["x"][-1]], lambda _, c=c: [c], lambda _, i=i: module.structured.constant_priority_fn(i))
        for i, c in enumerate([data[name] == 1 for name in names] + [data[name] != 1 for name in names])
    ]
    w = Writer(module, client, step, *configs).writer
    for i in range(4):
        odd = i % 2
        w.append(
            {
                "x": i,
                "bool": np.bool_(odd),
                "one": np.full((1, 1), odd, np.uint16),
                "float": float(odd),
                "two": np.array([odd, odd]),
                "none": None,
            }
        )
    w.end_episode()


def td_errors(module, client):
    def weighted(weight):
        return lambda _: module.structured.td_error(weight, PAIR, lambda step: step["y"])

    for dtype in (np.float32, np.float64, np.int32, np.int64):
        w = Writer(
            module,
            client,
            PAIR,
            config(lambda r: {"p": r["x"][-1], "q": r["y"][-3:]}, priority=weighted(0.9)),
            config(lambda r: {"p": r["y"][-3:-1], "q": r["y"][-1]}, priority=weighted(0.25), table="b"),
        ).writer
        _append(w, [(i, dtype(y)) for i, y in enumerate((1, -2, 3, -10, 0, 0, 0))])
        w.end_episode()


def partial_steps(module, client):
    w = Writer(
        module,
        client,
        PAIR,
        config(lambda r: [r["x"][-1]]),
        config(lambda r: [r["y"][-2:]]),
        config(lambda r: [r["x"][-2], r["y"][-1]], table="b"),
    ).writer
    opened = []
    for i in range(5):
        w.append({"x": i, "y": None}, partial_step=True)
        opened.append(w.step_is_open)
        if i == 2:
            w.append({"x": None, "y": None}, partial_step=True)
        w.append({"x": None, "y": 10 * i if i != 3 else None})
        opened.append(w.step_is_open)
    w.append({"x": None, "y": 99}, partial_step=True)
    w.end_episode()
    opened.append(w.step_is_open)
    w.append({"x": 7, "y": 8})
    w.end_episode()
    return opened


def missing_rows(module, client):
    w = Writer(
        module, client, PAIR, config(lambda r: [r["x"][-3:]]), config(lambda r: [r["x"][-1], r["y"][-3]], table="b")
    ).writer
    _append(w, [(None, 0), (1, None), (2, 2), (3, None), (None, 4), (5, 5), (6, None), (7, None), (8, 8)])
    w.end_episode()


def dtypes(module, client):
    values = [
        *(
            np.array([[0, 1], [2, 3]], dtype)
            for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?")
        ),
        b"bytes",
        np.array([b"a", b"", b"\x00c"], object),
        np.zeros((0, 3), np.float32),
    ]
    step = list(range(len(values)))
    w = Writer(
        module,
        client,
        step,
        config(lambda r: [column[-2:] for column in r]),
        config(lambda r: [column[-1] for column in r], table="b"),
    ).writer
    for _ in range(3):
        w.append(values)
    w.end_episode()


def random_steps(module, client, seed):
    """Random patterns and conditions over random steps, whole and in parts, in episodes with and without clearing."""
    random = np.random.RandomState(seed)
    condition = module.structured.Condition
    data = condition.data(PAIR)

    def rows(column):
        start = -1 - random.randint(5)
        if random.randint(2):
            return column[start]
        stop = start + 1 + random.randint(-start)
        return column[start:stop] if stop < 0 else column[start:]

    def conditions():
        number = random.randint(4)
        choices = [
            lambda: condition.step_index() >= number,
            lambda: condition.step_index() % (number + 1) == 0,
            lambda: condition.steps_since_applied() >= number,
            lambda: condition.is_end_episode(),
            lambda: data["y"] != number,
            lambda: data["y"] <= number,
        ]
        return [choices[random.randint(len(choices))]() for _ in range(random.randint(3))]

    configs = []
    for i in range(1 + random.randint(4)):
        chosen, table = conditions(), "ab"[random.randint(2)]
        columns = random.choice(["x", "y"], 1 + random.randint(3))
        configs.append(
            config(
                lambda r, columns=columns: [rows(r[str(name)]) for name in columns],
                lambda _, chosen=chosen: chosen,
                lambda _, i=i: module.structured.constant_priority_fn(i),
                table,
            )
        )
    w = Writer(module, client, PAIR, *configs).writer
    left = {"x", "y"}
    for i in range(80):
        if random.randint(12) == 0:
            w.end_episode(clear_buffers=bool(random.randint(2)))
            left = {"x", "y"}
        given = {name for name in sorted(left) if random.randint(6)}
        partial = bool(random.randint(3) == 0)
        w.append(
            {"x": i if "x" in given else None, "y": np.int32(random.randint(5)) if "y" in given else None}, partial_step=partial
        )
        left = left - given if partial else {"x", "y"}
    w.end_episode()


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        transitions,
        overlapping_sequences,
        strides,
        every_condition,
        data_of_other_kinds,
        td_errors,
        partial_steps,
        missing_rows,
        dtypes,
    )
}
for _seed in range(12):
    SCENARIOS[f"random_steps_{_seed}"] = lambda module, client, seed=_seed: random_steps(module, client, seed)


# ---- what is compared ----


def plain(value):
    value = np.asarray(value)
    if value.dtype == object:
        return [str(value.shape), [item.hex() for item in value.ravel().tolist()]]
    if value.dtype.kind == "c":
        return [str(value.dtype), str(value.shape), [str(item) for item in value.ravel().tolist()]]
    return [str(value.dtype), str(value.shape), value.ravel().tolist()]


def flatten(nest):
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in flatten(nest[key])]
    if isinstance(nest, (list, tuple)):
        return [leaf for each in nest for leaf in flatten(each)]
    return [nest]


def items(client, table):
    """Data and priority of everything in the table, in order; the table is empty afterwards."""
    count = client.server_info()[table].current_size
    if count == 0:
        return []
    samples = client.sample(table, count, emit_timesteps=False)
    return [[[plain(leaf) for leaf in flatten(sample.data)], round(sample.info.priority, 5)] for sample in samples]


def run_all(module, client):
    """By scenario: what it returned, and the items of both tables."""
    out = {}
    for name, scenario in SCENARIOS.items():
        returned = scenario(module, client)
        out[name] = [returned, items(client, "a"), items(client, "b")]
    return out


def tables(module):
    return [module.Table.queue(name, 10_000) for name in "ab"]


# ---- errors ----


def _kind(call):
    try:
        call()
    except Exception as error:
        names = [each.__name__ for each in type(error).__mro__]
        return next(name for name in ("DeadlineExceededError", "TypeError", "RuntimeError", "ValueError") if name in names)
    return "none"


def errors(module, client):
    """The kinds of the exceptions of calls that fail; by name."""
    structured = module.structured

    def made(edit=None, conditions=(), row=-1):
        result = structured.create_config(structured.create_reference_step(PAIR)["x"][row], "a", conditions)
        if edit is not None:
            edit(result)
        return result

    def writing(*steps, priority=None):
        pattern = structured.create_reference_step(PAIR)["x"][-1]
        writer = client.structured_writer([structured.create_config(pattern, "a", priority=priority)])
        for values, partial in steps:
            writer.append(values, partial_step=partial)

    proto = structured.ConditionProto
    td_error = structured.td_error(0.9, PAIR, lambda step: step["x"])
    calls = {
        "no configs": lambda: client.structured_writer([]),
        "None": lambda: client.structured_writer(None),
        "no nodes": lambda: client.structured_writer([made(lambda c: c.ClearField("flat"))]),
        "no table": lambda: client.structured_writer([made(lambda c: c.ClearField("table"))]),
        "row 0": lambda: client.structured_writer([made(row=0)]),
        "no rows": lambda: client.structured_writer([made(row=slice(-1, -2))]),
        "positive": lambda: client.structured_writer([made(row=slice(-1, 2))]),
        "step 0": lambda: client.structured_writer([made(row=slice(-3, None, 0))]),
        "step alone": lambda: client.structured_writer([made(row=slice(None, -1, 2))]),
        "no left": lambda: client.structured_writer([made(conditions=[proto(eq=1)])]),
        "no comparison": lambda: client.structured_writer([made(conditions=[proto(step_index=True)])]),
        "end 0": lambda: client.structured_writer([made(conditions=[proto(is_end_episode=True, eq=0)])]),
        "fine": lambda: writing(({"x": 1, "y": 1}, False)),
        "other length": lambda: writing(({"x": 1, "y": 1}, False), ({"x": 1}, False)),
        "other dtype": lambda: writing(({"x": 1, "y": 1}, False), ({"x": 1.5, "y": 1}, False)),
        "other shape": lambda: writing(({"x": 1, "y": 1}, False), ({"x": np.zeros(2, np.int64), "y": 1}, False)),
        "twice": lambda: writing(({"x": 1, "y": None}, True), ({"x": 1, "y": 1}, False)),
        "object": lambda: writing(({"x": object(), "y": 1}, False)),
        "unused object": lambda: writing(({"x": 1, "y": object()}, False)),
        "td error of int16": lambda: writing(({"x": np.int16(1), "y": 1}, False), priority=td_error),
        "td error of two": lambda: writing(({"x": np.zeros(2), "y": 1}, False), priority=td_error),
        "td error of nan": lambda: writing(({"x": np.nan, "y": 1}, False), priority=td_error),
        "index": lambda: structured.create_reference_step(PAIR)["x"]["y"],
        "leaf": lambda: structured.create_config({"x": 1}, "a"),
        "hash": lambda: hash(structured.Condition.step_index()),
        "float": lambda: structured.Condition.step_index() == 1.0,
    }
    kinds = {name: _kind(call) for name, call in calls.items()}
    items(client, "a")
    return kinds
