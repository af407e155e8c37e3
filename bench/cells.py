"""What a benchmark finds out: cells, each a figure that was measured in several turns, and the file that keeps them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics


@dataclasses.dataclass
class Cell:
    """One figure: what was measured (`row`, by name), every turn's value, and what was noted beside each value.

    `better` is "higher" or "lower"; "" for what only describes the machine. `failure` says why values are missing.
    """

    row: dict[str, str]
    unit: str
    better: str
    values: list[float] = dataclasses.field(default_factory=list)
    details: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    failure: str = ""

    @property
    def name(self) -> str:
        return ", ".join(self.row.values())

    @property
    def is_ours(self) -> bool:
        """Is it a figure of Reverie's, and not of another store's or the machine's?"""
        return self.row.get("store", "").startswith("reverie")

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def add(self, value: float, details: dict[str, float] | None = None) -> None:
        self.values.append(value)
        for name, number in (details or {}).items():
            self.details.setdefault(name, []).append(number)


@dataclasses.dataclass
class Results:
    """All cells of one run of one benchmark, with what ran where."""

    kind: str
    command: str
    machine: dict
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    cells: list[Cell] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    complete: bool = False

    def cell(self, row: dict[str, str], unit: str, better: str) -> Cell:
        """A new cell, or the one of that row."""
        for cell in self.cells:
            if cell.row == row and cell.unit == unit:
                return cell
        self.cells.append(Cell(row, unit, better))
        return self.cells[-1]

    @property
    def has_figures(self) -> bool:
        """Was anything measured, beside the machine?"""
        return any(cell.values and cell.better for cell in self.cells)

    def find(self, **row: str) -> list[Cell]:
        """The cells whose rows have all of these."""
        return [cell for cell in self.cells if row.items() <= cell.row.items()]

    def save(self, folder: pathlib.Path) -> pathlib.Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.kind}.json"
        partial = path.with_suffix(".json.part")
        partial.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")
        partial.replace(path)
        return path

    @staticmethod
    def load(path: pathlib.Path) -> Results:
        fields = json.loads(path.read_text())
        if "cells" not in fields or "machine" not in fields:
            raise ValueError(f"{path} was not written by ./dev bench, or by one of long ago")
        fields["cells"] = [Cell(**cell) for cell in fields["cells"]]
        return Results(**fields)
