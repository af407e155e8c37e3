"""Changes a table's bound, and the server's, while both are in use."""

from __future__ import annotations

from ..server import MEMORY_LIMITS
from ..tables import TABLES
from .load import PATIENCE, Load

WIDTH = 16


class Bounder(Load):
    tables = ("bounded",)

    def step(self) -> None:
        self.random.choice((self.fill, self.fill, self.fill, self.bound, self.limit, self.look))()
        self.rest(self.random.uniform(0.0, 0.05))

    def fill(self) -> None:
        self.stream.confirm(self.add_rows("add_batch", self.random.randint(1, 100), WIDTH))

    def bound(self) -> None:
        rule = TABLES["bounded"]
        max_size = self.random.randint(rule.size, rule.most)
        self.call("set_bounds", self.client.set_bounds, "bounded", max_size=max_size, timeout=PATIENCE)

    def limit(self) -> None:
        limit = self.random.choice(MEMORY_LIMITS)
        self.call("set_memory_limit", self.client.set_memory_limit, limit, timeout=PATIENCE)

    def finish(self) -> None:
        """Those who still wait for memory get it."""
        self.until_done("set_memory_limit", self.client.set_memory_limit, MEMORY_LIMITS[-1], timeout=PATIENCE)

    def look(self) -> None:
        call = self.call("memory_info", self.client.memory_info, timeout=PATIENCE)
        if not call.succeeded:
            return
        used, spilled = call.result.used, call.result.spilled
        self.place.report("memory", self.name, "memory_info", used=used, spilled=spilled, limit=call.result.limit)
