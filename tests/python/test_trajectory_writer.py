"""TrajectoryWriter: steps, structure growth, partial steps, items, flush, episodes, failures."""

import collections
import gc
import pickle
import threading

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie.errors import DeadlineExceededError, ReverbError
from waiting import until

Step = collections.namedtuple("Step", "a b")


def sampled(client, n=1, table="t"):
    return [sample.data for sample in client.sample(table, n, emit_timesteps=False)]


@pytest.fixture
def queue(connect):
    return connect(reverie.Table.queue("t", 100))


# ---- append ----


def test_a_step_that_is_none_is_refused(queue):
    """A function that forgot its return: it would have been an empty step, and an item of it an error much later."""
    writer = queue.trajectory_writer(2)
    for steps in range(2):
        with pytest.raises(TypeError, match="append got None, which is no step"):
            writer.append(None)
        assert writer.episode_steps == steps
        writer.append({"a": 1})


def test_steps_are_counted(queue):
    writer = queue.trajectory_writer(2)
    for value in range(3):
        assert writer.episode_steps == value
        assert writer.append({"a": value}) is None
    writer.end_episode()
    assert writer.episode_steps == 0


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"a": np.float32(1), "b": 0}, ValueError, r"\('a',\)"),
        ({"a": 1, "b": np.zeros(2, int)}, ValueError, r"\('b',\)"),
        ({"a": 1, "b": object()}, TypeError, r"\('b',\)"),
        ({"a": np.float32(1), "b": object()}, TypeError, r"\('b',\)"),
    ],
)
def test_a_wrong_step_is_refused_and_changes_nothing(queue, wrong, error, words):
    writer = queue.trajectory_writer(5)
    writer.append({"a": 0, "b": 0})
    with pytest.raises(error, match=words):
        writer.append(wrong)
    assert writer.episode_steps == 1
    assert len(writer.history["a"]) == 1
    writer.append({"a": 1, "b": 1})
    writer.create_item("t", 1.0, {name: column[:] for name, column in writer.history.items()})
    writer.flush()
    assert [column.tolist() for column in sampled(queue)[0]] == [[0, 1], [0, 1]]


@pytest.mark.parametrize("right", [{"a": {"x": 1}, "b": 2}, {"b": 2}, [1, 2], 7])
def test_a_first_step_that_is_refused_says_nothing_of_the_next(queue, right):
    writer = queue.trajectory_writer(5)
    writer.configure(("b",), num_keep_alive_refs=2, max_chunk_length=None)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"\('a',\): .* cannot be stored"):
            writer.append({"a": object(), "b": 2, "c": 3})
        with pytest.raises(RuntimeError, match="append a step first"):
            _ = writer.history
    writer.append(right)
    assert reverie.nest.paths(writer.history) == reverie.nest.paths(right)
    with pytest.raises(TypeError):  # a later one does not forget what is in
        writer.append(reverie.nest.map_structure(lambda _: object(), right))
    writer.append(right)
    writer.create_item("t", 1.0, reverie.nest.map_structure(lambda column: column[-2:], writer.history))
    writer.flush()
    [data] = sampled(queue)
    assert [column.tolist() for column in reverie.nest.flatten(data)] == [[leaf] * 2 for leaf in reverie.nest.flatten(right)]


def test_dtype_and_shape_stay_fixed_across_episodes(queue):
    writer = queue.trajectory_writer(1)
    writer.append([1])
    writer.end_episode()
    with pytest.raises(ValueError, match=r"\(0,\)"):
        writer.append([1.0])


def test_an_empty_step_is_a_step(queue):
    writer = queue.trajectory_writer(2)
    writer.append({})
    assert writer.episode_steps == 1
    writer.append({"a": 1})
    assert [reference is None for reference in writer.history["a"]] == [True, False]


def test_data_is_copied(queue):
    writer = queue.trajectory_writer(1)
    data = np.arange(3)
    writer.append([data])
    data[:] = 9
    assert writer.history[0][-1].numpy().tolist() == [0, 1, 2]


# ---- growing ----


