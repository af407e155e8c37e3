"""A trajectory writer, whose items are updated and deleted."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import items, ledger
from .load import PATIENCE, Load

WIDTH = 64
WINDOW = 12_000  # items that it keeps
DELETED_AT_ONCE = 500
EVERY_NUMBER = (1 << items.SEQUENCE_BITS) - 1


class Keeper(Load):
    """Items of one to four steps. The oldest are deleted, others get new priorities; what one left behind that was killed goes, too."""

    tables = ("keep",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.writer = self.client.trajectory_writer(num_keep_alive_refs=8)
        self.keys: dict[int, int] = {}  # of what is confirmed and not deleted, by number
        self.low, self.version = 1, 0

    def step(self) -> None:
        if self.inherited:
            self.clear(self.inherited.pop())
        what = self.random.random()
        if what < 0.75:
            self.write(self.random.randint(1, 80))
        elif what < 0.9:
            self.update()
        if len(self.keys) > WINDOW:
            self.delete()

    def write(self, n: int) -> None:
        ids = self.stream.take(n)
        keys: list[int] = []
        if not self.call("append", self.append, ids, keys).succeeded:
            self.begin_anew()
            return
        if not self.until_done("flush", self.writer.flush, timeout_ms=int(PATIENCE * 1000)):
            return
        self.stream.confirm(ids)
        first = items.first_id(self.stream.number)
        self.keys.update(zip((int(one) - first for one in ids), keys, strict=True))

    def append(self, ids: items.Ids, keys: list[int]) -> None:
        for row, data in zip(ids, items.payload(ids, WIDTH), strict=True):
            self.writer.append({"id": row, "payload": data})
            length = min(1 + int(row) % 4, self.writer.episode_steps)
            history = self.writer.history
            trajectory = {"id": history["id"][-length:], "payload": history["payload"][-length:]}
            keys.append(self.writer.create_item("keep", float(row), trajectory))

    def begin_anew(self) -> None:
        """What was under way is in or is not: nobody will know."""
        self.writer.close()
        self.writer = self.client.trajectory_writer(num_keep_alive_refs=8)

    def update(self) -> None:
        numbers = list(self.keys)
        if not numbers or self.version + 1 >= items.VERSIONS:
            return
        low = self.random.choice(numbers[-3000:])
        high = low
        while high + 1 in self.keys and high - low < 100:
            high += 1
        self.version += 1
        keys = np.array([self.keys[number] for number in range(low, high + 1)], np.uint64)
        priorities = items.priorities_of(items.ids_of(self.stream.number, low, high), self.version)
        since = 0.0
        for _ in range(10):
            tried = self.stream.ledger.updating(low, high, self.version)
            since = since or tried
            call = self.call("update_priorities", self.client.update_priorities, "keep", keys, priorities, timeout=PATIENCE)
            if call.succeeded:
                self.stream.ledger.updated(low, high, self.version, since)
                return

    def delete(self) -> None:
        gone = sorted(self.keys)[:DELETED_AT_ONCE]
        keys = [self.keys.pop(number) for number in gone]
        since = self.stream.ledger.deleting(gone[0], gone[-1])
        if self.until_done("delete", self.client.mutate_priorities, "keep", deletes=keys, timeout=PATIENCE):
            self.stream.ledger.deleted(gone[0], gone[-1], since)

    def clear(self, stream: int) -> None:
        listed = self.call(
            "items", lambda: list(self.client.items("keep", page_size=10_000, timeout=PATIENCE)), patience=4 * PATIENCE
        )
        if not listed.succeeded:
            self.inherited.append(stream)
            return
        keys = [item.key for item in listed.result if int(item.priority) >> items.SEQUENCE_BITS == stream]
        left = ledger.Ledger(self.place.folder / "streams", stream, "keep")
        since = left.deleting(1, EVERY_NUMBER)
        for first in range(0, len(keys), DELETED_AT_ONCE):
            some = keys[first : first + DELETED_AT_ONCE]
            if not self.until_done("delete", self.client.mutate_priorities, "keep", deletes=some, timeout=PATIENCE):
                return
        left.deleted(1, EVERY_NUMBER, since)

    def finish(self) -> None:
        self.writer.close()
