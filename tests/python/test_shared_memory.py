"""Clients of the server's machine share memory with it, by whatever address they come, unless either end is told not to."""

from __future__ import annotations

import gc
import os
import pathlib
import pickle
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


@pytest.fixture(autouse=True)
def none_before() -> None:
    """Waits for connections of an earlier test, which end in their own time."""
    deadline = time.monotonic() + 20
    while mappings() > 0:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)


def sharing_client(address: str, mapped: int = 2) -> reverie.Client:
    """While it is connected, this process has so many mappings. One whom the server takes more than a second to answer goes over the
    socket, and another one is tried."""
    for _ in range(20):
        client = reverie.Client(address)
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
        assert mappings() == mappings("arena") == 2  # this process has them as the server, and as its client
        del client
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
        assert mappings("arena") == 1  # the server's
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


def test_where_rights_differ_no_client_can_read_what_all_have():
    identities = [reverie.Identity(name="actor", token="a" * 32, rights={"t": ["insert", "read"]})]
    server = reverie.Server([make_table()], address="127.0.0.1:0", identities=identities)
    try:
        client = reverie.Client(server.address, token="a" * 32)
        sample_one_row(client)
        assert mappings("arena") == 0
    finally:
        server.stop()


def fill(address: str, stop: threading.Event) -> None:
    """Rows of other numbers each; the table has few, so that their memory is used again at once."""
    client = reverie.Client(address)
    with client.trajectory_writer(1) as writer:
        for i in range(1 << 24):
            if stop.is_set():
                break
            writer.append([row(i)])
            writer.create_item("t", 1.0, [writer.history[0][-1:]])
            writer.flush(4, timeout_ms=60000)


@pytest.mark.parametrize("how", ["batches", "one by one", "a stream of batches"])
def test_what_is_sampled_is_whole_while_its_memory_is_used_again(how):
    server = reverie.Server([make_table(max_size=30)], address="127.0.0.1:0")
    stop = threading.Event()
    writer = threading.Thread(target=fill, args=(server.address, stop))
    writer.start()
    try:
        client = sharing_client(server.address)
        until = time.monotonic() + 1.5
        held = []
        if how == "batches":
            while time.monotonic() < until:
                held.append(client.sample_batch("t", 16, timeout=60).data[0])
                check_rows(held[-1])
        elif how == "one by one":
            for sample in client.sample("t", 1 << 30, timeout=60):
                held.append(sample[0].data[0])
                check_rows(held[-1])
                if time.monotonic() > until:
                    break
        else:
            for batch in client.batches("t", 16, timeout=60):
                held.append(batch.data[0])
                check_rows(held[-1])
                if time.monotonic() > until:
                    break
        for rows in held[-100:]:
            check_rows(rows)  # what a client has nobody changes
    finally:
        stop.set()
        writer.join()
        server.stop()


def test_views_of_the_store_can_be_read_by_forked_children():
    server = reverie.Server([make_table()], address="127.0.0.1:0")
    try:
        sample_one_row(sharing_client(server.address))
        rows = next(iter(reverie.Client(server).sample("t", 1, copy=False, timeout=60)))[0].data[0]
        child = os.fork()
        if child == 0:
            os._exit(0 if (rows == row(7)).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        server.stop()


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
        assert mappings("arena") == 1
        del client


def test_the_program_can_be_told_not_to():
    with server_program.Server("--table", "name=t", "--port", "0", "--set", "shared_memory=0") as server:
        reverie.Client(server.address).server_info(timeout=60)
        assert mappings() == 0
    out = server_program.run("--table", "name=t", "--set", "shared_memory=2", "--check")
    assert out.returncode == 2
    assert "shared_memory" in out.stderr
