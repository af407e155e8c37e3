"""Rows without a writer, and the legacy step writer."""

from __future__ import annotations

import contextlib
import time

import reverie

from .. import items
from .load import PATIENCE, Load

WIDTH = 32


class Adder(Load):
    """`add`, `add_batch`, `insert` and `writer`, in turns. What was not confirmed is never sent again: it may be there or not."""

    tables = ("ring",)

    def step(self) -> None:
        self.random.choice((self.add, self.add_batch, self.add_batch, self.insert, self.write))()

    def add(self) -> None:
        ids = self.stream.take(1)
        data = {"id": ids[0], "payload": items.payload(ids, WIDTH)[0]}
        if self.call("add", self.client.add, "ring", data, float(ids[0]), timeout=PATIENCE).succeeded:
            self.stream.confirm(ids)

    def add_batch(self) -> None:
        self.stream.confirm(self.add_rows("add_batch", self.random.randint(1, 200), WIDTH))

    def insert(self) -> None:
        ids = self.stream.take(1)
        data = {"id": ids[0], "payload": items.payload(ids, WIDTH)[0]}
        if self.call("insert", self.client.insert, data, {"ring": float(ids[0])}, timeout=PATIENCE).succeeded:
            self.stream.confirm(ids)

    def write(self) -> None:
        ids = self.stream.take(self.random.randint(1, 30))
        if self.call("writer", self.write_steps, ids).succeeded:
            self.stream.confirm(ids)

    def write_steps(self, ids: items.Ids) -> None:
        deadline = time.monotonic() + PATIENCE

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        writer = self.client.writer(3, timeout=PATIENCE)
        try:
            for i, (row, data) in enumerate(zip(ids, items.payload(ids, WIDTH), strict=True)):
                writer.append({"id": row, "payload": data}, timeout=left())
                writer.create_item("ring", min(i + 1, 3), float(row), timeout=left())
            writer.close(timeout=left())
        except reverie.ReverieError:
            with contextlib.suppress(reverie.ReverieError):  # it is closed already where closing failed
                writer.close(False, timeout=0)
            raise
