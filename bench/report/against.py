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


ONE_TURN = "one turn: no verdict"


def is_memory(cell: Cell) -> bool:
    """Is it bytes, or percent of them? What else runs on the machine is not in them, so that one turn tells them."""
    return cell.unit.startswith(("bytes", "%"))


def is_slower(before: Cell, after: Cell) -> bool:
    """Every turn of the second is worse than every turn of the first, and the medians differ by more than the larger spread.

    Of memory that was measured once a quarter of the figure is taken for the spread.
    """
    if before.unit.startswith("%"):  # of what is compared already: a point counts
        return after.median - before.median > 1
    few = _turns(before, after) < 2
    spread = max(max(cell.values) - min(cell.values) for cell in (before, after))
    spread = max(spread, before.median * (0.25 if few else 0.02))
    if before.better == "higher":
        return max(after.values) < min(before.values) and before.median - after.median > spread
    return min(after.values) > max(before.values) and after.median - before.median > spread


def _turns(before: Cell, after: Cell) -> int:
    return min(len(before.values), len(after.values))


def _verdict(before: Cell, after: Cell) -> str:
    """ "slower", or that nothing can be said: a second turn may differ as much by chance. Empty where it got no slower."""
    if not after.better:
        return ""
    if _turns(before, after) < 2 and not is_memory(before):
        return ONE_TURN
    return "slower" if is_slower(before, after) else ""


def compare(before: Results, after: Results) -> tuple[str, list[Cell]]:
    """A table of what both measured, and the cells of ours that got slower beyond the spread; not by times and rates of one turn."""
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
        verdict = _verdict(other, cell)
        if verdict == "slower" and cell.is_ours:
            slower.append(cell)
        rows.append([cell.name, number(other.median), number(cell.median), better, verdict])
    text = table(rows) + f"\n\n{len(slower)} of {len(rows) - 1} cells got slower beyond the spread"
    unjudged = sum(row[-1] == ONE_TURN for row in rows)
    if unjudged:
        text += f"\n{unjudged} cells had one turn in one of the runs, which tells no spread: --rounds 2 or more in both"
    now = {(tuple(sorted(cell.row.items())), cell.unit) for cell in after.cells}
    gone = [cell.name for key, cell in old.items() if key not in now and cell.values]
    if gone:
        text += f"\n{len(gone)} cells of the older results were not measured: {'; '.join(gone[:5])}{' ...' * (len(gone) > 5)}"
    return text, slower
