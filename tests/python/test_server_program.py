"""The program reverie-server while it runs: its open files, its log, SIGHUP. Its configuration: test_server_configuration.py. How it ends:
test_server_ending.py."""

import contextlib
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import threading

import pytest
import reverie
import server_program
from waiting import LONG, until

# ---- the limit of open files ----


def few_open_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def test_connections_leave_files_for_journal_and_checkpoints(tmp_path):
    flags = server_program.disk_flags(
        tmp_path, "--threads", "1", "--set", "peer_timeout_seconds=600", "--set", "checkpoint_keep=3"
    )
    server = server_program.Server(*flags, preexec_fn=few_open_files)
    sockets = []
    try:
        client = reverie.Client(server.address)
        client.add("t", 1.0, timeout=LONG)
        client.checkpoint(timeout=LONG)
        for _ in range(100):
            sockets.append(socket.create_connection(("127.0.0.1", server.port), LONG))
        with contextlib.suppress(ConnectionError):
            while sockets[-1].recv(4096):  # it is refused, and so all came before it
                pass
        client.add("t", 2.0, timeout=LONG)
        client.checkpoint(timeout=LONG)
        server.signal(signal.SIGTERM)
        status, err = server.wait()
    finally:
        for one in sockets:
            one.close()
        server.kill()
    assert status == 0, err
    assert "warning: max_connections is 10000, and the limit of open files, 64, has room for " in err
    assert re.search(r"connections .*are open, and more .*are refused", err), err
    assert "Too many open files" not in err


def test_a_limit_of_open_files_that_is_enough_is_not_told():
    server = server_program.Server(
        "--port", "0", "--table", "name=t", "--threads", "1", "--set", "max_connections=20", preexec_fn=few_open_files
    )
    server.signal(signal.SIGTERM)
    status, err = server.wait()
    assert status == 0
    assert "open files" not in err


# ---- the log ----


def a_pipe_that_takes_nothing():
    """Both of its ends."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    try:
        while True:
            os.write(writes, b"-" * 4096)
    except BlockingIOError:
        os.set_blocking(writes, True)
    return reads, writes


def test_a_stderr_that_takes_nothing_holds_nobody_up():
    reads, writes = a_pipe_that_takes_nothing()
    server = server_program.Server("--port", "0", "--table", "name=t", stderr=writes)
    try:
        client = reverie.Client(server.address)
        for _ in range(100):
            client.reset("t", timeout=LONG)  # a line each
        server.signal(signal.SIGTERM)
        assert server.process.wait(LONG) == 0
    finally:
        server.kill()
        os.close(reads)
        os.close(writes)


@pytest.mark.parametrize("closed", [[1], [2], [0, 1, 2]], ids=str)
def test_what_is_said_to_a_stream_that_was_closed_is_written_into_no_file(tmp_path, closed):
    address = f"unix:{tmp_path}/socket"
    flags = ["--listen", address, *server_program.disk_flags(tmp_path)[2:]]

    def close():
        for number in closed:
            os.close(number)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen([server_program.path(), *flags], preexec_fn=close, **streams)
    try:
        client = reverie.Client(address)
        for value in range(3):
            client.add("t", value, timeout=LONG)
            client.reset("t", timeout=LONG)  # a line
            client.add("t", value, timeout=LONG)
    finally:
        process.kill()
        process.wait()
    with server_program.Server(*flags):
        assert reverie.Client(address).sample_batch("t", 1, timeout=LONG).data[0].tolist() == [2]


def test_a_start_that_fails_with_a_stderr_that_takes_nothing_ends():
    reads, writes = a_pipe_that_takes_nothing()
    try:
        assert subprocess.run([server_program.path(), "--nonsense"], stderr=writes, timeout=LONG, check=False).returncode == 2
    finally:
        os.close(reads)
        os.close(writes)


def test_what_stderr_takes_late_is_in_order_and_what_was_left_out_is_counted(tmp_path):
    count = 6000  # warnings of a kilobyte
    rights = ", ".join(f"{i:05}{'-' * 95}: read" for i in range(count))
    tables = ", ".join(f"{{name: {i}{'x' * 63}}}" for i in range(8))
    file = tmp_path / "rights.yaml"
    file.write_text(f"tables: [{tables}]\nidentities: [{{name: x, token: 0123456789abcdef, rights: {{{rights}}}}}]\n")
    reads, writes = a_pipe_that_takes_nothing()
    server = server_program.Server("--config", str(file), "--port", "0", stderr=writes)
    os.close(writes)
    lines = []

    def read():
        with os.fdopen(reads) as pipe:
            lines.extend(pipe)

    reader = threading.Thread(target=read, daemon=True)
    try:
        reader.start()
        until(lambda: any(" left out here: " in line for line in lines))
        server.signal(signal.SIGTERM)
        assert server.process.wait(LONG) == 0
        reader.join(LONG)
    finally:
        server.kill()
    lines[0] = lines[0].lstrip("-")
    assert all(re.match(server_program.STAMP, line) for line in lines)
    seen = [int(match[1]) for match in (re.search(r'table "(\d{5})-', line) for line in lines) if match]
    (left_out,) = [int(match[1]) for match in (re.search(r"warning: (\d+) lines were left out", line) for line in lines) if match]
    assert seen == list(range(count - left_out))
    assert "finishing calls" in lines[-1]


# ---- SIGHUP ----

RUNNING = """
port: 0
log: {log}
seed: {seed}
limits: {{max_connections: {connections}}}
tables:
  - name: replay
    max_size: {size}
    rate_limiter: min_size:{least}
    signature: {{a: {{dtype: float32, shape: [{columns}]}}}}
  - {{name: {other}, extensions: [{{name: diffusion, options: {{steps: {steps}}}}}]}}
  - {{name: as_it_was, preset: queue:100}}
