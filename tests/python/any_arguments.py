"""Calls everything that the extension module and the package have, with anything: a program, since what it looks for ends it.

    python any_arguments.py SEED CALLS

Every callable of every type of reverie._core (its dunders, and what is made without being initialised, too), of the objects that these
give, and of the package's modules is called with arguments from a bag of odd values and of good ones. Whatever it raises is fine; ending
the process, or not coming back, is not. The last call is named on stderr when it does not come back.
"""

import contextlib
import faulthandler
import gc
import importlib
import inspect
import os
import pkgutil
import random
import resource
import signal
import sys
import types

import numpy as np
import reverie
from reverie import _core

MISSING = object()
PATIENCE = 0.15  # seconds, after which a call that waits is interrupted
CALLING = []  # what is called now, which alone is interrupted
SKIPPED_MODULES = {"reverie.server_executable", "reverie.jax", "reverie.torch", "reverie.as_reverb", "reverie.pybind"}
NEEDS_TENSORFLOW = ("tf_client", "dataset", "_tensorflow", "_graph", "_iteration")
# What ends or forks the process by design, waits for signals, or is the interpreter's own.
SKIPPED = {"wait", "install_as_reverb", "main", "__subclasshook__", "__init_subclass__", "__class_getitem__", "_exit", "mro"}
# Threads and sockets are asked for in small numbers only.
SMALL_ONLY = {"Server", "Store", "_listen"}


class Interrupted(BaseException):
    """A call waited."""