def test_columns_may_come_late_and_be_missing(queue):
    writer = queue.trajectory_writer(10)
    for step in ({"a": 0}, {"b": 1}, {"a": 2, "b": None}, {"a": 3, "b": 3}):
        writer.append(step)
    assert list(writer.history) == ["a", "b"]
    present = {name: [reference is not None for reference in column] for name, column in writer.history.items()}
    assert present == {"a": [True, False, True, True], "b": [False, True, False, True]}
    writer.create_item("t", 1.0, [writer.history["a"][[0, 2, 3]], writer.history["b"][[1, 3]]])
    writer.flush()
    assert [column.tolist() for column in sampled(queue)[0]] == [[0, 2, 3], [1, 3]]


def nested(depth, leaf):
    return {"a": nested(depth - 1, leaf)} if depth > 0 else leaf


def test_steps_that_grow_bit_by_bit_may_be_nested_no_deeper_than_one_that_comes_at_once(queue):
    writer = queue.trajectory_writer(1)
    for depth in range(50, 200, 50):  # each goes on below a dict of the one before
        writer.append(nested(depth, {"leaf": 1, "a": {}}))
    writer.append(nested(199, {"leaf": 1}))
    for deeper in (200, 350):
        with pytest.raises(ValueError, match="nested more than 200 deep"):
            queue.trajectory_writer(1).append(nested(deeper, {"leaf": 1}))
        with pytest.raises(ValueError, match="nested more than 200 deep"):
            writer.append(nested(deeper, {"leaf": 1}))
    writer.append(nested(50, {"leaf": 2}))
    assert writer.episode_steps == 5


def test_lists_tuples_and_nested_dicts_grow(queue):
    writer = queue.trajectory_writer(10)
    writer.append({"x": [1], "y": {"p": 1}})
    writer.append({"x": [1, (2, 3)], "y": {"q": 2, "p": 1}})
    writer.append({"x": []})
    history = writer.history
    assert isinstance(history["x"], list)
    assert isinstance(history["x"][1], tuple)
    assert list(history["y"]) == ["p", "q"]
    assert [len(column) for column in reverie.nest.flatten(history)] == [3] * 5
    assert history["x"][1][1].path() == ("x", 1, 1)


def test_containers_are_those_of_the_first_step(queue):
    writer = queue.trajectory_writer(2)
    writer.append(collections.OrderedDict(z=Step(1, [2]), y=3))
    assert isinstance(writer.history, collections.OrderedDict)
    assert list(writer.history) == ["z", "y"]
    assert isinstance(writer.history["z"], Step)
    writer.append({"z": (4, [5]), "x": 6})
    assert list(writer.history) == ["z", "y", "x"]
    assert writer.history["z"].b[0][-1].numpy() == 5


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        ({"a": 1}, {"a": [1]}, KeyError),
        ({"a": [1]}, {"a": 1}, AttributeError),
        ({"a": {"b": 1}}, {"a": [1]}, ValueError),
        (Step(1, 2), (1, 2, 3), ValueError),
        ([1], {"a": 1}, ValueError),
    ],
)
def test_a_place_is_a_leaf_or_a_container_for_ever(queue, first, second, error):
    writer = queue.trajectory_writer(2)
    writer.append(first)
    with pytest.raises(error, match=r"data.* is of type \w+.*, but in the steps before it was"):
        writer.append(second)
    writer.append(first)
    assert writer.episode_steps == 2


def test_many_columns(queue):
    writer = queue.trajectory_writer(1)
    for _ in range(3):
        writer.append({str(i): i for i in range(500)})
    writer.create_item("t", 1.0, {name: column[-1] for name, column in writer.history.items()})
    writer.flush()
    assert sorted(int(column) for column in sampled(queue)[0]) == list(range(500))


# ---- partial steps ----


def test_a_step_may_come_in_parts(queue):
    writer = queue.trajectory_writer(3)
    writer.append({"a": 0}, partial_step=True)
    assert (writer.episode_steps, writer.step_is_open, len(writer.history["a"])) == (0, True, 1)
    writer.append({"b": 0}, partial_step=True)
    writer.append({"c": 0})
    assert (writer.episode_steps, writer.step_is_open) == (1, False)
    assert [len(writer.history[name]) for name in "abc"] == [1, 1, 1]


def test_a_cell_of_the_open_step_is_set_once(queue):
    writer = queue.trajectory_writer(3)
    writer.append({"a": 0}, partial_step=True)
    with pytest.raises(ValueError, match="already"):
        writer.append({"a": 1})
    writer.append({"b": 1, "a": None})
    assert writer.history["a"][-1].numpy() == 0


