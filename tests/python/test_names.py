"""What columns are called where no signature says it: a nest that a client knows is put on nothing that was inserted otherwise."""

import collections
import os
import subprocess
import sys
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
import reverie
from conftest import make_table


class Step(NamedTuple):
    obs: int
    action: int


@attrs.define
class Record:
    obs: Any
    action: Any


def data_of(client, n=1, **options):
    return client.sample_batch("t", n, **options).data


def add(client, **row):
    client.add("t", row)


WRITERS = ("add", "add_batch", "insert", "trajectory_writer", "writer")


def write(client, how, data):
    """One item of one step."""
    if how == "add":
        client.add("t", data)
    elif how == "add_batch":
        client.add_batch("t", reverie.nest.map_structure(lambda leaf: np.asarray([leaf]), data))
    elif how == "insert":
        client.insert(data, {"t": 1.0})
    elif how == "trajectory_writer":
        with client.trajectory_writer(1) as writer:
            writer.append(data)
            writer.create_item("t", 1.0, reverie.nest.map_structure(lambda column: column[-1], writer.history))
    else:
        with client.writer(1) as writer:
            writer.append(data)
            writer.create_item("t", 1, 1.0)


def test_what_another_wrote_is_not_called_what_i_wrote_before(team):
    mine, theirs = team(2)
    add(mine, action=1.0, obs=2.0)
    mine.reset("t")
    add(theirs, obs=7.0, reward=9.0)
    assert data_of(mine) == [[7.0], [9.0]]
    assert data_of(theirs) == {"obs": [7.0], "reward": [9.0]}
    assert data_of(mine, unequal="pad") == [[7.0], [9.0]]
    assert data_of(mine, unequal="list") == [[7.0], [9.0]]
    key = next(iter(mine.items("t"))).key
    assert mine.get("t", key).data == [7.0, 9.0]
    assert theirs.get("t", key).data == {"obs": 7.0, "reward": 9.0}


@pytest.mark.parametrize("how", WRITERS)
def test_whoever_wrote_gets_the_names_back_and_others_a_list(team, how):
    mine, theirs = team(2)
    write(mine, how, {"b": 1, "a": {"c": 2}})
    assert list(data_of(mine)) == ["b", "a"]
    assert data_of(mine)["b"].tolist() in ([1], [[1]])
    assert data_of(mine)["a"]["c"].tolist() in ([2], [[2]])
    assert isinstance(data_of(theirs), list)


@pytest.mark.parametrize("how", WRITERS)
def test_two_that_write_the_same_names_may_both_use_them(team, how):
    mine, theirs = team(2)
    write(mine, how, {"a": 1, "b": 2})
    write(theirs, "add", {"b": 3, "a": 4})  # a dict's own order does not matter: columns go by the sorted keys
    mine.reset("t")
    write(theirs, "add", {"b": 3, "a": 4})
    assert data_of(mine) == {"a": [4], "b": [3]}


@pytest.mark.parametrize("how", WRITERS)
def test_mixed_names_give_a_list(team, how):
    mine, theirs = team(2)
    write(theirs, how, {"x": 1})
    write(mine, how, {"y": 2})
    for client in (mine, theirs):
        assert isinstance(data_of(client), list)
        assert isinstance(data_of(client, 2, unequal="list"), list)


def test_a_client_that_changes_its_names_gets_a_list_until_the_old_ones_are_gone(team):
    (client,) = team(1, make_table(max_size=3))
    client.insert({"a": 1}, {"t": 1.0})
    assert set(data_of(client)) == {"a"}
    with client.trajectory_writer(1) as writer:
        writer.append([1])
        for _ in range(2):
            writer.create_item("t", 1.0, {"b": writer.history[0][-1:]})
    assert isinstance(data_of(client), list)
    client.insert({"b": 1}, {"t": 1.0})
    assert set(data_of(client)) == {"b"}


def test_a_drained_table_takes_new_names(team):
    mine, theirs = team(2, make_table(max_times_sampled=1))
    add(mine, a=1, b=2)
    assert set(data_of(mine)) == {"a", "b"}
    add(theirs, c=1, d=2)
    assert data_of(mine) == [[1], [2]]
    add(theirs, c=1, d=2)
    assert set(data_of(theirs)) == {"c", "d"}


def test_columns_that_come_late_or_in_part_of_the_steps_keep_their_names(team):
    mine, theirs = team(2)
    with mine.trajectory_writer(3) as writer:
        writer.append({"x": 1}, partial_step=True)
        writer.append({"y": 2.0})
        writer.append({"x": 3, "z": 5})
        writer.create_item("t", 1.0, {"q": writer.history["x"][-2:], "r": writer.history["z"][-1]})
        writer.flush()
        assert data_of(mine)["q"].tolist() == [[1, 3]]
        assert data_of(mine)["r"].tolist() == [5]
        assert isinstance(data_of(theirs), list)
        writer.create_item("t", 1.0, {"q": writer.history["x"][-2:], "s": writer.history["z"][-1]})
    assert isinstance(data_of(mine, 2), list)


def test_a_batch_of_many_rows_and_one_into_given_arrays_are_called_right(team):
    mine, theirs = team(2)
    rows = {"obs": np.zeros((500, 4), np.float32), "reward": np.ones(500, np.float32)}
    mine.add_batch("t", rows)
    out = [np.empty((300, 4), np.float32), np.empty(300, np.float32)]
    for _ in range(2):
        assert set(data_of(mine, 300)) == {"obs", "reward"}
        assert set(data_of(mine, 300, out=out)) == {"obs", "reward"}
        assert isinstance(data_of(theirs, 300), list)
    add(theirs, other=np.zeros(4, np.float32), some=np.float32(1))
    assert isinstance(data_of(mine, 300, out=out), list)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}),
        ({"a": 1, "b": 2}, [1, 2]),
        ([1, 2], (1, 2)),
        (Step(1, 2), (1, 2)),
        (Step(1, 2), {"action": 1, "obs": 2}),
        (Record(1, 2), Step(1, 2)),
        ({1: 1, 2: 2}, {"1": 1, "2": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}, "c": 2}),
        ({"a": [1, 2]}, {"a": [1], "b": [2]}),
        ([[1], [2]], [[1, 2]]),
        ({"ab": 1, "c": 2}, {"a": 1, "bc": 2}),
    ],
)
def test_nests_that_call_their_columns_differently_are_not_mixed_up(serve, mine, theirs):
    server, client = serve()
    client.add("t", mine)
    assert reverie.nest.paths(data_of(client)) == reverie.nest.paths(mine)
    client.reset("t")
    reverie.Client(server).add("t", theirs)
    assert data_of(client) == [[1], [2]]


def test_containers_that_name_alike_are_alike(serve):
    server, client = serve()
    client.add("t", collections.OrderedDict(a=1, b=2))
    client.reset("t")
    reverie.Client(server).add("t", {"a": 3, "b": 4})
    assert data_of(client) == {"a": [3], "b": [4]}


def test_names_are_the_same_in_every_process(serve):
    server, _ = serve(address="127.0.0.1:0")
    client = reverie.Client(server.address)
    add(client, obs=1, reward=2)
    client.reset("t")
    code = "import reverie, sys; reverie.Client(sys.argv[1]).add('t', {'reward': 3, 'obs': 4})"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, server.address], check=True, env=environment, timeout=60)
    assert data_of(client) == {"obs": [4], "reward": [3]}
