"""Bad values and names, told by the call that was given them, in process and remotely alike; the table works on afterwards."""

import math

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

IMAGE = np.zeros((8, 8), np.float32)
STEP = {"action": np.int32(1), "obs": IMAGE}
SIGNATURE = {"action": reverie.TensorSpec((), np.int32, "action"), "obs": reverie.TensorSpec((8, 8), np.float32, "obs")}
PRIORITIZED = reverie.selectors.Prioritized(1.0)


@pytest.fixture(params=["in process", "remote"])
def client(request):
    """A client of a server with tables for everything that can be wrong."""
    tables = [
        make_table("plain"),
        make_table("uniform", sampler=reverie.selectors.Uniform()),
        make_table("signed", signature=SIGNATURE),
        make_table("sampler", sampler=PRIORITIZED),
        make_table("remover", remover=PRIORITIZED),
    ]
    with reverie.Server(tables, address="127.0.0.1:0") as server:
        yield reverie.Client(server if request.param == "in process" else server.address)


def by_trajectory(client, table, data, priority=1.0, rows=-1, **options):
    writer = client.trajectory_writer(1, **options)
    writer.append(data)
    writer.create_item(table, priority, reverie.nest.map_structure(lambda column: column[rows], writer.history))
    writer.flush(timeout_ms=30_000)


def by_writer(client, table, data, priority=1.0):
    writer = client.writer(1)
    writer.append(data)
    writer.create_item(table, 1, priority)
    writer.flush()
    writer.close()


def as_batch(data):
    return reverie.nest.map_structure(lambda leaf: np.stack([leaf, leaf]), data)


INSERTS = {
    "insert": lambda client, table, data, priority=1.0: client.insert(data, {table: priority}),
    "add": lambda client, table, data, priority=1.0: client.add(table, data, priority),
    "add_batch": lambda client, table, data, priority=1.0: client.add_batch(table, as_batch(data), [1.0, priority]),
    "trajectory": by_trajectory,
    "trajectory, not validated": lambda *arguments: by_trajectory(*arguments, validate_items=False),
    "writer": by_writer,
}
every_insert = pytest.mark.parametrize("insert", INSERTS.values(), ids=INSERTS)


def size(client, table):
    return client.server_info()[table].current_size


# ---- names ----


@every_insert
def test_inserting_into_an_unknown_table_names_it_and_those_there_are(client, insert):
    with pytest.raises(NotFoundError, match='table "nowhere" .*"plain"'):
        insert(client, "nowhere", STEP)


UNKNOWN = {
    "sample": lambda client: next(client.sample("nowhere")),
    "sample, unpacked": lambda client: next(client.sample("nowhere", unpack_as_table_signature=True)),
    "sample_batch": lambda client: client.sample_batch("nowhere", 1),
    "batches": lambda client: next(client.batches("nowhere", 1)),
    "update_priorities": lambda client: client.update_priorities("nowhere", [1], [1.0]),
    "mutate_priorities": lambda client: client.mutate_priorities("nowhere", {1: 1.0}),
    "reset": lambda client: client.reset("nowhere"),
    "keys": lambda client: client.keys("nowhere"),
    "items": lambda client: list(client.items("nowhere")),
    "get": lambda client: client.get("nowhere", 1),
    "set_bounds": lambda client: client.set_bounds("nowhere", max_size=1),
    "set_rate_limiter": lambda client: client.set_rate_limiter("nowhere", reverie.rate_limiters.MinSize(1)),
}


@pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN)
def test_every_other_call_on_an_unknown_table_does_so_too(client, call):
    with pytest.raises(NotFoundError, match='table "nowhere" .*"plain"'):
        call(client)


def test_two_tables_of_one_name_are_refused():
    with pytest.raises(ValueError, match="same name: 'twice'"):
        reverie.Server([make_table("twice"), make_table("twice")], in_process=True)


@pytest.mark.parametrize("how", ["address", "port"])
def test_a_port_in_use_is_named_and_its_server_goes_on(how):
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        taken = {"address": server.address, "port": server.port}
        with pytest.raises(reverie.errors.AddressInUseError, match=f"port {server.port} .*in use .*server of this one"):
            reverie.Server([make_table()], **{how: taken[how]})
        reverie.Client(server.address).add("t", 1)


# ---- signatures and first steps ----


