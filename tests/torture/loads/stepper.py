"""The transitions writer."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import items
from .load import PATIENCE, Load

WIDTH = 32
ENVIRONMENTS = 8


class Stepper(Load):
    """Environments side by side; what is next in one step is there in the step after it, but where an episode ends."""

    tables = ("moves",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begin()

    def begin(self) -> None:
        self.writer = self.client.transitions("moves", ENVIRONMENTS, next={"next": "payload"})

    def step(self) -> None:
        ids = self.stream.take(ENVIRONMENTS * self.random.randint(1, 10))
        if not self.call("transitions.add", self.add, ids, patience=2 * PATIENCE).succeeded:
            self.writer.close()
            self.begin()
        elif self.until_done("transitions.flush", self.writer.flush, timeout=PATIENCE):
            self.stream.confirm(ids)

    def add(self, ids: items.Ids) -> None:
        for rows in ids.reshape(-1, ENVIRONMENTS):
            ends = self.random.random() < 0.1
            data = {
                "id": rows,
                "payload": items.payload(rows, WIDTH),
                "next": items.payload(rows + (0 if ends else ENVIRONMENTS), WIDTH),
            }
            self.writer.add(data, rows.astype(np.float64), timeout=PATIENCE)

    def finish(self) -> None:
        self.writer.close()
