"""Clients of the server's machine share memory with it, by whatever address they come, unless either end is told not to."""

from __future__ import annotations

import gc
import pathlib
import pickle
import time

import pytest
import reverie
import server_program
from conftest import make_table


def mappings() -> int:
    """Of memory that this process shares, as client or as server."""
    return pathlib.Path("/proc/self/maps").read_text().count("memfd:reverie")


@pytest.fixture(autouse=True)
def none_before() -> None:
    """Waits for connections of an earlier test, which end in their own time."""
    deadline = time.monotonic() + 20
    while mappings() > 0:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)


def comes_to_share(address: str, wanted: int) -> bool:
    """While a client of that address is connected there are so many. One whom the server takes more than a second to answer goes over the
    socket, and another one is tried."""
    for _ in range(20):
        client = reverie.Client(address)
        client.server_info(timeout=60)
        if mappings() >= wanted:
            return True
    return False


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "unix"])
def test_both_ends_map_the_same_memory(address, tmp_path):
    server = reverie.Server([make_table()], address=f"unix:{tmp_path}/s" if address == "unix" else address)
    try:
        assert comes_to_share(server.address, 2)  # this process has them as the server, and as its client
    finally:
        server.stop()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "unix"])
def test_a_client_can_do_without(address, tmp_path):
    server = reverie.Server([make_table()], address=f"unix:{tmp_path}/s" if address == "unix" else address)
    try:
        client = reverie.Client(server.address, shared_memory=False)
        client.server_info(timeout=60)
        assert mappings() == 0
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
        client.server_info(timeout=60)
        assert mappings() == 0
    finally:
        server.stop()


def test_what_is_neither_true_nor_false_is_refused():
    with pytest.raises(TypeError, match="shared_memory must be True or False, got 'no'"):
        reverie.Client("localhost:1", shared_memory="no")
    with pytest.raises(TypeError, match="shared_memory must be True or False, got 0"):
        reverie.Server([make_table()], address="127.0.0.1:0", shared_memory=0)


def test_the_program_shares():
    with server_program.Server("--table", "name=t", "--port", "0") as server:
        assert comes_to_share(server.address, 1)


def test_the_program_can_be_told_not_to():
    with server_program.Server("--table", "name=t", "--port", "0", "--set", "shared_memory=0") as server:
        reverie.Client(server.address).server_info(timeout=60)
        assert mappings() == 0
    out = server_program.run("--table", "name=t", "--set", "shared_memory=2", "--check")
    assert out.returncode == 2
    assert "shared_memory" in out.stderr