@every_insert
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({**STEP, "obs": np.zeros((8, 8), np.uint8)}, r'table "signed".*column 1 "obs" is float32\[8,8\], got uint8'),
        (
            {**STEP, "obs": np.zeros((8, 9), np.float32)},
            r'table "signed".*column 1 "obs" is float32\[8,8\], got float32\[.*8,9\]',
        ),
        ({**STEP, "obs": np.zeros((8, 8, 1), np.float32)}, r'column 1 "obs" is float32\[8,8\], got float32\[.*8,8,1\]'),
        ({"obs": IMAGE}, r'table "signed".*2 columns \("action", "obs"\), got 1'),
        ({**STEP, "reward": np.float32(0)}, r'table "signed".*2 columns.*got 3'),
        ([IMAGE, np.int32(1)], r'table "signed".*column 0 "action" is int32\[\], got float32'),
    ],
    ids=["dtype", "shape", "rank", "a column is missing", "a column too many", "another order"],
)
def test_what_does_not_fit_the_signature_names_the_table_the_column_and_both_sides(client, insert, wrong, words):
    with pytest.raises(InvalidArgumentError, match=words):
        insert(client, "signed", wrong)
    assert size(client, "signed") == 0
    insert(client, "signed", STEP)
    assert client.sample_batch("signed", 1, unequal="list").data is not None


@pytest.mark.parametrize(
    ("second", "error", "words"),
    [
        ({**STEP, "obs": np.zeros((8, 8))}, InvalidArgumentError, r"'obs'.*float64\[8,8\].*float32\[8,8\]"),
        ({**STEP, "obs": IMAGE[0]}, InvalidArgumentError, r"'obs'.*float32\[8\].*float32\[8,8\]"),
        ({**STEP, "obs": {"left": IMAGE}}, reverie.errors.StructureError, r"data\['obs'\] is of type dict, .* a single value"),
        ([IMAGE], reverie.errors.StructureError, "data is of type list, .* of type dict"),
    ],
    ids=["dtype", "shape", "leaf becomes container", "container becomes another"],
)
def test_a_step_unlike_the_columns_first_is_refused_and_the_writer_goes_on(client, second, error, words):
    writer = client.trajectory_writer(2)
    writer.append(STEP)
    with pytest.raises(error, match=words):
        writer.append(second)
    writer.append(STEP)
    writer.create_item("plain", 1.0, {name: column[-2:] for name, column in writer.history.items()})
    writer.flush(timeout_ms=30_000)
    assert next(client.sample("plain", emit_timesteps=False)).data[1].shape == (2, 8, 8)


def test_items_of_different_layouts_do_not_make_a_batch_and_the_sentence_says_what_to_ask_for(client):
    client.add("plain", {"obs": np.zeros(3), "reward": 0})
    client.add("plain", {"obs": np.zeros(3), "reward": 1.0})
    words = r'table "plain".*column 1 "reward" is int64\[\] in some and float64\[\] in others; give the table a signature'
    words_the_other_way = words.replace("int64", "float64", 1).replace("and float64", "and int64")
    with pytest.raises(FailedPreconditionError, match=f"{words}|{words_the_other_way}"):
        client.sample_batch("plain", 2)
    assert [item.times_sampled for item in client.items("plain")] == [0, 0]


def test_a_batch_of_unequal_lengths_is_told_of_padding_which_then_helps(client):
    writer = client.trajectory_writer(3)
    for _ in range(3):
        writer.append(np.zeros(4))
    for rows in (2, 3):
        writer.create_item("uniform", 1.0, writer.history[-rows:])
    writer.flush(timeout_ms=30_000)
    with pytest.raises(FailedPreconditionError, match=r'column 0 is .*float64\[2,4\].*unequal="pad"'):
        client.sample_batch("uniform", 2)
    assert reverie.nest.flatten(client.sample_batch("uniform", 64, unequal="pad").data)[0].shape == (64, 3, 4)


def both_kinds(client, first, second):
    """Of a table that has both, each comes first in some batch, and every batch has both."""
    client.add("uniform", first)
    client.add("uniform", second)


def test_rows_of_a_stack_and_one_row_of_the_same_shape_are_told_apart(client):
    client.add("uniform", np.zeros((3, 4)))
    with client.trajectory_writer(3) as writer:
        for _ in range(3):
            writer.append(np.zeros(4))
        writer.create_item("uniform", 1.0, writer.history[-3:])
    with pytest.raises(FailedPreconditionError, match=r"column 0 is float64\[3,4\] in all, .*stack=.*\(add\)"):
        client.sample_batch("uniform", 2)


