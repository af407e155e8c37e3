"""Clients of the server's machine share memory with it, by whatever address they come, unless either end is told not to."""

from __future__ import annotations

import pathlib
import pickle
import time
from typing import Any

import pytest
import reverie
import server_program
from conftest import make_table


def mappings() -> int:
    """Of memory that this process shares, as client or as server."""
    return pathlib.Path("/proc/self/maps").read_text().count("memfd:reverie")


@pytest.fixture(autouse=True)
def none_before() -> None:
    deadline = time.monotonic() + 20
    while mappings() > 0:  # of connections of an earlier test, which end in their own time
        assert time.monotonic() < deadline
        time.sleep(0.01)


def mappings_when_connected(address: str, **options: Any) -> int:
    """While a client of that address is connected. A server that takes more than a second to answer is not asked again: others may be."""
    for _ in range(20):
        client = reverie.Client(address, **options)
        client.server_info(timeout=60)
        found = mappings()
        if found > 0 or not options.get("shared_memory", True):
            break
    return found


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "unix"])
def test_both_ends_map_the_same_memory(address, tmp_path):
    server = reverie.Server([make_table()], address=f"unix:{tmp_path}/s" if address == "unix" else address)
    try:
        assert mappings_when_connected(server.address) >= 2  # this process's as the server, and as its client
    finally:
        server.stop()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "unix"])
def test_a_client_can_do_without(address, tmp_path):
    server = reverie.Server([make_table()], address=f"unix:{tmp_path}/s" if address == "unix" else address)
    try:
        assert mappings_when_connected(server.address, shared_memory=False) == 0
        copied = pickle.loads(pickle.dumps(reverie.Client(server.address, shared_memory=False)))
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


def test_the_program_shares_unless_told_otherwise():
    with server_program.Server("--table", "name=t", "--port", "0") as server:
        assert mappings_when_connected(server.address) >= 1
    with server_program.Server("--table", "name=t", "--port", "0", "--set", "shared_memory=0") as server:
        reverie.Client(server.address).server_info(timeout=60)
        assert mappings() == 0
    out = server_program.run("--table", "name=t", "--set", "shared_memory=2", "--check")
    assert out.returncode == 2
    assert "shared_memory" in out.stderr
