"""The checker sees what it is there for: each fault is put into a made-up table, and named."""

from __future__ import annotations

import pathlib
import time
from unittest import mock

import numpy as np
import pytest

from . import items, schedule
from .checker import Before, compare
from .interrupts import Interrupts
from .ledger import Ledger
from .model import Model
from .ranges import Ranges
from .run import Options, Run


class Story:
    """What a load wrote, and what a table has."""

    def __init__(self, folder: pathlib.Path, table: str) -> None:
        self.folder, self.table, self.model = folder, table, Model(folder)

    def ledger(self, stream: int = 1) -> Ledger:
        return Ledger(self.folder, stream, self.table)

    def before(self) -> Before:
        self.model.read()
        return Before.of(self.model.tables[self.table], self.model.read_at)

    def found(self, numbers: list[int], before: Before | None = None, stream: int = 1, version: int = 0) -> str:
        before = before or self.before()
        self.model.read()
        table = self.model.tables[self.table]
        ids = items.first_id(stream) + np.array(numbers, np.int64)
        priorities = items.scrambled(ids) if table.rule.scrambled else items.priorities_of(ids, version)
        return "; ".join(compare(table, before, priorities).sentences)


@pytest.fixture
def keep(tmp_path: pathlib.Path) -> Story:
    return Story(tmp_path, "keep")


def test_what_is_confirmed_and_there_is_right(keep: Story) -> None:
    ledger = keep.ledger()
    ledger.confirmed(1, 10, ledger.sent(1, 10))
    assert keep.found(list(range(1, 11))) == ""


def test_a_confirmed_item_that_is_not_there_is_lost(keep: Story) -> None:
    ledger = keep.ledger()
    ledger.confirmed(1, 10, ledger.sent(1, 10))
    assert "1 of 10 confirmed items are lost, such as 4" in keep.found([1, 2, 3, 5, 6, 7, 8, 9, 10])


def test_what_was_only_sent_may_be_there_or_not(keep: Story) -> None:
    keep.ledger().sent(1, 10)
    assert keep.found([3, 4]) == ""
    assert "never sent" in keep.found([11])


def test_what_is_there_twice_is_seen(keep: Story) -> None:
    keep.ledger().sent(1, 10)
    assert "there twice" in keep.found([3, 3])


def test_what_was_deleted_must_be_gone_and_what_is_being_deleted_may_be(keep: Story) -> None:
    ledger = keep.ledger()
    ledger.confirmed(1, 10, ledger.sent(1, 10))
    since = ledger.deleting(1, 2)
    assert keep.found(list(range(2, 11))) == ""
    ledger.deleted(1, 2, since)
    assert "although their deletion was confirmed" in keep.found(list(range(2, 11)))


def test_what_happens_while_one_looks_is_no_fault(keep: Story) -> None:
    ledger = keep.ledger()
    ledger.confirmed(1, 10, ledger.sent(1, 10))
    before = keep.before()
    ledger.deleting(1, 5)
    ledger.confirmed(11, 20, ledger.sent(11, 20))
    assert keep.found(list(range(6, 11)), before) == ""


def test_a_priority_is_the_last_that_was_confirmed(keep: Story) -> None:
    ledger = keep.ledger()
    ledger.confirmed(1, 2, ledger.sent(1, 2))
    since = ledger.updating(1, 2, 1)
    assert keep.found([1, 2], version=0) == keep.found([1, 2], version=1) == ""
    ledger.updated(1, 2, 1, since)
    assert "has version 0" in keep.found([1, 2], version=0)
    assert keep.found([1, 2], version=1) == ""


def test_an_item_whose_deletion_is_lost_has_the_priority_that_it_had(keep: Story) -> None:
    ledger = keep.ledger()
    ledger.confirmed(1, 2, ledger.sent(1, 2))
    begun = ledger.updating(1, 2, 7)
    ledger.updated(1, 2, 7, begun)
    ledger.deleted(1, 2, ledger.deleting(1, 2))
    assert keep.found([]) == ""
    keep.model.lose(begun, time.monotonic())
    assert keep.found([1, 2], version=7) == ""
    assert "has version 6" in keep.found([1, 2], version=6)


def test_what_a_periodic_journal_may_lose_is_no_loss(keep: Story) -> None:
    ledger = keep.ledger()
    old = ledger.sent(1, 5)
    ledger.confirmed(1, 5, old)
    keep.model.read()
    new = ledger.sent(6, 10)
    ledger.confirmed(6, 10, new)
    keep.model.lose(new, new + 1)
    assert "lost" in keep.found([2, 3, 4, 5, 6])
    assert "such as 1" in keep.found([2, 3, 4, 5, 6])
    assert keep.found([1, 2, 3, 4, 5, 6]) == ""


def test_a_full_table_holds_the_newest(tmp_path: pathlib.Path) -> None:
    ring = Story(tmp_path, "ring")
    size = ring.model.tables["ring"].rule.size
    ledger = ring.ledger()
    ledger.confirmed(1, size + 100, ledger.sent(1, size + 100))
    assert ring.found(list(range(101, size + 101))) == ""
    assert "1 of 5000 confirmed items are lost" in ring.found(list(range(102, size + 101)))


