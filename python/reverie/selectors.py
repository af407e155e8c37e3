"""How a table chooses: which item is sampled next (`sampler`), which one goes when the table is full (`remover`).

A selector here is only a description; each table makes its own from it, so one may be given to many.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from reverie import _arguments
from reverie.errors import InvalidArgumentError

__all__ = ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Selector", "Uniform"]


@dataclasses.dataclass(frozen=True, repr=False)
class Selector:
    """The base of all selectors."""

    kind: ClassVar[int] = 0
    is_deterministic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if type(self).kind == 0:
            raise TypeError("Selector is a base class; use Fifo, Lifo, Uniform, Prioritized, MaxHeap or MinHeap")

    @property
    def exponent(self) -> float:
        """Of the priority, where the selector is `Prioritized`; else 0."""
        return 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}Selector"


class Fifo(Selector):
    """The item that was inserted first; probability 1."""

    kind = 1
    is_deterministic = True


class Lifo(Selector):
    """The item that was inserted last; probability 1."""

    kind = 2
    is_deterministic = True


class Uniform(Selector):
    """Any item, each with probability 1/n."""

    kind = 3


class MaxHeap(Selector):
    """The item of the highest priority; of several, the one inserted or updated longest ago. Probability 1."""

    kind = 4
    is_deterministic = True

    def __repr__(self) -> str:
        return "HeapSelector(sign=-1)"


class MinHeap(Selector):
    """The item of the lowest priority; of several, the one inserted or updated longest ago. Probability 1."""

    kind = 5
    is_deterministic = True

    def __repr__(self) -> str:
        return "HeapSelector(sign=1)"


@dataclasses.dataclass(frozen=True, repr=False)
class Prioritized(Selector):
    """An item with a probability proportional to priority**exponent (Schaul et al. 2016, equation 1).

    Parameters
    ----------
    priority_exponent : float
        Finite. 0 makes all items alike that have a priority above zero; below 0 low priorities are drawn more often than high ones. An
        item of priority 0 is not drawn while another is positive. priority**exponent is kept between 2**-1022 and 2**960 (about 1e289):
        items beyond that count alike.
    """

    kind = 6
    priority_exponent: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "priority_exponent", _arguments.number("priority_exponent", self.priority_exponent))
        if not math.isfinite(self.priority_exponent):
            raise InvalidArgumentError(
                f"priority_exponent is {self.priority_exponent:g}; give a finite number (0: every positive priority counts the same; "
                "below: low ones count more)"
            )

    @property
    def exponent(self) -> float:
        """The `priority_exponent`."""
        return self.priority_exponent

    def __repr__(self) -> str:
        return f"PrioritizedSelector(priority_exponent={self.priority_exponent:g})"


def from_kind(kind: int, exponent: float) -> Selector:
    """The selector that the store gives as a number and an exponent; ValueError for one that was registered in C."""
    for each in (Fifo, Lifo, Uniform, MaxHeap, MinHeap):
        if each.kind == kind:
            return each()
    if kind == Prioritized.kind:
        return Prioritized(exponent)
    raise ValueError(f"selector kind {kind} is unknown to this version of reverie")
