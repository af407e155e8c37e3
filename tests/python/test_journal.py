"""A server with a journal is killed again and again: nothing that was confirmed is lost, nothing is there twice (docs/journal.md)."""

import collections
import os
import random
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import reverie
import server_program
from conftest import make_table
from reverie.checkpointers import DefaultCheckpointer, TempDirCheckpointer, export
from waiting import HeldPort

KILLS = int(os.environ.get("RV_TEST_KILLS", "8"))
SEED = int(os.environ.get("RV_TEST_SEED", random.SystemRandom().randrange(2**32)))
LONG = 120.0  # a bound on what should take a moment
WRITERS = 3


class Journaled:
    """reverie-server with a journal, on a port that stays the same over its deaths."""

    def __init__(self, folder, *more):
        self.held = HeldPort()
        self.address = self.held.address
        self.arguments = [
            "--listen",
            self.address,
            "--table",
            "name=t,max_size=10000000,sampler=prioritized:1",
            "--table",
            "name=q",
        ]
        self.arguments += ["--checkpoints", str(folder / "checkpoints"), "--journal", str(folder / "journal"), *more]
        self.server = None

    def start(self):
        self.server = server_program.Server(*self.arguments)

    def kill(self):
        if self.server is not None:
            self.server.kill()
            self.server = None

    def end(self):
        self.kill()
        self.held.close()


class Load(threading.Thread):
    """Calls `step` over and over until it is told to stop; what it raised is in `failure`."""

    def __init__(self, stop, address):
        super().__init__(daemon=True)
        self.stop, self.client, self.failure = stop, reverie.Client(address), None

    def run(self):
        try:
            while not self.stop.is_set():
                self.step()
        except BaseException as error:
            self.failure = error

    def step(self):
        raise NotImplementedError


class Writing(Load):
    """Items whose priorities are numbers that nobody uses twice; those that were confirmed."""

    def __init__(self, stop, address, number, seed):
        super().__init__(stop, address)
        self.random, self.next, self.confirmed = random.Random(seed), number * 10_000_000 + 1, set()
        self.writer = self.client.trajectory_writer(num_keep_alive_refs=4)

    def step(self):
        values = []
        for _ in range(self.random.randint(1, 30)):
            self.writer.append([np.int64(self.next)])
            self.writer.create_item("t", float(self.next), [self.writer.history[0][-1]])
            values.append(self.next)
            self.next += 1
        self.writer.flush(timeout_ms=int(LONG * 1000))
        self.confirmed.update(values)


class Changing(Load):
    """Items of its own that it updates and deletes; what it was told that became of them."""

    def __init__(self, stop, address, number, seed):
        super().__init__(stop, address)
        self.random, self.next = random.Random(seed), number * 10_000_000 + 1
        self.updated, self.deleted, self.doubtful = {}, set(), set()

    def mutate(self, **changes):
        while True:
            try:
                return self.client.mutate_priorities("t", timeout=LONG, **changes)
            except reverie.UnavailableError:
                pass  # it was killed: the same again

    def step(self):
        value, self.next = self.next, self.next + 1
        try:
            key = self.client.add("t", [np.int64(value)], float(value), timeout=LONG)
        except reverie.ReverieError:
            self.doubtful.add(value)
            return
        if self.random.random() < 0.5:
            self.mutate(updates={key: value + 0.5})
            self.updated[value] = key
        else:
            self.mutate(deletes=[key])
            self.deleted.add(value)


class Sampling(Load):
    """Draws, so that counts change all the time."""

    def step(self):
        try:
            batch = self.client.sample_batch("t", 16, timeout=1.0)
            assert np.array_equal(np.floor(batch.priorities), batch.data[0]), "an item has another's data"
        except (reverie.UnavailableError, reverie.DeadlineExceededError):
            pass
        self.stop.wait(0.005)  # samples are not what this is about


