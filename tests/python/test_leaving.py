"""Leaving a writer's ``with`` block by an exception: nobody who wants out is kept waiting, and no exception is hidden."""

import logging
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import reverie
from reverie import _log
from test_process import PRELUDE, run

LEAVING_AT_ONCE = [KeyboardInterrupt, SystemExit, GeneratorExit]


@pytest.fixture
def full(connect):
    """A client of a table "q" that is full."""
    client = connect(reverie.Table.queue("q", 1))
    client.add("q", [np.float32(0)])
    return client


def add_items(writer, n):
    for i in range(n):
        writer.append([np.float32(i)])
        if isinstance(writer, reverie.Writer):
            writer.create_item("q", 1, 1.0)
        else:
            writer.create_item("q", 1.0, writer.history[0][-1:])


@pytest.fixture(params=["trajectory_writer", "writer"])
def make_writer(request, full):
    return getattr(full, request.param)


@pytest.mark.parametrize("kind", LEAVING_AT_ONCE)
def test_what_says_end_now_gives_up_what_is_unconfirmed_and_logs_how_much(make_writer, kind, caplog):
    writer = make_writer(1)
    with caplog.at_level(logging.WARNING, "reverie"), pytest.raises(kind), writer:
        add_items(writer, 3)
        raise kind
    assert [record.getMessage() for record in caplog.records] == [
        f"a writer was left by {kind.__name__}: 3 of its items were not confirmed and are given up"
    ]
    with pytest.raises(reverie.errors.FailedPreconditionError):
        writer.append([np.float32(9)])


@pytest.mark.parametrize("kind", LEAVING_AT_ONCE)
def test_nothing_is_logged_where_nothing_is_lost(make_writer, kind, caplog):
    with caplog.at_level(logging.WARNING, "reverie"), pytest.raises(kind), make_writer(1):
        raise kind
    assert not caplog.records


def test_a_mistake_in_the_block_comes_out_although_the_items_cannot_get_in(make_writer, caplog):
    writer = make_writer(1)
    with caplog.at_level(logging.WARNING, "reverie"), pytest.raises(RuntimeError, match="mine") as caught, writer:
        add_items(writer, 3)
        raise RuntimeError("mine")
    assert caught.value.__context__ is None
    assert "RuntimeError" in caplog.text
    assert "3" in caplog.text


def test_a_mistake_in_the_block_leaves_room_for_what_gets_in(connect):
    client = connect(reverie.Table.queue("q", 5))
    for make in (client.trajectory_writer, client.writer):
        with pytest.raises(RuntimeError, match="mine"), make(1) as writer:
            add_items(writer, 2)
            raise RuntimeError("mine")
    assert client.server_info()["q"].current_size == 4


def test_a_mistake_after_close_comes_out(make_writer):
    with pytest.raises(RuntimeError, match="mine"), make_writer(1) as writer:
        writer.close()
        raise RuntimeError("mine")


@pytest.mark.parametrize("where", ["in process", "remote"])
@pytest.mark.parametrize("make", ["trajectory_writer", "writer"])
@pytest.mark.parametrize("when", ["time.sleep(60)", "pass", "writer.flush(); writer.flush()"])
def test_one_ctrl_c_ends_the_block(where, make, when):
    program = f"""
    import logging
    logging.getLogger("reverie").addHandler(logging.NullHandler())
    server = reverie.Server([reverie.Table.queue("q", 1)], address="127.0.0.1:0")
    client = reverie.Client({"server" if where == "in process" else "server.address"})
    client.add("q", [0])
    writer = client.{make}(1)
    writer.append([1])
    if isinstance(writer, reverie.Writer):
        writer.create_item("q", 1, 1.0)
    else:
        writer.create_item("q", 1.0, writer.history[0][-1:])
    try:
        with writer:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            {when}
    except KeyboardInterrupt:
        print("interrupted")
    """
    assert run(program) == "interrupted\n"


@pytest.mark.parametrize("kind", ["writer", "trajectory_writer", "transitions"])
def test_a_closed_writer_is_not_entered(connect, kind):
    client = connect()
    writer = client.transitions("t", 1) if kind == "transitions" else getattr(client, kind)(1)
    writer.close()
    with pytest.raises(reverie.ReverieError, match="(?i)close"), writer:
        raise AssertionError("it was entered")


@pytest.mark.parametrize(
    ("package", "asked"),
    [("torch", "import reverie.torch"), ("jax", "import reverie.jax"), ("tensorflow", "import reverie; reverie.TFClient")],
)
def test_a_missing_framework_is_told_with_how_to_get_it(package, asked):
    program = f"import sys; sys.modules[{package!r}] = None; {asked}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert f"needs it: pip install {package}" in done.stderr


