"""What items of small rows take at a server that they come to over the wire: little more than the rows, whatever the tables are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import reverie
import server_program
from conftest import make_table

SIZE = 1000
ALONE = 800  # what an item takes, beside its row, that has a chunk of its own, at most
WRITERS = 12


@pytest.fixture
def serve() -> Iterator[object]:
    """serve(*tables): a client of a new server in this process that the client reaches over TCP."""
    servers = []

    def make(*tables: reverie.Table) -> reverie.Client:
        servers.append(reverie.Server(tables, address="127.0.0.1:0", seed=1))  # what a random remover takes decides how much
        return reverie.Client(servers[-1].address)

    yield make
    for server in servers:
        server.stop()


def row(number: int, size: int) -> np.ndarray:
    x = np.random.default_rng(number).random(size // 4, dtype=np.float32)  # does not compress
    x[0] = number
    return x


def bytes_beside_a_row(client: reverie.Client, table: str, size: int) -> float:
    info = client.server_info()[table]
    return info.memory_bytes / info.current_size - size


def check_rows(client: reverie.Client, table: str, size: int) -> None:
    for item in client.sample(table, 50, emit_timesteps=False):
        x = item.data[0][0]
        np.testing.assert_array_equal(x, row(int(x[0]), size))


def write(
    client: reverie.Client, steps: int, size: int, length: int, wanted: dict[str, int], priorities: np.random.Generator
) -> None:
    """Episodes of so many steps; to each table goes an item of every so many-th step."""
    with client.trajectory_writer(1) as writer:
        for step in range(steps):
            writer.append({"x": row(step, size)})
            for table, every in wanted.items():
                if step % every == 0:
                    writer.create_item(table, float(priorities.random()), {"x": writer.history["x"][-1:]})
            if step % length == length - 1:
                writer.end_episode()
        writer.flush()


@pytest.mark.parametrize("size", [64, 256, 512])
@pytest.mark.parametrize("remover", [reverie.selectors.Fifo(), reverie.selectors.Uniform(), reverie.selectors.MinHeap()])
def test_whatever_the_remover_takes_the_rows_take_little_more_than_themselves(serve, remover, size):
    client = serve(make_table(max_size=SIZE, remover=remover, sampler=reverie.selectors.Uniform()))
    write(client, 8 * SIZE, size, 50, {"t": 1}, np.random.default_rng(1))
    assert bytes_beside_a_row(client, "t", size) < ALONE / 2
    check_rows(client, "t", size)


@pytest.mark.parametrize("every", [4, 16, 50])
def test_a_table_that_few_items_go_to_keeps_few_rows_of_the_others(serve, every):
    client = serve(make_table("often", max_size=SIZE), make_table("seldom", max_size=SIZE, sampler=reverie.selectors.Uniform()))
    write(client, 2 * SIZE * every, 64, 200, {"often": 1, "seldom": every}, np.random.default_rng(2))
    assert bytes_beside_a_row(client, "often", 64) < ALONE / 4
    assert bytes_beside_a_row(client, "seldom", 64) < ALONE * 3 / 4
    check_rows(client, "seldom", 64)


@pytest.mark.parametrize(("length", "most"), [(1, ALONE), (3, ALONE), (5, ALONE / 2), (8, ALONE / 3), (20, ALONE / 4)])
def test_episodes_however_short_take_no_more_than_rows_by_themselves(serve, length, most):
    client = serve(make_table(max_size=SIZE, sampler=reverie.selectors.Uniform()))
    write(client, 3 * SIZE, 64, length, {"t": 1}, np.random.default_rng(3))
    assert bytes_beside_a_row(client, "t", 64) < most
    check_rows(client, "t", 64)


def test_after_a_kill_they_take_what_they_took_before(tmp_path):
    """A journal has one row of each writer after the other: they are joined again."""
    arguments = ["--checkpoints", str(tmp_path / "checkpoints"), "--journal", str(tmp_path / "journal")]
    arguments += ["--listen", "127.0.0.1:0", "--table", f"name=t,max_size={SIZE},sampler=uniform,remover=fifo"]
    server = server_program.Server(*arguments)
    client = reverie.Client(server.address)
    writers = [client.trajectory_writer(1) for _ in range(WRITERS)]
    for step in range(2 * SIZE):
        writer = writers[step % WRITERS]
        writer.append({"x": row(step, 64)})
        writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
        writer.flush()
        if step // WRITERS % 40 == 39:
            writer.end_episode()
    before = client.server_info()["t"]
    server.kill()
    with server_program.Server(*arguments) as again:
        client = reverie.Client(again.address)
        after = client.server_info()["t"]
        assert after.current_size == before.current_size == SIZE
        assert after.num_episodes == before.num_episodes
        assert after.memory_bytes < 1.5 * before.memory_bytes < SIZE * ALONE
        check_rows(client, "t", 64)