def test_a_row_that_was_pushed_out_is_told_with_how_many_are_kept(client):
    writer = client.trajectory_writer(2)
    for value in range(5):
        writer.append([value])
    with pytest.raises(ValueError, match="row 0 is no longer kept, of 5 rows only the last 2; .*larger num_keep_alive_refs"):
        writer.history[0][0]


def test_a_wrong_dtype_is_told_with_the_way_to_the_right_one(connect):
    client = connect(make_table("t", signature={"reward": reverie.TensorSpec((), "float32")}))
    with pytest.raises(ValueError, match=r'float32\[\], got float64\[\], which is inconsistent with it; .*\.astype\("float32"\)'):
        client.add("t", {"reward": np.float64(1)})


def test_what_no_padding_makes_one_is_told_by_dtype(client):
    both_kinds(client, {"obs": np.zeros(3), "reward": 0}, {"obs": np.zeros(3), "reward": 1.0})
    dtypes = {column.dtype.name for column in client.sample_batch("uniform", 64, unequal="list").data["reward"]}
    assert dtypes == {"int64", "float64"}
    with pytest.raises(FailedPreconditionError, match=r'column 1 "reward" is of rows .*(64\[\].*){2}, which padding.*signature'):
        client.sample_batch("uniform", 64, unequal="pad")


@pytest.mark.parametrize("unequal", ["error", "pad", "list"])
def test_items_with_more_and_fewer_columns_do_not_make_a_batch_of_any_kind(client, unequal):
    both_kinds(client, {"a": 1, "b": 2}, {"a": 1})
    for _ in range(8):  # whichever comes first
        with pytest.raises(FailedPreconditionError, match=r"(2.*1|1.*2) columns.*signature|2 columns.*1;|1 columns.*2;"):
            client.sample_batch("uniform", 64, unequal=unequal)


# ---- priorities ----

BAD_PRIORITIES = {
    **{(table, value): True for table in ("sampler", "remover") for value in ("nan", "-1", "inf", "-inf")},
    **{("plain", value): value == "nan" for value in ("nan", "-1", "inf", "-inf")},
}
NO_WEIGHT = "(?i)priority.*(nan|negative or infinite|finite and not negative)"
UPDATES = {
    "update_priorities": lambda client, table, key, priority: client.update_priorities(table, [key], [priority]),
    "mutate_priorities": lambda client, table, key, priority: client.mutate_priorities(table, {key: priority}),
}


@every_insert
@pytest.mark.parametrize(("table", "value"), BAD_PRIORITIES)
def test_a_priority_that_is_no_weight_is_not_inserted(client, insert, table, value):
    priority = float(value)
    if BAD_PRIORITIES[table, value]:
        with pytest.raises(InvalidArgumentError, match=NO_WEIGHT):
            insert(client, table, [1], priority)
    else:
        insert(client, table, [1], priority)
    assert all(not BAD_PRIORITIES[table, value] or item.priority == 1.0 for item in client.items(table))
    client.reset(table)
    client.add(table, [7], 2.0)
    assert client.sample_batch(table, 1).data[0].tolist() == [7]


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize(("table", "value"), BAD_PRIORITIES)
def test_a_priority_that_is_no_weight_is_not_updated_to(client, update, table, value):
    key = client.add(table, [7], 2.0)
    if BAD_PRIORITIES[table, value]:
        with pytest.raises(InvalidArgumentError, match=NO_WEIGHT):
            update(client, table, key, float(value))
        assert [item.priority for item in client.items(table)] == [2.0]
    else:
        update(client, table, key, float(value))
        assert [item.priority for item in client.items(table)] == [float(value)]
    assert client.sample_batch(table, 1).data[0].tolist() == [7]


# ---- histories ----


def test_an_item_over_an_evicted_row_says_how_many_are_kept(client):
    writer = client.trajectory_writer(2)
    writer.append([0])
    old = writer.history[0][:]
    for value in range(1, 5):
        writer.append([value])
    with pytest.raises(InvalidArgumentError, match="expired.*last 2 rows.*num_keep_alive_refs"):
        writer.create_item("plain", 1.0, [old])
    writer.create_item("plain", 1.0, [writer.history[0][-2:]])
    writer.flush(timeout_ms=30_000)
    assert size(client, "plain") == 1


def test_an_item_over_a_history_that_ended_is_refused(client):
    writer = client.trajectory_writer(2)
    writer.append([0])
    old = writer.history[0][:]
    writer.end_episode()
    with pytest.raises(ValueError, match="expired.*end_episode"):
        writer.create_item("plain", 1.0, [old])


