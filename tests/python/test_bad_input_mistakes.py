"""Mistakes that people make in their first week; each test runs what they would."""

import pathlib
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import reverie
import server_program
from conftest import make_table
from reverie.errors import DeadlineExceededError, FailedPreconditionError, InvalidArgumentError
from waiting import says_at_its_deadline, until

LONG = 60.0
ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(program, *arguments):
    """A Python process that runs the program; what it prints is read line by line."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("where", ["in process", "remote"])
def test_sampling_an_empty_table_says_what_it_waits_for(where):
    with reverie.Server([make_table("replay")], address="127.0.0.1:0") as server:
        client = reverie.Client(server if where == "in process" else server.address)
        words = 'table "replay": sampling waits for 1 item, has 0'
        says_at_its_deadline(lambda timeout: client.sample_batch("replay", 4, timeout=timeout), words)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1", "has no port; write 127.0.0.1:8000"),
        ("8000", "has no host; write localhost:8000"),
        ("http://127.0.0.1:8000", 'URL.*"127.0.0.1:8000"'),
        ("inproc://nowhere", "no server of this process is called 'nowhere'.*another process is found by its address"),
        ("127.0.0.1:8000,127.0.0.1:8001", "has a comma; each address is given by itself"),
    ],
)
def test_an_address_that_is_none_is_told_what_to_write(address, words):
    with pytest.raises(ValueError, match=words):
        reverie.Client(address)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "no.such.host.invalid:8000"])
def test_a_wrong_port_or_host_is_named_at_the_deadline(address):
    with pytest.raises(DeadlineExceededError, match=f"{address}.*is one running there"):
        reverie.Client(address).add("t", 1, timeout=0.3)


def test_a_server_that_takes_no_more_connections_is_not_called_missing():
    with reverie.Server([make_table("t")], address="127.0.0.1:0", max_connections=1) as server:
        first = reverie.Client(server.address)
        first.add("t", 1)
        second = reverie.Client(server.address)
        words = r"too many connections(?!.*is one running there)"
        says_at_its_deadline(lambda timeout: second.sample_batch("t", 1, timeout=timeout), words)


def test_a_forgotten_flush_shows_in_the_writers_status():
    with reverie.Server([reverie.Table.queue("t", 1)], address="127.0.0.1:0") as server:
        writer = reverie.Client(server.address).trajectory_writer(1)
        for value in range(3):
            writer.append([value])
            writer.create_item("t", 1.0, [writer.history[0][-1:]])
        status = writer.status()
        assert status.items_created == 3
        assert status.items_in_flight + status.items_confirmed == 3
        assert status.items_in_flight >= 2, "the queue holds one"
        writer.close()


def test_a_typo_in_a_columns_name_is_a_key_error_that_shows_it():
    with reverie.Server([make_table()], in_process=True) as server:
        client = reverie.Client(server)
        writer = client.trajectory_writer(1)
        writer.append({"obs": 1})
        with pytest.raises(KeyError, match="obbs"):
            _ = writer.history["obbs"]
        client.add("t", {"obs": 1})
        with pytest.raises(KeyError, match="obbs"):
            _ = client.sample_batch("t", 1).data["obbs"]


def test_a_trajectory_of_arrays_instead_of_columns_is_told():
    with reverie.Server([make_table()], in_process=True) as server:
        writer = reverie.Client(server).trajectory_writer(1)
        writer.append({"obs": 1})
        for wrong in (np.zeros(3), writer.history["obs"]):
            with pytest.raises(TypeError, match="TrajectoryColumn"):
                writer.create_item("t", 1.0, {"obs": wrong})


def test_rows_of_mixed_dtypes_are_never_padded_into_one_array():
    with reverie.Server([reverie.Table.queue("t", 10)], in_process=True) as server:
        client = reverie.Client(server)
        client.add("t", {"x": np.zeros(3, np.float32)})
        client.add("t", {"x": np.zeros(3)})
        with pytest.raises(FailedPreconditionError, match=r"float32\[3\].*float64\[3\]"):
            client.sample_batch("t", 2, unequal="pad")


def test_a_batch_beyond_all_memory_is_refused_and_the_client_works_on():
    with reverie.Server([make_table()], in_process=True) as server:
        client = reverie.Client(server)
        client.add("t", 1)
        with pytest.raises(InvalidArgumentError, match="batch_size.*2147483647"):
            client.sample_batch("t", 2**40)
        assert client.sample_batch("t", 1).data.tolist() == [1]


@pytest.mark.parametrize(
    ("where", "batch_size"),
    [("in process", 100_000), ("in process", 2**31 - 1), ("remote", 2**31 - 1)],
    ids=["its data", "its records", "its records, remote"],
)
def test_a_batch_that_memory_does_not_hold_is_told_to_be_smaller(where, batch_size):
    program = """
    import resource, sys, numpy as np, reverie
    limiter, fifo = reverie.rate_limiters.MinSize(1), reverie.selectors.Fifo
    with reverie.Server([reverie.Table("t", fifo(), fifo(), 10, limiter)], address="127.0.0.1:0", io_threads=1) as server:
        client = reverie.Client(server if sys.argv[1] == "in process" else server.address)
        client.add("t", np.zeros(1 << 20))
        client.sample_batch("t", 1)
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        try:
            client.sample_batch("t", int(sys.argv[2]))
        except (MemoryError, reverie.errors.ResourceExhaustedError) as error:
            print(error)
        assert len(client.sample_batch("t", 1)) == 1
    """
    process = start(program, where, str(batch_size))
    output, errors = process.communicate(timeout=LONG)
    assert "lower batch_size" in output, (output, errors)
    assert process.returncode == 0, errors


def test_an_actor_that_is_killed_leaves_nothing_waiting_and_others_go_on():
    actor = """
    import reverie, sys
    writer = reverie.Client(sys.argv[1]).trajectory_writer(5)
    value = 0
    while True:
        writer.append([value])
        writer.create_item("q", 1.0, [writer.history[0][-1:]])
        writer.flush()
        value += 1
    """
    with reverie.Server([reverie.Table.queue("q", 2)], address="127.0.0.1:0") as server:
        client = reverie.Client(server.address)
        process = start(actor, server.address)
        try:
            while client.server_info(LONG)["q"].num_waiting_inserts == 0:
                assert process.poll() is None, process.stderr.read()
        finally:
            process.kill()
            process.communicate()
        until(lambda: client.server_info(LONG)["q"].num_waiting_inserts == 0)
        assert [sample.data[0].tolist() for sample in client.sample("q", 2, emit_timesteps=False)] == [[0], [1]]
        client.add("q", [7], timeout=LONG)
        assert client.sample_batch("q", 1, timeout=LONG).data[0].tolist() == [7]


def test_ctrl_c_ends_a_learner_that_waits_for_a_server_elsewhere():
    learner = """
    import reverie, sys
    client = reverie.Client(sys.argv[1])
    client.server_info()
    print("up", flush=True)
    client.sample_batch("t", 1, timeout=None)
    """
    with server_program.Server("--port", "0", "--table", "name=t") as server:
        process = start(learner, server.address)
        assert process.stdout.readline() == "up\n"
        client = reverie.Client(server.address)
        until(lambda: client.server_info(LONG)["t"].num_waiting_samples > 0)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LONG)
        assert process.returncode != 0
        assert errors.rstrip().endswith("KeyboardInterrupt")
        until(lambda: client.server_info(LONG)["t"].num_waiting_samples == 0)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_client_without_files_to_open_says_so_and_goes_on_once_there_are_some(shared_memory):
    program = f"""
    import os, resource, sys, reverie
    client, held, told = reverie.Client(sys.argv[1], shared_memory={shared_memory}), [], set()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    timeout = 0.1
    while timeout < 60:
        try:
            client.add("t", 1, timeout=timeout)
            break
        except reverie.ReverieError as error:
            if "limit of open files" in str(error):
                told.add(type(error).__name__)
                os.close(held.pop())
            else:  # on a busy machine it has not tried yet
                assert isinstance(error, reverie.DeadlineExceededError), error
                timeout *= 1.5
    print(*sorted(told), len(client.sample_batch("t", 1)))
    """
    with server_program.Server("--port", "0", "--table", "name=t") as server:
        process = start(program, server.address)
        output, errors = process.communicate(timeout=2 * LONG)
    assert (output, errors) == ("DeadlineExceededError ResourceExhaustedError 1\n", "")


def test_a_forked_child_is_told_that_it_has_only_a_copy_of_the_server():
    program = """
    import os, reverie
    limiter, fifo = reverie.rate_limiters.MinSize(1), reverie.selectors.Fifo
    server = reverie.Server([reverie.Table("t", fifo(), fifo(), 10, limiter)], address="127.0.0.1:0", name="here")
    pid = os.fork()
    if pid == 0:
        for address in (server, "inproc://here"):
            try:
                reverie.Client(address)
                os._exit(1)
            except reverie.errors.FailedPreconditionError as error:
                if "copy" not in str(error) or "address" not in str(error):
                    os._exit(2)
        reverie.Client(server.address).add("t", 1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), reverie.Client(server).server_info()["t"].current_size)
    """
    process = start(program)
    output, errors = process.communicate(timeout=LONG)
    assert (output, errors) == ("0 1\n", "")


def memory():
    """Resident memory of this process in bytes."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("where", ["in process", "remote"])