def test_a_legacy_writer_that_ctrl_c_takes_down_does_not_ask_for_its_second():
    program = """
import reverie
server = reverie.Server([reverie.Table.queue("q", 1)], in_process=True)
writer = reverie.Client(server).writer(1)
writer.append([0])
writer.create_item("q", 1, 1.0)
class Watched:
    closed = False
    def close(self, *arguments):
        print("waits")
    def abandon(self):
        print("gives up")
        return 1
    def take_failure(self):
        pass
writer._writer = Watched()
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "gives up\n"
    assert "KeyboardInterrupt: 1 of its items" in done.stderr


def closed(writer):
    writer.close()


def dropped(writer):
    del writer  # the caller's name for it is gone, too


@pytest.mark.parametrize("end", [closed, dropped])
def test_a_writer_that_ends_with_unconfirmed_items_logs_how_many_it_gives_up_and_the_remedy(full, end, caplog):
    writers = [full.trajectory_writer(1)]
    add_items(writers[0], 3)
    with caplog.at_level(logging.WARNING, "reverie"), _log.told_before_it_ends():
        end(writers.pop())
    (said,) = [record.getMessage() for record in caplog.records]
    assert "3 of its items" in said
    assert "flush" in said


def test_a_transitions_writer_that_is_closed_with_unconfirmed_items_logs_how_many_it_gives_up(caplog):
    with reverie.Server([reverie.Table.queue("q", 1)], address="127.0.0.1:0") as server:
        writer = reverie.Client(server.address).transitions("q", 2)
        writer.add({"x": np.zeros((2, 3), np.float32)})
        with caplog.at_level(logging.WARNING, "reverie"):
            writer.close()
    assert "of its items unconfirmed" in caplog.text


@pytest.mark.parametrize("end", [closed, dropped])
def test_a_writer_whose_items_are_all_confirmed_ends_without_a_word(connect, end, caplog):
    writers = [connect(reverie.Table.queue("q", 5)).trajectory_writer(1)]
    add_items(writers[0], 3)
    writers[0].flush()
    with caplog.at_level(logging.WARNING, "reverie"), _log.told_before_it_ends():
        end(writers.pop())
    assert not caplog.records


def test_a_program_that_ends_with_an_open_writer_says_what_it_gives_up():
    program = """
    server = reverie.Server([reverie.Table.queue("q", 1)], address="127.0.0.1:0")
    reverie.Client(server).add("q", [1.0])
    writer = reverie.Client(server.address).trajectory_writer(1)
    writer.append([1.0])
    for _ in range(4):
        writer.create_item("q", 1.0, [writer.history[0][-1:]])
    """
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "4 of its items" in done.stderr


KEPT_MODULES = """
import ctypes
for name in [name for name in sys.modules if name == "__main__" or name.partition(".")[0] == "reverie"]:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules[name]))    # as JAX does: they are emptied, and what they had is dropped last
"""
OPEN_AT_THE_END = {
    "structured": """
    config = reverie.structured.create_config([reverie.structured.create_reference_step([1])[0][-1]], "q")
    writer = reverie.Client(server.address).structured_writer([config])
    for _ in range(4):
        writer.append([1.0])
    """,
    "legacy": """
    writer = reverie.Client(server.address).writer(1)
    for _ in range(4):
        writer.append([1.0])
        writer.create_item("q", 1, 1.0)
    """,
}


@pytest.mark.parametrize("kind", OPEN_AT_THE_END)
def test_a_writer_that_outlives_its_emptied_modules_gives_its_items_their_second_and_says_what_is_lost(kind):
    server = reverie.Server([reverie.Table.queue("q", 3)], address="127.0.0.1:0")
    program = f"class server:\n    address = {server.address!r}\n" + textwrap.dedent(OPEN_AT_THE_END[kind])
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + KEPT_MODULES + program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "1 of its items unconfirmed" in done.stderr
    assert "Exception ignored" not in done.stderr
    assert reverie.Client(server).server_info(5)["q"].current_size == 3


@pytest.mark.parametrize("kind", OPEN_AT_THE_END)
def test_a_writer_that_ctrl_c_takes_down_and_that_outlives_its_emptied_modules_does_not_ask_for_its_second(kind):
    server = reverie.Server([reverie.Table.queue("q", 3)], address="127.0.0.1:0")
    program = f"class server:\n    address = {server.address!r}\n" + textwrap.dedent(OPEN_AT_THE_END[kind])
    program += "writer._settle = lambda seconds, write=os.write: write(2, b'waited')\n"
    ends = [
        subprocess.run(
            [sys.executable, "-c", PRELUDE + KEPT_MODULES + program + last], capture_output=True, text=True, timeout=60
        )
        for last in ("raise KeyboardInterrupt\n", "")
    ]
    assert "waited" not in ends[0].stderr
    assert "waited" in ends[1].stderr


def test_a_server_that_outlives_its_emptied_modules_stops_without_a_word():
    program = """
    server = reverie.Server([reverie.Table.queue("q", 1)], address="127.0.0.1:0", name="kept")
    """
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + KEPT_MODULES + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