def test_an_item_over_an_empty_history_is_refused(client):
    writer = client.trajectory_writer(2)
    with pytest.raises(FailedPreconditionError, match="append a step first"):
        _ = writer.history[0]
    with pytest.raises(ValueError, match="empty"):
        writer.create_item("plain", 1.0, [])
    writer.append([0])
    with pytest.raises(ValueError, match="empty"):
        writer.create_item("plain", 1.0, [writer.history[0][1:1]])
    legacy = client.writer(2)
    with pytest.raises(InvalidArgumentError, match="0 steps"):
        legacy.create_item("plain", 1, 1.0)
    assert size(client, "plain") == 0


# ---- rate limiters ----


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 1, 0.0, 1.0), "samples_per_insert is 0.*positive"),
        ((-1.0, 1, 0.0, 1.0), "samples_per_insert is -1.*positive"),
        ((math.inf, 1, 0.0, 1.0), "samples_per_insert is inf"),
        ((math.nan, 1, 0.0, 1.0), "samples_per_insert is nan"),
        ((1.0, 0, 0.0, 1.0), "min_size_to_sample.*is 0.*from 1"),
        ((1.0, 2**40, 0.0, 1.0), "min_size_to_sample.*from 1"),
        ((1.0, 2**70, 0.0, 1.0), "min_size_to_sample.*from 1"),
        ((1.0, 1, 5.0, 1.0), "min_diff 5 is greater than max_diff 1"),
        ((1.0, 1, math.nan, 1.0), "min_diff is NaN"),
        ((1.0, 1, 0.0, math.nan), "max_diff is NaN"),
        ((0.1, 1, 5.0, 5.05), "no sample can ever proceed.*raise max_diff or lower min_diff"),
    ],
)
def test_a_limiter_that_lets_nobody_through_is_refused_with_the_numbers(arguments, words):
    with pytest.raises(ValueError, match=words):
        reverie.rate_limiters.RateLimiter(*arguments)


def test_a_limiter_that_waits_for_more_than_the_table_holds_is_refused(client):
    limiter = reverie.rate_limiters.MinSize(1001)
    with pytest.raises(ValueError, match="min_size_to_sample is 1001.*max_size = 1000"):
        reverie.Server([make_table(rate_limiter=limiter)], in_process=True)
    with pytest.raises(ValueError, match="min_size_to_sample is 1001.*max_size = 1000"):
        client.set_rate_limiter("plain", limiter)
    client.add("plain", 1)
    client.sample_batch("plain", 1)


# ---- tensors ----


@every_insert
@pytest.mark.parametrize(
    "value",
    [
        np.zeros((0, 3), np.float32),
        np.zeros((3, 0, 2), np.int64),
        np.float64(1.5),
        np.ones((1,) * 31, np.int8),
        np.array(["a", "", "käse \0 end"], object),
        np.array("text", object),
    ],
    ids=["no rows", "no columns", "no dimensions", "31 dimensions", "strings", "one string"],
)
def test_tensors_of_every_odd_kind_come_back(client, insert, value):
    insert(client, "plain", [value])
    found = next(client.sample("plain", emit_timesteps=False)).data[0]
    expected = np.asarray(value)
    if found.ndim > expected.ndim:
        assert found.shape[0] == 1
        found = found.reshape(found.shape[1:])
    if expected.dtype == object:
        expected = np.array([text.encode() for text in expected.ravel()], object).reshape(expected.shape)
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


def test_a_row_may_have_32_dimensions(client):
    client.add("plain", [np.full((1,) * 32, 5, np.int8)])
    assert next(client.sample("plain", emit_timesteps=False)).data[0].shape == (1,) * 32


def test_a_trajectory_of_rows_of_32_dimensions_is_refused_or_comes_back(client):
    try:
        by_trajectory(client, "plain", [np.full((1,) * 32, 5, np.int8)], rows=slice(None))
    except ValueError as error:
        assert "32" in str(error)
        assert size(client, "plain") == 0
    else:
        assert next(client.sample("plain", emit_timesteps=False)).data[0].shape == (1,) * 33


@pytest.mark.parametrize("value", [object(), {1, 2}, np.datetime64("2020-01-01"), b"a".decode, np.array([None])])
@pytest.mark.parametrize("insert", [INSERTS["insert"], INSERTS["add"], INSERTS["trajectory"], INSERTS["writer"]])
def test_what_is_no_tensor_is_a_type_error(client, insert, value):
    with pytest.raises(TypeError):
        insert(client, "plain", [value])
    assert size(client, "plain") == 0
