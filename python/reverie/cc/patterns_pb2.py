"""The messages of structured writers: which rows make an item, and when.

They have the names, fields and wire form of Reverb's, so that what was made with one library can be given to the other.
"""

from __future__ import annotations

from typing import Any, NoReturn

from reverie._foreign_messages import StructuredValue
from reverie._messages import Field, Message, Repeated

__all__ = ["Condition", "PatternNode", "Priority", "StructuredWriterConfig"]


class PatternNode(Message, full_name="deepmind.reverb.PatternNode"):
    """Rows of one column, counted from the newest, which is -1: a slice where `start` is set, else the one row `stop`."""

    FIELDS = (
        Field("flat_source_index", 1, "int32"),
        Field("start", 2, "int32", "start_or_none"),
        Field("stop", 3, "int32", "stop_or_none"),
        Field("step", 4, "int32", "step_or_none"),
    )
    flat_source_index: int
    start: int
    stop: int
    step: int


class ModuloEq(Message, full_name="deepmind.reverb.Condition.ModuloEq"):
    """The remainder by `mod` is `eq`."""

    FIELDS = (Field("mod", 1, "int32"), Field("eq", 2, "int32"))
    mod: int
    eq: int


NOT_COMBINED = (
    "conditions are not combined by and, or, not or chained comparisons: "
    "several that must all hold stand in a list, conditions=[a, b]; for 'a or b' give two configs"
)


class Condition(Message, full_name="deepmind.reverb.Condition"):
    """A left side (`step_index`, `steps_since_applied`, `buffer_length`, `is_end_episode` or a column), and what it is compared with."""

    ModuloEq = ModuloEq
    FIELDS = (
        Field("step_index", 1, "bool", "left"),
        Field("steps_since_applied", 2, "bool", "left"),
        Field("buffer_length", 3, "bool", "left"),
        Field("is_end_episode", 4, "bool", "left"),
        Field("flat_source_index", 9, "int32", "left"),
        Field("eq", 5, "int32", "cmp"),
        Field("ge", 6, "int32", "cmp"),
        Field("mod_eq", 7, "message", "cmp", ModuloEq),
        Field("inverse", 8, "bool"),
    )
    step_index: bool
    steps_since_applied: bool
    buffer_length: bool
    is_end_episode: bool
    eq: int
    ge: int
    inverse: bool
    flat_source_index: int
    mod_eq: Any

    def __bool__(self) -> NoReturn:
        """TypeError: `and`, `or`, `not` and ``3 <= x <= 7`` would silently leave one of their conditions out."""
        raise TypeError(NOT_COMBINED)


class ConstantPriorityFn(Message, full_name="deepmind.reverb.Priority.ConstantPriorityFn"):
    """The same priority for every item."""

    FIELDS = (Field("value", 1, "double"),)
    value: float


class TDError(Message, full_name="deepmind.reverb.Priority.TDError"):
    """max_priority_weight * max|x| + (1 - max_priority_weight) * mean|x| over the item's rows of one column."""

    FIELDS = (Field("max_priority_weight", 1, "double"), Field("flat_source_index", 2, "int32"))
    max_priority_weight: float
    flat_source_index: int


class Priority(Message, full_name="deepmind.reverb.Priority"):
    """How an item's priority is found."""

    ConstantPriorityFn = ConstantPriorityFn
    TDError = TDError
    FIELDS = (
        Field("constant_fn", 1, "message", "priority_fn", ConstantPriorityFn),
        Field("td_error", 2, "message", "priority_fn", TDError),
    )
    constant_fn: Any
    td_error: Any


class StructuredWriterConfig(Message, full_name="deepmind.reverb.StructuredWriterConfig"):
    """Items for one table: their columns, the nest these stand in, priority, and when they are made."""

    FIELDS = (
        Field("flat", 1, "message", None, PatternNode, repeated=True),
        Field("pattern_structure", 2, "message", None, StructuredValue),
        Field("table", 3, "string"),
        Field("priority", 4, "message", None, Priority),
        Field("conditions", 5, "message", None, Condition, repeated=True),
    )
    flat: Repeated[PatternNode]
    pattern_structure: StructuredValue
    table: str
    priority: Priority
    conditions: Repeated[Condition]
