"""Server: arguments, addresses, life."""

import gc
import pickle
import threading
import warnings

import pytest
import reverie
from conftest import make_table
from reverie.errors import AddressInUseError, CancelledError, OpenPortWarning
from waiting import LONG, Call, until, wait_until_waiting, with_a_deadline


@pytest.mark.parametrize("tables", [None, [], ()])
def test_there_must_be_a_table(tables):
    with pytest.raises(ValueError, match="At least one table"):
        reverie.Server(tables)


def test_names_must_differ():
    with pytest.raises(ValueError, match="same name"):
        reverie.Server([make_table("a"), make_table("a")])


def test_a_table_alone_is_no_sequence():
    with pytest.raises(TypeError, match="list"):
        reverie.Server(make_table())
    with pytest.raises(TypeError, match="Table"):
        reverie.Server(["t"])


def test_tables_may_come_from_a_generator():
    with reverie.Server((make_table(name) for name in "ab"), in_process=True) as server:
        assert sorted(reverie.Client(server).server_info()) == ["a", "b"]


def test_without_a_port_a_free_one_is_taken_everywhere_with_a_warning():
    with pytest.warns(OpenPortWarning, match="open to everybody"):
        server = reverie.Server([make_table()])
    with server:
        assert server.port > 0
        server.localhost_client().add("t", 1)
        assert reverie.Client(f"127.0.0.1:{server.port}").server_info()["t"].current_size == 1


def test_an_address_of_ones_own_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with reverie.Server([make_table()], address="localhost:0") as server:
            assert server.address == f"localhost:{server.port}"


def test_a_port_in_use_is_an_error_that_names_it():
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        with pytest.raises(ValueError, match=str(server.port)):
            reverie.Server([make_table()], address=f"127.0.0.1:{server.port}")
        with pytest.raises(AddressInUseError):
            reverie.Server([make_table()], address=server.address)


@pytest.mark.parametrize("address", ["", "nonsense", "localhost:99999", "localhost:-1", "unix:", []])
def test_addresses_that_cannot_be_parsed_are_refused(address):
    with pytest.raises(ValueError, match=r"\w+"):
        reverie.Server([make_table()], address=address)


def test_a_port_must_be_one():
    with pytest.raises(TypeError, match="port"):
        reverie.Server([make_table()], port="80")
    with pytest.raises(ValueError, match="port"):
        reverie.Server([make_table()], port=70000)
    with pytest.raises(ValueError, match="one of"):
        reverie.Server([make_table()], port=0, address="localhost:0")


def test_several_addresses_are_served_at_once(tmp_path):
    with reverie.Server([make_table()], address=["127.0.0.1:0", f"unix:{tmp_path}/s"]) as server:
        reverie.Client(f"127.0.0.1:{server.port}").add("t", 1)
        reverie.Client(f"unix:{tmp_path}/s").add("t", 2)
        assert reverie.Client(server).server_info()["t"].current_size == 2


def test_a_server_of_this_process_is_found_by_name():
    with reverie.Server([make_table()], in_process=True, name="here") as server:
        assert server.port is None
        reverie.Client("inproc://here").add("t", 1)
        with pytest.raises(ValueError, match="here"):
            reverie.Server([make_table()], in_process=True, name="here")
    with pytest.raises(reverie.errors.NotFoundError, match="here"):
        reverie.Client("inproc://here")


def test_a_dropped_server_stops_and_gives_its_name_and_port_back():
    server = reverie.Server([make_table()], address="127.0.0.1:0", name="dropped")
    address = server.address
    del server
    gc.collect()
    with reverie.Server([make_table()], address=address, name="dropped") as again:
        assert again.address == address


def test_stopping_ends_waits_and_may_be_repeated(serve):
    server, client = serve()
    failures = []

    def wait():
        try:
            client.sample_batch("t", 1, timeout=None)
        except Exception as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: client.server_info()["t"].num_waiting_samples > 0)
    server.stop()
    waiting.join()
    assert isinstance(failures[0], CancelledError)
    server.stop()
    server.wait()
    with pytest.raises(CancelledError):
        client.add("t", 1)


@pytest.mark.parametrize("options", [{"in_process": True}, {"address": "127.0.0.1:0"}])
def test_an_insert_that_a_stopping_server_cuts_short_is_an_error(options):
    def cut_short(timeout):
        with reverie.Server([reverie.Table.queue("t", 1)], **options) as server:
            client = reverie.Client(server.address or server)
            client.add("t", 0)
            inserting = Call(client.add, "t", 1, timeout=timeout)
            wait_until_waiting([inserting], reverie.Client(server), "t", "inserts")
            server.stop()
            assert isinstance(inserting.join(2 * LONG), reverie.ReverieError)

    with_a_deadline(cut_short, 0.5)


def test_wait_returns_when_another_thread_stops_the_server(serve):
    server, _ = serve()
    threading.Timer(0.05, server.stop).start()
    server.wait()


def test_tables_belong_to_one_server_at_a_time():
    table = make_table()
    with reverie.Server([table], in_process=True), pytest.raises(ValueError, match="another server"):
        reverie.Server([table], in_process=True)
    with reverie.Server([table], in_process=True) as again:
        reverie.Client(again).add("t", 1)
        assert table.info.current_size == 1


def test_serving_goes_on_when_the_table_objects_are_gone(serve):
    _, client = serve()
    gc.collect()
    client.add("t", 1)


def test_servers_show_themselves_also_when_stopped():
    server = reverie.Server([make_table()], address="127.0.0.1:0")
    text = repr(server)
    assert str(server.port) in text
    assert "name=t" in text
    server.stop()
    assert repr(server) == text
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(server)


def test_a_client_outlives_its_server_and_says_so(serve):
    server, client = serve()
    client.add("t", 1)
    server.stop()
    del server
    gc.collect()
    for call in (lambda: client.add("t", 1), lambda: client.sample_batch("t", 1), lambda: next(client.sample("t"))):
        with pytest.raises(CancelledError):
            call()


def test_a_client_keeps_the_server_that_it_was_given_and_no_longer():
    stopped = threading.Event()

    class Watched(reverie.Server):
        def stop(self, drain=0.0):
            super().stop(drain)
            stopped.set()

    client = reverie.Client(Watched([make_table()], in_process=True))
    gc.collect()
    client.add("t", 1)
    assert client.sample_batch("t", 1).data == [1]
    assert not stopped.is_set()
    del client
    gc.collect()
    assert stopped.is_set()


def test_who_found_a_server_by_name_is_told_that_nobody_held_it():
    server = reverie.Server([make_table()], in_process=True, name="not held")
    client = reverie.Client("inproc://not held")
    del server
    gc.collect()
    with pytest.raises(CancelledError, match="stopped or that nobody holds"):
        client.add("t", 1)


def test_local_clients_of_any_server(tmp_path):
    for options in ({"in_process": True}, {"address": "127.0.0.1:0"}, {"address": f"unix:{tmp_path}/s"}):
        with reverie.Server([make_table()], **options) as server:
            server.localhost_client().add("t", 1)
            assert reverie.Client(server).server_info()["t"].current_size == 1


def test_a_sockets_relative_path_stays_what_it_was_when_the_program_goes_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with reverie.Server([make_table()], address="unix:socket") as server:
        client = reverie.Client("unix:socket")
        monkeypatch.chdir("elsewhere")
        client.add("t", 1, timeout=10)  # connects now
        assert client.server_address == server.address == "unix:socket"
    assert not (tmp_path / "socket").exists()
