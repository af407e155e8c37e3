"""Wide rows, of more bytes than the server's memory is to have: the oldest go to its spill file, and are read from there."""

from __future__ import annotations

import numpy as np

from .. import items
from .load import PATIENCE, Load

WIDTH = 4096


class Hauler(Load):
    tables = ("wide",)

    def step(self) -> None:
        ids = self.stream.take(self.random.randint(8, 60))
        data = {"id": ids, "payload": items.payload(ids, WIDTH)}
        call = self.call("wide add_batch", self.client.add_batch, "wide", data, ids.astype(np.float64), timeout=PATIENCE)
        if call.succeeded:
            self.stream.confirm(ids[: call.result])  # fewer where the time ran out
        self.rest(self.random.uniform(0.0, 0.1))
