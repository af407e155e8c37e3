"""Readers: batches, iterators of batches and of samples, single items."""

from __future__ import annotations

import contextlib

from ..tables import TABLES
from .content import fault, faults_of_batch, number_of
from .load import PATIENCE, Load

READ = [name for name, table in TABLES.items() if table.always_sampled]


class Reader(Load):
    """Everything that comes is compared with what was sent."""

    def step(self) -> None:
        table = self.random.choice(READ)
        self.random.choice((self.batch, self.batch, self.batches, self.samples, self.get))(table)
        self.rest(0.01)

    def batch(self, table: str) -> None:
        n = self.random.randint(1, 200)
        call = self.call("sample_batch", self.client.sample_batch, table, n, timeout=PATIENCE, unequal="list")
        if call.succeeded:
            self.check(table, call.result)

    def batches(self, table: str) -> None:
        with self.client.batches(table, 32, prefetch=2, timeout=PATIENCE, unequal="list") as batches:
            for _ in range(self.random.randint(1, 8)):
                call = self.call("batches", next, batches)
                if not call.succeeded:
                    return
                self.check(table, call.result)

    def samples(self, table: str) -> None:
        n = self.random.randint(1, 100)
        samples = self.client.sample(table, n, emit_timesteps=False, timeout=PATIENCE)
        with contextlib.suppress(StopIteration):
            for _ in range(n):
                call = self.call("sample", next, samples)
                if not call.succeeded:
                    return
                self.one(table, call.result.info.priority, call.result.data)

    def get(self, table: str) -> None:
        call = self.call("sample_batch", self.client.sample_batch, table, 8, timeout=PATIENCE, unequal="list")
        if not call.succeeded:
            return
        for key, priority in zip(call.result.keys, call.result.priorities, strict=True):
            one = self.call("get", self.client.get, table, int(key), timeout=PATIENCE)
            if one.succeeded:
                self.one(table, priority, one.result.data)

    def check(self, table: str, batch: object) -> None:
        for found in faults_of_batch(batch, TABLES[table].scrambled):
            self.wrong(f"{table}: {found}")

    def one(self, table: str, priority: object, data: object) -> None:
        found = fault(data, number_of(priority, TABLES[table].scrambled))
        if found is not None:
            self.wrong(f"{table}: {found}")
