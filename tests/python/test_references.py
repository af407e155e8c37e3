"""What is called a hundred times leaves nothing behind: no object, and no reference to what it was given, whether it succeeds or fails."""

import contextlib
import ctypes
import gc
import sys
import time
import weakref

import numpy as np
import pytest
import reverie
from conftest import make_table
from waiting import LONG

TIMES = 30

OBS = np.arange(6.0, dtype=np.float32)
ROWS = {"obs": np.stack([OBS] * 4), "n": np.arange(4)}
ROW = {"obs": OBS, "n": np.int64(1)}
WORDS = np.array(["a", "bc"], object)
NAME = "".join(["t", "able"])  # strings of our own, which nobody else refers to
KEYS, PRIORITIES = np.array([1, 2], np.uint64), np.array([1.0, 2.0])
ARGUMENTS = [OBS, ROWS, ROWS["obs"], ROWS["n"], ROW, ROW["n"], WORDS, NAME, KEYS, PRIORITIES]


def write(client):
    with client.trajectory_writer(3) as writer:
        for _ in range(3):
            writer.append(ROW)
        history = writer.history
        item = {"obs": history["obs"][-2:], "n": history["n"][-1]}
        writer.create_item(NAME, 1.0, item)
        _ = (item["obs"].numpy(), item["obs"].shape, item["n"].dtype, [row.numpy() for row in history["obs"] if row is not None])
        writer.flush(timeout_ms=20000)
        _ = writer.status()


def write_steps(client):
    with client.writer(2) as writer:
        writer.append(ROW)
        writer.append_sequence({"obs": ROWS["obs"], "n": ROWS["n"]})
        writer.create_item(NAME, 2, 1.0)
        writer.flush()


def write_structured(client):
    configs = [
        reverie.structured_writer.create_config(
            reverie.structured_writer.pattern_from_transform(ROW, lambda step: {"obs": step["obs"][-2:], "n": step["n"][-1]}),
            NAME,
            conditions=[reverie.structured_writer.Condition.step_index() >= 1],
        )
    ]
    with client.structured_writer(configs) as writer:
        for _ in range(3):
            writer.append(ROW)
        writer.end_episode(timeout_ms=20000)


def add_transitions(client):
    with client.transitions(NAME, 4, next={"next": "obs"}) as writer:
        for _ in range(3):
            writer.add({**ROWS, "next": ROWS["obs"]})


def draw_batches(client):
    with client.batches(NAME, 2) as batches:
        for batch, _ in zip(batches, range(3), strict=False):
            _ = batch.data["obs"]


def sample_into(client):
    batch = client.sample_batch(NAME, 3)
    client.sample_batch(NAME, 3, out={"obs": np.empty((3, 6), np.float32), "n": np.empty(3, np.int64)})
    _ = (
        batch.keys,
        batch.probabilities,
        batch.priorities,
        batch.times_sampled,
        batch.lengths,
        batch.table_sizes,
        batch.table_size,
        len(batch),
    )


def pattern_items(_):
    step = {"x": np.int64(0)}
    config = reverie.structured_writer.create_config(
        reverie.structured_writer.pattern_from_transform(step, lambda s: {"x": s["x"][-2:]}), NAME
    )
    steps = [{"x": np.int64(i)} for i in range(4)]
    list(reverie.structured_writer.pattern_items(steps, [config], False, lambda _: False))


def structures(_):
    structure = reverie._core.Structure(ROW)
    structure.unflatten(structure.flatten(ROW))
    structure.paths()


VERBS = {
    "add": lambda c: c.add(NAME, ROW, 1.5),
    "add_batch": lambda c: c.add_batch(NAME, ROWS, np.ones(4)),
    "insert": lambda c: c.insert(ROW, {NAME: 1.0}),
    "strings": lambda c: (c.add("words", [WORDS]), c.sample_batch("words", 1, unequal="list").data),
    "sample": lambda c: list(c.sample(NAME, 2, emit_timesteps=False)),
    "sample, steps": lambda c: [list(episode) for episode in c.sample("episodes", 2)],
    "sample, views": lambda c: [np.asarray(s.data[0]).sum() for s in c.sample(NAME, 2, emit_timesteps=False, copy=False)],
    "sample, unpacked": lambda c: list(c.sample("signed", 2, emit_timesteps=False, unpack_as_table_signature=True)),
    "sample, left half way": lambda c: next(iter(c.sample(NAME, 5, emit_timesteps=False))),
    "sample_batch": lambda c: c.sample_batch(NAME, 3).data["obs"],
    "sample_batch, views": lambda c: c.sample_batch(NAME, 3, copy=False).data["obs"],
    "sample_batch, list": lambda c: c.sample_batch(NAME, 3, unequal="list").data,
    "sample_batch, out": sample_into,
    "batches": draw_batches,
    "get": lambda c: c.get(NAME, int(c.keys(NAME)[0])),
    "keys": lambda c: c.keys(NAME),
    "items": lambda c: list(c.items(NAME, page_size=3)),
    "update_priorities": lambda c: c.update_priorities(NAME, KEYS, PRIORITIES),
    "mutate_priorities": lambda c: c.mutate_priorities(NAME, {1: 2.0}, [3, int(c.keys(NAME)[-1])]),
    "set_rate_limiter": lambda c: c.set_rate_limiter(NAME, reverie.rate_limiters.MinSize(1)),
    "server_info": lambda c: c.server_info(),
    "trajectory_writer": write,
    "writer": write_steps,
    "structured_writer": write_structured,
    "transitions": add_transitions,
    "pattern_items": pattern_items,
    "structures": structures,
}

