"""Clients of the server's machine share memory with it, by whatever address they come, unless either end is told not to."""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import reverie
import server_program
from conftest import make_table


def mappings(of: str = "rings") -> int:
    """Of memory that this process shares, as client or as server: what goes between them, or what a server's large rows lie in."""
    return pathlib.Path("/proc/self/maps").read_text().count(f"memfd:reverie-{of}")


def arenas() -> list[int]:
    """How often this process has mapped each, the server's and the clients': to write to it, or to read what the other end lends."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return sorted(collections.Counter(line.split()[4] for line in lines if "memfd:reverie-arena" in line).values())


@pytest.fixture(autouse=True)
def none_before() -> None:
    """Waits for connections of an earlier test, which end in their own time."""
    deadline = time.monotonic() + 20
    while mappings() + mappings("arena") > 0:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)


def sharing_client(address: str, mapped: int = 2, token: str | None = None) -> reverie.Client:
    """While it is connected, this process has so many mappings. One whom the server takes more than a second to answer goes over the
    socket, and another one is tried."""
    for _ in range(20):
        client = reverie.Client(address, token=token)
        client.server_info(timeout=60)
        if mappings() >= mapped:
            return client
        del client
        gc.collect()
    raise AssertionError("no client shares memory with the server")


# 40 kB that cannot be compressed, which a server lends instead of copying.
NOISE = np.random.default_rng(1).integers(0, 1 << 32, 10000, dtype=np.uint32)


def row(number: int) -> np.ndarray:
    return NOISE ^ np.uint32(number)


def check_rows(rows: np.ndarray) -> None:
    numbers = rows.reshape(-1, len(NOISE)) ^ NOISE
    assert (numbers == numbers[:, :1]).all(), "a sampled row has parts of others"


def sample_one_row(client: reverie.Client) -> None:
    client.insert([row(7)], {"t": 1.0}, timeout=60)
    assert (next(iter(client.sample("t", 1, timeout=60)))[0].data[0] == row(7)).all()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "unix"])
def test_both_ends_map_the_same_memory(address, tmp_path):
    server = reverie.Server([make_table()], address=f"unix:{tmp_path}/s" if address == "unix" else address)
    try:
        client = sharing_client(server.address)
        sample_one_row(client)
        assert mappings() == 2  # this process has them as the server, and as its client
        assert arenas() == [2, 2]
        del client
    finally:
        server.stop()


def test_a_process_maps_the_memory_once_however_many_clients_it_has():
    server = reverie.Server([make_table()], address="127.0.0.1:0")
    try:
        clients = [sharing_client(server.address, 2 * n) for n in range(1, 6)]
        for client in clients:
            sample_one_row(client)
        assert arenas() == [2, 2]  # the server's, as with one client, and the clients'
        del client
        clients.clear()
    finally:
        server.stop()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "unix"])
def test_a_client_can_do_without(address, tmp_path):
    server = reverie.Server([make_table()], address=f"unix:{tmp_path}/s" if address == "unix" else address)
    try:
        client = reverie.Client(server.address, shared_memory=False)
        client.server_info(timeout=60)
        sample_one_row(client)
        assert mappings() == 0
        assert arenas() == [1]  # the server's
        client.reset("t", timeout=60)
        copied = pickle.loads(pickle.dumps(client))
        copied.insert([1.0], {"t": 1.0}, timeout=60)
        assert [sample[0].data[0] for sample in copied.sample("t", 1, timeout=60)] == [1.0]
        assert mappings() == 0
    finally:
        server.stop()


def test_a_server_can_do_without():
    server = reverie.Server([make_table()], address="127.0.0.1:0", shared_memory=False)
    try:
        client = reverie.Client(server.address)
        sample_one_row(client)
        assert mappings() == mappings("arena") == 0
    finally:
        server.stop()


def test_where_rights_differ_the_server_lends_nothing():
    identities = [reverie.Identity(name="actor", token="a" * 32, rights={"t": ["insert", "read"]})]
    server = reverie.Server([make_table()], address="127.0.0.1:0", identities=identities)
    try:
        client = sharing_client(server.address, token="a" * 32)  # rows that are written before it is connected are copied
        sample_one_row(client)
        assert arenas() == [2]  # the client's
    finally:
        server.stop()


class Filler(threading.Thread):
    """Inserts rows of other numbers each; the table has few, so that their memory is used again at once."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.ends = threading.Event()
        self.rows = 0
        self._client = reverie.Client(address)
        self.start()

    def run(self) -> None:
        with self._client.trajectory_writer(1) as writer:
            while not self.ends.is_set():
                writer.append([row(self.rows)])
                writer.create_item("t", 1.0, [writer.history[0][-1:]])
                writer.flush(4, timeout_ms=60000)
                self.rows += 1


