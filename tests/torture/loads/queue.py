"""A queue: each item is handed out once, in order."""

from __future__ import annotations

from typing import Any

import reverie

from .. import items
from .content import fault, number_of, rows_of
from .load import PATIENCE, Load

WIDTH = 40


class QueueWriter(Load):
    """A trajectory writer to a queue that is often full."""

    tables = ("queue",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.writer = self.client.trajectory_writer(num_keep_alive_refs=1)

    def step(self) -> None:
        ids = self.stream.take(self.random.randint(1, 60))
        if not self.call("queue append", self.append, ids).succeeded:
            self.writer.close()
            self.writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        elif self.until_done("queue flush", self.writer.flush, timeout_ms=int(PATIENCE * 1000)):
            self.stream.confirm(ids)

    def append(self, ids: items.Ids) -> None:
        for row, data in zip(ids, items.payload(ids, WIDTH), strict=True):
            self.writer.append({"id": row, "payload": data})
            history = self.writer.history
            self.writer.create_item("queue", float(row), {"id": history["id"][-1], "payload": history["payload"][-1]})

    def finish(self) -> None:
        self.writer.close()


class QueueReader(Load):
    """Takes batches and runs of samples, on a connection that only the server's end can cut.

    Of a call that failed nobody knows how many items were on their way.
    """

    tables = ("queue",)  # its ledger has what it received

    def step(self) -> None:
        n = self.random.randint(1, 80)
        self.stream.ledger.asking(n)
        if self.random.random() < 0.5:
            self.take_batch(n)
        else:
            self.take_samples(n)

    def take_batch(self, n: int) -> None:
        call = self.call(
            "queue sample_batch", self.client.sample_batch, "queue", n, timeout=2.0, unequal="list", copy=True, patience=2.0
        )
        if call.succeeded:
            numbers = items.from_priorities(call.result.priorities)[0].tolist()
            self.got(numbers, rows_of(call.result))
        else:
            if not isinstance(call.error, reverie.DeadlineExceededError):
                self.stream.ledger.maybe_received(n)
            self.got([], [])

    def take_samples(self, n: int) -> None:
        samples = self.client.sample("queue", n, emit_timesteps=False, timeout=2.0)
        numbers: list[int] = []
        data: list[Any] = []
        for _ in range(n):
            call = self.call("queue sample", next, samples, patience=2.0)
            if not call.succeeded:
                self.stream.ledger.maybe_received(n - len(numbers))
                break
            numbers.append(number_of(call.result.info.priority, scrambled=False))
            data.append(call.result.data)
        self.got(numbers, data)

    def got(self, numbers: list[int], data: list[Any]) -> None:
        self.stream.ledger.received(numbers)
        for number, each in zip(numbers, data, strict=True):
            found = fault(each, number)
            if found is not None:
                self.wrong(f"queue: {found}")