WRITERS = [VERBS[name] for name in ("trajectory_writer", "writer", "structured_writer", "transitions", "batches")]

WRONG = {
    "add, table": lambda c: c.add("nowhere", ROW),
    "add, structure": lambda c: c.add("signed", {"y": OBS}),
    "add, value": lambda c: c.add(NAME, [object()]),
    "add, priority": lambda c: c.add(NAME, ROW, float("nan")),
    "add_batch, rows": lambda c: c.add_batch(NAME, {"a": np.zeros(3), "b": np.zeros(4)}),
    "add_batch, priorities": lambda c: c.add_batch(NAME, ROWS, np.ones(3)),
    "insert": lambda c: c.insert(ROW, {"nowhere": 1.0}),
    "sample": lambda c: next(c.sample("nowhere")),
    "sample_batch, timeout": lambda c: c.sample_batch("empty", 1, timeout=0.0),
    "sample_batch, out": lambda c: c.sample_batch(NAME, 3, out={"obs": np.empty((2, 6), np.float32)}),
    "sample_batch, size": lambda c: c.sample_batch(NAME, 0),
    "get": lambda c: c.get(NAME, 12345),
    "update_priorities": lambda c: c.update_priorities(NAME, KEYS, np.ones(3)),
    "mutate_priorities": lambda c: c.mutate_priorities(NAME, {1: "x"}),
    "append": lambda c: c.trajectory_writer(2).append([{1, 2}]),
    "create_item": lambda c: c.trajectory_writer(2).create_item(NAME, 1.0, [1]),
    "writer": lambda c: c.writer(2).create_item(NAME, 3, 1.0),
    "structured_writer": lambda c: c.structured_writer([]),
    "transitions": lambda c: c.transitions(NAME, 2, next={"x": "y"}).add(ROWS),
    "structures": lambda _: reverie._core.Structure(ROW).flatten({"z": 1}),
}


@pytest.fixture(params=["in process", "remote"])
def client(request):
    signature = {"obs": reverie.TensorSpec((6,), np.float32), "n": reverie.TensorSpec((), np.int64)}
    tables = [
        make_table(NAME, max_size=40),
        make_table("signed", signature=signature),
        make_table("words", max_size=5),
        make_table("empty"),
        make_table("episodes", max_size=5),
    ]
    with reverie.Server(tables, address="127.0.0.1:0") as server:
        client = reverie.Client(server if request.param == "in process" else server.address)
        client.add_batch(NAME, ROWS)
        client.add_batch("signed", ROWS)
        with client.trajectory_writer(3) as writer:
            for _ in range(3):
                writer.append(ROW)
            writer.create_item("episodes", 1.0, {name: column[:] for name, column in writer.history.items()})
        yield client


class MallInfo(ctypes.Structure):
    """glibc's mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
    ]


def heap_of_c():
    """Bytes that are allocated behind Python's back, so that a batch whose array has gone is seen; 0 where nobody can say."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = MallInfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


def settled():
    """Blocks that Python's allocator has given out, without what only cycles keep; bytes of everybody else's; references to None."""
    gc.collect()
    return np.array([sys.getallocatedblocks(), heap_of_c(), sys.getrefcount(None)])


def leaves_nothing(call, client, bytes_of_a_call=32):
    for _ in range(10):  # what is remembered of the first calls is no leak
        call(client)
    settled()  # what the fixture and the calls before have left in cycles refers to the arguments, too
    references = [sys.getrefcount(value) for value in ARGUMENTS]
    least = np.full(3, sys.maxsize)
    # A block and a reference of each call are a leak, fewer are free lists that grow now and then.
    slack = TIMES * np.array([0.8, bytes_of_a_call, 0.8])
    for _ in range(60):  # a leak is in each; caches of threads grow for a while, and somebody may hold something
        before = settled()
        for _ in range(TIMES):
            call(client)
        blocks, heap, nones = settled() - before
        least = np.minimum(least, [blocks, heap, abs(nones)])
        if (least < slack).all():
            break
    assert (least < slack).all(), f"blocks, bytes of C and references to None after {TIMES} calls: {least} more"
    assert [sys.getrefcount(value) for value in ARGUMENTS] == references


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_verb_leaves_nothing_behind(client, verb):
    def call(client):
        verb(client)
        client.add(NAME, ROW)  # what was deleted is there again

    # a server remembers each writer for an hour, so that nothing is inserted twice, and here it is in this process
    leaves_nothing(call, client, 400 if verb in WRITERS else 32)


