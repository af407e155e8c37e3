"""What a load does at this moment, in a file that the torture maps: a call that never returns is seen, too."""

from __future__ import annotations

import pathlib

import numpy as np

BEGAN, LIMIT, CALLS, LONGEST = range(4)
FIELDS = 4


def create(path: pathlib.Path) -> np.memmap:
    """One load's: when its call began (CLOCK_MONOTONIC; 0: none is under way), how long it may take, and so on, as above."""
    return np.memmap(path, np.float64, "w+", shape=(FIELDS,))


def look(path: pathlib.Path) -> np.ndarray | None:
    """None while it is not made yet."""
    data, before = path.read_bytes(), b""
    while data != before:  # what changes while one reads may be half the old and half the new
        data, before = path.read_bytes(), data
    return np.frombuffer(data, np.float64) if len(data) == FIELDS * 8 else None