"""
AS_IT_WAS = {"log": "info", "seed": 7, "connections": 7, "size": 100, "least": 1, "columns": 4, "other": "other", "steps": 3}


def after_sighup(file, text, *args):
    """The lines that the server writes of SIGHUP when the file has the text by then."""
    server = server_program.Server("--config", str(file), *args)
    try:
        file.write_text(text)
        status, err = server.end_after_reload()
    finally:
        server.kill()
    assert status == 0, err
    return [line for line in err.splitlines() if "SIGHUP: " in line]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"log": "debug"}, "log"),
        ({"connections": 8}, "max_connections"),
        ({"seed": 8}, "seed"),
        ({"size": 101}, 'table "replay"'),
        ({"least": 2}, 'table "replay"'),
        ({"columns": 5}, 'table "replay"'),
        ({"steps": 4}, 'table "other"'),
        ({"other": "another"}, 'table "another", table "other"'),
        ({"connections": 8, "least": 2, "steps": 4}, 'max_connections, table "replay", table "other"'),
    ],
)
def test_what_sighup_does_not_change_is_named(tmp_path, changed, named):
    file = tmp_path / "server.yaml"
    file.write_text(RUNNING.format(**AS_IT_WAS))
    said = after_sighup(file, RUNNING.format(**{**AS_IT_WAS, **changed}))
    assert re.fullmatch(rf"{server_program.STAMP} warning: SIGHUP: .* needs a restart: {named}", said[0]), said


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("port: 0", "port: 8000", "port"),
        ("port: 0", "port: 0\nhost: localhost", "host"),
        ("listen: 127.0.0.1:0", "listen: [127.0.0.1:0, 127.0.0.1:1]", "listen"),
        ("{port: 0, checkpoints: {path: c}}", "{port: 0, checkpoints: {path: d, keep: 3}}", "checkpoint_path, checkpoint_keep"),
    ],
)
def test_a_place_that_sighup_does_not_change_is_named(tmp_path, monkeypatch, before, after, named):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "server.yaml"
    file.write_text(before)
    said = after_sighup(file, after, "--table", "name=t")
    assert said[0].endswith(f" needs a restart: {named}"), said


def test_what_is_as_it_was_or_a_flags_is_not_named_by_sighup(tmp_path):
    file = tmp_path / "server.yaml"
    file.write_text(RUNNING.format(**AS_IT_WAS))
    assert not [line for line in after_sighup(file, file.read_text()) if "restart" in line]
    text = RUNNING.format(**{**AS_IT_WAS, "connections": 8}).replace("port: 0", "port: 1")
    flags = ["--port", "0", "--set", "max_connections=9"]
    assert not [line for line in after_sighup(file, text, *flags) if "restart" in line]


def test_a_configuration_that_sighup_finds_wrong_is_told_and_changes_nothing(tmp_path):
    file = tmp_path / "server.yaml"
    file.write_text("port: 0\n")
    said = after_sighup(file, "port: 0\nlisten: localhost:0\n", "--table", "name=t")
    assert f"error: SIGHUP: {file}:1: port: both listen and host or port are given" in said[0]


def start_with_pipes(*args):
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([server_program.path(), *args], text=True, **streams)


def test_a_configuration_that_comes_by_a_pipe_is_waited_for(tmp_path):
    pipe, text = tmp_path / "pipe", "tables: [{name: t}]\n"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/stdin"):
        with start_with_pipes("--port", "0", "--check", "--config", path) as process:
            with open(pipe, "w") if path == str(pipe) else process.stdin as source:  # which waits for its reader
                for part in (text[:8], text[8:]):
                    source.write(part)
                    source.flush()
            assert process.wait(timeout=30) == 0, process.stderr.read()
            assert process.stdout.read() == "the configuration is right: 1 table\n"


def test_a_signal_ends_a_server_that_waits_for_its_configuration():
    process = start_with_pipes("--config", "/dev/stdin")

    def takes_signals():
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        return int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16) >> (signal.SIGTERM - 1) & 1

    try:
        until(takes_signals)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        err = process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    assert "/dev/stdin: the configuration was waited for until a signal came" in err


def test_a_pipe_in_the_place_of_the_configuration_is_refused_by_sighup_and_holds_nobody_up(tmp_path):
    file = tmp_path / "server.yaml"
    file.write_text("port: 0\n")
    server = server_program.Server("--config", str(file), "--table", "name=t")
    try:
        file.unlink()
        os.mkfifo(file)
        status, err = server.end_after_reload()
    finally:
        server.kill()
    assert status == 0
    assert f"SIGHUP: {file}: is a pipe, not a file that can be read again; the identities are as before" in err