@pytest.mark.parametrize("verb", WRONG.values(), ids=WRONG)
def test_a_call_that_fails_leaves_nothing_behind(client, verb):
    def call(client):
        with contextlib.suppress(Exception):
            verb(client)

    with pytest.raises((ValueError, TypeError, KeyError, reverie.errors.ReverieError)):
        verb(client)
    leaves_nothing(call, client)


def with_history(agent):
    writer = agent.trajectory_writer(1)
    writer.append(ROW)
    agent.history = writer.history
    return writer


def with_rows(agent):
    sequence = agent.transitions(NAME, 4)
    sequence.add(ROWS)
    sequence.flush()
    return sequence


def with_batches(agent):
    batches = agent.batches(NAME, 1)
    next(batches)
    while batches._drawer.results.qsize() < 2:  # until its thread has drawn ahead, and draws no more
        time.sleep(0.01)
    return batches


def structured(agent):
    pattern = reverie.structured.pattern_from_transform(ROW, lambda ref: {"n": ref["n"][-1:]})
    return agent.structured_writer([reverie.structured.create_config(pattern, NAME)])


OWN = {
    "nothing": lambda agent: None,
    "a trajectory writer": with_history,
    "a structured writer": structured,
    "a writer": lambda agent: agent.writer(1),
    "samples": lambda agent: agent.sample(NAME, 10, emit_timesteps=False),
    "transitions": with_rows,
    "batches": with_batches,
}


@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_a_client_that_holds_what_it_made_is_collected(own):
    class Agent(reverie.Client):
        def __init__(self, address):
            super().__init__(address)
            self.itself, self.own = self, own(self)

    with reverie.Server([make_table(NAME)], address="127.0.0.1:0") as server:
        reverie.Client(server).add(NAME, ROW)
        agents = [Agent(server.address) for _ in range(3)]
        kept = [weakref.ref(agent) for agent in agents]
        del agents
        gc.collect()
        assert [agent() for agent in kept] == [None] * 3


def wait_for(client, num_waiting):
    deadline = time.monotonic() + LONG
    while client.server_info(LONG)[NAME].num_waiting_samples != num_waiting:
        assert time.monotonic() < deadline, client.server_info(LONG)[NAME].waiting
        time.sleep(0.01)


@pytest.mark.parametrize("in_process", [False, True])
def test_a_client_is_collected_whose_batches_wait_for_rows_that_do_not_come(in_process):
    class Agent(reverie.Client):
        def __init__(self, server):
            super().__init__(server)
            self.own = self.batches(NAME, 1, timeout=None)
            self.own._drawer.start()

    with reverie.Server([make_table(NAME)], address="127.0.0.1:0") as server:
        client = reverie.Client(server.address)
        agents = [Agent(server if in_process else server.address) for _ in range(3)]
        kept = [weakref.ref(agent) for agent in agents]
        threads = [agent.own._drawer for agent in agents]
        wait_for(client, 3)
        del agents
        gc.collect()
        assert [agent() for agent in kept] == [None] * 3
        assert [drawer.ended for drawer in threads] == [True] * 3
        wait_for(client, 0)


def test_an_own_sample_batch_is_what_batches_draws_with():
    class Twice(reverie.Client):
        def sample_batch(self, *args, **kwargs):
            return [super().sample_batch(*args, **kwargs)] * 2

    with reverie.Server([make_table(NAME)], address="127.0.0.1:0") as server, Twice(server.address).batches(NAME, 1) as batches:
        reverie.Client(server).add(NAME, ROW)
        assert len(next(batches)) == 2


@pytest.mark.parametrize("in_process", [False, True])
def test_batches_go_on_without_their_client_and_have_the_nest_of_what_it_added(in_process):
    with reverie.Server([make_table(NAME)], address="127.0.0.1:0") as server:
        client = reverie.Client(server if in_process else server.address)
        with client.batches(NAME, 1) as batches:
            batches._drawer.start()
            client.add(NAME, {"a": {"b": np.float32(1.0)}})
            del client
            gc.collect()
            assert [next(batches).data["a"]["b"].tolist() for _ in range(5)] == [[1.0]] * 5