def test_a_full_table_takes_inserts_for_ever_in_the_same_memory(where):
    with reverie.Server([make_table(max_size=100)], address="127.0.0.1:0") as server:
        client = reverie.Client(server if where == "in process" else server.address)
        row = {"obs": np.ones(256, np.float32), "reward": np.float64(1)}
        for _ in range(2000):
            client.add("t", row, timeout=LONG)
        before = memory()
        for _ in range(100_000 if where == "in process" else 10_000):
            client.add("t", row, timeout=LONG)
        assert memory() - before < 8 << 20, "10,000 rows that stayed would be more"
        info = client.server_info(LONG)["t"]
        assert info.current_size == 100
        assert info.memory_bytes < 4 << 20


@pytest.mark.parametrize("order", [("server", "client", "samples", "view"), ("view", "samples", "client", "server")])
@pytest.mark.parametrize("where", ["in process", "remote"])
def test_things_may_go_in_any_order(where, order):
    server = reverie.Server([make_table()], address="127.0.0.1:0")
    client = reverie.Client(server if where == "in process" else server.address)
    client.add("t", {"x": np.arange(1000)})
    samples = client.sample("t", 5, emit_timesteps=False, copy=False)
    view = next(samples).data[0]
    writer = client.trajectory_writer(2)
    writer.append([np.arange(3)])
    column = writer.history[0][-1:]
    things = {"server": server, "client": client, "samples": samples, "view": view}
    del server, client, samples, view, writer
    for name in order:
        things.pop(name)
        if "view" in things:
            assert things["view"].sum() == 499_500
        assert column.numpy().tolist() == [[0, 1, 2]]


def test_an_argument_that_has_to_be_named_is_named_in_the_error():
    client = reverie.Client(reverie.Server([make_table()], address="127.0.0.1:0"))
    with pytest.raises(
        TypeError, match=r"takes at most 2 positional arguments \(3 given\); give the next by its name: timeout=\.\.\."
    ):
        client.sample_batch("t", 4, 5)


def test_priorities_and_keys_of_a_wrong_shape_are_told_which_it_is():
    with reverie.Server([make_table("t")], in_process=True) as server:
        client = reverie.Client(server)
        client.add_batch("t", np.zeros(4))
        keys = client.keys("t")
        with pytest.raises(ValueError, match=r"shape \(4,\), one for each key, got \(4, 1\); reshape\(-1\) makes it so$"):
            client.update_priorities("t", keys, np.ones((4, 1)))
        with pytest.raises(ValueError, match=r"shape \(4,\), one for each key, got \(3,\)$"):
            client.update_priorities("t", keys, np.ones(3))
        with pytest.raises(ValueError, match=r"one dimension, got shape \(4, 1\)$"):
            client.update_priorities("t", keys[:, None], np.ones(4))
