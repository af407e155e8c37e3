"""Tables for people, JSON for programs, plots for both."""

from __future__ import annotations

import json
import pathlib
import statistics


def middle(values: list[float]) -> float:
    return statistics.median(values)


def number(value: float) -> str:
    """Three significant digits, with k and M."""
    for limit, suffix in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


def table(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is the header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def local_text(results: dict) -> str:
    """Median microseconds a call, by case and operation."""
    parts = []
    for case, operations in results["cases"].items():
        stores = [store for store in results["versions"] if any(store in figures for figures in operations.values())]
        rows = [[f"{case}: microseconds", *operations]]
        for store in [*stores, "bare gather"]:
            row = [f"{store} {results['versions'].get(store, '')}".strip()]
            row += [number(middle(figures[store])) if store in figures else "" for figures in operations.values()]
            if any(row[1:]):
                rows.append(row)
        parts.append(table(rows))
    return "\n\n".join(parts)


def wire_text(results: dict) -> str:
    """Median items/s of both sides and their ratio, by payload, operation and client count."""
    rows = [["payload", "operation", "clients", "reverie items/s", "dm-reverb items/s", "ratio", "loopback MB/s"]]
    for payload, operations in results["payloads"].items():
        limit = number(middle(results["loopback_MBps"][payload]))
        for operation, by_clients in operations.items():
            for clients, sides in by_clients.items():
                ours, theirs = sides["reverie"], sides["dm_reverb"]
                ratio = f"{middle(ours) / middle(theirs):.2f}" if ours and theirs else ""
                rows.append(
                    [
                        payload,
                        operation,
                        clients,
                        number(middle(ours)) if ours else "failed",
                        number(middle(theirs)) if theirs else "failed",
                        ratio,
                        limit,
                    ]
                )
    return table(rows)


def save(results: dict, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes ``KIND.json``, ``KIND.md`` and ``KIND.png``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = results["kind"]
    paths = [folder / f"{kind}.json", folder / f"{kind}.md", folder / f"{kind}.png"]
    paths[0].write_text(json.dumps(results, indent=1) + "\n")
    paths[1].write_text((local_text if kind == "local" else wire_text)(results) + "\n")
    (_plot_local if kind == "local" else _plot_wire)(results, paths[2])
    return paths


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _plot_local(results: dict, path: pathlib.Path) -> None:
    pyplot = _pyplot()
    cases = results["cases"]
    figure, axes = pyplot.subplots(len(cases), 1, figsize=(10, 3.2 * len(cases)), squeeze=False)
    for axis, (case, operations) in zip(axes[:, 0], cases.items(), strict=True):
        stores = [
            store for store in [*results["versions"], "bare gather"] if any(store in figures for figures in operations.values())
        ]
        width = 0.8 / len(stores)
        for i, store in enumerate(stores):
            places = [k + i * width for k, figures in enumerate(operations.values()) if store in figures]
            values = [middle(figures[store]) for figures in operations.values() if store in figures]
            axis.bar(places, values, width, label=store)
        axis.set_yscale("log")
        axis.set_ylabel("microseconds a call")
        axis.set_title(case)
        axis.set_xticks([k + 0.4 - width / 2 for k in range(len(operations))], list(operations))
        axis.legend(fontsize=7, ncols=3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _plot_wire(results: dict, path: pathlib.Path) -> None:
    pyplot = _pyplot()
    payloads = results["payloads"]
    operations = list(next(iter(payloads.values())))
    figure, axes = pyplot.subplots(
        len(operations), len(payloads), figsize=(3.6 * len(payloads), 3 * len(operations)), squeeze=False
    )
    for column, (payload, by_operation) in enumerate(payloads.items()):
        for row, operation in enumerate(operations):
            axis = axes[row, column]
            for side in ("reverie", "dm_reverb"):
                points = [(int(n), middle(sides[side])) for n, sides in by_operation[operation].items() if sides[side]]
                if points:
                    axis.plot(*zip(*points, strict=True), marker="o", label=side)
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_title(f"{operation}, {payload}", fontsize=9)
            if column == 0:
                axis.set_ylabel("items/s")
            if row == len(operations) - 1:
                axis.set_xlabel("clients")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
