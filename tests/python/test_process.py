"""The life of a process: Ctrl-C, fork, threads, exit. Each test runs a small program of its own."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import reverie
from conftest import make_table
from waiting import Call, until

PRELUDE = """
import os, signal, sys, threading, time, gc
import numpy as np
import reverie
def table(name="t", **options):
    given = dict(sampler=reverie.selectors.Fifo(), remover=reverie.selectors.Fifo(), max_size=1000,
                 rate_limiter=reverie.rate_limiters.MinSize(1))
    given.update(options)
    return reverie.Table(name=name, **given)
"""


def run(program, *arguments, timeout=60, gives_up=False, begins_empty=False):
    """Runs the program; it must exit with 0 and write nothing to stderr. Its output.

    With `gives_up`, writers of the program may say there that they give up items: it ends with some in flight. With `begins_empty`, the
    one line there is that its server found no checkpoint.
    """
    text = PRELUDE + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", text, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    if begins_empty:
        assert lines.pop(0).startswith("begins empty: ")
    assert [line for line in lines if not (gives_up and "unconfirmed, which are given up" in line)] == []
    return done.stdout


BLOCKED = {
    "sample_batch": 'client.sample_batch("t", 1, timeout=None)',
    "sample": 'next(client.sample("t"))',
    "add": 'client.add("q", 1, timeout=None)',
    "add_batch": 'client.add_batch("q", np.arange(5), timeout=None)',
    "insert": 'client.insert(1, {"q": 1.0})',
    "flush": "writer.flush()",
    "end_episode": "writer.end_episode()",
    "writer.close": "legacy.close()",
    "batches": 'next(client.batches("t", 1, timeout=None))',
    "server.wait": "server.wait()",
}


@pytest.mark.parametrize("where", ["in process", "remote"])
@pytest.mark.parametrize("call", BLOCKED)
def test_ctrl_c_ends_every_blocked_call(where, call):
    address = "server" if where == "in process" else "server.address"
    program = f"""
    server = reverie.Server([table(), reverie.Table.queue("q", 1)], address="127.0.0.1:0")
    client = reverie.Client({address})
    client.add("q", 0)
    writer = client.trajectory_writer(1)
    writer.append([1])
    writer.create_item("q", 1.0, writer.history[0][-1:])
    legacy = client.writer(1)
    if "{call}" == "writer.close":
        legacy.append([1])
        legacy.create_item("q", 1, 1.0)
    def interrupted():
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            {BLOCKED[call]}
        except KeyboardInterrupt:
            return "{call}" != "writer.close" or "closed: True" in repr(legacy)  # or it came before the call
    while not interrupted():
        pass
    print("interrupted")
    """
    assert run(program, gives_up=True) == "interrupted\n"


@pytest.mark.parametrize("call", ["sample_batch", "batches", "server.wait"])
def test_ctrl_c_ends_a_blocked_call_whichever_thread_the_system_tells(call):
    program = f"""
    server = reverie.Server([table()], address="127.0.0.1:0")
    client = reverie.Client(server)
    other = threading.Thread(target=time.sleep, args=(600,), daemon=True)
    other.start()
    try:
        threading.Timer(0.3, signal.pthread_kill, (other.ident, signal.SIGINT)).start()
        {BLOCKED[call]}
    except KeyboardInterrupt:
        print("interrupted")
    """
    assert run(program) == "interrupted\n"


def test_ctrl_c_ends_a_blocked_call_of_a_child_that_another_thread_than_the_main_one_forked():
    """That thread, which has waited before, is the child's main thread."""
    program = """
    server = reverie.Server([table()], in_process=True)
    def fork():
        try:
            reverie.Client(server).sample_batch("t", 1, timeout=0.01)
        except reverie.DeadlineExceededError:
            pass
        pid = os.fork()
        if pid == 0:
            own = reverie.Server([table()], in_process=True)
            try:
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                reverie.Client(own).sample_batch("t", 1, timeout=50)
            except KeyboardInterrupt:
                os._exit(0)
            finally:
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    """
    assert run(program) == "0\n"


def test_ctrl_c_ends_a_call_on_a_server_that_is_not_there():
    program = """
    client = reverie.Client("127.0.0.1:1")
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        client.server_info()
    except KeyboardInterrupt:
        print("interrupted")
    """
    assert run(program) == "interrupted\n"


