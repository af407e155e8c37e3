"""Measuring in turns: every cell once, then every cell again, so that a machine that slows down slows all down."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from .cells import Cell
from .processes import ProcessError

Value = float | tuple[float, dict[str, float]]


@dataclasses.dataclass
class Measurement:
    """A cell and what measures it once. None: there is nothing to measure, and the cell stays empty."""

    cell: Cell
    measure: Callable[[], Value | None]


def run_turns(measurements: Iterable[Measurement], rounds: int, say: Callable[[str], None]) -> None:
    """Fills the cells. One that fails says so, and is not tried again: others go on."""
    measurements = list(measurements)
    for turn in range(rounds):
        for each in measurements:
            if each.cell.failure:
                continue
            try:
                value = each.measure()
            except ProcessError as error:
                each.cell.failure = str(error)
                say(f"FAILED: {each.cell.name}: {error}")
                continue
            if value is None:
                continue
            number, details = value if isinstance(value, tuple) else (value, {})
            each.cell.add(number, details)
            say(f"turn {turn + 1} of {rounds}: {each.cell.name}: {number:.4g} {each.cell.unit}")
