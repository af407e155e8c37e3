"""Each target beside what was measured: a table for docs/performance.md, written from saved results."""

from __future__ import annotations

import pathlib
import sys

from ..cells import Results
from . import goals
from .goals import Goal
from .markdown import number, table

BEGIN, END = "<!-- targets: begin (./dev bench targets writes what is between) -->", "<!-- targets: end -->"
PAGE = "docs/performance.md"


def state(goal: Goal) -> str:
    """Met or missed; where some figures hold and others do not, which do not."""
    if not goal.figures:
        return "not measured"
    missed = [name for name, value in goal.figures.items() if not goal.holds(value)]
    if not missed:
        return "met"
    return "missed" if len(missed) == len(goal.figures) else "missed: " + "; ".join(missed)


def lines(all_goals: list[Goal]) -> str:
    rows = [["target", "wanted", "measured", "state"]]
    for goal in all_goals:
        measured = "; ".join(f"{name}: {number(value)}" if name else number(value) for name, value in goal.figures.items())
        rows.append([goal.what, f"{'>=' if goal.at_least else '<='} {number(goal.bound)}", measured, state(goal)])
    return table(rows)


def part(found: dict[str, Results]) -> str:
    """What stands between the page's marks."""
    parts = []
    for kind, make in goals.OF.items():
        if kind not in found:
            continue
        results = found[kind]
        where = results.machine
        parts.append(
            f"`{results.command}` at {where['commit']}, {where['cores']} cores of {where['processor']}, {where['date']}, load "
            f"{where['load_at_start']} at the start; medians of the turns:"
        )
        parts.append(lines(make(results)))
    return "\n\n".join(parts)


def write(root: pathlib.Path, folder: pathlib.Path) -> int:
    """Puts the tables between the page's marks. The exit status."""
    found = {kind: Results.load(folder / f"{kind}.json") for kind in goals.OF if (folder / f"{kind}.json").exists()}
    page = root / PAGE
    text = page.read_text()
    if not found or BEGIN not in text or END not in text:
        reason = f"{PAGE} has lost its marks" if found else f"no results in {folder}: run ./dev bench"
        print(reason, file=sys.stderr)
        return 1
    head, rest = text.split(BEGIN, 1)
    page.write_text(head + BEGIN + "\n" + part(found) + "\n" + END + rest.split(END, 1)[1])
    print(f"wrote {PAGE} from {', '.join(str(folder / kind) + '.json' for kind in found)}")
    return 0
