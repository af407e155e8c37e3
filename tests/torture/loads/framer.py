"""Large rows, of several sizes: both ends keep them where the other may read them, and lend them instead of copying."""

from __future__ import annotations

from .. import items
from .load import PATIENCE, Load

WIDTHS = (10_000, 24 << 10, 60_000)


class Framer(Load):
    tables = ("frames",)

    def step(self) -> None:
        self.random.choice((self.add_batch, self.insert))(self.random.randint(1, 12), self.random.choice(WIDTHS))
        self.rest(self.random.uniform(0.0, 0.1))

    def add_batch(self, n: int, width: int) -> None:
        self.stream.confirm(self.add_rows("large add_batch", n, width))

    def insert(self, n: int, width: int) -> None:
        """Each by a writer, whose rows a client lends."""
        for _ in range(n):
            ids = self.stream.take(1)
            data = {"id": ids[0], "payload": items.payload(ids, width)[0]}
            if not self.call("large insert", self.client.insert, data, {"frames": float(ids[0])}, timeout=PATIENCE).succeeded:
                return
            self.stream.confirm(ids)
