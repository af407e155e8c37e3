"""Names of tables as bytes, which Reverb's callers may give: the same table as by the str."""

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie import structured

NAMES = ["t", "t\u00e4glich"]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_a_table_is_named_by_bytes(name):
    table = make_table(name.encode())
    assert table.name == table.info.name == name
    with reverie.Server([table], in_process=True) as server:
        assert list(reverie.Client(server).server_info()) == [name]


def test_what_is_inserted_by_one_name_is_sampled_by_the_other(connect, name):
    client = connect(reverie.Table.queue(name, 10))
    for given, asked in ((name.encode(), name), (name, name.encode())):
        client.insert([np.float32(1)], {given: 1.0})
        assert next(client.sample(asked))[0].data[0].item() == 1


def test_every_call_takes_bytes(connect, name):
    client = connect(make_table(name))
    table = name.encode()
    key = client.add(table, {"x": 1})
    assert client.add_batch(table, {"x": np.arange(2)}) == 2
    assert client.update_priorities(table, [key], [2.0]).tolist() == []
    client.mutate_priorities(table, {key: 3.0})
    assert client.get(table, key).info.priority == 3
    assert client.keys(table).tolist() == client.keys(name).tolist()
    assert len(list(client.items(table))) == 3
    client.set_bounds(table, max_size=50)
    client.set_rate_limiter(table, reverie.rate_limiters.MinSize(2))
    assert client.server_info()[name].max_size == 50
    with client.batches(table, 2) as batches:
        assert set(next(batches).data) == {"x"}
    client.reset(table)
    assert client.keys(name).tolist() == []


def test_every_writer_takes_bytes(connect, name):
    client = connect(make_table(name))
    table = name.encode()
    with client.writer(1) as writer:
        writer.append([1])
        writer.create_item(table, 1, 1.0)
    with client.trajectory_writer(1) as writer:
        writer.append([1])
        writer.create_item(table, 1.0, [writer.history[0][:]])
        writer.flush()
    config = structured.create_config(structured.pattern_from_transform({"x": None}, lambda step: step["x"][-1]), table)
    with client.structured_writer([config]) as writer:
        writer.append({"x": 1})
        writer.flush()
    with client.transitions(table, 2) as writer:
        writer.add({"x": np.zeros(2)})
    assert client.server_info()[name].current_size == 5


def test_rows_added_by_bytes_are_remembered_by_the_name(connect, name):
    client = connect(make_table(name))
    with client.trajectory_writer(1) as writer:
        writer.append({"x": 1})
        writer.create_item(name.encode(), 1.0, {"x": writer.history["x"][-1:]})
        writer.flush()
    for asked in (name, name.encode()):
        assert set(client.sample_batch(asked, 1).data) == {"x"}


def test_bytes_that_are_no_utf8_say_what_to_do(connect):
    client = connect()
    for call in (
        lambda: client.add(b"\xff", 1),
        lambda: client.insert([1], {b"\xff": 1.0}),
        lambda: client.sample_batch(b"\xff", 1),
        lambda: next(client.sample(b"\xff")),
        lambda: client.reset(b"\xff"),
        lambda: make_table(b"\xff"),
        lambda: structured.create_config({}, b"\xff"),
        lambda: reverie.Client(b"\xff"),
    ):
        with pytest.raises(ValueError, match=r"must be a str, or bytes of UTF-8, got b'\\xff'; decode\(\) it"):
            call()


def test_rights_name_tables_by_bytes(name):
    reader = reverie.Identity(name="reader", token="token-of-the-reader", rights={name.encode(): "read"})
    everybody = reverie.Identity(name="everybody", token="token-of-everybody", rights={b"*": ["read", "insert"]})
    with reverie.Server([make_table(name)], address="127.0.0.1:0", identities=[reader, everybody]) as server:
        reverie.Client(server.address, token="token-of-everybody").add(name, 1)
        client = reverie.Client(server.address, token="token-of-the-reader")
        assert client.keys(name).size == 1
        with pytest.raises(reverie.PermissionDeniedError, match='"reader" has not the right "insert"'):
            client.add(name, 1)


def test_rights_in_bytes_that_are_no_utf8_say_what_to_do():
    identity = reverie.Identity(name="reader", token="token-of-the-reader", rights={b"\xff": "read"})
    with pytest.raises(ValueError, match=r"identity 'reader' must be a str, or bytes of UTF-8, got b'\\xff'; decode\(\) it"):
        reverie.Server([make_table()], address="127.0.0.1:0", identities=[identity])