def check(client, writing, changing):
    confirmed = set().union(*(set(one.confirmed) for one in writing))
    updated, deleted = dict(changing.updated), set(changing.deleted)
    there = collections.Counter(item.priority for item in client.items("t", timeout=LONG))
    twice = [priority for priority, n in there.items() if n > 1]
    assert not twice, f"there twice: {twice[:10]}"
    lost = [value for value in confirmed if float(value) not in there]
    assert not lost, f"{len(lost)} of {len(confirmed)} confirmed items are lost: {sorted(lost)[:10]}"
    assert all(value + 0.5 in there and float(value) not in there for value in updated), "a confirmed priority is lost"
    assert not any(float(value) in there or value + 0.5 in there for value in deleted), "a deleted item is there"
    return len(confirmed), len(updated), len(deleted)


def wait_for_progress(load, writing, stop):
    """Until a writer was told that something more is in: clients need a moment to come back after a kill."""
    before = sum(len(one.confirmed) for one in writing)
    while sum(len(one.confirmed) for one in writing) == before and all(one.is_alive() for one in load):
        stop.wait(0.002)


def test_nothing_confirmed_is_lost_or_doubled_when_the_server_is_killed_under_load(tmp_path):
    print(f"seed {SEED}, {KILLS} kills")
    moments = random.Random(SEED)
    server = Journaled(tmp_path, "--set", "checkpoint_every_seconds=0.5")
    server.start()
    stop = threading.Event()
    writing = [Writing(stop, server.address, i, SEED + i) for i in range(WRITERS)]
    changing = Changing(stop, server.address, WRITERS, SEED + WRITERS)
    load = [*writing, changing, Sampling(stop, server.address)]
    client = reverie.Client(server.address)
    try:
        for one in load:
            one.start()
        for kill in range(KILLS):
            wait_for_progress(load, writing, stop)
            stop.wait(moments.uniform(0.0, 0.4))  # a random moment
            server.kill()
            server.start()
            assert all(one.failure is None for one in load), [one.failure for one in load]
            if kill % 10 == 5:
                check(client, writing, changing)
        stop.set()
        for one in load:
            one.join(2 * LONG)
            assert not one.is_alive()
            assert one.failure is None, one.failure
        counts = check(client, writing, changing)
        server.kill()
        server.start()
        assert check(client, writing, changing) == counts
        inserts, updates, deletes = counts
        print(f"confirmed {inserts} inserts, {updates} updates, {deletes} deletes; {len(changing.doubtful)} inserts in doubt")
        assert counts[0] > 0
    finally:
        stop.set()
        server.end()


def test_a_server_of_a_python_program_goes_on_where_it_was(tmp_path):
    checkpointer = DefaultCheckpointer(tmp_path / "checkpoints")
    journal = reverie.Journal(tmp_path / "journal")
    with reverie.Server([make_table()], address="localhost:0", checkpointer=checkpointer, journal=journal) as server:
        client = reverie.Client(server.address)
        keys = [client.add("t", [np.int64(i)], float(i + 1)) for i in range(10)]
        client.mutate_priorities("t", {keys[3]: 30.0}, [keys[4]])
        client.sample_batch("t", 4)
        before = [(item.key, item.priority, item.times_sampled) for item in client.items("t")]
        server.sync_journal()
        stats = server.journal_stats()
        assert stats.changes >= 16
        assert stats.fsyncs > 0
        assert stats.fault == ""
    with reverie.Server([make_table()], address="localhost:0", checkpointer=checkpointer, journal=journal) as server:
        client = reverie.Client(server.address)
        assert [(item.key, item.priority, item.times_sampled) for item in client.items("t")] == before


FULL_DISK = """
import resource, sys
import numpy as np
import reverie
root = sys.argv[1]
table = reverie.Table.queue("t", 1000)
server = reverie.Server(
    [table],
    address="127.0.0.1:0",
    checkpointer=reverie.checkpointers.DefaultCheckpointer(root + "/checkpoints"),
    journal=reverie.Journal(root + "/journal"),
)
clients = [reverie.Client(server), reverie.Client(server.address)]
server.sync_journal()
assert [client.journal_info() for client in clients] == [reverie.JournalInfo("", 0.0)] * 2
size, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, most))
clients[0].add_batch("t", [np.random.default_rng(0).integers(0, 255, (200, 1000), np.uint8)])
for client in clients:
    while not client.journal_info().fault:
        pass
    print(client.journal_info().fault)
    assert client.journal_info().lag_seconds > 0
resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
server.sync_journal()
assert [client.journal_info() for client in clients] == [reverie.JournalInfo("", 0.0)] * 2
server.stop()
"""