def test_a_signal_handler_that_does_not_raise_does_not_end_the_call():
    program = """
    server = reverie.Server([table()], in_process=True)
    client = reverie.Client(server)
    seen = []
    def handle(number, frame):
        seen.append(number)
        threading.Timer(0.2, client.add, ("t", 7)).start()
    signal.signal(signal.SIGUSR1, handle)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    print(client.sample_batch("t", 1, timeout=None).data, len(seen))
    """
    assert run(program) == "[7] 1\n"


def test_a_forked_child_does_not_wait_for_a_call_of_its_parents_threads():
    program = """
    server = reverie.Server([table()], address="127.0.0.1:0")
    client = reverie.Client(server.address)
    samples = client.sample("t", 1, emit_timesteps=False)
    taker = threading.Thread(target=next, args=(samples,))
    taker.start()
    while not server.localhost_client().server_info()["t"].waiting:
        time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        for call in (lambda: next(samples), samples.close):
            try:
                call()
                os._exit(1)
            except RuntimeError as error:
                if "new" not in str(error) or "fork" not in str(error):
                    os._exit(2)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    client.add("t", 1)
    taker.join()
    """
    assert run(program) == "0\n"


def test_after_a_fork_a_client_says_to_make_a_new_one():
    program = """
    server = reverie.Server([table()], address="127.0.0.1:0")
    client, remote = reverie.Client(server), reverie.Client(server.address)
    writer = remote.trajectory_writer(1)
    writer.append([1])
    remote.add("t", 1)
    pid = os.fork()
    if pid == 0:
        for call in (
            lambda: client.add("t", 1), lambda: remote.add("t", 1), lambda: remote.sample_batch("t", 1),
            lambda: remote.server_info(), lambda: remote.insert(1, {"t": 1.0}), lambda: next(remote.sample("t")),
            lambda: client.checkpoint(),
        ):
            try:
                call()
                os._exit(1)
            except RuntimeError as error:
                if "new" not in str(error) or "fork" not in str(error):
                    os._exit(2)
        again = reverie.Client(server.address)
        again.add("t", 2)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), client.server_info()["t"].current_size)
    """
    assert run(program) == "0 2\n"


def test_after_a_fork_a_servers_identities_are_changed_where_it_runs():
    program = """
    identities = [reverie.Identity(name="a", token="0123456789abcdef", rights={"t": ["insert"]})]
    server = reverie.Server([table()], address="127.0.0.1:0", identities=identities)
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        for call in (lambda: server.set_identities(identities), lambda: server._server.reload_tls()):
            try:
                call()
                os._exit(1)
            except RuntimeError as error:
                if "fork" not in str(error):
                    os._exit(2)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    server.set_identities(identities)
    """
    assert run(program) == "0\n"


@pytest.mark.parametrize("where", ["in process", "remote"])
def test_a_forked_child_cannot_go_on_with_its_parents_batches(where):
    program = f"""
    server = reverie.Server([table()], address="127.0.0.1:0")
    client = reverie.Client({"server" if where == "in process" else "server.address"})
    client.add("t", 1)
    batches = client.batches("t", 1)
    next(batches)
    pid = os.fork()
    if pid == 0:
        signal.alarm(50)
        for _ in range(4):
            try:
                next(batches)
                os._exit(1)
            except reverie.errors.FailedPreconditionError as error:
                if "make a new client after fork" not in str(error):
                    os._exit(2)
        batches.close()
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(next(batches)))
    """
    assert run(program) == "0 1\n"


def test_a_stopped_server_is_gone_although_a_forked_child_holds_a_copy_of_its_sockets():
    program = """
    server = reverie.Server([table()], address="127.0.0.1:0")
    address = server.address
    client = reverie.Client(address)
    client.add("t", 1)
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writes)
        os.read(reads, 1)
        os._exit(0)
    server.stop()
    for each in (client, reverie.Client(address)):
        try:
            each.server_info(2)
        except reverie.DeadlineExceededError as error:
            print("refused" in str(error))
    again = reverie.Server([table()], address=address)
    print(list(client.server_info(30)))
    os.close(writes)
    os.waitpid(pid, 0)
    """
    assert run(program) == "True\nTrue\n['t']\n"


