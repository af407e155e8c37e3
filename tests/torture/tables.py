"""The tables, and by which rule each is checked."""

from __future__ import annotations

import dataclasses
from typing import Literal

Rule = Literal["all", "newest", "highest", "queue"]


@dataclasses.dataclass(frozen=True)
class TableRule:
    """What must be there.

    `all`: nothing goes but what its owner deletes. `newest`, `highest`: the last, or those of highest priority, `size` of them.
    `queue`: what was not handed out. Where a table is `reset`, what one load deletes is gone of the loads before it, too. Where its bound
    changes while it runs, `size` is the least that it may be and `most` the most.
    """

    rule: Rule
    size: int
    flags: str
    scrambled: bool = False
    reset: bool = False
    most: int = 0

    @property
    def max_size(self) -> int:
        """What the server begins with."""
        return self.most or self.size

    @property
    def kept(self) -> bool:
        """Its items stay where they were sampled."""
        return self.rule != "queue"

    @property
    def always_sampled(self) -> bool:
        """Whoever samples it waits for nobody, once there was an item."""
        return self.kept and not self.reset and "rate_limiter" not in self.flags


TABLES = {
    "keep": TableRule("all", 2_000_000, "sampler=prioritized:0.1,remover=min_heap"),
    "scratch": TableRule("all", 1_000_000, "sampler=lifo,remover=fifo", reset=True),
    "ring": TableRule("newest", 5_000, "sampler=uniform,remover=fifo"),
    "trail": TableRule("newest", 4_000, "sampler=uniform,remover=fifo"),
    "moves": TableRule("newest", 4_000, "sampler=max_heap,remover=fifo"),
    "ratio": TableRule("newest", 2_000, "sampler=uniform,rate_limiter=sample_to_insert_ratio:4:100:800"),
    "best": TableRule("highest", 3_000, "sampler=prioritized:0.5,remover=min_heap", scrambled=True),
    "wide": TableRule("newest", 8_000, "sampler=uniform,remover=fifo"),  # 4 KiB a row: the oldest go to the spill file
    "frames": TableRule("newest", 300, "sampler=uniform,remover=fifo"),  # 10 to 60 kB a row: a server lends them
    "bounded": TableRule("newest", 500, "sampler=uniform,remover=fifo", most=3_000),
    "queue": TableRule("queue", 2_000, "preset=queue:2000"),
}


def server_flags() -> list[str]:
    """For reverie-server."""
    flags = []
    for name, table in TABLES.items():
        size = f",max_size={table.max_size}" if table.kept else ""
        flags += ["--table", f"name={name}{size},{table.flags}"]
    return flags
