"""Results for people: tables, plots, comparisons."""

from __future__ import annotations

import pathlib

from ..cells import Results
from . import checkpoint, growth, items, latency, local, single, wire

KINDS = {
    "wire": wire,
    "items": items,
    "latency": latency,
    "single": single,
    "local": local,
    "growth": growth,
    "checkpoint": checkpoint,
}


def save(results: Results, folder: pathlib.Path) -> str:
    """Writes KIND.json, KIND.md and KIND.png; returns the tables, and where everything lies."""
    paths = [results.save(folder)]
    text = heading(results) + "\n\n" + KINDS[results.kind].text(results) + "\n"
    paths.append(folder / f"{results.kind}.md")
    paths[-1].write_text(text)
    plot = folder / f"{results.kind}.png"
    plot.unlink(missing_ok=True)
    try:
        KINDS[results.kind].plot(results, plot)
    except ImportError:
        text += "\nno plot: matplotlib is missing\n"
    paths += [plot] if plot.exists() else []
    return text + "\nsaved " + ", ".join(str(path) for path in paths)


def heading(results: Results) -> str:
    """What made the results, and where."""
    where = results.machine
    lines = [
        f"`{results.command}`, {where['date']}, commit {where['commit']}: {where['cores']} cores of {where['processor']}, "
        f"{where['memory']}, {where['system']}, load {where['load_at_start']} at the start."
    ]
    if results.versions:
        lines.append("Versions: " + ", ".join(f"{store} {version}" for store, version in results.versions.items()) + ".")
    lines += [f"Note: {note}." for note in results.notes]
    lines.append("Medians of the turns, smallest and largest in parentheses.")
    return "\n".join(lines)
