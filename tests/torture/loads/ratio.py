"""A table that ties samples to inserts: both sides wait for each other."""

from __future__ import annotations

from .content import faults_of_batch
from .load import PATIENCE, Load

WIDTH = 24


class RatioWriter(Load):
    tables = ("ratio",)

    def step(self) -> None:
        self.stream.confirm(self.add_rows("ratio add_batch", self.random.randint(1, 50), WIDTH))


class RatioReader(Load):
    def step(self) -> None:
        call = self.call(
            "ratio sample_batch",
            self.client.sample_batch,
            "ratio",
            self.random.randint(1, 100),
            timeout=PATIENCE / 2,
            unequal="list",
            patience=PATIENCE / 2,
        )
        if call.succeeded:
            for found in faults_of_batch(call.result, scrambled=False):
                self.wrong(f"ratio: {found}")
