"""Short random programs of calls, as JSON, made of a seed; matrix_random.py runs them. Imports neither package."""

from __future__ import annotations

import random

NAMES = "abc"  # of columns
DTYPES = ("int64", "float32", "uint8", "bool", "string", "float64", "int32", "complex64")
SHAPES = ([], [], [1], [2], [2, 3], [0])
PRIORITIES = (0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 7.0)
STYLES = {  # how a step's columns are nested, and so a table's signature
    "dict": lambda leaves: leaves,
    "list": lambda leaves: [leaves.get(name) for name in NAMES if name <= max(leaves, default="")],
    "nested": lambda leaves: {
        **({"c": [leaves["c"]]} if "c" in leaves else {}),
        **({"n": {name: leaves[name] for name in "ab" if name in leaves}} if set("ab") & set(leaves) else {}),
    },
}
PATHS = {
    "dict": {name: (name,) for name in NAMES},
    "list": {name: (i,) for i, name in enumerate(NAMES)},
    "nested": {"a": ("n", "a"), "b": ("n", "b"), "c": ("c", 0)},
}
WRONG = (
    "insert unknown", "insert nan", "insert nothing", "insert none", "item unknown", "item nan", "item text", "item no column",
    "item nothing", "flush negative", "configure zero", "configure long", "mutate to text", "mutate text", "mutate unknown",
    "reset unknown", "sample unknown", "sample zero", "legacy unknown", "legacy nan", "append object", "column gather",
)  # fmt: skip


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count = 0
        self.style = self.random.choice(list(STYLES))
        self.columns = {name: [self.random.choice(DTYPES), self.random.choice(SHAPES)] for name in NAMES}

    def often(self, chance):
        return self.random.random() < chance

    def one_of(self, choices):
        return self.random.choice(list(choices))

    def table(self, name):
        kinds = ("Fifo", "Lifo", "MaxHeap", "MinHeap")
        limiter = self.one_of(
            [["MinSize", 1], ["MinSize", 1], ["MinSize", 3], ["Queue", 4], ["SampleToInsertRatio", 1.5, 2, 4.0]]
        )
        return {
            "name": name,
            "sampler": self.one_of((*kinds, *kinds, "Uniform", "Prioritized(1)", "Prioritized(0.5)")),
            "remover": self.one_of(kinds),
            "max_size": self.one_of([1, 2, 4, 9, 50] if limiter[0] == "MinSize" and limiter[1] == 1 else [4, 9, 50]),
            "limiter": limiter,
            "max_times_sampled": self.one_of([0, 0, 0, 1, 2]),
            "signature": self.signature() if self.often(0.4) else None,
        }

    def signature(self):
        """Specs by column: of one step, or of a trajectory of steps."""
        rows = [None] if self.often(0.6) else []
        return {
            name: [dtype, rows + [None if self.often(0.1) else n for n in shape]] for name, (dtype, shape) in self.columns.items()
        }

    def names(self):
        return sorted(self.random.sample(NAMES, self.random.randint(1, 3)))

    def row(self, names=None):
        """Values by column."""
        self.count += 1
        names = names or (NAMES if self.often(0.75) else self.names())
        return {name: [*self.columns[name], self.count] for name in names}

    def priority(self):
        return self.one_of(PRIORITIES)

    def index(self):
        def at():
            return self.random.randint(-6, 7)

        return self.one_of([
            lambda: -1,
            lambda: -1,
            lambda: at(),
            lambda: [-1, None, None],
            lambda: [-2, None, None],
            lambda: [None, None, None],
            lambda: [-self.random.randint(1, 4), None, None],
            lambda: [-self.random.randint(1, 4), None, None],
            lambda: [at(), at(), None],
            lambda: [at(), None, None],
            lambda: [None, at(), None],
        ])()  # fmt: skip

    def item(self, tables):
        names = NAMES if self.often(0.5) else self.names()
        if self.often(0.6):  # the same rows of each
            index = self.index()
            columns = dict.fromkeys(names, index)
        else:
            columns = {name: self.index() for name in names}
        return {"table": self.one_of(tables), "priority": self.priority(), "columns": columns, "nest": self.often(0.5)}

    def config(self, tables):
        nodes = {}
        for name in self.names():
            start = -self.random.randint(1, 4)
            nodes[name] = self.one_of([[start, None], [None, start], [start, self.random.randint(start + 1, 0) or None]])
        kinds = self.random.sample(["step_index", "steps_since_applied", "data", "end"], self.one_of([0, 0, 1, 1, 2]))
        operators = ["==", "!=", ">=", "<", "%", "%!"]
        conditions = [[kind, self.one_of(operators), self.random.randint(2, 4)] for kind in kinds]
        return {"table": self.one_of(tables), "nodes": nodes, "conditions": conditions, "priority": self.one_of(PRIORITIES[1:])}

    def configs(self, tables):
        return {"configs": [self.config(tables) for _ in range(self.one_of([1, 1, 2, 3]))]}

    def before(self, name, arguments):
        """What mostly comes before a call, so that it can do something."""
        if name == "item" and self.often(0.8):
            return [
                ["append", {"slot": arguments["slot"], "row": self.row(NAMES), "partial": False}]
                for _ in range(self.one_of([1, 1, 2, 4]))
            ]
        if name == "legacy_item":
            return [["legacy_append", {"row": self.row(NAMES)}] for _ in range(arguments["rows"])]
        if name == "overfull":
            fill = [["insert", {"row": self.row(NAMES), "priorities": {arguments["table"]: 1.0}}] for _ in range(6)]
            return [*fill, ["append", {"slot": arguments["slot"], "row": self.row(NAMES), "partial": False}]]
        return []

    def calls(self, tables):
        """Kinds of calls, with how often they come."""
        names = [each["name"] for each in tables]
        free = [each["name"] for each in tables if each["limiter"][0] == "MinSize" and each["signature"] is None]
        limited = [each["name"] for each in tables if each["limiter"][0] != "MinSize" and each["signature"] is None]
        signed = [each["name"] for each in tables if each["signature"] is not None]
        plain = [name for name in names if name not in signed]
        # together: one that may refuse comes first, since Reverb inserts into those before it
        wholes = [each for each in (*([name] for name in names), plain, [*signed[:1], *plain]) if each]
        one_of, often, number = self.one_of, self.often, self.random.randint

        def table(**more):
            return {"table": one_of(names), **more}

        def slot(**more):
            return {"slot": one_of(["w0", "w0", "w1"]), **more}

        def updates():
            return [[number(0, 9), self.priority()] for _ in range(number(0, 3))]

        kinds = [
            (3, "insert", lambda: {"row": self.row(), "priorities": {name: self.priority() for name in one_of(wholes)}}),
            (14, "append", lambda: slot(row=self.row(), partial=often(0.15))),
            (0.5, "append_wrong", lambda: slot(name=one_of(NAMES), value=[one_of(DTYPES), one_of(SHAPES), 1])),
            (9, "item", lambda: slot(**self.item(names))),
            (3, "history", lambda: slot(name=one_of(NAMES), index=self.index())),
            (1, "overfull", lambda: slot(table=one_of(limited or names))),
            (1, "flush", lambda: slot(leave=one_of([0, 0, 0, 1, 2]))),
            (2, "end_episode", lambda: slot(clear=often(0.6))),
            (1, "reopen", lambda: slot(keep=one_of([1, 2, 3, 5, 8]), validate=often(0.6))),
            (0.3, "close", lambda: slot()),
            (1, "configure", lambda: slot(name=one_of(NAMES), chunk=one_of([None, 1, 2, 3]))),
            (6, "legacy_append", lambda: {"row": self.row(NAMES)}),
            (1, "legacy_sequence", lambda: {"row": self.row(NAMES), "rows": number(1, 4)}),
            (3, "legacy_item", lambda: table(rows=one_of([1, 1, 2, 3, 4, 0]), priority=self.priority())),
            (0.5, "legacy_flush", dict),
            (0.5, "legacy_reopen", lambda: {"most": (most := number(1, 5)), "chunk": one_of([None, 1, 2, most])}),
            (0.2, "legacy_close", dict),
            (4, "sample", lambda: table(count=number(1, 4), how=one_of(["timesteps", "columns", "columns", "unpacked"]))),
            (2, "mutate", lambda: table(updates=updates(), deletes=[number(0, 9)] if often(0.3) else [])),
            (0.3, "reset", table),
            (1, "info", table),
            (1.5, "wrong", lambda: slot(table=one_of(names), what=one_of(WRONG))),
        ]
        if free:
            kinds += [
                (1, "structured_open", lambda: self.configs(free)),
                (9, "structured_append", lambda: {"row": self.row(), "partial": often(0.2)}),
                (1.5, "structured_end", lambda: {"clear": often(0.6)}),
            ]
        return kinds


def program(seed):
    """How steps are nested, tables, and calls with their arguments."""
    make = Maker(seed)
    tables = [make.table(f"t{i}") for i in range(make.random.randint(1, 3))]
    kinds = make.calls(tables)
    weights = [
        weight if make.often(0.7) else weight / 20 for weight, _, _ in kinds
    ]  # a program has only some, and so more of each
    chosen = make.random.choices(kinds, weights, k=make.random.randint(8, 40))
    opens = [kind for kind in kinds if kind[1] == "structured_open"]
    calls = []
    for _, name, arguments in [*opens, *chosen]:
        given = arguments()
        calls += [*make.before(name, given), [name, given]]
    return {"style": make.style, "tables": tables, "calls": calls}
