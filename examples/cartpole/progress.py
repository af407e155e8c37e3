"""What the run has done so far: the numbers behind the view, the log lines and the plot."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

import reverie

from .config import REPLAY

# Why somebody waits; those behind the first of their kind wait for their turn, which says nothing new.
_WAITS = {
    "min size": "the learner waits for the first items",
    "too many samples": "the learner waits for inserts",
    "too many inserts": "actors wait for the learner",
    "empty": "the learner waits for an item",
}


@dataclasses.dataclass
class Point:
    """The replay table at one moment; ``seconds`` since the start, rates per second."""

    seconds: float
    inserts_per_second: float
    samples_per_second: float
    size: int
    memory_bytes: int
    waiting: str


class Progress:
    """Collects episodes, evaluations and readings of the replay table."""

    def __init__(self) -> None:
        self.begin = time.monotonic()
        self.episodes: list[tuple[float, float]] = []  # seconds, return
        self.evaluations: list[tuple[float, float]] = []
        self.points: list[Point] = []
        self.updates = 0
        self.steps = 0
        self._last: tuple[float, int, int] | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin

    def recent_return(self, episodes: int = 20) -> float:
        """Mean return of the actors' latest episodes; NaN before the first."""
        recent = [value for _, value in self.episodes[-episodes:]]
        return sum(recent) / len(recent) if recent else float("nan")

    def read_table(self, tables: Mapping[str, reverie.TableInfo]) -> Point:
        """Adds a reading; rates are since the reading before."""
        info = tables[REPLAY]
        now = self.seconds
        inserts = info.rate_limiter_info.insert_stats.completed
        samples = info.rate_limiter_info.sample_stats.completed
        rates = (0.0, 0.0)
        if self._last is not None and now > self._last[0]:
            span = now - self._last[0]
            rates = ((inserts - self._last[1]) / span, (samples - self._last[2]) / span)
        self._last = (now, inserts, samples)
        self.steps = inserts
        waiting = (
            ", ".join(sorted({_WAITS[caller.reason] for caller in info.waiting if caller.reason in _WAITS})) or "nobody waits"
        )
        point = Point(now, rates[0], rates[1], info.current_size, info.memory_bytes, waiting)
        self.points.append(point)
        return point
