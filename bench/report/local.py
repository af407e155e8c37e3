"""The in-process benchmark's tables and plot."""

from __future__ import annotations

import pathlib

from ..cells import Cell, Results
from .markdown import figure, table
from .plot import pyplot


def store_name(cell: Cell) -> str:
    if cell.row["store"] == "machine":
        return "bare copies, C"
    return cell.row["store"] + (", from C" if cell.row["language"] == "c" else "")


def text(results: Results) -> str:
    """Microseconds a call, by rows, store and operation."""
    parts = []
    for rows_name in dict.fromkeys(cell.row["rows"] for cell in results.cells if "rows" in cell.row):
        cells = results.find(rows=rows_name)
        titles = list(dict.fromkeys(cell.row["operation"] for cell in cells))
        lines = [[f"{rows_name}: microseconds", *titles]]
        for name in dict.fromkeys(store_name(cell) for cell in cells):
            by_title = {cell.row["operation"]: cell for cell in cells if store_name(cell) == name}
            lines.append([name, *(figure(by_title.get(title)) for title in titles)])
        parts.append(table(lines))
    copies = results.find(operation="memcpy")
    if copies and copies[0].values:
        parts.append(f"memcpy of 64 MiB on one core: {figure(copies[0])} MB/s")
    return "\n\n".join(parts)


def plot(results: Results, path: pathlib.Path) -> None:
    """A panel for each kind of rows: bars, in microseconds a call."""
    cells = [cell for cell in results.cells if "rows" in cell.row and cell.values]
    names = list(dict.fromkeys(cell.row["rows"] for cell in cells))
    if not names:
        return
    with pyplot() as plt:
        figure_, axes = plt.subplots(len(names), 1, figsize=(10, 2.8 * len(names)), squeeze=False)
        for axis, rows_name in zip(axes[:, 0], names, strict=True):
            mine = [cell for cell in cells if cell.row["rows"] == rows_name]
            titles = list(dict.fromkeys(cell.row["operation"] for cell in mine))
            stores = list(dict.fromkeys(store_name(cell) for cell in mine))
            width = 0.8 / len(stores)
            for i, store in enumerate(stores):
                own = [cell for cell in mine if store_name(cell) == store]
                axis.bar(
                    [titles.index(cell.row["operation"]) + i * width for cell in own],
                    [cell.median for cell in own],
                    width,
                    yerr=[
                        [cell.median - min(cell.values) for cell in own],
                        [max(cell.values) - cell.median for cell in own],
                    ],
                    label=store,
                )
            axis.set_yscale("log")
            axis.set_ylabel("us a call")
            axis.set_title(rows_name, fontsize=9)
            axis.set_xticks([k + 0.4 - width / 2 for k in range(len(titles))], titles)
            axis.legend(fontsize=7, ncols=4)
        figure_.tight_layout()
        figure_.savefig(path, dpi=100)