@pytest.mark.parametrize("how", ["batches", "one by one", "a stream of batches"])
def test_what_is_sampled_is_whole_while_its_memory_is_used_again(how):
    server = reverie.Server([make_table(max_size=30)], address="127.0.0.1:0")
    client = sharing_client(server.address)
    sample_one_row(client)
    assert arenas() == [2, 2]
    filler = Filler(server.address)
    try:
        samples = {
            "batches": lambda: (client.sample_batch("t", 16, timeout=60).data[0] for _ in range(1 << 30)),
            "one by one": lambda: (sample[0].data[0] for sample in client.sample("t", 1 << 30, timeout=60)),
            "a stream of batches": lambda: (batch.data[0] for batch in client.batches("t", 16, timeout=60)),
        }[how]()
        held = collections.deque(maxlen=100)
        until = time.monotonic() + 1.5
        for rows in samples:
            check_rows(rows)
            held.append(rows)
            if time.monotonic() > until and filler.rows > 60:
                break
        for rows in held:
            check_rows(rows)  # what a client has nobody changes
    finally:
        filler.ends.set()
        filler.join()
        server.stop()


def test_rows_that_are_added_at_once_are_lent_and_whole():
    server = reverie.Server([make_table(max_size=150)], address="127.0.0.1:0")
    try:
        client = sharing_client(server.address)
        for first in range(0, 600, 60):  # of some megabytes, whose memory is used again
            numbers = np.arange(first, first + 60)
            client.add_batch("t", [np.stack([row(number) for number in numbers]), numbers], timeout=60)
        assert arenas() == [1, 2]  # the server has read the client's
        rows, numbers = client.sample_batch("t", 500, timeout=60).data
        assert {*numbers} <= {*range(450, 600)}
        for i, number in enumerate(numbers):
            np.testing.assert_array_equal(rows[i], row(number))
    finally:
        server.stop()


@pytest.mark.parametrize("how", ["batches", "a stream of batches"])
@pytest.mark.parametrize("columns", ["of one length", "of several lengths", "one"])
def test_every_column_of_lent_items_goes_where_it_belongs(columns, how):
    server = reverie.Server([make_table(sampler=reverie.selectors.Uniform())], address="127.0.0.1:0")
    try:
        client = sharing_client(server.address)
        with client.trajectory_writer(3) as writer:
            for number in range(60):
                writer.append({"row": row(number), "number": np.int64(number), "half": row(number)[:5000]})
                if number < 2:
                    continue
                history = writer.history
                item = {"row": history["row"][-3:], "number": history["number"][-3:], "half": history["half"][-3:]}
                if columns == "of several lengths":
                    item |= {"number": history["number"][-2:], "half": history["half"][-3]}
                writer.create_item("t", 1.0, {"row": item["row"]} if columns == "one" else item)
        seen = set()
        # some messages of a stream end one batch and begin the next
        batches = (
            client.batches("t", 7, timeout=60)
            if how == "a stream of batches"
            else iter(lambda: client.sample_batch("t", 7), None)
        )
        for batch in itertools.islice(batches, 2000):
            for i, rows in enumerate(batch.data["row"]):
                first = int(rows[0, 0] ^ NOISE[0])
                np.testing.assert_array_equal(rows, np.stack([row(first + k) for k in range(3)]))
                if columns != "one":
                    half, numbers = batch.data["half"][i], batch.data["number"][i]
                    np.testing.assert_array_equal(half, rows[: half.shape[0], :5000] if half.ndim == 2 else rows[0, :5000])
                    assert [*numbers] == [first, first + 1, first + 2][-len(numbers) :]
                seen.add((first, int(batch.keys[i])))
            if len(seen) == 58:
                break
        assert len(seen) == 58
    finally:
        server.stop()


