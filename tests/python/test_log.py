"""What the library logs are records of the logger "reverie", and nobody in the library waits for whoever handles them."""

import logging
import re
import subprocess
import sys
import textwrap
import threading

import pytest
import reverie
from conftest import make_table
from reverie.checkpointers import DefaultCheckpointer
from waiting import LONG

HALF = "2200-01-01T00:00:00+00:00"
PASSED_OVER = f"{HALF} has no DONE: it is half written, and passed over"
BEGINS_EMPTY = "has no checkpoint; if there should be one, is its volume mounted?"
PRELUDE = """
import atexit
later = []
atexit.register(lambda: [call() for call in later])  # after what Reverie does at the end
import logging, os, sys, threading
import reverie
from reverie.checkpointers import DefaultCheckpointer
def table(name="t"):
    return reverie.Table.queue(name, 10)
def serve(root):
    return reverie.Server([table()], checkpointer=DefaultCheckpointer(root), address="127.0.0.1:0")
"""


def run(program, *arguments, switches=()):
    """Runs the program, which must exit with 0: what it wrote to stdout and stderr."""
    command = [sys.executable, "-X", "faulthandler", *switches, "-c", PRELUDE + textwrap.dedent(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


class Kept(logging.Handler):
    """Keeps records; lets `held` hold them up."""

    def __init__(self):
        super().__init__()
        self.records, self.arrived = [], threading.Condition()
        self.held = threading.Event()
        self.held.set()

    def emit(self, record):
        with self.arrived:
            self.records.append(record)
            self.arrived.notify_all()
        assert self.held.wait(LONG)

    def wait_for(self, seen):
        """The records, once the call says that it has seen them."""
        with self.arrived:
            assert self.arrived.wait_for(seen, LONG), [record.getMessage() for record in self.records]
            return list(self.records)

    def until(self, words):
        """The records, once one of them has the words."""
        return self.wait_for(lambda: any(words in record.getMessage() for record in self.records))


@pytest.fixture
def kept():
    logger, handler = logging.getLogger("reverie"), Kept()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    handler.held.set()
    logger.removeHandler(handler)
    logger.setLevel(before)


def serve(root):
    return reverie.Server([make_table()], checkpointer=DefaultCheckpointer(root), address="127.0.0.1:0")


def test_lines_are_records_with_their_level(tmp_path, kept):
    with serve(tmp_path) as server:
        client = reverie.Client(server.address)
        client.add("t", 1)
        path = client.checkpoint()
        said = kept.until("audit: ")
    assert [record.levelno for record in said] == [logging.WARNING] + [logging.INFO] * (len(said) - 1)
    empty = said[0].getMessage()
    assert empty == f"begins empty: {tmp_path} {BEGINS_EMPTY}"
    assert {(record.name, record.threadName) for record in said} == {("reverie", "reverie-log")}
    (tmp_path / HALF).mkdir()
    with serve(tmp_path):
        warned = [record for record in kept.records if record.levelno == logging.WARNING]
        assert [record.getMessage() for record in warned] == [empty, f"{tmp_path}/{PASSED_OVER}"]
        assert f"restored from {path}" in [record.getMessage() for record in kept.records], "when the server is there"


def test_lines_of_level_debug_are_told_where_the_logger_wants_them(kept):
    def connect(until):
        with reverie.Server([make_table()], address="127.0.0.1:0") as server:
            reverie.Client(server.address).reset("t")
            kept.until(until)

    connect("audit: ")
    assert {record.levelno for record in kept.records} == {logging.INFO}
    logging.getLogger("reverie").setLevel(logging.DEBUG)
    connect("connection from")
    assert {record.levelno for record in kept.records} == {logging.INFO, logging.DEBUG}


def test_without_a_set_up_warnings_go_to_stderr(tmp_path):
    program = """
    serve(sys.argv[1]).stop()
    """
    (tmp_path / HALF).mkdir()
    assert run(program, tmp_path) == ("", f"{tmp_path}/{PASSED_OVER}\nbegins empty: {tmp_path} {BEGINS_EMPTY}\n")


def test_the_library_does_not_wait_for_handlers_and_what_is_dropped_is_told(kept):
    calls = 1500
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        client = reverie.Client(server.address)
        kept.held.clear()
        for _ in range(calls):
            client.reset("t")
        assert len(kept.records) <= 1
        kept.held.set()
        reverie.Server([make_table()], in_process=True).stop()  # once it is there, all lines before it were handled
        client.reset("t")
        kept.until("were dropped here")
        reverie.Server([make_table()], in_process=True).stop()
    said = [record.getMessage() for record in kept.records]
    dropped = [int(match[1]) for match in map(re.compile(r"(\d+) lines of the log were dropped here").match, said) if match]
    assert len(dropped) == 1
    assert sum("audit: " in line for line in said) + dropped[0] == calls + 1
    assert {record.levelno for record in kept.records} == {logging.INFO}, "as those that were dropped"


def test_a_handler_may_make_servers(kept):
    made = []

    def make(record):
        if len(made) < 3:
            made.append(None)
            with reverie.Server([make_table()], address="127.0.0.1:0") as server:
                reverie.Client(server.address).reset("t")
        return True

    kept.addFilter(make)
    with reverie.Server([make_table("outer")], address="127.0.0.1:0") as server:
        reverie.Client(server.address).reset("outer")
        kept.wait_for(lambda: len(kept.records) >= 4)
    assert len(made) == 3


def test_a_filter_that_raises_ends_no_other_line(kept, monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: raised.append(arguments.exc_type))
    kept.addFilter(lambda record: bool(raised) or 1 / 0)
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        reverie.Client(server.address).reset("t")
        reverie.Client(server.address).reset("t")
        kept.until("audit: ")
    assert raised == [ZeroDivisionError]


def test_a_hook_that_raises_ends_no_other_line_and_is_told_itself(kept, monkeypatch):
    raised = []

    def hook(arguments):
        raise RuntimeError("of the hook")

    def last_hook(kind, error, trace):
        raised.append(error)
        raise error

    monkeypatch.setattr(threading, "excepthook", hook)
    monkeypatch.setattr(sys, "excepthook", last_hook)
    kept.addFilter(lambda record: bool(raised) or 1 / 0)
    with reverie.Server([make_table()], address="127.0.0.1:0") as server:
        reverie.Client(server.address).reset("t")
        reverie.Client(server.address).reset("t")
        kept.until("audit: ")
    (error,) = raised
    assert str(error) == "of the hook"
    assert isinstance(error.__context__, ZeroDivisionError)


def test_what_was_said_last_is_told_when_the_program_ends():
    program = """
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")
    server = reverie.Server([table()], address="127.0.0.1:0")
    client = reverie.Client(server.address)
    for _ in range(300):
        client.reset("t")
    """
    out, err = run(program)
    assert err == ""
    assert len(re.findall(r"^INFO audit: .*OK$", out, re.M)) == 300


def test_a_handler_that_never_returns_does_not_keep_the_program_from_ending():
    program = """
    class Stuck(logging.Handler):
        def handle(self, record):  # without the handler's lock, which logging itself waits for at the end
            threading.Event().wait()
    logging.getLogger().addHandler(Stuck())
    logging.getLogger().setLevel(logging.INFO)
    server = reverie.Server([table()], address="127.0.0.1:0")
    reverie.Client(server.address).reset("t")
    print("done")
    """
    assert run(program) == ("done\n", "")


SLOW = """
    import signal, time
    class Slow(logging.Handler):
        handled, interrupts_at = 0, None
        def handle(self, record):
            if self.handled == self.interrupts_at:
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            self.handled += 1
    slow = Slow()
    logging.getLogger().addHandler(slow)
    server = reverie.Server([table()], address="127.0.0.1:0")
    def say(lines):
        client = reverie.Client(server.address)
        logging.getLogger("reverie").setLevel(logging.INFO)
        for _ in range(lines):
            client.reset("t")
"""


def test_a_server_is_made_although_the_lines_before_it_are_handled_slowly():
    program = f"""{SLOW}
    say(300)
    reverie.Server([table("other")], in_process=True)
    print(slow.handled < 300)
    """
    assert run(program) == ("True\n", "")


def test_a_signals_handler_runs_while_a_new_server_waits_for_a_slow_handler_of_lines():
    program = f"""{SLOW}
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(slow.handled))
    atexit.register(lambda: os.write(1, b"handled %d of 12\\n" % seen[0]))
    slow.interrupts_at = 6
    say(12)
    reverie.Server([table("other")], in_process=True)
    """
    out, err = run(program)
    assert err == ""
    assert int(re.fullmatch(r"handled (\d+) of 12\n", out)[1]) < 12


def test_ctrl_c_ends_the_wait_of_a_program_that_ends_for_a_slow_handler_of_lines():
    program = f"""{SLOW}
    def end():
        slow.interrupts_at = slow.handled + 10  # a second later, when it waits
    atexit.register(end)  # before what Reverie does at the end
    later.append(lambda: print(slow.handled - slow.interrupts_at))
    say(300)
    """
    out, err = run(program)
    assert err == ""
    assert int(out) < 30, "without Ctrl-C it is five seconds, of which four are left"


def test_what_is_said_after_the_end_of_the_log_goes_to_stderr(tmp_path):
    program = """
    logging.getLogger("reverie").addHandler(logging.StreamHandler(sys.stdout))
    later.append(lambda: serve(sys.argv[1]).stop())
    """
    (tmp_path / HALF).mkdir()
    out, err = run(program, tmp_path)
    lines = [f"{tmp_path}/{PASSED_OVER}", f"begins empty: {tmp_path} {BEGINS_EMPTY}"]
    assert (out, err.splitlines()) == ("", [f"reverie: warning: {line}" for line in lines])


def test_a_forked_child_has_a_log_of_its_own(tmp_path):
    program = """
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(process)d %(message)s")
    server = reverie.Server([table()], address="127.0.0.1:0")
    reverie.Client(server.address).reset("t")
    child = os.fork()
    if child == 0:
        own = serve(sys.argv[1])
        reverie.Client(own.address).reset("t")
        own.stop()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    reverie.Client(server.address).reset("t")
    sys.stdout.write(f"parent {os.getpid()} child {child}\\n")  # in one piece, for lines of the log go there from another thread
    """
    (tmp_path / HALF).mkdir()
    out, err = run(program, tmp_path, switches=["-W", "ignore::DeprecationWarning"])  # of fork beside threads
    assert err == ""
    parent, child = re.search(r"parent (\d+) child (\d+)", out).groups()
    assert len(re.findall(rf"^{parent} audit: ", out, re.M)) == 2
    assert len(re.findall(rf"^{child} audit: ", out, re.M)) == 1
    assert f"{child} {tmp_path}/{PASSED_OVER}\n" in out


def test_a_fork_while_a_line_is_written_leaves_the_child_its_streams():
    program = """
    import io
    class Slow(io.RawIOBase):
        begun, count = threading.Event(), 0
        def writable(self):
            return True
        def write(self, data):
            self.count += 1
            self.begun.set()
            threading.Event().wait(0.3)
            return os.write(1, data)
    slow = Slow()
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(slow), line_buffering=True)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    server = reverie.Server([table()], address="127.0.0.1:0")
    reverie.Client(server.address).reset("t")
    assert slow.begun.wait(30)  # the log's thread writes, and has the stream's lock
    child = os.fork()
    if child == 0:
        print("child", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("parent", flush=True)
    """
    out, err = run(program, switches=["-W", "ignore::DeprecationWarning"])
    assert (out.count("audit: "), out.splitlines()[-2:], err) == (1, ["child", "parent"], "")


def test_a_fork_does_not_wait_for_a_handler_without_end():
    program = """
    class Stuck(logging.Handler):
        begun, goes_on = threading.Event(), threading.Event()
        def emit(self, record):
            self.begun.set()
            self.goes_on.wait()
    stuck = Stuck()
    logging.getLogger("reverie").addHandler(stuck)
    logging.getLogger("reverie").setLevel(logging.INFO)
    server = reverie.Server([table()], address="127.0.0.1:0")
    reverie.Client(server.address).reset("t")
    assert stuck.begun.wait(30)
    child = os.fork()
    if child == 0:
        logging.getLogger("reverie").removeHandler(stuck)
        logging.getLogger("reverie").addHandler(logging.StreamHandler(sys.stdout))
        own = reverie.Server([table()], address="127.0.0.1:0")
        reverie.Client(own.address).reset("t")
        own.stop()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    stuck.goes_on.set()
    """
    out, err = run(program, switches=["-W", "ignore::DeprecationWarning"])
    assert (out.count("audit: "), err) == (1, "")


def test_the_last_warnings_of_a_child_of_multiprocessing_reach_its_handlers():
    program = """
    import multiprocessing, time
    class Slow(logging.StreamHandler):
        def emit(self, record):
            time.sleep(0.3)  # longer than a child takes to end
            super().emit(record)
    server = reverie.Server([reverie.Table.queue("q", 1)], address="127.0.0.1:0")
    reverie.Client(server.address).add("q", [0])
    def act():
        logging.getLogger("reverie").addHandler(Slow(sys.stdout))
        writer = reverie.Client(server.address).trajectory_writer(1)
        writer.append([1])
        for _ in range(5):
            writer.create_item("q", 1.0, writer.history[0][-1:])
        writer.close()
    child = multiprocessing.get_context("fork").Process(target=act)
    child.start()
    child.join()
    assert child.exitcode == 0
    """
    out, err = run(program, switches=["-W", "ignore::DeprecationWarning"])  # of fork beside threads
    assert err == ""
    assert re.fullmatch("[^\n]*5 of its items[^\n]*\n", out), out