def test_a_forked_child_exits_normally_with_everything_open():
    program = """
    server = reverie.Server([table()], address="127.0.0.1:0")
    client = reverie.Client(server.address)
    writer = client.trajectory_writer(1)
    writer.append([1])
    writer.create_item("t", 1.0, writer.history[0][-1:])
    samples = client.sample("t", 10)
    next(samples)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(program) == "0\n"


@pytest.mark.parametrize("ends", ["sys.exit(0)", "server.stop(); os._exit(0)", "del server; os._exit(0)"])
def test_a_forked_child_that_ends_leaves_its_parents_directory_for_checkpoints(ends):
    program = f"""
    server = reverie.Server([table()], in_process=True)
    path = server._checkpointer.path
    pid = os.fork()
    if pid == 0:
        {ends}
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.path.isdir(path))
    server.stop()
    print(os.path.isdir(path))
    """
    assert run(program) == "0 True\nFalse\n"


@pytest.mark.parametrize("where", ["in process", "remote"])
@pytest.mark.parametrize("kept", ["module", "global cycle", "thread"])
def test_exit_with_everything_open_neither_hangs_nor_crashes(where, kept):
    address = "server" if where == "in process" else "server.address"
    program = f"""
    server = reverie.Server([table(), reverie.Table.queue("q", 1)], address="127.0.0.1:0")
    client = reverie.Client({address})
    writer = client.trajectory_writer(1)
    for _ in range(3):
        writer.append([1])
        writer.create_item("q", 1.0, writer.history[0][-1:])
    column = writer.history[0][-1:]
    client.add("t", {{"x": np.arange(1000)}})
    samples = client.sample("t", 1000)
    next(samples)
    view = next(client.sample("t", emit_timesteps=False, copy=False))
    batches = client.batches("t", 1)
    batch = next(batches)
    if "{kept}" == "global cycle":
        cycle = [server, client, writer, samples, batches, batch, view, column]
        cycle.append(cycle)
        del server, client, writer, samples, batches, batch, view, column
    elif "{kept}" == "thread":
        threading.Thread(target=lambda: client.sample_batch("q", 50, timeout=None), daemon=True).start()
        threading.Thread(target=lambda: writer.flush(), daemon=True).start()
        time.sleep(0.1)
    print("end")
    """
    assert run(program, gives_up=True) == "end\n"


def test_what_the_interpreter_takes_down_may_let_threads_run_that_wait():
    """Then the interpreter ends threads that ask for its lock; who waits must not ask, for its server still knows it."""
    program = """
    server = reverie.Server([table()], in_process=True)
    client = reverie.Client(server)
    for _ in range(16):
        threading.Thread(target=client.sample_batch, args=("t", 1), kwargs=dict(timeout=None), daemon=True).start()
    while client.server_info()["t"].num_waiting_samples < 16:
        pass
    class Last:
        def __del__(self):
            time.sleep(0.3)
            sys.server.stop()
            del sys.server
            os.write(1, b"end\\n")
    sys.server, last = server, Last()
    del server
    """
    assert run(program) == "end\n"


def test_the_extension_may_be_imported_again():
    program = """
    for name in [name for name in sys.modules if name.startswith("reverie")]:
        del sys.modules[name]
    del reverie
    gc.collect()
    import reverie as again
    with again.Server([again.Table.queue("q", 1)], in_process=True) as server:
        again.Client(server).add("q", 1)
    print("fine")
    """
    assert run(program) == "fine\n"


def test_many_threads_use_one_client(connect):
    client = connect(make_table(max_size=10_000, sampler=reverie.selectors.Uniform()))
    failures = []

    def work(number):
        try:
            for i in range(30):
                client.add("t", {"x": np.full(8, number), "i": i})
                client.add_batch("t", {"x": np.full((3, 8), number), "i": np.arange(3)})
                batch = client.sample_batch("t", 16)
                assert (batch.data["x"] == batch.data["x"][:, :1]).all()
                client.update_priorities("t", batch.keys, np.ones(16))
                list(client.sample("t", 2, emit_timesteps=False))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert client.server_info()["t"].current_size == 6 * 30 * 4


def test_closing_a_sequence_from_another_thread_ends_its_wait(connect):
    client = connect()
    samples = client.sample("t", 5)
    result = []

    def consume():
        try:
            result.extend(samples)
        except reverie.ReverieError as error:
            result.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    until(lambda: client.server_info()["t"].num_waiting_samples > 0)
    samples.close()
    consumer.join()
    assert all(isinstance(each, reverie.errors.CancelledError) for each in result)


def test_closing_a_sequence_ends_its_wait_for_a_server_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = reverie.Client(f"127.0.0.1:{listener.getsockname()[1]}")
        samples = client.sample("t", unpack_as_table_signature=True)
        consumer = Call(next, samples)
        listener.accept()[0].close()  # it asks for the signature, and goes on asking
        assert Call(samples.close).join() is None
        assert isinstance(consumer.join(), reverie.errors.CancelledError)
        with pytest.raises(StopIteration):
            next(samples)


def test_other_threads_run_while_a_call_waits(connect):
    client = connect()

    def count_and_add():
        until(lambda: client.server_info()["t"].num_waiting_samples > 0)
        client.add("t", sum(1 for _ in range(100_000)))

    adding = Call(count_and_add)
    assert client.sample_batch("t", 1).data.tolist() == [100_000]
    adding.join()


@pytest.mark.skipif(not hasattr(signal, "SIGTERM"), reason="POSIX only")
def test_a_killed_server_process_is_an_error_within_the_deadline(tmp_path):
    address = f"unix:{tmp_path}/server"
    text = PRELUDE + f'\nserver = reverie.Server([table()], address="{address}")\nprint("up", flush=True)\nserver.wait()\n'
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"up\n"
        client = reverie.Client(address)
        client.add("t", 1)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        for call in (lambda: client.add("t", 1, timeout=0.1), lambda: client.sample_batch("t", 1, timeout=0.1)):
            with pytest.raises((reverie.DeadlineExceededError, reverie.errors.UnavailableError)):
                call()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_call_that_succeeds_while_a_signal_handler_raises_keeps_its_result():
    class AlarmError(Exception):
        pass

    with reverie.Server([reverie.Table.queue("q", 1)], in_process=True) as server:
        client = reverie.Client(server)
        client.add("q", 0)

        def make_room(*_):
            client.sample_batch("q", 1)
            raise AlarmError

        def alarm():
            until(lambda: client.server_info()["q"].num_waiting_inserts > 0)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

        old = signal.signal(signal.SIGALRM, make_room)
        try:
            with pytest.raises(AlarmError):
                threading.Thread(target=alarm).start()
                client.add("q", 1, timeout=60)
                while True:
                    pass  # the exception comes right after the call
        finally:
            signal.signal(signal.SIGALRM, old)
        assert client.sample_batch("q", 1).data.tolist() == [1]


def test_a_stop_at_the_interpreters_end_drains():
    """There a thread cannot be started from Python 3.12 on; the test makes it so for those before, too."""
    program = """
    import atexit
    server = reverie.Server([table()], address="127.0.0.1:0")
    client, ending, samples = reverie.Client(server), threading.Event(), []
    def sample():
        samples.append(reverie.Client(server.address).sample_batch("t", 1, timeout=None))
    def add_when_calls_are_refused():
        ending.wait()
        try:
            while True:
                reverie.Client(server.address).server_info(0.2)
        except reverie.errors.ReverieError:
            client.add("t", 1)
    threads = [threading.Thread(target=each, daemon=True) for each in (sample, add_when_calls_are_refused)]
    for thread in threads:
        thread.start()
    while not client.server_info(60)["t"].num_waiting_samples:
        pass
    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    def stop():
        threading.Thread.start = refuse
        ending.set()
        server.stop(drain=50)
        threads[0].join()
        print(len(samples))
    atexit.register(stop)
    """
    assert run(program) == "1\n"


def test_another_librarys_handler_of_ctrl_c_is_left_alone():
    """faulthandler stands for it: it writes, and what waits for TensorFlow goes on waiting.

    Not of all threads: it would read the frames of the timer's, which is about to end.
    """
    program = """
    import faulthandler, tempfile
    server = reverie.Server([table()], address="127.0.0.1:0")
    client = reverie.Client(server.address)
    written = tempfile.TemporaryFile("w+")
    faulthandler.register(signal.SIGINT, written, all_threads=False)
    def wait():
        try:
            reverie._core.call_in_graph(lambda: client.sample_batch("t", 1, timeout=1), ())
        except reverie.errors.ReverieError as error:
            print(type(error).__name__)
    waiting = threading.Thread(target=wait)
    waiting.start()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    waiting.join()
    timer.join()
    written.seek(0)
    print("most recent call first" in written.read())
    faulthandler.unregister(signal.SIGINT)
    written.close()
    server.stop()
    """
    assert run(program) == "DeadlineExceededError\nTrue\n"