def test_lent_items_that_look_otherwise_than_those_before_are_whole():
    server = reverie.Server([make_table(max_size=1)], address="127.0.0.1:0")
    try:
        client = sharing_client(server.address)
        for number in range(12):
            shown = row(number)[: 10000 - 500 * (number // 2)]  # two alike, then others
            client.insert([shown], {"t": 1.0}, timeout=60)
            np.testing.assert_array_equal(client.sample_batch("t", 3, timeout=60).data[0][:, 0], np.stack([shown] * 3))
    finally:
        server.stop()


def test_batches_that_no_cache_holds_are_whole():
    server = reverie.Server([make_table(max_size=40, sampler=reverie.selectors.Uniform())], address="127.0.0.1:0")
    try:
        client = sharing_client(server.address)
        client.add_batch("t", [np.stack([row(number) for number in range(40)])], timeout=60)
        for _ in range(3):  # the first is what the others' arrays are made by
            check_rows(client.sample_batch("t", 500, timeout=60).data[0])
        check_rows(next(client.batches("t", 500, timeout=60)).data[0])
    finally:
        server.stop()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of a program with threads; the child only looks
def test_views_of_the_store_can_be_read_by_forked_children():
    server = reverie.Server([make_table()], address="127.0.0.1:0")
    try:
        sample_one_row(sharing_client(server.address))
        rows = next(iter(reverie.Client(server).sample("t", 1, copy=False, timeout=60)))[0].data[0]
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if (rows == row(7)).all() else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        server.stop()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children_are_refused_what_a_writer_has():
    server = reverie.Server([make_table()], address="127.0.0.1:0")
    try:
        with sharing_client(server.address).trajectory_writer(1) as writer:
            writer.append([row(7)])
            child = os.fork()
            if child == 0:
                try:
                    with contextlib.suppress(reverie.ReverieError):
                        writer.history[0][-1].numpy()
                        os._exit(1)
                    os._exit(0)
                finally:
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
            check_rows(writer.history[0][-1].numpy())
    finally:
        server.stop()


class Leaver(threading.Thread):
    """Makes writers that are given up with rows on their way, again and again: the memory of those is used for the next writer's."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.failed: BaseException | None = None
        self._client = reverie.Client(address)
        self.start()

    def run(self) -> None:
        try:
            for number in range(0, 2000, 40):
                writer = self._client.trajectory_writer(1)
                for i in range(40):
                    writer.append([row(number + i)])
                    writer.create_item("t", float(number + i), [writer.history[0][-1:]])
                writer.flush(timeout_ms=60000) if number % 120 == 0 else writer.close()
        except BaseException as error:
            self.failed = error


def test_rows_of_writers_that_were_given_up_are_whole_or_not_there():
    server = reverie.Server([make_table(max_size=10000)], address="127.0.0.1:0")
    try:
        client = sharing_client(server.address)
        leavers = [Leaver(server.address) for _ in range(2)]
        for leaver in leavers:
            leaver.join()
            assert leaver.failed is None
        items = list(client.items("t", timeout=60))
        assert len(items) > 1000
        for item in items:
            assert (client.get("t", item.key, timeout=60).data[0] == row(int(item.priority))).all()
    finally:
        server.stop()


def memory_of_arenas() -> int:
    """Bytes that the arenas which this process has made take of the machine's memory; each it has open twice, to write and to read."""
    found = {}
    for descriptor in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            info = descriptor.stat()
            if "memfd:reverie-arena" in os.readlink(descriptor):
                found[info.st_ino] = info.st_blocks * 512
    return sum(found.values())


def write_rows(client: reverie.Client, count: int, keep: int = 1) -> None:
    """Rows 0, 1, ..., and items of the last one, two, ... of them."""
    with client.trajectory_writer(keep) as writer:
        for number in range(count):
            writer.append([row(number)])
            length = min(number, number % keep) + 1
            writer.create_item("t", float(number), [writer.history[0][-length:]])
        writer.flush(timeout_ms=120000)


def check_items(client: reverie.Client, numbers: set[int]) -> None:
    found = set()
    for item in client.items("t", timeout=60):
        rows = client.get("t", item.key, timeout=60).data[0]
        check_rows(rows)
        assert (rows[-1] == row(int(item.priority))).all()
        found.add(int(item.priority))
    assert found == numbers


@pytest.mark.parametrize("keep", [1, 3])
def test_rows_that_writers_put_into_the_servers_memory_are_whole(keep):
    server = reverie.Server([make_table(max_size=300)], address="127.0.0.1:0")
    try:
        client = sharing_client(server.address)
        for _ in range(5):  # its memory is used again
            write_rows(client, 1000, keep)
            check_items(client, {*range(700, 1000)})
        assert 3 in arenas()  # besides who reads it, the client has mapped the server's to write to it
        most = 300 * 45056 + (8 << 20)  # what lies ready goes in a quiet minute
        deadline = time.monotonic() + 120
        while memory_of_arenas() > most:
            assert time.monotonic() < deadline, memory_of_arenas()
            time.sleep(0.05)
        check_items(client, {*range(700, 1000)})
    finally:
        server.stop()


def test_rows_in_a_killed_servers_memory_are_sent_to_the_next():
    def serve(port: int) -> server_program.Server:
        return server_program.Server("--table", "name=t,max_size=1000000", "--port", str(port))

    server = serve(0)
    try:
        client = sharing_client(server.address, 1)
        with client.trajectory_writer(1) as writer:
            for first in range(0, 1200, 300):
                for number in range(first, first + 300):
                    writer.append([row(number)])
                    writer.create_item("t", float(number), [writer.history[0][-1:]])
                server.kill()
                server = serve(server.port)
                writer.flush(timeout_ms=60000)
        found = set()
        for item in client.items("t", timeout=60):
            assert (client.get("t", item.key, timeout=60).data[0] == row(int(item.priority))).all()
            found.add(int(item.priority))
        assert found  # those that the last server confirmed, or was sent again
        assert found <= {*range(1200)}
    finally:
        server.kill()


WRITER = """
import itertools, sys, numpy as np, reverie
noise = np.random.default_rng(1).integers(0, 1 << 32, 10000, dtype=np.uint32)
with reverie.Client(sys.argv[1]).trajectory_writer(1) as writer:
    for number in itertools.count():
        writer.append([noise ^ np.uint32(number)])
        writer.create_item("t", float(number), [writer.history[0][-1:]])
        if number == 1000:
            print("begun", flush=True)
"""


def test_what_killed_writers_had_of_the_servers_memory_comes_back():
    server = reverie.Server([make_table(max_size=200)], address="127.0.0.1:0")
    try:
        for _ in range(5):
            with subprocess.Popen([sys.executable, "-c", WRITER, server.address], stdout=subprocess.PIPE) as writer:
                assert writer.stdout.readline() == b"begun\n"
                writer.kill()
        client = sharing_client(server.address)
        for item in client.items("t", timeout=60):
            assert (client.get("t", item.key, timeout=60).data[0] == row(int(item.priority))).all()
        client.reset("t", timeout=60)
        deadline = time.monotonic() + 120
        while memory_of_arenas() > 1 << 20:
            assert time.monotonic() < deadline, memory_of_arenas()
            time.sleep(0.1)
            sharing_client(server.address)  # the server looks when somebody comes
    finally:
        server.stop()


UNTIL_TOLD = """
import itertools, os, sys, numpy as np, reverie
noise = np.random.default_rng(1).integers(0, 1 << 32, 10000, dtype=np.uint32)
with reverie.Client(sys.argv[1], peer_timeout=1).trajectory_writer(1) as writer:
    for number in itertools.count():
        writer.append([noise ^ np.uint32(number)])
        writer.create_item("t", float(number), [writer.history[0][-1:]])
        if number % 10 == 9:
            writer.flush()
        if number == 1000:
            print("begun", flush=True)
        if os.path.exists(sys.argv[2]):
            break
    writer.flush()
    print(number + 1, writer.status().reconnects)
"""


def test_a_writer_that_stood_still_until_it_was_taken_for_gone_goes_on_where_it_was(tmp_path):
    """What it was putting into the server's memory meanwhile, where others' rows may be by now, is its own."""
    end = tmp_path / "end"
    with reverie.Server([make_table(max_size=200)], address="127.0.0.1:0", peer_timeout=1) as server:
        client = sharing_client(server.address)
        command = [sys.executable, "-c", UNTIL_TOLD, server.address, str(end)]
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        try:
            for writer in writers:
                assert writer.stdout.readline() == "begun\n"
            for _ in range(2):
                writers[0].send_signal(signal.SIGSTOP)
                until = time.monotonic() + 2.5
                while time.monotonic() < until:
                    check_rows(client.sample_batch("t", 64, timeout=60).data[0])
                writers[0].send_signal(signal.SIGCONT)
                for _ in range(100):
                    check_rows(client.sample_batch("t", 64, timeout=60).data[0])
            end.touch()
            told = [[int(word) for word in writer.communicate(timeout=120)[0].split()] for writer in writers]
        finally:
            for writer in writers:
                writer.kill()
        assert client.server_info(60)["t"].rate_limiter_info.insert_stats.completed == sum(items for items, _ in told)
        assert told[0][1] >= 2, "it was taken for gone each time"


def test_what_was_sampled_stays_when_the_server_has_gone():
    with server_program.Server("--table", "name=t", "--port", "0") as server:
        client = reverie.Client(server.address)
        for i in range(20):
            client.insert([row(i)], {"t": 1.0}, timeout=60)
        batches = [client.sample_batch("t", 16, timeout=60).data[0] for _ in range(10)]
        singles = [sample[0].data[0] for sample in client.sample("t", 50, timeout=60)]
    for rows in [*batches, *singles]:
        check_rows(rows)


def test_what_is_neither_true_nor_false_is_refused():
    with pytest.raises(TypeError, match="shared_memory must be True or False, got 'no'"):
        reverie.Client("localhost:1", shared_memory="no")
    with pytest.raises(TypeError, match="shared_memory must be True or False, got 0"):
        reverie.Server([make_table()], address="127.0.0.1:0", shared_memory=0)


def test_the_program_shares():
    with server_program.Server("--table", "name=t", "--port", "0") as server:
        client = sharing_client(server.address, 1)
        sample_one_row(client)
        assert arenas() == [1, 1]
        del client


def test_the_program_can_be_told_not_to():
    with server_program.Server("--table", "name=t", "--port", "0", "--set", "shared_memory=0") as server:
        reverie.Client(server.address).server_info(timeout=60)
        assert mappings() == 0
    out = server_program.run("--table", "name=t", "--set", "shared_memory=2", "--check")
    assert out.returncode == 2
    assert "shared_memory" in out.stderr
