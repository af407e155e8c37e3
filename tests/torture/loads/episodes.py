"""The structured writer."""

from __future__ import annotations

from typing import Any

import numpy as np
from reverie import structured

from .. import items
from .load import PATIENCE, Load

WIDTH = 48
LENGTH = 3


def config() -> Any:
    step = {"id": np.int64(0), "number": np.float64(0), "payload": np.zeros(WIDTH, np.uint8)}
    made = structured.create_config(
        pattern=structured.pattern_from_transform(
            step,
            lambda ref: {"id": ref["id"][-LENGTH:], "number": ref["number"][-LENGTH:], "payload": ref["payload"][-LENGTH:]},
        ),
        table="trail",
    )
    made.priority.CopyFrom(structured.td_error(1.0, step, lambda step: step["number"]))  # the newest step's number
    return made


class Episodes(Load):
    """Items of three steps each, one for every step but the first two; episodes go on into each other."""

    tables = ("trail",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begin()

    def begin(self) -> None:
        self.writer = self.client.structured_writer([config()])
        self.steps = 0

    def step(self) -> None:
        ids = self.stream.take(self.random.randint(1, 60))
        if not self.call("structured.append", self.append, ids).succeeded:
            self.writer.close()
            self.begin()
            return
        done = self.until_done("structured.flush", self.writer.flush, timeout_ms=int(PATIENCE * 1000))
        without = max(0, LENGTH - 1 - self.steps)  # a writer's first steps make no item
        self.steps += len(ids)
        if done and len(ids) > without:
            self.stream.confirm(ids[without:])
        if done and self.random.random() < 0.05:
            self.until_done("structured.end_episode", self.end_episode)

    def end_episode(self) -> None:
        self.writer.end_episode(clear_buffers=False, timeout_ms=int(PATIENCE * 1000))

    def append(self, ids: items.Ids) -> None:
        for row, data in zip(ids, items.payload(ids, WIDTH), strict=True):
            self.writer.append({"id": row, "number": np.float64(row), "payload": data})

    def finish(self) -> None:
        self.writer.close()
