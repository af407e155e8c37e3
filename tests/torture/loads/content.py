"""Whether what was handed out is what was put in."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import items


def fault(data: Any, number: int) -> str | None:
    """Of one item: columns by name, with or without a time dimension, or a list of them. None: it is right."""
    if isinstance(data, dict):
        ids, payload = np.atleast_1d(data["id"]), np.atleast_2d(data["payload"])
    else:  # nobody said what its columns are called: dicts are ordered by their keys
        ids, payload = np.atleast_1d(data[0]), np.atleast_2d(data[-1])
    if ids[-1] != number:
        return f"item {number} has the data of {ids[-1]}"
    if not np.array_equal(ids, np.arange(number - len(ids) + 1, number + 1)):
        return f"item {number} has the steps {ids.tolist()}"
    if not items.is_right(ids, payload):
        return f"the bytes of item {number} are not those that were sent"
    return None


def number_of(priority: Any, scrambled: bool) -> int:
    """The id of the item with this priority."""
    priorities = np.asarray([priority], np.float64)
    return int(items.from_scrambled(priorities)[0] if scrambled else items.from_priorities(priorities)[0][0])


def faults_of_batch(batch: Any, scrambled: bool) -> list[str]:
    """Of what `sample_batch` gives with ``unequal="list"``."""
    numbers = items.from_scrambled(batch.priorities) if scrambled else items.from_priorities(batch.priorities)[0]
    found = (fault(data, int(number)) for data, number in zip(rows_of(batch), numbers, strict=True))
    return [one for one in found if one is not None]


def rows_of(batch: Any) -> list[Any]:
    data = batch.data
    if isinstance(data, dict):
        return [{name: column[i] for name, column in data.items()} for i in range(len(batch))]
    return [[column[i] for column in data] for i in range(len(batch))]
