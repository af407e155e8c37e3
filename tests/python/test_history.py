"""Indexing a writer's history and its columns."""

import collections
import collections.abc
import threading
import types

import numpy as np
import pytest
import reverie
from conftest import make_table


@pytest.fixture(scope="module")
def client():
    with reverie.Server([make_table()], in_process=True) as server:
        yield reverie.Client(server)


@pytest.fixture
def writer(client):
    """Five rows of which the last three are kept."""
    writer = client.trajectory_writer(3)
    for value in range(5):
        writer.append({"a": value, "b": np.full(2, value, np.float32)})
    return writer


@pytest.fixture
def column(writer):
    return writer.history["a"]


def test_there_is_no_history_before_the_first_column(client):
    writer = client.trajectory_writer(1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="history"):
            writer.history  # noqa: B018
        writer.append({})


class Refusing(collections.abc.Mapping):
    """A mapping that calls `when_asked` for the value of its second key."""

    def __init__(self, when_asked):
        self.when_asked = when_asked

    def __getitem__(self, key):
        return 0 if key == "a" else self.when_asked()

    def __iter__(self):
        return iter("ab")

    def __len__(self):
        return 2


def deep():
    nest = 0
    for _ in range(300):
        nest = [nest]
    return nest


def stop():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("step", "error"),
    [({"a": 1, "b": {1: 1, "x": 2}}, TypeError), ({"a": 1, "b": deep()}, ValueError), (Refusing(stop), KeyboardInterrupt)],
    ids=("unsorted keys", "too deep", "Ctrl-C in a mapping"),
)
def test_a_first_step_that_was_refused_left_no_history(client, step, error):
    writer = client.trajectory_writer(1)
    for _ in range(2):
        with pytest.raises(error):
            writer.append(step)
        with pytest.raises(RuntimeError, match="history has no columns yet"):
            writer.history  # noqa: B018
    writer.append({"a": 1})
    assert list(writer.history) == ["a"]
    assert len(writer.history["a"]) == 1


def test_a_later_step_that_was_refused_left_no_columns(writer):
    for _ in range(3):
        with pytest.raises(TypeError, match="sorted"):
            writer.append({"a": 1, "c": {"d": 1, "e": {1: 1, "x": 2}}})
    writer.append({"a": 5, "c": {"d": 1}})
    history = writer.history
    assert list(history["c"]) == ["d"]
    assert history["c"]["d"].path() == ("c", "d")
    assert [history["a"][-1].numpy(), history["c"]["d"][-1].numpy()] == [5, 1]


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ({"a": 1, "c": 1, "d": object()}, TypeError),
        ({"a": 1, "c": {"x": {}, "y": [1, 2]}, "b": np.zeros(3, np.float32)}, ValueError),
        ({"a": "text", "c": 1}, ValueError),
        ({"a": 1, "c": 1, "d": {1: 1, "x": 2}}, TypeError),
        ({"a": 1, "c": {}, "d": [{}], "b": object()}, TypeError),
    ],
    ids=("the new one", "another's shape", "another's dtype", "no nest", "empty containers"),
)
def test_columns_that_come_in_a_step_that_is_refused_are_not_in_the_history(writer, step, error):
    for _ in range(2):
        with pytest.raises(error):
            writer.append(step)
        assert list(writer.history) == ["a", "b"]
    writer.append({"a": 5, "c": [7]})
    history = writer.history
    assert list(history) == ["a", "b", "c"]
    assert [history["a"][-1].numpy(), history["c"][0][-1].numpy()] == [5, 7]
    assert history["c"][0].path() == ("c", 0)
    with pytest.raises(ValueError, match=r"^history of \('c', 0\): .* row 4 was not set in its step"):
        history["c"][0][4]
    with pytest.raises(ValueError, match=r"\('c', 0\)"):
        writer.append({"c": ["text"]})


def test_a_column_is_not_kept_as_one_was_to_be_whose_step_was_refused(client):
    writer = client.trajectory_writer(3)
    writer.configure(("b",), num_keep_alive_refs=1, max_chunk_length=1)
    writer.append({"a": 0})
    with pytest.raises(ValueError, match=r"\('a',\)"):
        writer.append({"a": "text", "b": 1})
    for value in range(3):
        writer.append({"a": 0, "c": value})
    assert writer.history["c"][-3:].numpy().tolist() == [0, 1, 2]
    for value in range(2):
        writer.append({"a": 0, "b": value})
    with pytest.raises(ValueError, match="only the last 1"):
        writer.history["b"][-2:]


