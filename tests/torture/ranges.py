"""Sets of whole numbers that mostly follow each other."""

from __future__ import annotations

import bisect

import numpy as np

from .items import Ids


class Ranges:
    """Disjoint runs in order; both ends belong to a run."""

    def __init__(self, runs: list[tuple[int, int]] | None = None) -> None:
        self.runs = [] if runs is None else list(runs)

    def copy(self) -> Ranges:
        return Ranges(self.runs)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.runs)

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self.runs, (number, 1 << 62)) - 1
        return at >= 0 and self.runs[at][1] >= number

    def _touching(self, low: int, high: int) -> tuple[int, int]:
        """Which runs have something of low..high: from the first to before the second."""
        begin = bisect.bisect_right(self.runs, (low, -1))
        if begin > 0 and self.runs[begin - 1][1] >= low:
            begin -= 1
        end = begin
        while end < len(self.runs) and self.runs[end][0] <= high:
            end += 1
        return begin, end

    def add(self, low: int, high: int) -> None:
        if low > high:
            return
        begin, end = self._touching(low - 1, high + 1)
        if begin < end:
            low, high = min(low, self.runs[begin][0]), max(high, self.runs[end - 1][1])
        self.runs[begin:end] = [(low, high)]

    def remove(self, low: int, high: int) -> None:
        begin, end = self._touching(low, high)
        left = []
        for first, last in self.runs[begin:end]:
            if first < low:
                left.append((first, low - 1))
            if last > high:
                left.append((high + 1, last))
        self.runs[begin:end] = left

    def minus(self, other: Ranges) -> Ranges:
        left = self.copy()
        for low, high in other.runs:
            left.remove(low, high)
        return left

    def both(self, other: Ranges) -> Ranges:
        """What is in this one and in the other."""
        return self.minus(self.minus(other))

    def numbers(self) -> Ids:
        """All of them, in order."""
        if not self.runs:
            return np.zeros(0, np.int64)
        return np.concatenate([np.arange(low, high + 1, dtype=np.int64) for low, high in self.runs])