def test_a_table_whose_bound_changes_holds_the_newest_of_the_least_and_never_more_than_the_most(tmp_path: pathlib.Path) -> None:
    bounded = Story(tmp_path, "bounded")
    rule, sent = bounded.model.tables["bounded"].rule, 10_000
    ledger = bounded.ledger()
    ledger.confirmed(1, sent, ledger.sent(1, sent))
    for size in (rule.size, rule.most):
        assert bounded.found(list(range(sent - size + 1, sent + 1))) == ""
    assert "lost" in bounded.found(list(range(sent - rule.size + 2, sent + 1)))
    assert "more than its max_size" in bounded.found(list(range(sent - rule.most, sent + 1)))


def test_a_full_table_of_the_highest_holds_them(tmp_path: pathlib.Path) -> None:
    best = Story(tmp_path, "best")
    size, sent = best.model.tables["best"].rule.size, 10_000
    ledger = best.ledger()
    ledger.confirmed(1, sent, ledger.sent(1, sent))
    order = np.argsort(items.scrambled(items.ids_of(1, 1, sent))) + 1
    highest = order[-(size - 1) :].tolist()
    assert best.found(highest) == ""
    assert "lost" in best.found(highest[:-1])


def test_a_queue_hands_out_each_item_once(tmp_path: pathlib.Path) -> None:
    queue = Story(tmp_path, "queue")
    writer, reader = queue.ledger(1), queue.ledger(2)
    writer.confirmed(1, 10, writer.sent(1, 10))
    reader.received(items.ids_of(1, 1, 4).tolist())
    assert queue.found([5, 6, 7, 8, 9, 10]) == ""
    assert "neither handed out" in queue.found([6, 7, 8, 9, 10])
    assert "although they were handed out" in queue.found([4, 5, 6, 7, 8, 9, 10])
    queue.model.killed(time.monotonic())
    before = queue.before()
    assert queue.found([4, 5, 6, 7, 8, 9, 10], before) == ""  # the kill undid it
    reader.received(items.ids_of(1, 4, 4).tolist())
    assert queue.found([4, 5, 6, 7, 8, 9, 10], before) == ""  # and it came again after one looked
    reader.maybe_received(1)
    assert queue.found([6, 7, 8, 9, 10]) == ""
    reader.received(items.ids_of(1, 4, 4).tolist())
    queue.model.read()
    assert queue.model.tables["queue"].received.twice == items.ids_of(1, 4, 4).tolist()


def test_what_a_server_handed_out_in_its_last_moment_may_come_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives, and answers, until the signal has come: not only until somebody decides to kill it."""
    (tmp_path / "streams").mkdir()
    queue = Story(tmp_path / "streams", "queue")
    writer, reader = queue.ledger(1), queue.ledger(2)
    writer.confirmed(1, 10, writer.sent(1, 10))
    run = Run(Options(1.0, 1, "release", "always", False, tmp_path), tmp_path, Interrupts())
    run.model = queue.model
    run.server = mock.Mock(mode="always", kill=lambda: reader.asking(2))
    run.watch = mock.Mock(look=lambda: None)
    run.disk = mock.Mock(slowest_sync=lambda: 0.0)
    for done in ("end_life", "start_server", "compare"):
        monkeypatch.setattr(run, done, lambda *_: None)
    run.kill()
    reader.received([*items.ids_of(1, 1, 1).tolist(), *items.ids_of(1, 1, 1).tolist()])  # before the kill, and after
    queue.model.read()
    assert queue.model.tables["queue"].received.twice == []


def test_payloads_and_priorities_say_which_item_they_are_of() -> None:
    ids = items.ids_of(3, 1, 1000)
    np.testing.assert_array_equal(items.from_scrambled(items.scrambled(ids)), ids)
    found, versions = items.from_priorities(items.priorities_of(ids, 17))
    np.testing.assert_array_equal(found, ids)
    assert set(versions.tolist()) == {17}
    data = items.payload(ids, 32)
    assert items.is_right(ids, data)
    data[500, 7] ^= 1
    assert not items.is_right(ids, data)


def test_ranges_are_sets() -> None:
    source, plain, ranges = np.random.default_rng(1), set(), Ranges()
    for _ in range(2000):
        low = int(source.integers(1, 200))
        high = low + int(source.integers(0, 20))
        if source.random() < 0.6:
            ranges.add(low, high)
            plain |= set(range(low, high + 1))
        else:
            ranges.remove(low, high)
            plain -= set(range(low, high + 1))
        assert ranges.numbers().tolist() == sorted(plain)
        assert (low in ranges) == (low in plain)
        assert len(ranges) == len(plain)


def test_a_seed_says_which_faults_come() -> None:
    assert schedule.faults(7, True, 5.0) == schedule.faults(7, True, 5.0)
    first = schedule.faults(7, True, 5.0)[: len(schedule.KINDS) + 1]
    assert {fault.kind for fault in first} == set(schedule.KINDS)
    assert "certificate" not in {fault.kind for fault in schedule.faults(7, False, 5.0)}