class Hostile:
    """Whatever is asked of it fails, some of it late."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __len__(self):
        return 3

    def __getitem__(self, key):
        raise KeyError(key)

    def __iter__(self):
        yield 1
        raise RuntimeError("iter")

    def __index__(self):
        raise OverflowError("index")

    def __float__(self):
        raise ValueError("float")

    def __array__(self, *_, **__):
        raise MemoryError("array")

    def __eq__(self, other):
        raise RuntimeError("eq")

    def __hash__(self):
        return 1


class Liar(list):
    """A list that says that it is longer than it is."""

    def __len__(self):
        return 1000


class Growing(dict):
    """A dict that changes while it is read."""

    def __iter__(self):
        self[len(self)] = 1
        return super().__iter__()

    def items(self):
        self["late"] = 2
        return super().items()


def odd_values():
    """Fresh ones: some are changed by those who get them."""
    cyclic = []
    cyclic.append(cyclic)
    deep = []
    for _ in range(3000):
        deep = [deep]
    negative = np.lib.stride_tricks.as_strided(np.arange(8)[7:], (4,), (-8,))
    return [
        *(
            None,
            True,
            False,
            -1,
            0,
            1,
            2,
            3,
            7,
            100,
            2**31 - 1,
            2**31,
            2**32,
            2**63 - 1,
            2**63,
            2**64 - 1,
            2**64,
            -(2**63),
            10**30,
        ),
        *(0.0, -0.0, 1.0, -1.5, 0.001, float("nan"), float("inf"), -float("inf"), 1e308, 1j),
        *("", "t", "s", "q", "nowhere", "a\0b", "\udcff", "x" * 5000, b"", b"t", b"\xff\0", bytearray(b"t"), memoryview(b"abc")),
        *(
            (),
            (1,),
            [],
            [1],
            ["t"],
            {},
            {"t": 1.0},
            {1: 2.0},
            {"a": {"b": [1, (2, 3)]}},
            {"x"},
            range(5),
            slice(None),
            slice(-5, 9, -1),
        ),
        *(
            cyclic,
            deep,
            object(),
            int,
            len,
            Hostile(),
            Liar([1, 2]),
            Growing(a=1),
            Ellipsis,
            NotImplemented,
            type,
            np,
            iter([1, 2]),
        ),
        *(np.zeros(0), np.zeros((0, 3)), np.zeros(()), np.arange(4), np.arange(12.0).reshape(3, 4), np.ones((1,) * 32, np.int8)),
        *(
            np.float32(3),
            np.int64(-1),
            np.uint64(2**64 - 1),
            np.datetime64("2020-01-01"),
            np.array(["a", ""], object),
            np.array([None]),
        ),
        *(
            np.zeros(3, [("a", "i4"), ("b", "f8")]),
            np.arange(6)[::2],
            np.arange(6)[::-1],
            negative,
            np.broadcast_to(np.float32(1), (5, 5)),
        ),
        *(
            np.zeros(4, ">i4"),
            np.array(["abc", "d"]),
            np.array([b"x"]),
            np.float16(1),
            np.dtype("V7"),
            np.zeros(2, "V7"),
            np.ma.zeros(3),
        ),
        *(
            np.zeros(3, np.complex64),
            np.zeros((2, 2), bool),
            np.asfortranarray(np.ones((3, 4))),
            np.frombuffer(b"12345", np.uint8),
        ),
        *(
            [np.zeros(2), np.ones(2)],
            {"x": np.zeros(3)},
            [[1, 2], [3]],
            [1, None, "x"],
            ((1, 2), {"k": (3,)}),
            [b"a", "b"],
            [2**64],
            [-1],
        ),
    ]


class World:
    """A server, its clients, and one of each thing that they give."""

    def __init__(self, r):
        self.random = r
        self.assigned = []
        spec, fifo = {"obs": reverie.TensorSpec((2,), np.float32)}, reverie.selectors.Fifo()
        self.tables = [
            reverie.Table("t", fifo, fifo, 1000, reverie.rate_limiters.MinSize(1)),
            reverie.Table("s", reverie.selectors.Prioritized(1.0), fifo, 100, reverie.rate_limiters.MinSize(1), signature=spec),
            reverie.Table.queue("q", 3),
        ]
        self.server = reverie.Server(self.tables, address="127.0.0.1:0")
        near, far = reverie.Client(self.server), reverie.Client(self.server.address)
        for client in (near, far):
            client.add("t", [np.int64(7)])
            client.add("s", {"obs": np.zeros(2, np.float32)})
        self.things = [near, far, self.server, self.server._store, *self.tables]
        self.things += [self.batch(near), self.batch(far)]
        for client in (near, far):
            writer = client.trajectory_writer(3)
            for i in range(4):
                writer.append({"a": np.int64(i), "b": [np.float32(i)]})
            history = writer.history
            self.things += [writer, history["a"], history["a"][-2:], next(iter(history["a"]))]
            legacy = client.writer(3)
            legacy.append([1])
            step = reverie.structured_writer.create_reference_step({"a": None})
            config = reverie.structured_writer.create_config(
                reverie.structured_writer.pattern_from_transform({"a": None}, lambda s: {"a": s["a"][-2:]}), "t"
            )
            self.things += [
                legacy,
                client.structured_writer([config]),
                step,
                config,
                client.transitions("t", 2),
                client.sample("t", 3),
            ]
            self.things += [client.sample("t", emit_timesteps=False), client.batches("t", 2), client.items("t")]
        structure = _core.Structure({"a": 1, "b": [2]})
        self.things += [structure, _core.Cancel(), reverie.Cancel()]
        self.things += [
            vars(thing).get("_core") for thing in self.things if hasattr(thing, "__dict__") and "_core" in vars(thing)
        ]
        for kind in self.kinds():
            with contextlib.suppress(TypeError):
                self.things.append(kind.__new__(kind))  # not initialised

    @staticmethod
    def batch(client):
        return client.sample_batch("t", 1)

    @staticmethod
    def kinds():
        return [value for value in vars(_core).values() if isinstance(value, type)]

    def assign(self, thing, name, value):
        own = getattr(thing, "__dict__", {})
        before = own.get(name, MISSING)
        setattr(thing, name, value)
        self.assigned.append((thing, name, before))

    def close(self):
        """With what was assigned to the server taken back: it could be anything, and is asked to stop."""
        for thing, name, before in reversed(self.assigned):
            with contextlib.suppress(Exception):
                if before is MISSING:
                    delattr(thing, name)
                else:
                    setattr(thing, name, before)
        self.assigned.clear()
        self.things.clear()
        self.server.stop()


def modules():
    """The package's, but for what needs a framework or is a program."""
    found = [reverie, _core]
    for info in pkgutil.walk_packages(reverie.__path__, "reverie."):
        skipped = any(info.name.startswith(name) for name in SKIPPED_MODULES) or any(
            part in info.name for part in NEEDS_TENSORFLOW
        )
        if not skipped and not info.name.endswith("__main__"):
            found.append(importlib.import_module(info.name))
    return found


