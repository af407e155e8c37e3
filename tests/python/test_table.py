"""Table: arguments, info, can_sample and can_insert, replace."""

import copy
import pickle

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie import rate_limiters, selectors


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"name": ""}, ValueError, "nonempty"),
        ({"name": 3}, TypeError, "name"),
        ({"name": "a\0b"}, ValueError, "a table's name must not contain a NUL character"),
        ({"name": "\ud800"}, ValueError, "a table's name must be text that UTF-8 can encode"),
        ({"sampler": selectors.Fifo}, TypeError, "sampler"),
        ({"remover": selectors.MaxHeap}, TypeError, "remover"),
        ({"sampler": None}, TypeError, "sampler"),
        ({"max_size": 0}, ValueError, "positive integer"),
        ({"max_size": -1}, ValueError, "positive integer"),
        ({"max_size": 1.5}, TypeError, "max_size"),
        ({"max_size": 2**31}, TypeError, "max_size"),
        ({"rate_limiter": None}, TypeError, "rate_limiter"),
        ({"max_times_sampled": 1.0}, TypeError, "max_times_sampled"),
        ({"extensions": "statistics"}, TypeError, "list"),
        ({"extensions": [3]}, TypeError, "extension"),
    ],
)
def test_bad_arguments_are_refused(options, error, words):
    given = {"name": "t", **options}
    with pytest.raises(error, match=words):
        make_table(**given)


def test_arguments_may_be_given_by_position():
    table = reverie.Table("t", selectors.Fifo(), selectors.Lifo(), 5, rate_limiters.MinSize(1), 3, (), None)
    assert (table.name, table.info.max_size, table.info.max_times_sampled) == ("t", 5, 3)


def test_info_is_there_before_while_and_after_serving():
    table = make_table(max_size=7)
    assert (table.info.current_size, table.info.max_size, table.info.name) == (0, 7, "t")
    with reverie.Server([table], in_process=True) as server:
        reverie.Client(server).add("t", 1)
        assert table.info.current_size == 1
    assert table.info.current_size == 1


@pytest.mark.parametrize(("make", "sampler"), [(reverie.Table.queue, "fifo"), (reverie.Table.stack, "lifo")])
def test_queues_and_stacks(make, sampler):
    table = make("t", 3)
    info = table.info
    assert info.sampler_options.WhichOneof("distribution") == info.remover_options.WhichOneof("distribution") == sampler
    assert (info.max_size, info.max_times_sampled, info.rate_limiter_info.max_diff) == (3, 1, 3.0)


def test_a_stack_gives_the_newest_first(connect):
    client = connect(reverie.Table.stack("t", 3))
    client.add_batch("t", np.arange(3))
    assert client.sample_batch("t", 3).data.tolist() == [2, 1, 0]


def test_can_sample_and_can_insert_ask_the_limiter_only():
    table = make_table(rate_limiter=rate_limiters.Queue(2), max_size=1)
    assert not table.can_sample(1)
    assert table.can_insert(2)
    assert not table.can_insert(3)
    with reverie.Server([table], in_process=True) as server:
        client = reverie.Client(server)
        assert table.can_insert(2)
        assert not table.can_insert(3)
        client.add("t", 0)
        assert table.can_sample(1)
        assert not table.can_sample(2)
        for method in (table.can_sample, table.can_insert):
            with pytest.raises(ValueError, match="positive"):
                method(0)


def test_replace_changes_what_is_given_and_keeps_the_rest():
    table = reverie.Table.queue("t", 3, extensions=["statistics"], signature=[reverie.TensorSpec([2], "int8")])
    with reverie.Server([table], in_process=True) as server:
        reverie.Client(server).add("t", [np.zeros(2, np.int8)])
        other = table.replace(name="u", max_size=9)
        assert type(other) is reverie.Table
        info = other.info
        assert (info.name, info.max_size, info.current_size) == ("u", 9, 0)
        assert info.rate_limiter_info.max_diff == 3.0
        assert info.signature == [reverie.TensorSpec([2], "int8")]
        assert "statistics" in repr(other)
        assert table.replace(sampler=selectors.Lifo()).info.sampler_options.lifo


def test_tables_show_themselves():
    assert repr(make_table(max_size=5)) == (
        "Table(sampler=FifoSelector, remover=FifoSelector, max_size=5, max_times_sampled=0, name=t, "
        "rate_limiter=RateLimiter(samples_per_insert=1, min_diff_=-1.79769e+308, max_diff=1.79769e+308, min_size_to_sample=1), "
        "signature=nullptr)"
    )


def test_tables_cannot_be_pickled_but_their_info_can():
    table = make_table(signature={"x": reverie.TensorSpec([1])})
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(table)
    with reverie.Server([table], in_process=True):
        info = table.info
    assert pickle.loads(pickle.dumps(info)).signature == info.signature
    assert copy.deepcopy(info).name == "t"


def test_items_go_when_they_were_sampled_often_enough(connect):
    client = connect(make_table(max_times_sampled=2))
    client.add("t", 1)
    assert client.sample_batch("t", 2).times_sampled.tolist() == [1, 2]
    assert client.server_info()["t"].current_size == 0


def test_episodes_are_counted(connect):
    client = connect(make_table(max_size=2))
    for value in range(3):
        client.insert(value, {"t": 1.0})
    info = client.server_info()["t"]
    assert (info.num_episodes, info.num_deleted_episodes) == (2, 1)


def test_episodes_are_of_the_items_that_are_there(connect):
    client = connect(make_table(max_times_sampled=1))

    def episodes():
        return client.server_info()["t"].num_episodes

    client.add("t", 1.0)
    assert episodes() == 1
    client.sample_batch("t", 1)
    assert episodes() == 0
    client.insert(2.0, {"t": 1.0})
    assert episodes() == 1
    client.add("t", 3.0)
    assert episodes() == 2


