"""Wide rows, of more bytes than the server's memory is to have: the oldest go to its spill file, and are read from there."""

from __future__ import annotations

from .load import Load

WIDTH = 4096


class Hauler(Load):
    tables = ("wide",)

    def step(self) -> None:
        self.stream.confirm(self.add_rows("wide add_batch", self.random.randint(8, 60), WIDTH))
        self.rest(self.random.uniform(0.0, 0.1))
