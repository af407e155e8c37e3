"""The wire benchmark's tables and plot."""

from __future__ import annotations

import math
import pathlib
import statistics

from ..cells import Cell, Results
from .markdown import figure, groups, number, ratio, table
from .plot import pyplot


def _detail(cell: Cell | None, name: str) -> str:
    if cell is None or name not in cell.details:
        return ""
    return number(statistics.median(cell.details[name]))


VARIANTS = {"unix": "unix socket", "socket": "no shared memory"}


def _rate(cell: Cell | None) -> str:
    """Items a second; of both at once, what they are made of."""
    parts = [_detail(cell, "inserts_per_s"), _detail(cell, "samples_per_s")]
    return figure(cell) + (f": {parts[0]} in, {parts[1]} out" if all(parts) else "")


def share(results: Results, cell: Cell | None, limit: str) -> float | None:
    """Bytes a second of the cell in percent of what that limit moved in the same run."""
    if cell is None or not cell.values:
        return None
    transport = "unix" if cell.row["transport"] == "unix" else "tcp"
    found = results.find(payload=cell.row["payload"], operation=limit, transport=transport)
    if not found or not found[0].values:
        return None
    return 100 * statistics.median(cell.details["MBps"]) / found[0].median


def _share(results: Results, cell: Cell | None, limit: str) -> str:
    percent = share(results, cell, limit)
    return "" if percent is None else f"{percent:.0f} %"


def _least(results: Results, cell: Cell | None) -> str:
    """The same of what plain send and recv moved with the copies and the memory that no store can spare the operation."""
    if cell is None or cell.row["operation"] == "both":
        return ""
    return _share(results, cell, "send/recv into a table" if cell.row["operation"] == "insert" else "send/recv from a table")


def _cpu(cell: Cell | None) -> str:
    parts = [_detail(cell, "clients_cpu_us"), _detail(cell, "server_cpu_us")]
    return " + ".join(parts) if all(parts) else ""


def text(results: Results) -> str:
    parts = []
    payloads = dict.fromkeys(cell.row["payload"] for cell in results.cells if "payload" in cell.row)
    for payload in payloads:
        cells = [cell for cell in results.find(payload=payload) if "language" in cell.row]
        rows = [
            [
                payload,
                "clients",
                "reverie items/s",
                "dm-reverb items/s",
                "ratio",
                "of send/recv",
                "with a table",
                "reverie us/item: clients + server CPU",
                "dm-reverb",
            ]
        ]
        for line, stores in groups(cells, "store").items():
            row = dict(line)
            ours, theirs = stores.get("reverie"), stores.get("dm-reverb")
            name = [row["operation"]]
            name += ["prioritized"] if row["sampler"] != "uniform" else []
            name += [f"{row['tables']} tables"] if row["tables"] != "1" else []
            name += [VARIANTS[row["transport"]]] if row["transport"] in VARIANTS else []
            rows.append(
                [
                    ", ".join(name),
                    f"{row['clients']} {'C' if row['language'] == 'c' else 'Python'}",
                    _rate(ours),
                    _rate(theirs),
                    ratio(ours, theirs),
                    _share(results, ours, "send/recv"),
                    _least(results, ours),
                    _cpu(ours),
                    _cpu(theirs),
                ]
            )
        parts.append(table(rows))
    parts += [_copied(results), _limits(results)]
    return "\n\n".join(part for part in parts if part)


def _copied(results: Results) -> str:
    """Bytes an item, by memcpy and memmove, and over loopback."""
    rows = [["bytes an item, one Python client", "store", "copied by the client", "copied by the server", "over loopback"]]
    for cell in results.find(what="copied"):
        figures = [_detail(cell, f"{name}_bytes") for name in ("clients", "server", "loopback")]
        rows.append(
            [
                f"{cell.row['operation']}, {cell.row['payload']}",
                cell.row["store"],
                *(figures if cell.values else [figure(cell), "", ""]),
            ]
        )
    return table(rows) if len(rows) > 1 else ""


def _limits(results: Results) -> str:
    rows = [["what", "median", "unit"]]
    for cell in results.cells:
        if cell.row["store"] == "machine" or cell.row["operation"] == "memory a client":
            name = ", ".join(value for key, value in cell.row.items() if key != "store")
            rows.append([name, figure(cell), cell.unit])
    return table(rows) if len(rows) > 1 else ""


def plot(results: Results, path: pathlib.Path) -> None:
    """Items a second by the number of clients: a panel for each payload and operation."""
    base = [cell for cell in results.find(sampler="uniform", tables="1", transport="tcp") if cell.values]
    payloads = list(dict.fromkeys(cell.row["payload"] for cell in base))
    operations = list(dict.fromkeys(cell.row["operation"] for cell in base))
    if not base:
        return
    with pyplot() as plt:
        figure_, axes = plt.subplots(
            len(operations), len(payloads), figsize=(3.6 * len(payloads), 2.8 * len(operations)), squeeze=False
        )
        for i, operation in enumerate(operations):
            for k, payload in enumerate(payloads):
                axis = axes[i][k]
                for store, language, style in (
                    ("reverie", "python", "o-"),
                    ("reverie", "c", "^:"),
                    ("dm-reverb", "python", "s-"),
                ):
                    cells = [
                        cell
                        for cell in base
                        if cell.row["payload"] == payload
                        and cell.row["operation"] == operation
                        and cell.row["store"] == store
                        and cell.row["language"] == language
                    ]
                    if cells:
                        axis.errorbar(
                            [int(cell.row["clients"]) for cell in cells],
                            [cell.median for cell in cells],
                            [
                                [cell.median - min(cell.values) for cell in cells],
                                [max(cell.values) - cell.median for cell in cells],
                            ],
                            fmt=style,
                            capsize=2,
                            label=f"{store}, {'C' if language == 'c' else 'Python'}",
                        )
                limit = results.find(payload=payload, operation="send/recv", transport="tcp")
                mbps = [cell.details["MBps"][0] / cell.values[0] for cell in base if cell.row["payload"] == payload]
                if limit and limit[0].values and mbps and not math.isnan(mbps[0]):
                    axis.axhline(limit[0].median / mbps[0], color="gray", linewidth=0.8, linestyle="--", label="send/recv")
                axis.set_xscale("log")
                counts = sorted({int(cell.row["clients"]) for cell in base})
                axis.set_xticks(counts, [str(count) for count in counts], fontsize=8)
                axis.xaxis.set_minor_locator(plt.NullLocator())
                axis.set_yscale("log")
                axis.set_title(f"{operation}, {payload}", fontsize=9)
                if k == 0:
                    axis.set_ylabel("items/s")
                if i == len(operations) - 1:
                    axis.set_xlabel("clients")
        axes[0][0].legend(fontsize=7)
        figure_.tight_layout()
        figure_.savefig(path, dpi=100)
