"""The matrix: every operation with every mix of dm-reverb's and Reverie's clients and servers does what dm-reverb does by itself.

A cell is an operation with parameters in one direction: ``T>O>T`` is their client writing to our server and their client reading. Its
results (data by bits, keys, probabilities, priorities, sizes, counters, kinds of errors) must be those of ``T>T>T``. Operations are in
matrix_operations.py. The short form has some of the cells of each; the whole one, of `./dev test --all`, all: RV_TEST_ALL=1.
conftest.py prints the table of cells when pytest ends.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os

import pytest
from matrix_differences import Differences, stated
from matrix_operations import OPERATIONS
from matrix_peers import Peers
from matrix_values import difference, number_keys
from peer import PeerCrashError

WHOLE = os.environ.get("RV_TEST_ALL") == "1"
CRASHES = 7  # of the peer's processes that a cell survives


def directions(operation):
    """Who writes, who serves, who reads; "TO" serves first with theirs, then, from its checkpoint, with ours."""
    servers = ["".join(each) for each in itertools.product("TO", repeat=getattr(operation, "servers", 1))]
    readers = "TO" if len(operation.steps) > 1 else ("",)
    found = [">".join(each).rstrip(">") for each in itertools.product("TO", servers, readers)]
    return [each for each in found if operation is Differences or set(each) != {"T", ">"}]


def cells(operation):
    """(parameters, direction) of all cells that run.

    In the short form an operation of many cells takes four of its seven directions: each end of ours with theirs, what our server sends of
    our chunks to their reader, and in turn another.
    """
    short = [parameters for parameters, short in operation.cells if short]
    if WHOLE or len(operation.steps) == 1 or len(short) <= 8:
        for parameters, _ in operation.cells if WHOLE else [(each, True) for each in short]:
            yield from ((parameters, direction) for direction in directions(operation))
        return
    for parameters, other in zip(short, itertools.cycle(("T>O>O", "O>T>T", "T>T>O")), strict=False):
        yield from ((parameters, direction) for direction in ("T>O>T", "O>T>O", "O>O>T", other))


CELLS = [
    pytest.param(operation.name, parameters, direction, id=f"{operation.name}-{direction}-{json.dumps(parameters)}")
    for operation in OPERATIONS.values()
    for parameters, direction in cells(operation)
]


@pytest.fixture(scope="module")
def peers():
    peers = Peers()
    peers.start()
    yield peers
    peers.end()


@pytest.fixture(scope="module")
def references():
    """What dm-reverb does by itself, by operation and parameters."""
    return {}


def run(peers, name, parameters, direction, roots):
    """The results of all steps, keys numbered. dm-reverb's processes may crash: then all is done again, with new ones."""
    for attempt in range(CRASHES):
        with contextlib.suppress(PeerCrashError):
            return run_once(peers, name, parameters, direction, str(roots / f"{direction.replace('>', '-')}{attempt}"))
    return run_once(peers, name, parameters, direction, str(roots / f"{direction.replace('>', '-')}"))


def run_once(peers, name, parameters, direction, root):
    steps = OPERATIONS[name].steps
    writer, servers, *reader = direction.split(">")
    clients, servers = [writer, *reader], servers if len(servers) > 1 else servers * len(steps)
    keeps = {"root": root} if getattr(OPERATIONS[name], "servers", 1) > 1 else {}
    serving = address = None
    results = []
    try:
        for step, client, server in zip(steps, clients, servers, strict=True):
            if serving is None or keeps:
                if serving is not None:
                    serving.call("stop", address=address)
                serving = peers["server", server]
                address = serving.call("serve", operation=name, parameters=parameters, **keeps)
            asked = {"operation": name, "step": step, "parameters": parameters, "address": address, "server": server}
            results.append(peers["client", client].call("do", **asked))
    finally:
        if serving is not None and serving.alive():
            serving.call("stop", address=address)
    return number_keys(results)


@pytest.mark.parametrize(("name", "parameters", "direction"), CELLS)
def test_it_is_as_between_their_own_ends(peers, references, tmp_path, name, parameters, direction):
    if name == Differences.name:
        assert not difference(run(peers, name, parameters, direction, tmp_path), [stated(parameters, direction)])
        return
    which = (name, json.dumps(parameters))
    if which not in references:
        theirs = ">".join(["T", "T" * getattr(OPERATIONS[name], "servers", 1), *["T"] * (len(OPERATIONS[name].steps) - 1)])
        references[which] = run(peers, name, parameters, theirs, tmp_path)
    assert not difference(run(peers, name, parameters, direction, tmp_path), references[which])
