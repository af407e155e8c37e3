"""A table that ties samples to inserts: both sides wait for each other."""

from __future__ import annotations

import numpy as np

from .. import items
from .content import faults_of_batch
from .load import PATIENCE, Load

WIDTH = 24


class RatioWriter(Load):
    tables = ("ratio",)

    def step(self) -> None:
        ids = self.stream.take(self.random.randint(1, 50))
        data = {"id": ids, "payload": items.payload(ids, WIDTH)}
        call = self.call("ratio add_batch", self.client.add_batch, "ratio", data, ids.astype(np.float64), timeout=PATIENCE)
        if call.succeeded:
            self.stream.confirm(ids[: call.result])  # fewer where the time ran out


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
