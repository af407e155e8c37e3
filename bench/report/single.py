"""The tables and the plot of single calls."""

from __future__ import annotations

import pathlib
import statistics

from ..cells import Cell, Results
from .latency import PERCENTILES, percentile_panels
from .markdown import figure, groups, number, table

PACES = {"idle": "a millisecond between calls", "hot": "one call after another"}


def _lines(results: Results, pace: str) -> list[tuple[dict[str, str], dict[str, Cell]]]:
    return [(dict(line), cells) for line, cells in groups(results.find(what="single call", pace=pace), "percentile").items()]


def _language(row: dict[str, str]) -> str:
    return "C" if row["language"] == "c" else "Python"


def _note(cell: Cell | None, name: str) -> str:
    return number(statistics.median(cell.details[name])) if cell is not None and name in cell.details else ""


def _machine(results: Results, pace: str) -> list[list[str]]:
    return [
        [
            cell.row["operation"],
            "the machine's own",
            cell.row["transport"],
            figure(cell),
            *(_note(cell, f"{name}_us") for name in PERCENTILES[1:]),
            "",
        ]
        for cell in results.find(what="machine", pace=pace)
    ]


def text(results: Results) -> str:
    parts = []
    for pace, title in PACES.items():
        rows = [[f"us, {title}", "client", "", *PERCENTILES, "client's CPU"]]
        for row, cells in _lines(results, pace):
            head = cells.get(PERCENTILES[0])
            rows.append(
                [
                    row["operation"],
                    f"{row['store']}, {_language(row)}",
                    row["transport"],
                    *(figure(cells.get(name)) for name in PERCENTILES),
                    _note(head, "client_cpu_us"),
                ]
            )
        rows += _machine(results, pace)
        if len(rows) > 1:
            parts.append(table(rows))
    return "\n\n".join(parts)


def plot(results: Results, path: pathlib.Path) -> None:
    """Percentiles of each call: a panel for each operation and pace."""
    panels: dict[str, list[tuple[str, dict[str, Cell]]]] = {}
    for pace in PACES:
        for row, cells in _lines(results, pace):
            label = f"{row['store']}, {_language(row)}, {row['transport']}"
            panels.setdefault(f"{row['operation']}, {PACES[pace]}", []).append((label, cells))
    percentile_panels(panels, path)
