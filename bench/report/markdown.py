"""Tables in Markdown."""

from __future__ import annotations

from ..cells import Cell


def number(value: float) -> str:
    """Three significant digits, with k and M."""
    for limit, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * limit:
            return f"{_three(value / limit)}{suffix}"
    return _three(value)


def _three(value: float) -> str:
    text = f"{value:#.3g}"
    if "e" in text:
        return f"{value:.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def figure(cell: Cell | None) -> str:
    """Median and spread, or why there is none; empty where nothing was to be measured."""
    if cell is None:
        return ""
    if not cell.values:
        return brief(cell.failure)
    text = number(cell.median)
    if len(cell.values) > 1:
        text += f" ({number(min(cell.values))}-{number(max(cell.values))})"
    return text


def brief(reason: str) -> str:
    """The reason for a missing figure, short enough for a table."""
    reason = " ".join(reason.replace("|", "/").split())
    return reason if len(reason) <= 60 else reason[:57] + "..."


def ratio(ours: Cell | None, theirs: Cell | None) -> str:
    """How many times better the first is; above 1 is ahead."""
    if ours is None or theirs is None or not ours.values or not theirs.values:
        return ""
    quotient = ours.median / theirs.median if ours.better == "higher" else theirs.median / ours.median
    return f"{number(quotient)}x"


def table(rows: list[list[str]]) -> str:
    """The first row is the header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def groups(cells: list[Cell], leave_out: str) -> dict[tuple[tuple[str, str], ...], dict[str, Cell]]:
    """Cells whose rows differ only in `leave_out`, by that: lines of a table and their columns."""
    lines: dict[tuple[tuple[str, str], ...], dict[str, Cell]] = {}
    for cell in cells:
        rest = tuple((name, value) for name, value in cell.row.items() if name != leave_out)
        lines.setdefault(rest, {})[cell.row.get(leave_out, "")] = cell
    return lines
