"""How reverie-server ends: by signals, with calls in progress, and with what is to be on the disk by then."""

import contextlib
import os
import resource
import signal
import subprocess
import threading

import grpc
import numpy as np
import pytest
import reverie
import server_program
from waiting import LONG, until

# ---- signals ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_at_once(number):
    server = server_program.Server("--port", "0", "--drain", "600", "--table", "name=t")
    with server_program.channel(server.address) as channel:
        stream = channel.stream_stream("/deepmind.reverb.ReverbService/InsertStream")
        call = stream(iter_forever(), timeout=60)
        assert server_program.health(server.address) == b"\x08\x01"
        server.signal(number)
        status, _ = server.wait()
        assert status == 0
        assert call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def iter_forever():
    threading.Event().wait(30)
    return
    yield b""


def waiting_sample(channel):
    """A sample from an empty table, which waits."""
    request = b"\x0a\x01t\x10\x01"  # table "t", 1 sample
    call = channel.stream_stream("/deepmind.reverb.ReverbService/SampleStream")(iter([request]), timeout=60)
    info = channel.unary_unary("/deepmind.reverb.ReverbService/ServerInfo")
    until(lambda: b"ipv4:" in info(b"", timeout=60))  # who waits is told there
    return call


def test_sigterm_lets_a_waiting_call_have_its_time_and_then_cancels_it():
    server = server_program.Server("--port", "0", "--drain", "0.2", "--table", "name=t")
    with server_program.channel(server.address) as channel:
        call = waiting_sample(channel)
        server.signal(signal.SIGTERM)
        status, err = server.wait()
        assert status == 0, err
        assert call.code() == grpc.StatusCode.CANCELLED


def test_a_second_signal_ends_the_drain():
    server = server_program.Server("--port", "0", "--drain", "600", "--table", "name=t")
    with server_program.channel(server.address) as channel:
        call = waiting_sample(channel)
        server.signal(signal.SIGTERM)
        assert "finishing" in server.process.stderr.readline()
        server.signal(signal.SIGINT)
        status, _ = server.wait()
        assert status == 128 + signal.SIGINT
        assert call.code() == grpc.StatusCode.CANCELLED


# ---- a last checkpoint ----


def saving_flags(folder):
    """Of a server that saves by itself, but not while a test runs."""
    return server_program.checkpoint_flags(folder, "--set", "checkpoint_every_seconds=3600")


def ended(flags, work):
    """Exit status of a server that SIGTERM ends after `work` with it, and what it wrote to stderr."""
    server = server_program.Server(*flags)
    try:
        work(server, reverie.Client(server.address))
        server.signal(signal.SIGTERM)
        return server.wait(LONG)
    finally:
        server.kill()


def wait_for_line(server, words):
    """On stderr; fails at its end."""
    assert any(words in line for line in server.process.stderr)


def let_no_file_grow(server):
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1, 1))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_server_that_saves_by_itself_saves_once_more_when_a_signal_ends_it(tmp_path):
    with server_program.Server(*saving_flags(tmp_path)) as server:
        reverie.Client(server.address).add_batch("t", {"x": np.arange(100)}, timeout=LONG)
    with server_program.Server(*saving_flags(tmp_path)) as server:
        assert reverie.Client(server.address).server_info(LONG)["t"].current_size == 100


def test_a_server_that_saves_when_asked_says_that_it_saves_nothing_at_its_end(tmp_path):
    saved = []

    def save_and_go_on(_, client):
        client.add("t", 1, timeout=LONG)
        saved.append(os.path.basename(client.checkpoint(timeout=LONG)))
        client.add("t", 2, timeout=LONG)

    status, err = ended(server_program.checkpoint_flags(tmp_path), save_and_go_on)
    assert status == 0
    assert "nothing is saved at the end" in err
    assert names_in(tmp_path) == saved


def test_a_last_checkpoint_that_the_disk_does_not_take_is_a_failure_and_the_one_before_stays(tmp_path):
    saved = []

    def save_and_fill_the_disk(server, client):
        client.add("t", 1, timeout=LONG)
        saved.append(os.path.basename(client.checkpoint(timeout=LONG)))
        let_no_file_grow(server)

    status, err = ended(saving_flags(tmp_path), save_and_fill_the_disk)
    assert status == 1
    assert "error: the last checkpoint is not saved: no checkpoint was saved: " in err
    assert names_in(tmp_path) == saved


def test_a_second_signal_ends_the_last_checkpoint(tmp_path):
    def begin_to_save(server, client):
        rows = {"x": np.random.default_rng(1).integers(0, 4, (100_000, 1000), np.uint8)}  # a second or so to compress
        client.add_batch("t", rows, timeout=LONG)
        server.signal(signal.SIGTERM)
        wait_for_line(server, "saving a last checkpoint")

    status, err = ended(saving_flags(tmp_path), begin_to_save)
    assert status == 128 + signal.SIGTERM
    assert "the last checkpoint is not saved" in err
    assert names_in(tmp_path) == []


def test_a_second_signal_during_the_drain_leaves_the_last_checkpoint_out_and_says_so(tmp_path):
    calls = []  # grpcio cancels one that nobody has
    with contextlib.ExitStack() as stack:

        def begin_to_drain(server, _):
            calls.append(waiting_sample(stack.enter_context(server_program.channel(server.address))))
            server.signal(signal.SIGTERM)
            wait_for_line(server, "finishing calls in progress")

        status, err = ended([*saving_flags(tmp_path), "--drain", "600"], begin_to_drain)
    assert status == 128 + signal.SIGTERM
    assert "warning: a second signal came: the last checkpoint is not saved" in err
    assert names_in(tmp_path) == []


# ---- a journal ----


def test_an_end_with_confirmed_changes_that_are_not_on_the_disk_is_a_failure(tmp_path):
    def add_and_fill_the_disk(server, client):
        for i in range(10):
            client.add("t", i, timeout=LONG)
        let_no_file_grow(server)

    flags = server_program.disk_flags(tmp_path, "--set", "journal_mode=periodic", "--set", "journal_period_seconds=3600")
    status, err = ended(flags, add_and_fill_the_disk)
    assert status == 1
    assert "error: journal: it ends although" in err
    assert "File too large" in err


def test_an_end_with_everything_on_the_disk_is_none(tmp_path):
    for mode in ("periodic", "always"):
        with server_program.Server(*server_program.disk_flags(tmp_path / mode, "--set", f"journal_mode={mode}")) as server:
            reverie.Client(server.address).add("t", 1.0, timeout=LONG)


def test_a_signal_before_the_tables_are_restored_is_named_and_no_failure(tmp_path):
    def signalled():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)

    with server_program.Server(*server_program.disk_flags(tmp_path)) as server:
        writer = reverie.Client(server.address)
        for i in range(3):
            writer.add_batch("t", {"a": np.full((2000, 500), i)}, timeout=LONG)  # 8 MB: it is asked every few
    command = [server_program.path(), *server_program.disk_flags(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False, preexec_fn=signalled)
    assert out.returncode == 0, out.stderr
    assert out.stdout == "", "it never listened"
    assert " info: Terminated: it ends before it has restored its tables" in out.stderr
    assert "error: " not in out.stderr
    with server_program.Server(*server_program.disk_flags(tmp_path)) as server:
        assert reverie.Client(server.address).server_info(LONG)["t"].current_size == 6000