def test_an_item_may_refer_to_the_open_step(queue):
    writer = queue.trajectory_writer(3)
    writer.append({"a": 5, "b": 6}, partial_step=True)
    writer.create_item("t", 1.0, [writer.history["a"][-1]])
    writer.append({"c": 7})
    writer.create_item("t", 1.0, [writer.history["a"][-1], writer.history["c"][-1]])
    writer.flush()
    assert [[int(column) for column in data] for data in sampled(queue, 2)] == [[5], [5, 7]]


def test_an_episode_may_end_within_a_step(queue):
    writer = queue.trajectory_writer(3)
    writer.append({"a": 5}, partial_step=True)
    writer.end_episode()
    assert not writer.step_is_open
    writer.append({"a": 6})
    writer.append({"a": 7})
    assert writer.history["a"][:].numpy().tolist() == [6, 7]


# ---- items ----


def test_trajectories_of_every_kind_of_index(queue):
    writer = queue.trajectory_writer(6)
    for value in range(6):
        writer.append([value])
    column = writer.history[0]
    expected = {
        "last": (column[-1], 5),
        "first": (column[0], 0),
        "slice": (column[1:4], [1, 2, 3]),
        "stride": (column[::2], [0, 2, 4]),
        "reversed": (column[::-1], [5, 4, 3, 2, 1, 0]),
        "gathered": (column[[5, 0, 0, -2]], [5, 0, 0, 4]),
        "of a column": (column[1:][::3], [1, 4]),
        "references": (reverie.TrajectoryColumn([*column[0:2], *column[4:]]), [0, 1, 4, 5]),
    }
    for chosen, values in expected.values():
        assert chosen.numpy().tolist() == values
        writer.create_item("t", 1.0, {"x": chosen})
    writer.flush()
    assert [data[0].tolist() for data in sampled(queue, len(expected))] == [values for _, values in expected.values()]


def test_one_column_needs_no_nest(queue):
    writer = queue.trajectory_writer(2)
    writer.append(3)
    key = writer.create_item("t", 1.5, writer.history[-1:])
    writer.flush()
    (sample,) = queue.sample("t", emit_timesteps=False)
    assert (sample.info.key, sample.info.priority, sample.data[0].tolist()) == (key, 1.5, [3])


def test_arguments_may_be_named(queue):
    writer = queue.trajectory_writer(num_keep_alive_refs=1, validate_items=True)
    writer.append([1])
    writer.create_item(table="t", priority=1, trajectory=writer.history[0][-1:])
    writer.flush(0)
    assert queue.server_info()["t"].current_size == 1


@pytest.mark.parametrize("priority", [2, np.float32(2), np.int64(2), np.array(2.0), np.array([2.0])])
def test_priorities_are_numbers(queue, priority):
    writer = queue.trajectory_writer(1)
    writer.append([1])
    writer.create_item("t", priority, writer.history[0][-1:])
    writer.flush()
    assert next(queue.sample("t", emit_timesteps=False)).info.priority == 2.0


@pytest.mark.parametrize(
    ("priority", "error"), [(float("nan"), ValueError), ("high", TypeError), (None, TypeError), (np.zeros(2), TypeError)]
)
def test_bad_priorities_are_refused(queue, priority, error):
    writer = queue.trajectory_writer(1)
    writer.append([1])
    with pytest.raises(error, match="(?i)priority|nan"):
        writer.create_item("t", priority, writer.history[0][-1:])
    writer.flush()
    assert queue.server_info()["t"].current_size == 0


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda w: w.history, TypeError, "TrajectoryColumn"),
        (lambda w: {"a": 1.0}, TypeError, "TrajectoryColumn"),
        (lambda w: {"a": None}, TypeError, "TrajectoryColumn"),
        (lambda w: {}, ValueError, "must not be empty"),
        (lambda w: [], ValueError, "must not be empty"),
        (lambda w: {"a": w.history["a"][2:2]}, ValueError, "must not be empty"),
        (lambda w: {"a": w.history["a"][2:2], "b": w.history["a"][:]}, ValueError, r"\w"),
    ],
)
def test_bad_trajectories_are_refused(queue, make, error, words):
    writer = queue.trajectory_writer(3)
    for value in range(3):
        writer.append({"a": value})
    with pytest.raises(error, match=words):
        writer.create_item("t", 1.0, make(writer))
    writer.create_item("t", 1.0, writer.history["a"][-1:])
    writer.flush()


