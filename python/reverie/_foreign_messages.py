"""Messages of other projects' that Reverb's have inside: TensorFlow's and protocol buffers' own."""

from __future__ import annotations

from typing import Any

from reverie import _structured_value, nest
from reverie._messages import Field, Message, Opaque
from reverie._protobuf import fields

__all__ = ["StructuredValue", "TensorProto", "Timestamp"]

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


class StructuredValue(Opaque, full_name="tensorflow.StructuredValue"):
    """A nest, kept as it stands on the wire: whoever wants to look inside decodes it."""

    _structure: nest.Structure | None  # what it was made of, which remembers namedtuples' classes

    def WhichOneof(self, group: str) -> str | None:
        if group != "kind":
            return super().WhichOneof(group)
        found = None
        for number, _ in fields(self._raw):
            found = _KINDS.get(number, found)
        return found

    def Clear(self) -> None:
        super().Clear()
        object.__setattr__(self, "_structure", None)

    def set_structure(self, structure: nest.Structure) -> None:
        """Becomes the nest of this structure. TypeError for one that cannot be written down."""
        self.Clear()
        self.MergeFromString(_structured_value.encode(structure.unflatten([None] * len(structure))))
        object.__setattr__(self, "_structure", structure)

    def structure(self) -> nest.Structure:
        """The nest's structure; namedtuple classes are made where only their names are known."""
        return self._structure if self._structure is not None else nest.Structure(self.decode())

    def decode(self) -> Any:
        """The nest; namedtuple classes are made of their names."""
        return _structured_value.decode(self._raw)

    def MergeFromString(self, data: bytes) -> int:
        raw = self._raw + bytes(data)
        _structured_value.decode(raw)
        object.__setattr__(self, "_raw", raw)
        object.__setattr__(self, "_structure", None)
        self.SetInParent()
        return len(data)

    def _canonical(self) -> Any:
        return (self.WhichOneof("kind"), _structured_value.encode(self.decode()))  # keys in their order

    def __repr__(self) -> str:
        return f"{self.WhichOneof('kind')}: {self.decode()!r}\n" if self._raw else ""


class TensorProto(Opaque, full_name="tensorflow.TensorProto"):
    """Dtype, shape and values."""


class Timestamp(Message, full_name="google.protobuf.Timestamp"):
    """Since 1970-01-01 UTC."""

    FIELDS = (Field("seconds", 1, "int64"), Field("nanos", 2, "int32"))
    seconds: int
    nanos: int
