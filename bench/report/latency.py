"""The latency benchmark's tables and plot."""

from __future__ import annotations

import pathlib
import statistics

from ..cells import Cell, Results
from .markdown import figure, groups, number, table
from .plot import pyplot

PERCENTILES = ("p50", "p90", "p99", "p99.9", "max")


def _lines(cells: list[Cell]) -> dict[tuple[tuple[str, str], ...], dict[str, Cell]]:
    return groups([cell for cell in cells if "percentile" in cell.row], "percentile")


def _note(cell: Cell | None, name: str) -> str:
    return number(statistics.median(cell.details[name])) if cell is not None and name in cell.details else ""


def text(results: Results) -> str:
    rows = [["round trip, us from the intended start", "load", "operations/s", *PERCENTILES, "p50 from the actual start"]]
    for line, by_percentile in _lines(results.find(what="round trip")).items():
        row = dict(line)
        who = f"{row['store']}, {row['clients']} {'C' if row['language'] == 'c' else 'Python'}"
        head = by_percentile.get("p50")
        rows.append(
            [
                f"{row['operation']}, {row['payload']}, {who}",
                row["load"],
                _note(head, "rate"),
                *(figure(by_percentile.get(name)) for name in PERCENTILES),
                _note(head, "from_actual_start_p50_us"),
            ]
        )
    parts = [table(rows)] if len(rows) > 1 else []
    rows = [
        ["table's lock held, us of CPU", *PERCENTILES, "p99.9 of arithmetic as long", "over 20 us, %", "of the arithmetic, %"]
    ]
    for line, by_percentile in _lines(results.find(what="lock")).items():
        row = dict(line)
        head = by_percentile.get("p99.9")
        rows.append(
            [
                f"{row['operation']}, {row['sampler']}, {row['clients']}",
                *(figure(by_percentile.get(name)) for name in PERCENTILES),
                *(_note(head, name) for name in ("arithmetic_p99.9_us", "long_percent", "arithmetic_long_percent")),
            ]
        )
    parts += [table(rows)] if len(rows) > 1 else []
    machine = [f"{cell.row['operation']}: {figure(cell)} us" for cell in results.find(what="machine")]
    parts += ["The machine's own round trip of 64 bytes: " + "; ".join(machine)] if machine else []
    return "\n\n".join(parts)


def plot(results: Results, path: pathlib.Path) -> None:
    """Percentiles at each load: a panel for each operation, payload and number of clients."""
    lines = _lines(results.find(what="round trip"))
    panels: dict[str, list[tuple[str, dict[str, Cell]]]] = {}
    for line, by_percentile in lines.items():
        row = dict(line)
        operation = "sample" if row["operation"] == "batch" else row["operation"]
        what = f"{operation}, {row['payload']}, {row['clients']} clients, {row['load']}"
        label = f"{row['store']}, {'C' if row['language'] == 'c' else 'Python'}" + (
            ", batch of 1" * (row["operation"] == "batch")
        )
        panels.setdefault(what, []).append((label, by_percentile))
    percentile_panels(panels, path)


def percentile_panels(panels: dict[str, list[tuple[str, dict[str, Cell]]]], path: pathlib.Path) -> None:
    """A panel for each title: a line over the percentiles for each label, if all were measured."""
    whole = {
        what: [(label, cells) for label, cells in curves if all(name in cells and cells[name].values for name in PERCENTILES)]
        for what, curves in panels.items()
    }
    panels = {what: curves for what, curves in whole.items() if curves}
    if not panels:
        return
    with pyplot() as plt:
        columns = min(3, len(panels))
        height = -(-len(panels) // columns)
        figure_, axes = plt.subplots(height, columns, figsize=(4.2 * columns, 2.8 * height), squeeze=False)
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        labels = list(dict.fromkeys(label for curves in panels.values() for label, _ in curves))
        for axis, (what, curves) in zip(axes.flat, panels.items(), strict=False):
            for label, by_percentile in curves:
                color = f"C{labels.index(label)}"
                axis.plot(PERCENTILES, [by_percentile[name].median for name in PERCENTILES], marker="o", label=label, color=color)
            axis.set_yscale("log")
            axis.set_title(what, fontsize=8)
            axis.set_ylabel("us", fontsize=8)
            axis.legend(fontsize=6)
        figure_.tight_layout()
        figure_.savefig(path, dpi=100)