def functions_of(found):
    """What modules offer that is theirs."""
    out = {}
    for module in found:
        for name, value in vars(module).items():
            ours = str(getattr(value, "__module__", "")).startswith("reverie")
            if callable(value) and ours and name not in SKIPPED and not inspect.ismodule(value):
                out[f"{module.__name__}.{name}"] = value
    return [out[name] for name in sorted(out)]


def argument(world, odd):
    r = world.random
    if r.random() < 0.25:
        return r.choice(world.things)
    if r.random() < 0.08:
        return [r.choice(odd) for _ in range(r.randrange(4))]
    return r.choice(odd)


def is_small(value):
    return not isinstance(value, int) or isinstance(value, bool) or value < 8


def pick(world, functions):
    """Something to call, and its name."""
    r = world.random
    if r.random() < 0.3:
        function = r.choice(functions)
        return function, getattr(function, "__qualname__", str(function))
    thing = r.choice(world.things)
    kind = type(thing)
    name = r.choice(dir(kind))
    if name in SKIPPED or isinstance(thing, types.ModuleType):
        return None, ""
    if r.random() < 0.1:
        return (lambda value: world.assign(thing, name, value)), f"{kind.__name__}.{name} ="
    with contextlib.suppress(Exception):
        return getattr(thing, name), f"{kind.__name__}.{name}"
    return None, ""


def call(world, functions, odd):
    r = world.random
    function, name = pick(world, functions)
    if not callable(function):
        return
    arguments = [argument(world, odd) for _ in range(r.choice([0, 1, 1, 2, 2, 3, 4, 6]))]
    names = []
    if r.random() < 0.5:
        try:
            names = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            names = ["timeout", "table", "copy", "out", "unequal"]
    keywords = {r.choice(names): argument(world, odd) for _ in range(r.randrange(3)) if names}
    if any(part in name for part in SMALL_ONLY) and not all(map(is_small, [*arguments, *keywords.values()])):
        return
    CALLING.append(name)
    with contextlib.suppress(Interrupted):  # which may come when the call is over just then
        try:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)
            result = function(*arguments, **keywords)
            if type(result).__module__.startswith("reverie") and len(world.things) < 200:
                world.things.append(result)
            elif inspect.isgenerator(result) or hasattr(result, "__next__"):
                next(result, None)
        except (Exception, Interrupted, KeyboardInterrupt, SystemExit):
            pass
        CALLING.clear()
    CALLING.clear()
    signal.setitimer(signal.ITIMER_REAL, 0)


def interrupt(*_):
    if CALLING:
        raise Interrupted


def main(seed, calls):
    """So many calls, the world made anew now and then."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, interrupt)
    os.chdir(os.environ.get("RV_TEST_SCRATCH", "/tmp"))
    r = random.Random(seed)
    functions = functions_of(modules())
    world = None
    for number in range(calls):
        if number % 400 == 0:
            if world is not None:
                world.close()
            world = World(r)
            odd = odd_values()
            gc.collect()
        faulthandler.dump_traceback_later(120, exit=True)  # where it cannot be interrupted
        call(world, functions, odd)
    world.close()
    world = World(r)  # nothing that all share has gone
    client = reverie.Client(world.server.address)
    client.reset("t")
    client.add("t", [5])
    assert client.sample_batch("t", 1).data[0].tolist() == [5]
    world.close()
    print(f"{len(functions)} functions, {calls} calls")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
