"""Two results of one benchmark, cell by cell."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

from ..cells import Cell, Results
from .markdown import number, table


def load(path: pathlib.Path, kinds: Iterable[str]) -> dict[str, Results]:
    """The older results of these kinds that there are, in a file or a folder.

    Raises
    ------
    ValueError
        There are none, or they are none of ours. The text names the path.
    """
    files = [path / f"{kind}.json" for kind in kinds] if path.is_dir() else [path]
    found = {}
    for file in files:
        if path.is_dir() and not file.exists():
            continue
        try:
            results = Results.load(file)
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"--against: {file} cannot be read: {error}") from None
        if results.kind in kinds:
            found[results.kind] = results
    if not found:
        raise ValueError(f"--against: {path} has no results of {', '.join(kinds)} to be compared with")
    return found


def is_slower(before: Cell, after: Cell) -> bool:
    """Every turn of the second is worse than every turn of the first, and the medians differ by more than the larger spread.

    One turn alone tells no spread; a quarter of the figure is taken for it.
    """
    if before.unit.startswith("%"):  # of what is compared already: a point counts
        return after.median - before.median > 1
    few = min(len(before.values), len(after.values)) < 2
    spread = max(max(cell.values) - min(cell.values) for cell in (before, after))
    spread = max(spread, before.median * (0.25 if few else 0.02))
    if before.better == "higher":
        return max(after.values) < min(before.values) and before.median - after.median > spread
    return min(after.values) > max(before.values) and after.median - before.median > spread


def compare(before: Results, after: Results) -> tuple[str, list[Cell]]:
    """A table of what both measured, and the cells of ours that got slower beyond the spread."""
    rows = [["cell", "before", "after", "times better", ""]]
    slower = []
    old = {(tuple(sorted(cell.row.items())), cell.unit): cell for cell in before.cells}
    for cell in after.cells:
        other = old.get((tuple(sorted(cell.row.items())), cell.unit))
        if other is None or not other.values:
            continue
        if not cell.values:
            rows.append([cell.name, number(other.median), "", "", f"failed: {cell.failure}"])
            if cell.failure and cell.is_ours:
                slower.append(cell)
            continue
        is_time = cell.better == "lower" or cell.unit == "us"
        smaller, larger = (cell.median, other.median) if is_time else (other.median, cell.median)
        better = f"{larger / smaller:.2f}" if smaller and larger else ""
        verdict = ""
        if cell.better and is_slower(other, cell):
            verdict = "slower"
            if cell.is_ours:
                slower.append(cell)
        rows.append([cell.name, number(other.median), number(cell.median), better, verdict])
    text = table(rows) + f"\n\n{len(slower)} of {len(rows) - 1} cells got slower beyond the spread"
    now = {(tuple(sorted(cell.row.items())), cell.unit) for cell in after.cells}
    gone = [cell.name for key, cell in old.items() if key not in now and cell.values]
    if gone:
        text += f"\n{len(gone)} cells of the older results were not measured: {'; '.join(gone[:5])}{' ...' * (len(gone) > 5)}"
    return text, slower