def test_rows_of_another_writer_are_refused(queue):
    one, two = queue.trajectory_writer(1), queue.trajectory_writer(1)
    one.append([1])
    two.append([1])
    with pytest.raises(ValueError, match="writer"):
        two.create_item("t", 1.0, one.history[0][-1:])
    with pytest.raises(ValueError, match="writer"):
        reverie.TrajectoryColumn([*one.history[0][-1:], *two.history[0][-1:]])


def test_an_unknown_table_is_a_value_error_that_names_it(queue):
    writer = queue.trajectory_writer(1)
    writer.append([1])
    with pytest.raises(ValueError, match="nowhere"):
        writer.create_item("nowhere", 1.0, writer.history[0][-1:])
        writer.flush()


def test_items_of_several_tables_share_their_rows(connect):
    client = connect(make_table("a"), make_table("b"))
    with client.trajectory_writer(4) as writer:
        for value in range(4):
            writer.append([np.full(10, value)])
            if value:
                writer.create_item("a", 1.0, [writer.history[0][-2:]])
        writer.create_item("b", 2.0, [writer.history[0][:]])
    assert client.server_info()["a"].current_size == 3
    assert sampled(client, table="b")[0][0][:, 0].tolist() == [0, 1, 2, 3]


def test_items_of_one_writer_arrive_in_order(queue):
    with queue.trajectory_writer(3) as writer:
        for value in range(100):
            writer.append([value])
            writer.create_item("t", 1.0, writer.history[0][-1])
    assert [int(data[0]) for data in sampled(queue, 100)] == list(range(100))


# ---- flush, end_episode, close ----


def test_leaving_the_with_block_flushes_but_does_not_close(queue):
    with queue.trajectory_writer(1) as writer:
        writer.append([1])
        writer.create_item("t", 1.0, writer.history[0][-1:])
    assert queue.server_info()["t"].current_size == 1
    writer.append([2])
    writer.create_item("t", 1.0, writer.history[0][-1:])
    writer.flush()
    assert queue.server_info()["t"].current_size == 2


def test_an_error_of_ours_leaves_the_with_block_without_flushing(connect):
    client = connect(reverie.Table.queue("t", 1))
    with pytest.raises(ReverbError, match="mine"), client.trajectory_writer(1) as writer:
        for _ in range(3):
            writer.append([1])
            writer.create_item("t", 1.0, writer.history[0][-1:])
        raise ReverbError("mine")


@pytest.mark.parametrize("bad", [-1, 1.5, "1"])
def test_flush_arguments_are_checked(queue, bad):
    writer = queue.trajectory_writer(1)
    with pytest.raises((ValueError, TypeError), match="block_until_num_items"):
        writer.flush(bad)
    if bad != -1:
        with pytest.raises(TypeError, match="timeout_ms"):
            writer.flush(0, bad)
        with pytest.raises(TypeError, match="timeout_ms"):
            writer.end_episode(timeout_ms=bad)


def test_flush_waits_until_so_many_are_unconfirmed(connect):
    client = connect(reverie.Table.queue("t", 2))
    writer = client.trajectory_writer(1)
    for value in range(4):
        writer.append([value])
        writer.create_item("t", 1.0, writer.history[0][-1])
    writer.flush(2)
    assert client.server_info()["t"].current_size == 2
    with pytest.raises(DeadlineExceededError):
        writer.flush(0, timeout_ms=50)
    assert [int(data[0]) for data in sampled(client, 4)] == [0, 1, 2, 3]
    writer.flush()
    assert writer.status().items_confirmed == 4


def test_an_episode_that_cannot_end_in_time_is_as_it_was(connect):
    client = connect(reverie.Table.queue("t", 1))
    writer = client.trajectory_writer(2)
    for value in range(2):
        writer.append([value])
        writer.create_item("t", 1.0, writer.history[0][-1])
    for timeout_ms in (50, 0, -1):
        with pytest.raises(DeadlineExceededError):
            writer.end_episode(timeout_ms=timeout_ms)
    assert writer.episode_steps == 2
    assert writer.history[0][:].numpy().tolist() == [0, 1]
    sampled(client, 2)
    writer.end_episode(timeout_ms=60_000)
    assert (writer.episode_steps, len(writer.history[0])) == (0, 0)


