"""What items are: numbers that nobody uses twice, in priorities that say the number, with data that follows from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SEQUENCE_BITS = 28
STREAM_BITS = 10
ID_BITS = SEQUENCE_BITS + STREAM_BITS
VERSIONS = 1 << (53 - ID_BITS)  # a priority has 53 bits: the id, and how often it was changed
_MASK = np.uint64((1 << ID_BITS) - 1)
_SCRAMBLE = 0x9E3779B97
_UNSCRAMBLE = pow(_SCRAMBLE, -1, 1 << ID_BITS)

Ids = NDArray[np.int64]


def first_id(stream: int) -> int:
    """What the numbers of a stream's items begin behind: item n has this plus n."""
    return stream << SEQUENCE_BITS


def ids_of(stream: int, low: int, high: int) -> Ids:
    """Of a stream's items `low` to `high`, both included."""
    return first_id(stream) + np.arange(low, high + 1, dtype=np.int64)


def priorities_of(ids: Ids, version: int = 0) -> NDArray[np.float64]:
    return (ids + version / VERSIONS).astype(np.float64)


def from_priorities(priorities: NDArray[np.float64]) -> tuple[Ids, Ids]:
    """Ids and versions."""
    ids = np.floor(priorities).astype(np.int64)
    return ids, np.rint((priorities - ids) * VERSIONS).astype(np.int64)


def scrambled(ids: Ids) -> NDArray[np.float64]:
    """Priorities in no order, each of one id."""
    return ((ids.astype(np.uint64) * np.uint64(_SCRAMBLE)) & _MASK).astype(np.float64)


def from_scrambled(priorities: NDArray[np.float64]) -> Ids:
    return ((priorities.astype(np.uint64) * np.uint64(_UNSCRAMBLE)) & _MASK).astype(np.int64)


def payload(ids: Ids, width: int) -> NDArray[np.uint8]:
    """What the rows of these ids hold: uint8 [n, width]."""
    wide = ids.astype(np.uint64)[..., None] * (np.arange(1, width + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return (wide >> np.uint64(56)).astype(np.uint8)


def is_right(ids: Ids, data: NDArray[np.uint8]) -> bool:
    return bool(np.array_equal(payload(np.asarray(ids, np.int64), data.shape[-1]), data))
