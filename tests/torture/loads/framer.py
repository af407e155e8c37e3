"""Large rows, of several sizes: the server keeps them where clients of its machine may read them, and lends them instead of copying."""

from __future__ import annotations

from .load import Load

WIDTHS = (10_000, 24 << 10, 60_000)


class Framer(Load):
    tables = ("frames",)

    def step(self) -> None:
        self.stream.confirm(self.add_rows("large add_batch", self.random.randint(1, 12), self.random.choice(WIDTHS)))
        self.rest(self.random.uniform(0.0, 0.1))
