"""The table and the plot of items of several columns."""

from __future__ import annotations

import pathlib
import statistics

from ..cells import Cell, Results
from .markdown import figure, groups, number, ratio, table
from .plot import pyplot

OPERATIONS = {
    "memory": "bytes an item at the server",
    "insert": "inserts/s",
    "iterate": "iterated/s",
    "batch": "us a batch of 256 in the server's process",
}


def _lines(results: Results) -> list[tuple[dict[str, str], dict[str, Cell]]]:
    return [(dict(line), cells) for line, cells in groups(results.find(what="items"), "operation").items()]


def _cpu(cell: Cell | None) -> str:
    if cell is None or "client_cpu_us" not in cell.details:
        return ""
    return " + ".join(number(statistics.median(cell.details[f"{side}_cpu_us"])) for side in ("client", "server"))


def _beside(results: Results, ours: dict[str, str], operation: str) -> str:
    cells = {cell.row["store"]: cell for cell in results.find(case=ours["case"], operation=operation)}
    return ratio(cells.get("reverie"), cells.get("dm-reverb"))


def text(results: Results) -> str:
    rows = [
        ["items", "store", OPERATIONS["memory"], OPERATIONS["insert"], "us", OPERATIONS["iterate"], "us", OPERATIONS["batch"]]
    ]
    for row, cells in _lines(results):
        insert, iterate = cells.get("insert"), cells.get("iterate")
        rows.append(
            [
                row["case"],
                row["store"],
                figure(cells.get("memory")),
                figure(insert),
                _cpu(insert),
                figure(iterate),
                _cpu(iterate),
                figure(cells.get("batch")),
            ]
        )
        if row["store"] == "dm-reverb":
            beside = {name: _beside(results, row, name) for name in OPERATIONS}
            rows.append(
                [
                    row["case"],
                    "reverie / dm-reverb",
                    beside["memory"],
                    beside["insert"],
                    "",
                    beside["iterate"],
                    "",
                    beside["batch"],
                ]
            )
    return table(rows) + "\n\n*us* is processor time of client + server an item; a ratio above 1 is ours ahead."


def plot(results: Results, path: pathlib.Path) -> None:
    """A panel for each operation, bars for cases and stores."""
    if not any(cell.values for cell in results.cells):
        return
    stores = sorted({cell.row["store"] for cell in results.find(what="items")}, reverse=True)
    cases = list(dict.fromkeys(cell.row["case"] for cell in results.find(what="items")))
    with pyplot() as plt:
        drawing, axes = plt.subplots(1, len(OPERATIONS), figsize=(4 * len(OPERATIONS), 3.5))
        for axis, (operation, title) in zip(axes, OPERATIONS.items(), strict=True):
            for i, store in enumerate(stores):
                found = {cell.row["case"]: cell for cell in results.find(store=store, operation=operation) if cell.values}
                places = [c + i * 0.4 for c, case in enumerate(cases) if case in found]
                axis.bar(places, [found[case].median for case in cases if case in found], 0.4, label=store)
            axis.set_xticks([c + 0.2 for c in range(len(cases))], cases)
            axis.set_title(title)
            axis.set_yscale("log")
        axes[0].legend()
        drawing.tight_layout()
        drawing.savefig(path, dpi=110)
