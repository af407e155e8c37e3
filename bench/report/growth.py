"""The growth benchmark's tables and plot."""

from __future__ import annotations

import pathlib

from ..cells import Results
from .markdown import figure, groups, number, table
from .plot import pyplot


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
                for store in ("reverie", "machine")
            }
            lines.append([operation, *(figure(by_store["reverie"].get(size)) for size in sizes)])
            if by_store["machine"]:
                lines.append([f"{operation}, bare copies", *(figure(by_store["machine"].get(size)) for size in sizes)])
            if "sample" in operation:
                gather = {
                    cell.row["items"]: cell
                    for cell in mine
                    if cell.row["store"] == "machine" and cell.row["operation"] == operation.removeprefix("PER ")
                }
                ratios = []
                for size in sizes:
                    ours, bare = by_store["reverie"].get(size), gather.get(size)
                    ratios.append(f"{ours.median / bare.median:.2f}" if ours and bare and ours.values and bare.values else "")
                lines.append([f"{operation}: times a bare gather", *ratios])
        parts.append(table(lines))
    return "\n\n".join(parts)


def _memory(results: Results) -> str:
    lines = [["memory an item above its data, bytes", "items", "bytes"]]
    for cell in results.find(what="memory an item"):
        lines.append([f"{cell.row['rows']}, {cell.row['where']}", f"{int(cell.row['items']):,}", figure(cell)])
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
    return "\n\n".join(part for part in (_times(results), _memory(results), _creep(results)) if part)


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
                bare = row["store"] == "machine"
                axis.errorbar(
                    [int(size) for size in by_size],
                    [cell.median for cell in by_size.values()],
                    [
                        [cell.median - min(cell.values) for cell in by_size.values()],
                        [max(cell.values) - cell.median for cell in by_size.values()],
                    ],
                    fmt="x--" if bare else "o-",
                    capsize=2,
                    label=row["operation"] + (", bare copies" if bare else ""),
                )
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xlabel("items")
            axis.set_ylabel("us a call")
            axis.set_title(rows_name, fontsize=9)
            axis.legend(fontsize=7)
        figure_.tight_layout()
        figure_.savefig(path, dpi=100)
