"""The README's benchmark part: short tables and a plot, written from saved results, with the commands that made them."""

from __future__ import annotations

import pathlib
import sys

from ..cells import Cell, Results
from .items import text as items_table
from .local import store_name
from .markdown import number, table
from .plot import pyplot

BEGIN, END = "<!-- benchmark: begin (./dev bench table writes what is between) -->", "<!-- benchmark: end -->"
PLOT = "docs/benchmark.png"


def _short(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return number(cell.median) if cell.values else "no answer" if "answer" in cell.failure else "failed"


def wire_table(results: Results) -> str:
    """Items a second, Reverie before dm-reverb, of Python clients; the best is in bold."""
    base = results.find(language="python", transport="tcp", sampler="uniform", tables="1")
    counts = list(dict.fromkeys(cell.row["clients"] for cell in base))
    rows = [["items/s, Reverie : dm-reverb", *(f"{n} client{'s' * (n != '1')}" for n in counts)]]
    for payload in dict.fromkeys(cell.row["payload"] for cell in base):
        for operation in dict.fromkeys(cell.row["operation"] for cell in base if cell.row["payload"] == payload):
            line = [f"{operation}, {payload}"]
            for count in counts:
                pair = [
                    next(iter(results.find(**base_row(payload, operation, count), store=store)), None)
                    for store in ("reverie", "dm-reverb")
                ]
                line.append(" : ".join(_bold(pair)) if any(pair) else "")
            rows.append(line)
    return table(rows)


def base_row(payload: str, operation: str, clients: str) -> dict[str, str]:
    return {
        "payload": payload,
        "operation": operation,
        "clients": clients,
        "language": "python",
        "transport": "tcp",
        "sampler": "uniform",
        "tables": "1",
    }


def _bold(cells: list[Cell | None]) -> list[str]:
    """Their figures, the best one in bold."""
    measured = [cell for cell in cells if cell is not None and cell.values and cell.better]
    best = None
    if len(measured) > 1:
        best = (max if measured[0].better == "higher" else min)(measured, key=lambda cell: cell.median)
    return [f"**{_short(cell)}**" if cell is not None and cell is best else _short(cell) for cell in cells]


def local_tables(results: Results) -> str:
    """Microseconds a call by store; the best of each column that is called from Python is in bold."""
    parts = []
    for rows_name in dict.fromkeys(cell.row["rows"] for cell in results.cells if "rows" in cell.row):
        cells = results.find(rows=rows_name)
        titles = list(dict.fromkeys(cell.row["operation"] for cell in cells))
        names = list(dict.fromkeys(store_name(cell) for cell in cells))
        columns = []
        for title in titles:
            column = [next((c for c in cells if c.row["operation"] == title and store_name(c) == name), None) for name in names]
            python = [cell if cell is not None and cell.row["language"] == "python" else None for cell in column]
            columns.append([bold or _short(cell) for bold, cell in zip(_bold(python), column, strict=True)])
        lines = [[f"{rows_name}: microseconds a call", *titles]]
        lines += [[name, *(column[i] for column in columns)] for i, name in enumerate(names)]
        parts.append(table(lines))
    return "\n\n".join(parts)


def plot(found: dict[str, Results], path: pathlib.Path) -> None:
    """How many times faster than the best of the others each cell is."""
    panels = []
    if "wire" in found:
        cells = found["wire"].find(language="python", transport="tcp", sampler="uniform", tables="1")
        panels.append(("between processes: times dm-reverb's items/s", _ratios(cells, ("operation", "payload", "clients"))))
    if "local" in found:
        cells = [cell for cell in found["local"].cells if cell.row.get("language") == "python"]
        panels.append(("in one process: times as fast as the best of the others", _ratios(cells, ("rows", "operation"))))
    panels = [panel for panel in panels if panel[1]]
    if not panels:
        return
    with pyplot() as plt:
        heights = [len(ratios) for _, ratios in panels]
        figure, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 1 + 0.19 * max(heights)), squeeze=False)
        for axis, (title, ratios) in zip(axes[0], panels, strict=True):
            names, values = list(ratios)[::-1], list(ratios.values())[::-1]
            colors = ["tab:blue" if value >= 1 else "tab:orange" for value in values]
            bars = axis.barh(names, [value - 1 for value in values], left=1, color=colors)
            axis.bar_label(bars, [f"{value:.3g}x" for value in values], fontsize=6, padding=2)
            axis.margins(x=0.15)
            axis.axvline(1, color="black", linewidth=0.8)
            axis.set_xscale("log")
            axis.set_title(title, fontsize=9)
            axis.tick_params(axis="y", labelsize=7)
            axis.set_ylim(-1, len(names))
        figure.tight_layout()
        figure.savefig(path, dpi=100)


def _ratios(cells: list[Cell], names: tuple[str, ...]) -> dict[str, float]:
    """Reverie's figure beside the best of the others, by cell; above 1 is ahead."""
    ratios = {}
    for ours in cells:
        if ours.row["store"] != "reverie" or not ours.values:
            continue
        rest = {name: value for name, value in ours.row.items() if name != "store"}
        others = [
            cell.median for cell in cells if cell.values and cell.row["store"] != "reverie" and rest.items() <= cell.row.items()
        ]
        if others:
            name = ", ".join(ours.row[name] for name in names) + (" clients" if "clients" in names else "")
            ratios[name] = ours.median / max(others) if ours.better == "higher" else min(others) / ours.median
    return ratios


def part(found: dict[str, Results]) -> str:
    """What stands between the README's marks."""
    parts = []
    for kind, words, make in (
        ("wire", "Between processes, one machine, Python clients:", wire_table),
        ("items", "Items of several columns by one Python client, the same program for both:", items_table),
        ("local", "In one process:", local_tables),
    ):
        if kind in found:
            results = found[kind]
            where = results.machine
            parts += [words, make(results)]
            parts.append(
                f"`{results.command}` on {where['cores']} cores of {where['processor']}, {where['date']}; medians, "
                + ", ".join(f"{store} {version}" for store, version in results.versions.items())
            )
    parts.append(f"![How many times faster than the best of the others]({PLOT})")
    return "\n\n".join(parts)


def write(root: pathlib.Path, folder: pathlib.Path) -> int:
    """Puts the tables between the README's marks and draws the plot. The exit status."""
    found = {
        kind: Results.load(folder / f"{kind}.json") for kind in ("wire", "items", "local") if (folder / f"{kind}.json").exists()
    }
    readme = root / "README.md"
    text = readme.read_text()
    if not found or BEGIN not in text or END not in text:
        reason = "README.md has lost its marks" if found else f"no results in {folder}: run ./dev bench wire, items and local"
        print(reason, file=sys.stderr)
        return 1
    head, rest = text.split(BEGIN, 1)
    readme.write_text(head + BEGIN + "\n" + part(found) + "\n" + END + rest.split(END, 1)[1])
    plot(found, root / PLOT)
    print(f"wrote README.md and {PLOT} from {', '.join(str(folder / kind) + '.json' for kind in found)}")
    return 0
