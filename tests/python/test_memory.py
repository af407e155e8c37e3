"""Memory is given back: a table holds about what its items need, whatever was inserted and removed before, near or far."""

import os
import pathlib

import numpy as np
import pytest
import reverie
from conftest import make_table

MAX_SIZE, BYTES = 200, 2000
REMOVERS = {"min_heap": reverie.selectors.MinHeap, "uniform": reverie.selectors.Uniform}
BOOKS = 4 << 18  # a segment that is being filled, one that is dying, and the items' books


def table_that_keeps_few(remover):
    return make_table(sampler=reverie.selectors.Uniform(), remover=REMOVERS[remover](), max_size=MAX_SIZE)


def cell(number, compressible=False):
    cell = np.full(BYTES // 4, number, np.int32)
    return cell if compressible else cell * (np.arange(BYTES // 4, dtype=np.int32) * 2654435 + 1)


def held(client):
    for _ in range(50):  # what is mostly dead is moved by those who use the table
        info = client.server_info()["t"]
    assert info.current_size == MAX_SIZE
    return info.memory_bytes


@pytest.mark.parametrize("remover", REMOVERS)
@pytest.mark.parametrize("compressible", [False, True])
def test_rows_that_stay_do_not_keep_the_batch_they_came_in(connect, remover, compressible):
    client = connect(table_that_keeps_few(remover))
    random = np.random.default_rng(1)
    for begin in range(0, 6400, 64):
        numbers = range(begin, begin + 64)
        data = {"x": np.stack([cell(n, compressible) for n in numbers]), "n": np.array(numbers)}
        client.add_batch("t", data, random.random(64))
    assert held(client) < 4 * MAX_SIZE * BYTES + BOOKS
    batch = client.sample_batch("t", 500)
    for x, n in zip(batch.data["x"], batch.data["n"], strict=True):
        assert np.array_equal(x, cell(int(n), compressible))


@pytest.mark.parametrize("remover", REMOVERS)
@pytest.mark.parametrize("options", [{}, {"chunk_length": 40}, {"chunk_length": 40, "delta_encoded": True}])
def test_sequences_that_stay_do_not_keep_the_chunks_of_others(connect, remover, options):
    client = connect(table_that_keeps_few(remover))
    random = np.random.default_rng(2)
    length = 4
    with client.trajectory_writer(40, **options) as writer:
        for episode in range(40):
            for step in range(100):
                number = episode * 100 + step
                writer.append({"x": cell(number), "n": np.int64(number)})
                if step >= length - 1:
                    writer.create_item("t", random.random(), {k: writer.history[k][-length:] for k in ("x", "n")})
            writer.end_episode(timeout_ms=20000)
    assert held(client) < 4 * length * MAX_SIZE * BYTES + BOOKS
    assert client.server_info()["t"].num_episodes <= 40
    batch = client.sample_batch("t", 200)
    for x, n in zip(batch.data["x"], batch.data["n"], strict=True):
        assert n.tolist() == list(range(n[0], n[0] + length))
        for k in range(length):
            assert np.array_equal(x[k], cell(int(n[k])))
    for sample in client.sample("t", 20, emit_timesteps=False):
        n, x = sorted((np.asarray(column) for column in sample.data), key=np.ndim)
        assert np.array_equal(x[0], cell(int(n[0])))


def resident_bytes():
    """What this process, which has the server too, has of memory; 0 where the system does not say so."""
    statm = pathlib.Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def write(client, row, times):
    with client.trajectory_writer(1) as writer:
        for _ in range(times):
            writer.append([row])
            writer.create_item("t", 1.0, [writer.history[0][-1:]])
            writer.flush(8, timeout_ms=20000)
        writer.flush(timeout_ms=20000)


def add_batches(client, row, times):
    for _ in range(times // 10):
        client.add_batch("t", [np.stack([row] * 10)])


@pytest.mark.parametrize("put", [write, add_batches])
@pytest.mark.parametrize(("row_bytes", "max_size"), [(40_000, 500), (400_000, 50)])
def test_large_rows_that_replace_others_take_no_more_memory(connect, put, row_bytes, max_size):
    client = connect(make_table(max_size=max_size))
    row = np.random.default_rng(3).integers(0, 256, row_bytes, np.uint8)
    put(client, row, 2 * max_size)
    memory, resident = client.server_info()["t"].memory_bytes, resident_bytes()
    assert memory < 2 * max_size * row_bytes
    for _ in range(4):
        put(client, row, 3 * max_size)
        info = client.server_info()["t"]
        assert info.current_size == max_size
        assert info.memory_bytes < memory + max_size * row_bytes // 2
    assert resident_bytes() < resident + 3 * max_size * row_bytes  # of 12 times that which came and went
