"""Types that Reverb names in one module."""

from typing import Any

from reverie.pybind import HeapSelector as Heap
from reverie.selectors import Fifo, Lifo, Prioritized, Selector, Uniform
from reverie.table_info import TableInfo

__all__ = ["Fifo", "Heap", "Lifo", "Prioritized", "SelectorType", "SpecNest", "TableInfo", "Uniform"]

SelectorType = Selector
SpecNest = Any
