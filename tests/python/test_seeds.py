"""A server with a seed: the same calls of one thread give the same batches, keys included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie import structured

UNIFORM, PRIORITIZED, FIFO = reverie.selectors.Uniform(), reverie.selectors.Prioritized(0.6), reverie.selectors.Fifo()
KINDS = [(UNIFORM, FIFO), (PRIORITIZED, FIFO), (UNIFORM, UNIFORM), (PRIORITIZED, PRIORITIZED)]


def seen(batch: reverie.Batch) -> tuple[Any, ...]:
    """All that a batch says, but for when its items were inserted."""
    columns = tuple((name, batch.data[name].tolist()) for name in sorted(batch.data))
    return batch.keys.tolist(), batch.probabilities.tolist(), batch.priorities.tolist(), batch.times_sampled.tolist(), columns


def rows(client: reverie.Client) -> list[Any]:
    """More rows than the table holds, so that the remover takes some; other priorities, a reset, a batch that threads copy."""
    found = []
    for i in range(600):
        client.add("t", {"x": np.float32(i)}, priority=1 + i % 7)
    client.add_batch("t", {"x": np.arange(600, dtype=np.float32)}, priorities=1 + np.arange(600) % 5)
    for n in (1, 7, 64, 1000):
        batch = client.sample_batch("t", n)
        found.append(seen(batch))
        client.update_priorities("t", batch.keys, batch.data["x"] % 11 + 1)
    found.append([sample.info.key for sample in client.sample("t", 20, emit_timesteps=False)])
    client.reset("t")
    client.add_batch("t", {"x": np.zeros((300, 1000), np.float32)})
    return [*found, seen(client.sample_batch("t", 500)), [item.key for item in client.items("t")]]


def write_trajectories(client: reverie.Client) -> None:
    for _ in range(2):
        with client.trajectory_writer(num_keep_alive_refs=5) as writer:
            for i in range(200):
                writer.append({"x": np.full(3, i, np.float32)})
                if i >= 4:
                    writer.create_item("t", 1 + i % 3, {"x": writer.history["x"][-5:]})


def trajectories(client: reverie.Client) -> list[Any]:
    write_trajectories(client)
    return [seen(client.sample_batch("t", n)) for n in (1, 7, 64)] + [[item.key for item in client.items("t")]]


def transitions(client: reverie.Client) -> list[Any]:
    with client.transitions("t", num_envs=4, next={"next_x": "x"}) as writer:
        for i in range(100):
            ends = np.full(4, i % 25 == 24)
            writer.add({"x": np.full((4, 3), i, np.float32), "next_x": np.full((4, 3), i + 1, np.float32), "done": ends})
    return [seen(client.sample_batch("t", n)) for n in (1, 7, 64)]


def patterns(client: reverie.Client) -> list[Any]:
    step = {"x": np.float32(0)}
    pattern = structured.pattern_from_transform(step, lambda ref: {"x": ref["x"][-5:]})
    writer = client.structured_writer([structured.create_config(pattern, "t")])
    for i in range(200):
        writer.append({"x": np.float32(i)})
    writer.end_episode(timeout_ms=20_000)
    return [seen(client.sample_batch("t", n)) for n in (1, 7, 64)]


def steps(client: reverie.Client) -> list[Any]:
    with client.writer(max_sequence_length=3) as writer:
        for i in range(100):
            writer.append({"x": np.float32(i)})
            if i >= 2:
                writer.create_item("t", 3, 1.0 + i % 3)
    return [seen(client.sample_batch("t", n)) for n in (1, 7, 64)]


def run(use: Any, seed: int | None, sampler: Any = UNIFORM, remover: Any = FIFO, **options: Any) -> Any:
    server = reverie.Server(
        [make_table(sampler=sampler, remover=remover, max_size=500)], **({"in_process": True} | options), seed=seed
    )
    found = use(reverie.Client(server))
    server.stop()
    return found


@pytest.mark.parametrize("selectors", KINDS, ids=str)
@pytest.mark.parametrize("use", [rows, trajectories, transitions, patterns, steps])
def test_one_seed_gives_the_same_batches_and_another_gives_others(use, selectors):
    first = run(use, 5, *selectors)
    assert run(use, 5, *selectors) == first
    assert run(use, 6, *selectors) != first


def test_without_a_seed_every_server_draws_otherwise():
    assert run(rows, None) != run(rows, None)


def test_seeds_are_integers_of_64_bits():
    assert run(rows, np.int64(7)) == run(rows, 7)
    assert run(rows, 2**64 - 1) != run(rows, 0)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_is_too_small_or_too_large_is_refused(seed):
    with pytest.raises(ValueError, match=rf"seed must be an integer from 0 to 18,446,744,073,709,551,615, got {seed}$"):
        reverie.Server([make_table()], in_process=True, seed=seed)


@pytest.mark.parametrize("seed", [1.5, "1", np.float32(3)], ids=repr)
def test_a_seed_that_is_no_integer_is_refused(seed):
    with pytest.raises(TypeError, match="seed must be an integer, got"):
        reverie.Server([make_table()], in_process=True, seed=seed)


def test_clients_over_a_network_draw_the_same_items_under_other_keys():
    """One after the other, by one client: what they insert has keys that they chose."""

    def use(server: reverie.Server) -> tuple[list[Any], list[Any]]:
        client = reverie.Client(server.address)
        for i in range(200):
            client.add("t", {"x": np.float32(i)}, priority=1 + i % 7)
        batches = [client.sample_batch("t", n) for n in (1, 7, 64)]
        return [batch.data["x"].tolist() for batch in batches], [batch.keys.tolist() for batch in batches]

    found = []
    for _ in range(2):
        server = reverie.Server([make_table(sampler=PRIORITIZED)], address="127.0.0.1:0", seed=5)
        found.append(use(server))
        server.stop()
    (data, keys), (data_again, keys_again) = found
    assert data == data_again
    assert keys != keys_again


@pytest.mark.parametrize("journal", [False, True])
def test_a_server_that_goes_on_loses_no_item_to_one_with_the_same_key(tmp_path, journal):
    """The writer of each life would give the keys of the last one's, and an item whose key is there is only updated."""
    for life in range(1, 4):
        server = reverie.Server(
            [make_table(max_size=10_000), make_table("rows")],
            in_process=True,
            checkpointer=reverie.checkpointers.DefaultCheckpointer(str(tmp_path / "checkpoints")),
            journal=reverie.Journal(str(tmp_path / "journal")) if journal else None,
            seed=5,
        )
        client = reverie.Client(server)
        write_trajectories(client)
        client.add_batch("rows", {"x": np.zeros(100, np.float32)})
        sizes = {name: table.current_size for name, table in client.server_info().items()}
        assert sizes == {"t": life * 2 * 196, "rows": life * 100}
        if journal:
            server.sync_journal()
        else:
            client.checkpoint()
        server.stop()


@pytest.mark.parametrize("journal", [False, True])
def test_a_server_that_goes_on_gives_no_key_again(tmp_path, journal):
    """Also not one of a row that has gone: somebody may still update it."""
    given: list[int] = []
    for _ in range(3):
        server = reverie.Server(
            [make_table(max_size=10)],
            in_process=True,
            checkpointer=reverie.checkpointers.DefaultCheckpointer(str(tmp_path / "checkpoints")),
            journal=reverie.Journal(str(tmp_path / "journal")) if journal else None,
            seed=5,
        )
        client = reverie.Client(server)
        given += [client.add("t", {"x": np.float32(i)}) for i in range(15)]
        if journal:
            server.sync_journal()
        else:
            client.checkpoint()
        server.stop()
    assert len(set(given)) == 45
