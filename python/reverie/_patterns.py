"""Items of a stream of steps that no table keeps: the library says which there are, rows are kept and gathered here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverie import _core, nest

__all__ = ["ItemStream", "Items", "columns_of"]

RawConfig = tuple[Any, ...]

_OF_COLUMN = 5  # rv_condition_of
_CONSTANT_PRIORITY = (1, 1.0, 0.0, 0)  # nobody asks for priorities here


def columns_of(raw: Sequence[RawConfig]) -> list[int]:
    """The leaves of a step that some config refers to, in order."""
    nodes = {node[0] for _, nodes, *_ in raw for node in nodes}
    conditions = {condition[1] for _, _, conditions, *_ in raw for condition in conditions if condition[0] == _OF_COLUMN}
    return sorted(nodes | conditions)


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """A leaf of one config's items: rows of a column, counted from the newest, which is 0 here."""

    column: int
    offsets: NDArray[np.int64]
    squeezed: bool


def _leaf(node: tuple[int, int | None, int | None, int | None]) -> _Leaf:
    column, start, stop, step = node
    if start is None:
        return _Leaf(column, np.array([(stop or 0) + 1], np.int64), True)
    return _Leaf(column, np.arange(start, stop or 0, step or 1, dtype=np.int64) + 1, False)


class _Column:
    """The last rows of a column. Those that are missing are zeros: nothing refers to them."""

    def __init__(self, window: int) -> None:
        self.keep = window - 1
        self.rows: NDArray[Any] | None = None  # room for rows, of which the first `used` are there
        self.used = 0
        self.first = 0  # the step of the first row

    def append(self, given: NDArray[Any] | None, now: int, n: int) -> None:
        """Steps `now` to `now + n`; what is out of all items' reach is let go of when room is needed."""
        if self.rows is None:
            if given is None:
                return
            self.rows, self.first = given[:0], now
        if self.used + n > len(self.rows):
            kept = self.rows[max(self.used - self.keep, 0) : self.used]
            self.first += self.used - len(kept)
            room = np.empty((2 * (len(kept) + n), *kept.shape[1:]), kept.dtype)
            room[: len(kept)] = kept
            self.rows, self.used = room, len(kept)
        self.rows[self.used : self.used + n] = 0 if given is None else given
        self.used += n

    def take(self, leaf: _Leaf, steps: NDArray[np.int64]) -> NDArray[Any]:
        """The leaf of items whose newest steps these are: [n, ...]."""
        assert self.rows is not None
        at = steps if leaf.squeezed else steps[:, None]
        return np.take(self.rows, at + (leaf.offsets - self.first), axis=0)


class Items:
    """Items of one call of `ItemStream.append`, to be gathered before the next.

    Attributes
    ----------
    configs : ndarray
        int32 [n]: the position of each one's config.
    """

    def __init__(self, columns: dict[int, _Column], leaves: list[list[_Leaf]], found: tuple[Any, Any]) -> None:
        self._columns = columns
        self._leaves = leaves
        self._steps, self.configs = found

    def __len__(self) -> int:
        return len(self.configs)

    def _parts(self, number: int) -> Iterator[tuple[NDArray[np.intp] | slice, NDArray[Any]]]:
        """A leaf's values config by config: which items', and theirs [m, ...]."""
        for config, leaves in enumerate(self._leaves):
            which: Any = slice(None) if len(self._leaves) == 1 else np.flatnonzero(self.configs == config)
            leaf, steps = leaves[number], self._steps[which]
            if len(steps) > 0:
                yield which, self._columns[leaf.column].take(leaf, steps)

    def stacked(self, number: int) -> NDArray[Any]:
        """A leaf that has the same shape in all items, [n, ...]. There must be an item."""
        parts = list(self._parts(number))
        first: NDArray[Any] = parts[0][1]
        if len(parts) == 1:
            return first
        out = np.empty((len(self), *first.shape[1:]), first.dtype)
        for which, values in parts:
            out[which] = values
        return out

    def joined(self, number: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """A leaf whose first size differs: one item after another, and where each begins (int64 [n + 1], the end included)."""
        parts = list(self._parts(number))
        lengths = np.empty(len(self), np.int64)
        for which, values in parts:
            lengths[which] = values.shape[1]
        borders = np.concatenate([[0], np.cumsum(lengths)])
        first = parts[0][1]
        out = np.empty((int(borders[-1]), *first.shape[2:]), first.dtype)
        for which, values in parts:
            out[borders[:-1][which, None] + np.arange(values.shape[1])] = values
        return out, borders

    def __iter__(self) -> Iterator[list[NDArray[Any]]]:
        """The leaves of one item after another."""
        for i, config in enumerate(self.configs):
            steps = self._steps[i : i + 1]
            taken = [self._columns[leaf.column].take(leaf, steps) for leaf in self._leaves[config]]
            yield [values.reshape(values.shape[1:]) for values in taken]


class ItemStream:
    """Steps in, items out.

    Parameters
    ----------
    raw : list
        What `structured_writer.raw_configs` returns; tables and priorities are passed over.
    step : Structure
    clear_buffers : bool
        No item reaches back across the end of an episode.
    """

    def __init__(self, raw: Sequence[RawConfig], step: nest.Structure, clear_buffers: bool) -> None:
        self._patterns = _core.Patterns([(*config[:3], _CONSTANT_PRIORITY, config[4]) for config in raw], step)
        self._clear_buffers = clear_buffers
        windows = {column: self._patterns.column_window(column) for column in columns_of(raw)}
        self._columns = {column: _Column(window) for column, window in windows.items() if window > 0}
        self._leaves = [[_leaf(node) for node in config[1]] for config in raw]
        self._now = 0

    def append(self, columns: list[NDArray[Any] | None], ends: NDArray[np.bool_]) -> Items:
        """Takes steps; gives the items that they make.

        Parameters
        ----------
        columns : list
            For each leaf of a step C-contiguous rows [B, ...], which are copied; None where no config refers to it, or where these steps
            have no value.
        ends : ndarray
            bool [B]: does the episode end with the step?
        """
        found = self._patterns.append(columns, ends, self._clear_buffers)
        for number, column in self._columns.items():
            column.append(columns[number], self._now, len(ends))
        self._now += len(ends)
        return Items(self._columns, self._leaves, found)