WITHOUT_STDERR = """
import contextlib, os, signal, sys
import numpy as np, reverie

os.close(2)
table = reverie.Table("t", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 1000, reverie.rate_limiters.MinSize(1))
checkpointer = reverie.checkpointers.DefaultCheckpointer(sys.argv[1] + "/checkpoints")
server = reverie.Server([table], address="127.0.0.1:0", checkpointer=checkpointer, journal=reverie.Journal(sys.argv[1] + "/journal"))
for value in range(3):
    with contextlib.suppress(OSError):
        os.write(2, b"what a library says")
    reverie.Client(server.address).add("t", value)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_program_without_a_stderr_writes_there_gets_into_no_journal(tmp_path):
    subprocess.run([sys.executable, "-c", WITHOUT_STDERR, str(tmp_path)], stderr=subprocess.DEVNULL, timeout=LONG)
    checkpointer, journal = DefaultCheckpointer(tmp_path / "checkpoints"), reverie.Journal(tmp_path / "journal")
    with reverie.Server([make_table()], in_process=True, checkpointer=checkpointer, journal=journal) as server:
        assert reverie.Client(server).server_info()["t"].current_size == 3


def test_clients_see_what_keeps_the_journal_from_its_disk(tmp_path):
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    faults = done.stdout.splitlines()
    assert len(faults) == 2
    assert all("File too large" in fault and str(tmp_path / "journal") in fault for fault in faults), faults


def test_without_a_journal_there_is_no_fault_and_no_lag():
    with reverie.Server([make_table()], address="localhost:0") as server:
        for address in (server, server.address):
            assert reverie.Client(address).journal_info() == reverie.JournalInfo(fault="", lag_seconds=0.0)


def test_a_program_that_adds_to_its_own_server_says_when_it_must_be_on_the_disk(tmp_path):
    checkpointer = DefaultCheckpointer(tmp_path / "checkpoints")
    journal = reverie.Journal(tmp_path / "journal", "periodic", period_seconds=3600)
    server = reverie.Server([make_table()], in_process=True, checkpointer=checkpointer, journal=journal)
    client = reverie.Client(server)
    client.add_batch("t", [np.arange(100)])
    assert server.journal_stats().queued_bytes > 0
    server.sync_journal()
    assert server.journal_stats().queued_bytes == 0
    assert server.journal_stats().lag_seconds == 0.0
    server.stop()
    with pytest.raises(reverie.FailedPreconditionError):
        server.sync_journal()
    server = reverie.Server([make_table()], in_process=True, checkpointer=checkpointer, journal=journal)
    assert server._store.info("t")["current_size"] == 100
    server.stop()


def test_whoever_still_saves_leaves_the_checkpoint_that_the_journal_goes_on_from(tmp_path):
    checkpointer = DefaultCheckpointer(tmp_path / "checkpoints")
    journal = reverie.Journal(tmp_path / "journal")

    def begin(journal):
        return reverie.Server([make_table()], in_process=True, checkpointer=checkpointer, journal=journal)

    server = begin(journal)
    client = reverie.Client(server)
    client.add_batch("t", [np.arange(100)])
    base = client.checkpoint()
    client.add_batch("t", [np.arange(10)])
    server.stop()
    with pytest.raises(reverie.FailedPreconditionError, match="a journal goes on from"):
        client.checkpoint()
    with begin(journal):  # an old thread still has the old client
        with pytest.raises(reverie.FailedPreconditionError, match="a journal goes on from"):
            client.checkpoint()
        with pytest.raises(reverie.FailedPreconditionError, match="Give another directory"):
            export(base, tmp_path / "checkpoints")
    assert [base] == [str(path) for path in (tmp_path / "checkpoints").iterdir()]
    with pytest.raises(reverie.FailedPreconditionError, match="remove the file JOURNAL"):
        begin(None)
    with begin(journal) as server:
        assert server._store.info("t")["current_size"] == 110


def test_one_server_has_a_journal_at_a_time(tmp_path):
    checkpointer = DefaultCheckpointer(tmp_path / "checkpoints")
    journal = reverie.Journal(tmp_path / "journal")
    with (
        reverie.Server([make_table()], in_process=True, checkpointer=checkpointer, journal=journal),
        pytest.raises(reverie.FailedPreconditionError, match="another process has the journal"),
    ):
        reverie.Server([make_table()], in_process=True, checkpointer=checkpointer, journal=journal)


def test_a_start_that_finds_nothing_says_so_and_one_that_must_find_something_is_refused(tmp_path, caplog):
    saved, journal = tmp_path / "c", reverie.Journal(tmp_path / "j")

    def begin(**how):
        return reverie.Server([make_table()], in_process=True, checkpointer=DefaultCheckpointer(saved, **how), journal=journal)

    with pytest.raises(reverie.FailedPreconditionError, match=f"{saved} was not there, and one is required"):
        begin(required=True)
    assert list(tmp_path.iterdir()) == []
    with begin() as server:
        reverie.Client(server).add("t", [np.int64(1)], 1.0)
    (line,) = [record for record in caplog.records if "begins empty" in record.message]
    assert line.levelname == "WARNING"
    assert f"{saved} was not there, and {tmp_path}/j was not there" in line.message
    caplog.clear()
    with begin(required=True) as server:
        assert server._store.info("t")["current_size"] == 1
    with reverie.Server([make_table()], in_process=True, checkpointer=TempDirCheckpointer()):
        pass
    assert "begins empty" not in caplog.text


def test_the_program_that_finds_nothing_says_so_or_does_not_start(tmp_path):
    disk = ["--table", "name=t", "--port", "0", "--checkpoints", f"{tmp_path}/c", "--journal", f"{tmp_path}/j"]
    out = server_program.run(*disk, "--set", "checkpoint_required=1")
    assert out.returncode == 1
    assert f"{tmp_path}/c was not there, and one is required" in out.stderr
    assert list(tmp_path.iterdir()) == []
    server = server_program.Server(*disk)
    server.signal(signal.SIGTERM)
    status, errors = server.wait()
    assert status == 0, errors
    assert f"Z warning: begins empty: {tmp_path}/c was not there, and {tmp_path}/j was not there; " in errors
    server = server_program.Server(*disk, "--set", "checkpoint_required=1")
    server.signal(signal.SIGTERM)
    status, errors = server.wait()
    assert status == 0, errors
    assert "begins empty" not in errors


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="mode must be"):
        reverie.Journal("/tmp/x", "sometimes")
    with pytest.raises(ValueError, match="path"):
        reverie.Journal("")
    with pytest.raises(ValueError, match="period_seconds"):
        reverie.Journal("/tmp/x", "periodic", period_seconds=0)
    with pytest.raises(ValueError, match="checkpointer"):
        reverie.Server([make_table()], in_process=True, journal=reverie.Journal("/tmp/x"))
    one = {"checkpointer": DefaultCheckpointer("/tmp/x"), "journal": reverie.Journal("/tmp/x")}
    with pytest.raises(ValueError, match="the journal and the checkpoints have one directory, /tmp/x; give each its own"):
        reverie.Server([make_table()], in_process=True, **one)
    with pytest.raises(reverie.FailedPreconditionError, match="no journal"):
        reverie.Server([make_table()], in_process=True).journal_stats()


def test_the_programs_settings_are_checked(tmp_path):
    out = server_program.run("--table", "name=t", "--journal", str(tmp_path), "--check")
    assert out.returncode == 2
    assert "checkpoints" in out.stderr
    out = server_program.run("--table", "name=t", "--journal", str(tmp_path), "--checkpoints", f"{tmp_path}/", "--check")
    assert out.returncode == 2
    assert f"--journal: the journal and the checkpoints have one directory, {tmp_path}; give each its own" in out.stderr
    config = tmp_path / "config.yaml"
    config.write_text(
        f"checkpoints: {{path: {tmp_path}/c}}\njournal: {{path: {tmp_path}/j, mode: often}}\ntables: [{{name: t}}]\n"
    )
    out = server_program.run("--config", str(config), "--check")
    assert out.returncode == 2
    assert "expected always or periodic" in out.stderr
