"""The table of the matrix's cells, printed when pytest ends."""

from __future__ import annotations

import collections

CELLS: dict[str, dict[str, list[int]]] = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))


def pytest_runtest_logreport(report):
    parts = report.nodeid.split("[", 1)
    if "test_matrix.py" not in parts[0] or len(parts) < 2 or (report.when != "call" and report.passed):
        return
    *words, direction = parts[1].split("-{", 1)[0].split("-")
    cell = CELLS["-".join(words)][direction]
    cell[0] += 1
    cell[1] += report.passed


def pytest_terminal_summary(terminalreporter):
    if not CELLS:
        return
    width = max(map(len, CELLS))
    terminalreporter.section(
        "matrix of dm-reverb (T) and Reverie (O): writer > server > reader; cells as they should be / cells run"
    )
    shapes = [max(map(len, row)) for row in CELLS.values()]
    for shape in sorted(set(shapes)):  # operations of two steps, of one, with two servers: each has its own directions
        rows = {name: row for (name, row), each in zip(CELLS.items(), shapes, strict=True) if each == shape}
        columns = sorted({direction for row in rows.values() for direction in row})
        terminalreporter.line(" " * width + "".join(f"{column:>8}" for column in columns))
        for name, row in rows.items():
            shown = (f"{row[column][1]}/{row[column][0]}" if column in row else "" for column in columns)
            terminalreporter.line(f"{name:{width}}" + "".join(f"{cell:>8}" for cell in shown))
    run, good = (sum(cell[i] for row in CELLS.values() for cell in row.values()) for i in range(2))
    terminalreporter.line(f"cells run: {run}, as they should be: {good}")