def test_history_can_be_asked_for_within_the_first_append(client):
    writer = client.trajectory_writer(1)

    found = []

    def ask():
        with pytest.raises(RuntimeError, match="history has no columns yet"):  # the step may yet be refused
            writer.history  # noqa: B018
        found.append(1)
        return 1

    writer.append(Refusing(ask))
    assert len(found) > 1
    assert list(writer.history) == ["a", "b"]


def test_each_history_is_the_callers_own(writer):
    taken = writer.history
    taken["a"] = taken["a"][-1:]
    taken["c"] = 1
    assert list(writer.history) == ["a", "b"]
    assert len(writer.history["a"]) == 5


class Telling(dict):
    """A dict that calls `when_made`."""

    when_made = staticmethod(lambda: None)

    def __init__(self, *given):
        super().__init__(*given)
        Telling.when_made()


def test_a_history_that_grows_while_it_is_read_is_whole(client, monkeypatch):
    writer = client.trajectory_writer(1)
    writer.append({"a": Telling({"x": 1}), "b": 2})
    new = {f"c{i}": i for i in range(1000)}

    def append():
        monkeypatch.setattr(Telling, "when_made", lambda: None)
        thread = threading.Thread(target=writer.append, args=({"a": {"x": 1}, "b": 2, **new},))
        thread.start()
        thread.join()

    monkeypatch.setattr(Telling, "when_made", append)
    assert writer.history.keys() == {"a", "b", *new}


def test_its_length_counts_rows_that_are_gone_too(column):
    assert len(column) == 5
    assert [reference is None for reference in column] == [True, True, False, False, False]
    assert column.path() == ("a",)
    assert "('a',)" in str(column)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (2, 2), (4, 4), (-1, 4), (-3, 2), (True, None),
        (slice(2, None), [2, 3, 4]), (slice(-2, None), [3, 4]), (slice(3, 4), [3]),
        (slice(None, 4), [2, 3]), (slice(None, -1), [2, 3]), (slice(None, 1), []), (slice(None, -4), []),
        (slice(-1, 1, -1), [4, 3, 2]), (slice(2, None, 2), [2, 4]), (slice(4, 2), []), (slice(5, None), []),
        (slice(-2, 5), [3, 4]),
        ([2, -1, 2], [2, 4, 2]), ([], []),
    ],
)  # fmt: skip
def test_indices(column, index, expected):
    if expected is None:
        with pytest.raises(ValueError, match="None"):
            column[index]
        return
    chosen = column[index]
    assert isinstance(chosen, reverie.TrajectoryColumn)
    assert chosen.is_squeezed == isinstance(index, int)
    if expected == []:
        assert len(chosen) == 0
        for look in (chosen.numpy, lambda: chosen.shape, lambda: chosen.dtype):
            with pytest.raises(IndexError):
                look()
    else:
        assert chosen.numpy().tolist() == expected


@pytest.mark.parametrize(
    "index", [0, 1, -4, -5, -6, slice(None), slice(0, 3), slice(None, None, 2), slice(1, None), [0, 4], [-9]]
)
def test_rows_that_are_gone_or_never_were_are_none(column, index):
    with pytest.raises(ValueError, match=r"\('a',\).*cannot contain any None"):
        column[index]


@pytest.mark.parametrize("index", [5, 6, 2**70, [5]])
def test_indices_past_the_end(column, index):
    with pytest.raises(IndexError, match="5 rows"):
        column[index]


def test_slices_that_start_past_the_end(column):
    with pytest.raises(ValueError, match="starts at row 6"):
        column[6:]


@pytest.mark.parametrize("index", [slice(-6, None), slice(-7, -1), slice(-6, 0), slice(-6, None, 2), slice(-(2**70), None)])
def test_slices_that_start_before_the_first_row(column, index):
    with pytest.raises(ValueError, match=r"starts at row -\d+, there are 5 rows"):
        column[index]


def test_an_episode_too_short_for_a_slice_makes_no_shorter_item(client):
    writer = client.trajectory_writer(4)
    for value in range(2):
        writer.append({"a": value})
        with pytest.raises(ValueError, match="starts at row -3"):
            writer.history["a"][-3:]
    writer.append({"a": 2})
    assert writer.history["a"][-3:].numpy().tolist() == [0, 1, 2]
    writer.end_episode()
    with pytest.raises(ValueError, match="starts at row -3, there are 0 rows"):
        writer.history["a"][-3:]


