"""The messages of structured writers: which rows make an item, and when.

They have the names, fields and wire form of Reverb's, so that what was made with one library can be given to the other.
"""

from __future__ import annotations

from typing import Any

from reverie import _structured_value, nest
from reverie._messages import Field, Message, Repeated
from reverie._protobuf import fields

__all__ = ["Condition", "PatternNode", "Priority", "StructuredWriterConfig"]

_KINDS = {
    1: "none_value",
    11: "float64_value",
    12: "int64_value",
    13: "string_value",
    14: "bool_value",
    31: "tensor_shape_value",
    32: "tensor_dtype_value",
    33: "tensor_spec_value",
    34: "type_spec_value",
    35: "bounded_tensor_spec_value",
    51: "list_value",
    52: "tuple_value",
    53: "dict_value",
    54: "named_tuple_value",
    55: "tensor_value",
    56: "numpy_value",
}


class StructuredValue(Message, full_name="tensorflow.StructuredValue"):
    """A nest, kept as it stands on the wire: whoever wants to look inside decodes it."""

    _raw: bytes
    _structure: nest.Structure | None  # what it was made of, which remembers namedtuples' classes

    def __init__(self) -> None:
        super().__init__()
        self.Clear()

    def WhichOneof(self, group: str) -> str | None:
        if group != "kind":
            return super().WhichOneof(group)
        found = None
        for number, _ in fields(self._raw):
            found = _KINDS.get(number, found)
        return found

    def Clear(self) -> None:
        object.__setattr__(self, "_raw", b"")
        object.__setattr__(self, "_structure", None)

    def set_structure(self, structure: nest.Structure) -> None:
        """Becomes the nest of this structure. TypeError for one that cannot be written down."""
        self.Clear()
        self.MergeFromString(_structured_value.encode(structure.unflatten([None] * len(structure))))
        object.__setattr__(self, "_structure", structure)

    def structure(self) -> nest.Structure:
        """The nest's structure; namedtuple classes are made where only their names are known."""
        return self._structure if self._structure is not None else nest.Structure(_structured_value.decode(self._raw))

    def SerializeToString(self, *, deterministic: bool | None = None) -> bytes:
        return self._raw

    SerializePartialToString = SerializeToString

    def MergeFromString(self, data: bytes) -> int:
        raw = self._raw + bytes(data)
        _structured_value.decode(raw)
        object.__setattr__(self, "_raw", raw)
        object.__setattr__(self, "_structure", None)
        self.SetInParent()
        return len(data)

    def _canonical(self) -> Any:
        return (self.WhichOneof("kind"), _structured_value.encode(_structured_value.decode(self._raw)))  # keys in their order

    def __repr__(self) -> str:
        return f"{self.WhichOneof('kind')}: {_structured_value.decode(self._raw)!r}\n" if self._raw else ""


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
