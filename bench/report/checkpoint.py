"""The checkpoint benchmark's tables and plot."""

from __future__ import annotations

import pathlib
import statistics

from ..cells import Cell, Results
from ..checkpoint.disk import KEPT, PAST_CACHE
from .markdown import figure, groups, number, table
from .plot import pyplot

PERCENTILES = ("p50", "p99", "p99.9", "max")
LIMITS = ("machine", PAST_CACHE, KEPT)


def _lines(results: Results) -> dict[tuple[tuple[str, str], ...], dict[str, Cell]]:
    return groups(results.find(what="wait"), "percentile")


def _note(cell: Cell | None, name: str) -> str:
    return number(statistics.median(cell.details[name])) if cell is not None and name in cell.details else ""


def _waits(results: Results) -> list[str]:
    head = [
        "wait, us",
        "meanwhile",
        "since",
        *PERCENTILES,
        "calls",
        "over 2 ms",
        "server ran, ms",
        "was ready, ms",
        "s a checkpoint",
    ]
    rows = [head]
    for line, cells in _lines(results).items():
        row, first = dict(line), cells.get("p50")
        who = f"{row['operation']}, {row['store']}, {int(row['items']):,} items"
        notes = (_note(first, name) for name in ("count", "over_2_ms", "loops_worked_ms", "loops_ready_ms", "save_seconds"))
        rows.append([who, row["meanwhile"], row["since"], *(figure(cells.get(name)) for name in PERCENTILES), *notes])
    return [table(rows)] if len(rows) > 1 else []


def _share(cell: Cell, limit: Cell | None) -> str:
    return number(100 * cell.median / limit.median) if limit is not None and limit.values and cell.values else ""


def _speeds(results: Results) -> list[str]:
    head = ["MB/s", "inserts", "items", "remover", "store", "plain file", "%", "past the cache", "%", "and kept", "%", "seconds"]
    rows = [[*head, "memory beyond, % of the data"]]
    for what in ("save", "load"):
        for cell in results.find(what=what):
            if cell.row["store"] in LIMITS:
                continue
            same = {name: cell.row[name] for name in ("what", "items", "inserts", "remover")}
            plain, direct, kept = (next(iter(results.find(**same, store=store)), None) for store in LIMITS)
            memory = (
                next(iter(results.find(**{**same, "what": "memory"}, store=cell.row["store"])), None) if what == "save" else None
            )
            rows.append(
                [
                    f"{what}, {cell.row['store']}",
                    cell.row["inserts"],
                    f"{int(cell.row['items']):,}",
                    cell.row["remover"],
                    figure(cell),
                    figure(plain),
                    _share(cell, plain),
                    figure(direct),
                    _share(cell, direct),
                    figure(kept),
                    _share(cell, kept),
                    _note(cell, "seconds"),
                    figure(memory),
                ]
            )
    return [table(rows)] if len(rows) > 1 else []


def _journal(results: Results) -> list[str]:
    cells = results.find(what="journal")
    modes = list(dict.fromkeys(cell.row["journal"] for cell in cells))
    rows = [["two C clients insert, journal", *modes]]
    for line, by_mode in groups(cells, "journal").items():
        payload = dict(line)["payload"]
        rows.append([f"{payload}, items/s", *(figure(by_mode.get(mode)) for mode in modes)])
        for who in ("server", "clients"):
            notes = (_note(by_mode.get(mode), f"{who}_cpu_us") for mode in modes)
            rows.append([f"{payload}, us of processor time an item, {who}", *notes])
    return [table(rows)] if cells else []


def text(results: Results) -> str:
    return "\n\n".join([*_waits(results), *_speeds(results), *_journal(results)])


def plot(results: Results, path: pathlib.Path) -> None:
    """Waits by percentile, with a checkpoint under way and without."""
    lines = {
        line: cells
        for line, cells in _lines(results).items()
        if dict(line)["since"] == "schedule" and all(cells[name].values for name in PERCENTILES)
    }
    if not lines:
        return
    with pyplot() as plt:
        figure_, axis = plt.subplots(figsize=(6, 4))
        for line, cells in lines.items():
            row = dict(line)
            label = f"{row['operation']}, {row['store']}, meanwhile: {row['meanwhile']}"
            axis.plot(PERCENTILES, [cells[name].median for name in PERCENTILES], marker="o", label=label)
        axis.axhline(2000, color="grey", linewidth=0.5)
        axis.set_yscale("log")
        axis.set_ylabel("us")
        axis.legend(fontsize=6)
        figure_.tight_layout()
        figure_.savefig(path, dpi=100)