@pytest.mark.parametrize("index", [np.int64(1), (1, 2), np.array([1]), None, 1.5, "a", [np.int64(1)]])
def test_indices_of_other_kinds(column, index):
    with pytest.raises(TypeError, match="indices"):
        column[index]
    with pytest.raises(TypeError, match="indices"):
        column[2:][index]


def test_the_columns_own_indices_are_those_of_a_tuple(column):
    chosen = column[2:]
    assert chosen[0].numpy() == 2
    assert chosen[0].is_squeezed
    assert chosen[-1:].numpy().tolist() == [4]
    assert chosen[[2, 0]].numpy().tolist() == [4, 2]
    assert chosen[5:].numpy.__name__ == "numpy"
    for index in (3, -4, [3]):
        with pytest.raises(IndexError):
            chosen[index]


def test_shapes_and_dtypes(writer):
    column = writer.history["b"]
    assert column[-2:].shape == (2, 2)
    assert column[-1].shape == (2,)
    assert column[-1].dtype == np.float32
    writer.append({"s": "text"})
    assert writer.history["s"][-1].dtype == np.dtype(object)
    assert writer.history["s"][-1:].numpy().tolist() == [b"text"]


def test_references_know_their_row(writer):
    first, *_ = references = list(writer.history["b"][2:])
    assert (first.shape, first.dtype, first.expired) == ([2], np.float32, False)
    assert first.numpy().tolist() == [2, 2]
    writer.append({"b": np.zeros(2, np.float32)})
    assert [reference.expired for reference in references] == [True, False, False]
    for look in (first.numpy, lambda: first.shape, lambda: first.dtype):
        with pytest.raises(RuntimeError, match="expired|no longer"):
            look()


def test_columns_expire_with_their_rows(writer):
    column = writer.history["a"][2:]
    writer.append({"a": 5})
    for look in (column.numpy, lambda: column.shape, lambda: column.dtype):
        with pytest.raises(RuntimeError, match="expired|no longer"):
            look()
    with pytest.raises(ValueError, match="expired|no longer"):
        writer.create_item("t", 1.0, column)


def test_columns_expire_when_the_history_is_cleared(writer):
    column, reference = writer.history["a"][-1:], list(writer.history["a"])[-1]
    writer.end_episode()
    for value in range(5):
        writer.append({"a": value})
    assert reference.expired
    with pytest.raises(RuntimeError, match="expired"):
        column.numpy()
    with pytest.raises(ValueError, match="expired"):
        writer.create_item("t", 1.0, column)


def test_columns_are_put_together_from_references(writer):
    a, b = writer.history["a"], writer.history["b"]
    both = reverie.TrajectoryColumn([*a[2:4], *a[-1:]], path=("x",))
    assert both.numpy().tolist() == [2, 3, 4]
    assert not both.is_squeezed
    assert reverie.TrajectoryColumn(list(a[-1:]), squeeze=True).numpy() == 4
    assert len(reverie.TrajectoryColumn([])) == 0
    with pytest.raises(ValueError, match="different"):
        reverie.TrajectoryColumn([*a[-1:], *b[-1:]]).numpy()
    with pytest.raises(ValueError, match="exactly one"):
        reverie.TrajectoryColumn(list(a[2:]), squeeze=True)
    with pytest.raises(ValueError, match="cannot contain any None"):
        reverie.TrajectoryColumn(list(a))
    with pytest.raises(TypeError, match="references"):
        reverie.TrajectoryColumn([1, 2])


def test_a_column_of_an_empty_history_has_length_zero(writer):
    writer.end_episode()
    assert len(writer.history["a"]) == 0
    with pytest.raises(IndexError):
        writer.history["a"][0]
    assert len(writer.history["a"][:]) == 0


def test_a_step_may_have_another_kind_of_mapping_or_sequence_than_the_first(client):
    for first, second in (
        ({"x": 1}, types.MappingProxyType({"x": 2, "y": 3})),
        (types.MappingProxyType({"x": 1}), {"y": 3, "x": 2}),
    ):
        writer = client.trajectory_writer(2)
        writer.append({"a": first})
        writer.append({"a": second})
        history = writer.history["a"]
        assert isinstance(history, type(first))
        assert (history["x"][:].numpy().tolist(), history["y"][-1].numpy()) == ([1, 2], 3)
    writer = client.trajectory_writer(2)
    writer.append([collections.deque([1])])
    writer.append([[2, 3]])
    assert [column[-1].numpy() for column in writer.history[0]] == [2, 3]
