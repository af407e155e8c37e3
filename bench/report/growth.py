"""The growth benchmark's tables and plot."""

from __future__ import annotations

import pathlib

from ..cells import Cell, Results
from .markdown import figure, groups, number, table
from .plot import pyplot


def _ratios(cells: list[Cell], operation: str, store: str, ours: dict[str, Cell], sizes: list[str]) -> list[str]:
    """At each size, our time by that of the uniform operation in `store`."""
    plain = operation.removeprefix("PER ")
    theirs = {cell.row["items"]: cell for cell in cells if cell.row["store"] == store and cell.row["operation"] == plain}
    out = []
    for size in sizes:
        mine, bare = ours.get(size), theirs.get(size)
        out.append(f"{mine.median / bare.median:.2f}" if mine and bare and mine.values and bare.values else "")
    return out


def _times(results: Results) -> str:
    parts = []
    cells = results.find(what="time")
    sizes = list(dict.fromkeys(cell.row["items"] for cell in cells))
    for rows_name in dict.fromkeys(cell.row["rows"] for cell in cells):
        lines = [[f"{rows_name}: us", *(f"{int(size):,} items" for size in sizes)]]
        mine = [cell for cell in cells if cell.row["rows"] == rows_name]
        for operation in dict.fromkeys(cell.row["operation"] for cell in mine):
            by_store = {
                store: {
                    cell.row["items"]: cell for cell in mine if cell.row["operation"] == operation and cell.row["store"] == store
                }
                for store in ("reverie", "machine", "gather")
            }
            lines.append([operation, *(figure(by_store["reverie"].get(size)) for size in sizes)])
            if by_store["machine"]:
                lines.append([f"{operation}, bare copies", *(figure(by_store["machine"].get(size)) for size in sizes)])
            if by_store["gather"]:
                lines.append([f"{operation}, bare gather", *(figure(by_store["gather"].get(size)) for size in sizes)])
            if "sample" in operation:
                for store, words in (("machine", "times bare copies"), ("gather", "times a bare gather")):
                    ratios = _ratios(mine, operation, store, by_store["reverie"], sizes)
                    if any(ratios):
                        lines.append([f"{operation}: {words}", *ratios])
        parts.append(table(lines))
    return "\n\n".join(parts)


def _memory(results: Results) -> str:
    lines = [["memory an item above its data, bytes", "items", "bytes"]]
    for cell in results.find(what="memory an item"):
        lines.append([f"{cell.row['rows']}, {cell.row['where']}", f"{int(cell.row['items']):,}", figure(cell)])
    return table(lines) if len(lines) > 1 else ""


def _spill(results: Results) -> str:
    lines = [["sampling rows of bytes", "data / memory limit", "us a sample", "in memory", "in the spill's file"]]
    for cell in results.find(what="more than memory"):
        seen = {name: values[-1] for name, values in cell.details.items()}
        sizes = [number(seen[f"{name}_bytes"] / (1 << 20)) + " MiB" if seen else "" for name in ("used", "spilled")]
        lines.append([f"{int(cell.row['rows']):,}", cell.row["data / limit"], figure(cell), *sizes])
    return table(lines) if len(lines) > 1 else ""


def _creep(results: Results) -> str:
    lines = [["resident memory", "remover", "first", "last", "largest", "more", "ns an insert"]]
    for cell in results.find(what="creep"):
        row = cell.row
        seen = {name: values[-1] for name, values in cell.details.items()}
        what = f"{int(row['items']):,} items, after {int(row['first']):,} and {int(row['last']):,} inserts"
        sizes = [number(seen[f"{name}_bytes"] / 1e6) + " MB" if seen else "" for name in ("first", "last", "largest")]
        more = f"{cell.median:+.2f} %" if cell.values else figure(cell)
        lines.append([what, row["remover"], *sizes, more, number(seen["ns"]) if seen else ""])
    return table(lines) if len(lines) > 1 else ""


def text(results: Results) -> str:
    return "\n\n".join(part for part in (_times(results), _memory(results), _spill(results), _creep(results)) if part)


def plot(results: Results, path: pathlib.Path) -> None:
    """Microseconds a call by the number of items."""
    cells = [cell for cell in results.find(what="time") if cell.values]
    names = list(dict.fromkeys(cell.row["rows"] for cell in cells))
    if not names:
        return
    with pyplot() as plt:
        figure_, axes = plt.subplots(1, len(names), figsize=(5.5 * len(names), 4), squeeze=False)
        for axis, rows_name in zip(axes[0], names, strict=True):
            mine = [cell for cell in cells if cell.row["rows"] == rows_name]
            for line, by_size in groups(mine, "items").items():
                row = dict(line)
                bare = {"machine": ", bare copies", "gather": ", bare gather"}.get(row["store"], "")
                axis.errorbar(
                    [int(size) for size in by_size],
                    [cell.median for cell in by_size.values()],
                    [
                        [cell.median - min(cell.values) for cell in by_size.values()],
                        [max(cell.values) - cell.median for cell in by_size.values()],
                    ],
                    fmt="x--" if bare else "o-",
                    capsize=2,
                    label=row["operation"] + bare,
                )
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xlabel("items")
            axis.set_ylabel("us a call")
            axis.set_title(rows_name, fontsize=9)
            axis.legend(fontsize=7)
        figure_.tight_layout()
        figure_.savefig(path, dpi=100)