def test_history_may_go_on_across_episodes(queue):
    writer = queue.trajectory_writer(4)
    writer.append([0])
    writer.end_episode(clear_buffers=False)
    writer.append([1])
    assert writer.episode_steps == 1
    writer.create_item("t", 1.0, writer.history[0][:])
    writer.flush()
    assert sampled(queue)[0][0].tolist() == [0, 1]


def test_ending_an_episode_without_steps_is_fine(queue):
    writer = queue.trajectory_writer(1)
    writer.end_episode()
    writer.end_episode(clear_buffers=False, timeout_ms=0)


def test_a_closed_writer_says_so(queue):
    writer = queue.trajectory_writer(1)
    writer.append([1])
    writer.close()
    writer.close()
    for call in (lambda: writer.append([1]), writer.flush, writer.end_episode, lambda: writer.create_item("t", 1.0, {})):
        with pytest.raises(RuntimeError, match="Close has been called"):
            call()


@pytest.mark.parametrize("end", ["flush", "end_episode"])
def test_closing_from_another_thread_ends_what_a_thread_waits_for(connect, end):
    client = connect(reverie.Table.queue("t", 1))
    writer = client.trajectory_writer(1)
    for value in range(2):
        writer.append([value])
        writer.create_item("t", 1.0, [writer.history[0][-1:]])
    entered, raised = threading.Event(), []

    def wait():
        entered.set()
        try:
            getattr(writer, end)()
        except RuntimeError as error:  # "Close has been called" where the close came first
            raised.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while client.server_info()["t"].num_waiting_inserts == 0 or not entered.is_set():
        assert thread.is_alive()
    assert writer.status().items_created == 2, "it does not wait for the thread that does"
    writer.close()
    thread.join(60)
    assert len(raised) == 1


def test_a_closed_writers_history_can_still_be_read(queue):
    writer = queue.trajectory_writer(2)
    for value in range(3):
        writer.append([value])
    column = writer.history[0][-2:]
    writer.close()
    assert column.numpy().tolist() == [1, 2]
    assert writer.history[0][-1].numpy() == 2
    assert writer.episode_steps == 3
    assert not writer.step_is_open


def test_closing_drops_what_was_not_confirmed(connect):
    client = connect(reverie.Table.queue("t", 1))
    writer = client.trajectory_writer(1)
    for value in range(3):
        writer.append([value])
        writer.create_item("t", 1.0, writer.history[0][-1:])
    writer.flush(2)
    writer.close()
    until(lambda: client.server_info()["t"].num_waiting_inserts == 0)
    assert sampled(client)[0][0].tolist() == [0]
    assert client.server_info()["t"].current_size == 0


def test_dropping_a_writer_with_pending_items_does_not_wait(connect):
    client = connect(reverie.Table.queue("t", 1))
    writer = client.trajectory_writer(1)
    for value in range(3):
        writer.append([value])
        writer.create_item("t", 1.0, writer.history[0][-1:])
    del writer
    gc.collect()


def test_bounds_in_flight_are_kept_without_waiting(connect):
    client = connect(reverie.Table.queue("t", 1))
    writer = client.trajectory_writer(1, max_in_flight_items=3)
    with pytest.raises(IndexError, match="flush|in flight"):
        for value in range(10):
            writer.append([value])
            writer.create_item("t", 1.0, writer.history[0][-1:])
    assert writer.status().items_in_flight <= 3
    writer.close()


@pytest.mark.parametrize("refs", [0, -1])
def test_at_least_one_row_is_kept(connect, refs):
    client = connect()
    with pytest.raises(ValueError, match="positive integer"):
        client.trajectory_writer(refs)
    with pytest.raises(TypeError, match="integer"):
        client.trajectory_writer(1.5)
    with pytest.raises(TypeError, match="get_signature_timeout_ms must be an integer"):
        client.trajectory_writer(1, get_signature_timeout_ms=1.5)
    with pytest.raises(ValueError, match="compression"):
        client.trajectory_writer(1, compression="zip")


@pytest.mark.parametrize(
    "options", [{"compression": "none"}, {"compression": "snappy"}, {"delta_encoded": True}, {"chunk_length": 4}]
)
def test_encodings_do_not_show(queue, options):
    values = np.arange(30).reshape(10, 3)
    with queue.trajectory_writer(10, **options) as writer:
        for row in values:
            writer.append({"i": row, "f": row.astype(np.float32), "s": str(row[0])})
        writer.create_item("t", 1.0, {name: column[2:9] for name, column in writer.history.items()})
    f, i, s = sampled(queue)[0]
    np.testing.assert_array_equal(i, values[2:9])
    np.testing.assert_array_equal(f, values[2:9].astype(np.float32))
    assert s.tolist() == [str(row[0]).encode() for row in values[2:9]]


