"""What a table does besides: hooks that run in the store, under the table's lock, on each insert, sample, update and delete.

Give a table ``extensions=["statistics", reverie.extensions.Diffusion(steps=5, decay=0.7)]``. A string is a registered name,
with options after a colon: ``"diffusion:steps=5,decay=0.7"``.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from reverie import _arguments

__all__ = ["Diffusion", "Extension", "Statistics", "TableExtensionBase"]


@dataclasses.dataclass(frozen=True)
class Extension:
    """A registered extension and its options (``"name=value,name=value"``)."""

    name: str
    options: str = ""

    def __post_init__(self) -> None:
        _arguments.text("an extension's name", self.name)
        _arguments.text(f"the options of extension {self.name!r}", self.options)


class Statistics(Extension):
    """Counts and distributions of what happens to the table; shown by ``table.info.extensions``."""

    def __init__(self) -> None:
        super().__init__("statistics")


class Diffusion(Extension):
    """Spreads a priority update to items of the same episode at neighbouring steps (Gruslys et al. 2018, section 3.3).

    Parameters
    ----------
    steps : int
        How many steps to either side; at least 1.
    decay : float
        What is left of the update per step of distance; above 0, at most 1.
    """

    def __init__(self, steps: int = 5, decay: float = 0.7) -> None:
        if isinstance(steps, bool) or int(steps) != steps or steps < 1:
            raise ValueError(f"steps must be a positive integer, got {steps!r}")
        share = _arguments.number("decay", decay)
        if not 0 < share <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {decay!r}")
        super().__init__("diffusion", f"steps={int(steps)},decay={share!r}")


class TableExtensionBase(metaclass=abc.ABCMeta):
    """Makes extensions for a table once its name is known; Reverb's way to give a table some."""

    @abc.abstractmethod
    def build_internal_extensions(self, table_name: str) -> Sequence[Extension]:
        """The extensions for the table of this name: `Extension` objects, or names as `reverie.Table` takes them."""


def as_extensions(given: Iterable[Any], table_name: str) -> tuple[Extension, ...]:
    """The extensions that names, "name:options" strings, `Extension` and `TableExtensionBase` objects stand for."""
    if isinstance(given, (str, Extension, TableExtensionBase)):
        raise TypeError(f"extensions must be a sequence of names or extensions, got {given!r} alone: put it into a list")
    found = []
    for each in _arguments.listed("extensions", given, "names or extensions"):
        if isinstance(each, Extension):
            found.append(each)
        elif isinstance(each, TableExtensionBase):
            found.extend(as_extensions(each.build_internal_extensions(table_name), table_name))
        elif isinstance(each, str) and each:
            name, _, options = each.partition(":")
            found.append(Extension(name, options))
        else:
            raise TypeError(f"an extension must be a name or a reverie.extensions.Extension, got {each!r}")
    return tuple(found)