def test_names_may_hold_any_character(connect):
    name = "a table/with ünïcode\t😀"
    client = connect(make_table(name))
    client.add(name, 1)
    assert list(client.server_info()) == [name]


def test_the_longest_name_can_be_called_and_one_that_is_longer_is_refused(connect):
    name = "n" * 2048
    client = connect(make_table(name))
    key = client.add(name, 1)
    client.mutate_priorities(name, {key: 2.0})
    assert client.sample_batch(name, 1, timeout=60).keys.tolist() == [key]
    assert [item.key for item in client.items(name)] == [key]
    client.set_bounds(name, max_size=7)
    client.set_rate_limiter(name, reverie.rate_limiters.MinSize(1))
    client.reset(name)
    assert client.server_info()[name].current_size == 0
    with pytest.raises(ValueError, match="the name has 2049 bytes; give one of 2048 at most"):
        reverie.Server([make_table(name + "n")], in_process=True)


def test_extensions_are_given_by_name_or_object():
    with reverie.Server(
        [make_table(extensions=["statistics", reverie.extensions.Diffusion(steps=2, decay=0.5)])], in_process=True
    ) as server:
        client = reverie.Client(server)
        client.add("t", 1)
        assert client.server_info()["t"].extensions
    with pytest.raises(ValueError, match="nothing-like-it"):
        reverie.Server([make_table(extensions=["nothing-like-it"])], in_process=True)
    with pytest.raises(ValueError, match="bogus"):
        reverie.Server([make_table(extensions=["diffusion:bogus=1"])], in_process=True)


@pytest.mark.parametrize("options", [{"steps": 0}, {"steps": 1.5}, {"decay": 0.0}, {"decay": 1.5}])
def test_diffusion_refuses_bad_options(options):
    with pytest.raises(ValueError, match="must be"):
        reverie.extensions.Diffusion(**options)


def test_diffusion_spreads_an_update_to_neighbouring_steps(connect):
    client = connect(make_table(extensions=[reverie.extensions.Diffusion(steps=1, decay=0.5)]))
    with client.trajectory_writer(1) as writer:
        for step in range(4):
            writer.append([step])
            writer.create_item("t", 1.0, [writer.history[0][-1:]])
    keys = client.keys("t")
    client.update_priorities("t", keys[1:2], [9.0])
    priorities = [item.priority for item in client.items("t")]
    assert priorities[1] == 9.0
    assert priorities[0] > 1.0
    assert priorities[2] > 1.0
    assert priorities[3] == 1.0


def test_table_info_reads_reverbs_message():
    from reverie._protobuf import field_bytes, field_double, field_varint

    limiter = field_double(1, 2.0) + field_double(2, -1.0) + field_varint(4, 5) + field_bytes(5, field_varint(2, 7))
    data = (
        field_bytes(1, field_bytes(3, field_double(1, 0.5)))
        + field_bytes(2, field_varint(1, 1) + field_varint(7, 1))
        + field_varint(3, 100)
        + field_bytes(5, limiter)
        + field_varint(7, 3)
        + field_bytes(8, b"table")
        + field_bytes(12, field_varint(1, 9))
    )
    info = reverie.TableInfo.from_serialized_proto(data)
    assert (info.name, info.max_size, info.current_size, info.signature) == ("table", 100, 3, None)
    assert info.sampler_options.prioritized.priority_exponent == 0.5
    assert info.remover_options.is_deterministic
    assert info.rate_limiter_info.insert_stats.completed == 7
    assert (info.table_worker_time.running_ms, info.table_worker_time.running_ns) == (9, 9_000_000)
    with pytest.raises(ValueError, match="varint|fit|wire"):
        reverie.TableInfo.from_serialized_proto(b"\x0a\xff")


def test_the_time_a_table_has_spent_is_told_to_the_nanosecond_by_either_way(connect):
    client = connect(make_table())
    client.add("t", {"x": 1})
    client.sample_batch("t", 1)
    times = [value for field, value in client.server_info()["t"].table_worker_time.ListFields() if field.name.endswith("_ns")]
    assert any(ns % 1_000_000 for ns in times)


def test_a_running_tables_bounds_can_be_changed(connect):
    client = connect(make_table(max_size=10, sampler=selectors.Fifo()))
    client.add_batch("t", np.arange(10))
    client.set_bounds("t", max_size=3)
    assert client.server_info()["t"].current_size == 3
    assert client.sample_batch("t", 3).data.tolist() == [7, 7, 7]
    client.set_bounds("t", max_times_sampled=4)
    assert client.sample_batch("t", 2).data.tolist() == [7, 8]
    client.set_bounds("t", max_size=1000, max_times_sampled=0)
    client.add_batch("t", np.arange(500))
    info = client.server_info()["t"]
    assert (info.current_size, info.max_size, info.max_times_sampled) == (502, 1000, 0)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_size": 0}, ValueError, "max_size must be a positive integer"),
        ({"max_size": 2**31}, ValueError, "max_size must be at most"),
        ({"max_size": 2.5}, TypeError, "max_size must be an integer"),
        ({"max_times_sampled": -1}, ValueError, "max_times_sampled must be an integer from 0"),
        ({"max_times_sampled": "1"}, TypeError, "max_times_sampled must be an integer"),
        ({"max_bytes": -1}, ValueError, "max_bytes must be an integer from 0"),
        ({"max_size": 4}, ValueError, 'table "t".*min_size_to_sample is 5'),
    ],
)
def test_bounds_that_cannot_be_are_refused(connect, options, error, words):
    client = connect(make_table(rate_limiter=rate_limiters.MinSize(5)))
    with pytest.raises(error, match=words):
        client.set_bounds("t", **options)