# ---- configure ----


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_keep_alive_refs": 0, "max_chunk_length": None},
        {"num_keep_alive_refs": 2, "max_chunk_length": 3},
        {"num_keep_alive_refs": 2, "max_chunk_length": 0},
    ],
)
def test_configuration_is_checked(queue, arguments):
    with pytest.raises(ValueError, match="positive"):
        queue.trajectory_writer(1).configure(("a",), **arguments)


def test_columns_are_configured_before_or_after_they_come(queue):
    writer = queue.trajectory_writer(2)
    writer.configure(("late",), num_keep_alive_refs=5, max_chunk_length=2)
    writer.configure(("typo",), num_keep_alive_refs=5, max_chunk_length=None)
    with pytest.raises(TypeError, match="path must be a tuple"):
        writer.configure(["late"], num_keep_alive_refs=5, max_chunk_length=2)
    for value in range(6):
        writer.append({"late": value, "short": value})
    assert writer.history["late"][-5:].numpy().tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="None"):
        writer.history["short"][-3:]


def test_a_column_that_is_to_keep_more_has_the_rows_that_were_still_kept(queue):
    writer = queue.trajectory_writer(2)
    writer.configure(("a",), num_keep_alive_refs=2, max_chunk_length=1)
    for value in range(6):
        writer.append({"a": value})
    writer.configure(("a",), num_keep_alive_refs=5, max_chunk_length=1)
    for value in range(6, 12):
        kept = [*writer.history["a"][:-1].numpy().tolist(), value - 1]
        assert kept == list(range(value - len(kept), value))
        assert min(value - 4, 5) <= len(kept) <= 5
        with pytest.raises(ValueError, match=f"row 0 is no longer kept, of {value} rows only the last {len(kept)}"):
            writer.history["a"][0]
        writer.append({"a": value})
    writer.end_episode()
    writer.append({"a": 0})
    assert writer.history["a"][:].numpy().tolist() == [0]


# ---- life ----


def test_writers_are_not_pickled(queue):
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(queue.trajectory_writer(1))


def test_test_doubles_may_subclass_without_calling_the_base(queue):
    class Double(reverie.TrajectoryWriter):
        def __init__(self):
            self.calls = []

        def append(self, data, *, partial_step=False):
            self.calls.append(data)

    double = Double()
    double.append(1)
    assert double.calls == [1]
    with pytest.raises(RuntimeError, match="not initialised"):
        double.create_item("t", 1.0, {})
    with pytest.raises(RuntimeError, match="not initialised"):
        double.flush()
    double.close()
    del double
    gc.collect()


def test_the_block_of_a_double_is_its_own_affair(queue):
    class Double(reverie.TrajectoryWriter):
        def __init__(self):
            self.flushes = 0

        def flush(self, *given, **named):
            self.flushes += 1

    with Double() as double:
        assert double.flushes == 0
    assert double.flushes == 1
    with pytest.raises(KeyError), double:
        raise KeyError("mine")
    assert double.flushes == 2
    for quick in (KeyboardInterrupt, DeadlineExceededError):
        with pytest.raises(quick), double:
            raise quick
    assert double.flushes == 2


def test_appends_of_several_threads_are_taken_one_after_another(queue):
    writer = queue.trajectory_writer(1)
    image = np.zeros((300, 300), np.float32)

    def work():
        for _ in range(20):
            writer.append([image])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.episode_steps == 80


def test_a_lost_server_is_waited_for(tmp_path):
    address = f"unix:{tmp_path}/server"
    with reverie.Server([make_table()], address=address):
        client = reverie.Client(address)
        writer = client.trajectory_writer(1)
        writer.append([1])
        writer.create_item("t", 1.0, writer.history[0][-1:])
        writer.flush()
    writer.append([2])
    writer.create_item("t", 1.0, writer.history[0][-1:])
    with pytest.raises(DeadlineExceededError):
        writer.flush(0, 50)
    until(lambda: "connected to" not in writer.status().state)  # it hears of the end a little later
    with reverie.Server([make_table()], address=address):
        writer.flush(0, 30_000)
        assert sampled(client)[0][0].tolist() == [2]
        assert writer.status().items_confirmed == 2
