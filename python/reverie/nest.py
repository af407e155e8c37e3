"""Nests: arrays in dicts, lists, tuples, namedtuples and attrs classes, flattened as dm-tree does it.

Dicts are taken in the order of their sorted keys, everything else in its own order. Other sequences, such as a deque of frames, are
containers like lists. None is a leaf, and so are strings, sets, dataclass instances, and (unlike dm-tree's) what has a buffer
(bytearray, memoryview, array.array) and ranges, which become one array. The work is done in C; a `Structure` is a nest's shape, kept
so that the next nest of that shape is flattened without being examined again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reverie._core import Structure

__all__ = ["Structure", "flatten", "map_structure", "paths", "unflatten_as"]


def flatten(nest: Any) -> list[Any]:
    """The leaves, in order."""
    return Structure(nest).flatten(nest)


def paths(nest: Any) -> list[tuple[Any, ...]]:
    """Where each leaf is: a tuple of keys, indices and field names, in the order of `flatten`."""
    return Structure(nest).paths()


def unflatten_as(nest: Any, leaves: Sequence[Any]) -> Any:
    """A nest like `nest` with other leaves; ValueError unless there are exactly as many."""
    return Structure(nest).unflatten(leaves)


def map_structure(function: Callable[..., Any], nest: Any, *others: Any) -> Any:
    """A nest like `nest` of what the function gives for each leaf (and the leaves at the same place in the others)."""
    structure = Structure(nest)
    columns = [structure.flatten(each) for each in (nest, *others)]
    return structure.unflatten([function(*leaves) for leaves in zip(*columns, strict=True)])
