"""Protocol buffers' messages as far as users touch them: fields, presence, oneofs, equality and the wire form.

A message class lists its `FIELDS`; attributes, constructor arguments and the encoding follow from them. Messages read from other
libraries come in, and go out, as their wire form.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from reverie._protobuf import (
    as_double,
    expect_bytes,
    expect_int,
    field_bytes,
    field_double,
    field_varint,
    fields,
    spans,
    unpacked,
    varints,
)

__all__ = ["Field", "Message", "Numbers", "Opaque", "Repeated", "convert"]

INTEGERS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}
_ZERO: dict[str, Any] = {"int32": 0, "int64": 0, "uint64": 0, "bool": False, "double": 0.0, "string": ""}


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a message.

    Attributes
    ----------
    name : str
    number : int
    kind : {"int32", "int64", "uint64", "bool", "double", "string", "message"}
    oneof : str, optional
        The group of fields of which at most one is set. A field of a group, and any message, has presence. An optional field is alone
        in its group, which is called as it is with a "_" before.
    message : type of Message, optional
        Of the kind "message".
    repeated : bool
    """

    name: str
    number: int
    kind: str
    oneof: str | None = None
    message: type[Message] | None = None
    repeated: bool = False

    @property
    def has_presence(self) -> bool:
        return not self.repeated and (self.oneof is not None or self.message is not None)


@dataclasses.dataclass(frozen=True)
class Descriptor:
    """What a message class says of itself."""

    name: str
    full_name: str


def _checked(field: Field, value: Any) -> Any:
    """The value as the field holds it; TypeError and ValueError as protocol buffers raise them."""
    if field.kind in INTEGERS:
        number = operator.index(value)
        least, most = INTEGERS[field.kind]
        if not least <= number <= most:
            raise ValueError(f"Value out of range: {field.name} is an {field.kind}, got {number}")
        return number
    if field.kind == "bool":
        return bool(operator.index(value))
    if field.kind == "double":
        if isinstance(value, (str, bytes)):
            raise TypeError(f"{field.name} must be a real number, got {value!r}")
        return float(value)
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"{field.name} must be a str, got {value!r}")
    return value


class _Attribute:
    """The attribute that a field is."""

    def __init__(self, field: Field) -> None:
        self._field = field

    def __get__(self, message: Message | None, owner: type[Message]) -> Any:
        return self if message is None else message._get(self._field)

    def __set__(self, message: Message, value: Any) -> None:
        message._set(self._field, value)


M = TypeVar("M", bound="Message")


class Repeated(Generic[M]):
    """A repeated field's messages."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: type[M]) -> None:
        self._kind = kind
        self._items: list[M] = []

    def add(self, **values: Any) -> M:
        """Appends a new message and returns it."""
        self._items.append(self._kind(**values))
        return self._items[-1]

    def append(self, message: Any) -> None:
        """Appends a copy."""
        self._items.append(copy.deepcopy(convert(self._kind, message)))

    def extend(self, messages: Iterable[Any]) -> None:
        """Appends copies."""
        self._items.extend([copy.deepcopy(convert(self._kind, message)) for message in messages])

    MergeFrom = extend

    def pop(self, index: int = -1) -> M:
        return self._items.pop(index)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[M]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> list[M]: ...
    def __getitem__(self, index: int | slice) -> M | list[M]:
        return self._items[index]

    def __delitem__(self, index: int | slice) -> None:
        del self._items[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Repeated, list, tuple)):
            return self._items == list(other)
        return NotImplemented

    def __repr__(self) -> str:
        return repr(self._items)


class Numbers:
    """A repeated field's integers."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, field: Field) -> None:
        self._field = field
        self._items: list[int] = []

    def append(self, value: int) -> None:
        self._items.append(_checked(self._field, value))

    def extend(self, values: Iterable[int]) -> None:
        self._items.extend([_checked(self._field, value) for value in values])

    MergeFrom = extend

    def pop(self, index: int = -1) -> int:
        return self._items.pop(index)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._items[index]

    def __setitem__(self, index: int, value: int) -> None:
        self._items[index] = _checked(self._field, value)

    def __delitem__(self, index: int | slice) -> None:
        del self._items[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Numbers, list, tuple)):
            return self._items == list(other)
        return NotImplemented

    def __repr__(self) -> str:
        return repr(self._items)


class Message:
    """The base of message classes. Fields that a class does not know are kept, as in protocol buffers, and written again."""

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    DESCRIPTOR: ClassVar[Descriptor]
    __hash__ = None  # type: ignore[assignment]

    _values: dict[str, Any]
    _unknown: bytes
    _unset: dict[str, Message]  # messages that were looked at and not written to yet
    _parent: tuple[Message, Field] | None

    def __init_subclass__(cls, full_name: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.DESCRIPTOR = Descriptor(cls.__name__, full_name or cls.__name__)
        for field in cls.FIELDS:
            setattr(cls, field.name, _Attribute(field))

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_unknown", b"")
        object.__setattr__(self, "_unset", {})
        object.__setattr__(self, "_parent", None)
        for name, value in values.items():
            field = self._field(name)
            if value is None:
                continue
            if field.repeated and field.message is None:
                self._get(field).extend(value)
            elif field.repeated:
                for each in value:
                    self._get(field).add(**each) if isinstance(each, dict) else self._get(field).append(each)
            elif field.message is not None:
                made = field.message(**value) if isinstance(value, dict) else convert(field.message, value)
                self._get(field).CopyFrom(made)
                self._get(field).SetInParent()
            else:
                self._set(field, value)

    @classmethod
    def _field(cls, name: str) -> Field:
        for field in cls.FIELDS:
            if field.name == name:
                return field
        raise ValueError(f'Protocol message {cls.__name__} has no "{name}" field.')

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            field = self._field(name)
        except ValueError as error:
            raise AttributeError(str(error)) from None
        self._set(field, value)

    def _get(self, field: Field) -> Any:
        if field.name in self._values:
            return self._values[field.name]
        if field.repeated:
            return self._values.setdefault(field.name, Numbers(field) if field.message is None else Repeated(field.message))
        if field.message is None:
            return _ZERO[field.kind]
        child = self._unset.get(field.name)
        if child is None:
            child = self._unset[field.name] = field.message()
            object.__setattr__(child, "_parent", (self, field))
        return child

    def _set(self, field: Field, value: Any) -> None:
        if field.message is not None or field.repeated:
            raise AttributeError(f'"{field.name}" of {type(self).__name__} cannot be assigned to; use CopyFrom, append or extend')
        self._store(field, _checked(field, value))

    def _store(self, field: Field, value: Any) -> None:
        if field.oneof is not None:
            for other in self.FIELDS:
                if other.oneof == field.oneof and other.name != field.name:
                    self._values.pop(other.name, None)
        self._values[field.name] = value
        self.SetInParent()

    # ---- what protocol buffers' users call ----

    def SetInParent(self) -> None:
        """Makes the message it is part of have it."""
        if self._parent is not None:
            parent, field = self._parent
            object.__setattr__(self, "_parent", None)
            parent._unset.pop(field.name, None)
            parent._store(field, self)

    def HasField(self, name: str) -> bool:
        """Is it set? ValueError for a field that is always there."""
        oneofs = {field.oneof for field in self.FIELDS if field.oneof is not None}
        if name in oneofs:
            return self.WhichOneof(name) is not None
        if not self._field(name).has_presence:
            raise ValueError(f"Field {self.DESCRIPTOR.full_name}.{name} does not have presence.")
        return name in self._values

    def WhichOneof(self, group: str) -> str | None:
        """The name of the field of the group that is set."""
        names = [field.name for field in self.FIELDS if field.oneof == group]
        if not names:
            raise ValueError(f'Protocol message {type(self).__name__} has no oneof "{group}"')
        return next((name for name in names if name in self._values), None)

    def ClearField(self, name: str) -> None:
        """Makes the field as it is in a new message."""
        self._field(name)
        self._values.pop(name, None)
        self._unset.pop(name, None)

    def Clear(self) -> None:
        """Makes all fields as they are in a new message."""
        self._values.clear()
        self._unset.clear()
        object.__setattr__(self, "_unknown", b"")

    def ListFields(self) -> list[tuple[Field, Any]]:
        """The fields that are set, in the order of their numbers."""
        ordered = sorted(self.FIELDS, key=lambda field: field.number)
        return [(field, self._values[field.name]) for field in ordered if self._is_written(field)]

    def _is_written(self, field: Field) -> bool:
        if field.name not in self._values:
            return False
        value = self._values[field.name]
        if field.repeated:
            return len(value) > 0
        negative_zero = field.kind == "double" and value == 0 and math.copysign(1.0, value) < 0
        return field.has_presence or negative_zero or value != _ZERO[field.kind]

    def CopyFrom(self, other: Any) -> None:
        """Becomes like the other message of this kind."""
        if other is not self:
            source = convert(type(self), other)
            self.Clear()
            self.MergeFrom(source)

    def MergeFrom(self, other: Any) -> None:
        """Takes over the fields that the other message of this kind has; repeated ones are appended."""
        self.MergeFromString(convert(type(self), other).SerializeToString())

    def DiscardUnknownFields(self) -> None:
        """Forgets the fields that this class does not know, in messages inside it, too."""
        object.__setattr__(self, "_unknown", b"")
        for field, value in self.ListFields():
            if field.message is not None:
                for each in value if field.repeated else [value]:
                    each.DiscardUnknownFields()

    def FindInitializationErrors(self) -> list[str]:
        """None: no field is required."""
        return []

    def IsInitialized(self) -> bool:
        """True: no field is required."""
        return True

    def ByteSize(self) -> int:
        """Bytes of the wire form."""
        return len(self.SerializeToString())

    def SerializeToString(self, *, deterministic: bool | None = None) -> bytes:
        """The wire form; always the same for equal messages."""
        out = b""
        for field, value in self.ListFields():
            values = value if field.repeated else [value]
            if isinstance(value, Numbers):
                out += field_bytes(field.number, varints(value))
            else:
                out += b"".join(_encode(field, each) for each in values)
        return out + self._unknown

    SerializePartialToString = SerializeToString

    def ParseFromString(self, data: bytes) -> int:
        """Becomes what the wire form says; ValueError for bytes that are no such message."""
        self.Clear()
        return self.MergeFromString(data)

    def MergeFromString(self, data: bytes) -> int:
        """Takes over the fields that the wire form has, and returns its length; ValueError for bytes that are no such message."""
        by_number = {field.number: field for field in self.FIELDS}
        try:
            for number, value, raw in spans(bytes(data)):
                if number in by_number:
                    self._read(by_number[number], value)
                else:
                    object.__setattr__(self, "_unknown", self._unknown + raw)
        except ValueError as error:
            raise ValueError(f"the bytes are no {self.DESCRIPTOR.full_name}: {error}") from None
        self.SetInParent()
        return len(data)

    def _read(self, field: Field, value: int | bytes) -> None:
        if field.repeated and field.message is None:
            numbers = unpacked(value) if isinstance(value, bytes) else [value]
            self._get(field).extend([_wrapped(field, number) for number in numbers])
        elif field.repeated:
            self._get(field).add().MergeFromString(expect_bytes(value))
        elif field.message is not None:
            self._get(field).MergeFromString(expect_bytes(value))
        elif field.kind == "double":
            self._store(field, as_double(value))
        elif field.kind == "string":
            self._store(field, expect_bytes(value).decode())
        elif field.kind == "bool":
            self._store(field, expect_int(value) != 0)
        else:
            self._store(field, _wrapped(field, expect_int(value)))

    @classmethod
    def FromString(cls, data: bytes) -> Self:
        """A new message of the wire form."""
        message = cls()
        message.ParseFromString(data)
        return message

    # ---- as Python's objects ----

    def _canonical(self) -> Any:
        """What equal messages have in common."""
        return [(field.number, list(value) if field.repeated else value) for field, value in self.ListFields()], self._unknown

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return bool(self._canonical() == other._canonical())
        return NotImplemented

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.FromString(self.SerializeToString())

    def __reduce__(self) -> Any:
        return (type(self).FromString, (self.SerializeToString(),))

    def __repr__(self) -> str:
        written = [(field, self._values[field.name]) for field in self.FIELDS if self._is_written(field)]
        return "".join(_text(field, each) for field, value in written for each in (value if field.repeated else [value]))


class Opaque(Message):
    """A message that is kept as it stands on the wire: whoever wants to look inside decodes it."""

    _raw: bytes

    def __init__(self) -> None:
        super().__init__()
        self.Clear()

    def Clear(self) -> None:
        object.__setattr__(self, "_raw", b"")

    def SerializeToString(self, *, deterministic: bool | None = None) -> bytes:
        return self._raw

    SerializePartialToString = SerializeToString

    def MergeFromString(self, data: bytes) -> int:
        try:
            for _ in fields(bytes(data)):
                pass
        except ValueError as error:
            raise ValueError(f"the bytes are no {self.DESCRIPTOR.full_name}: {error}") from None
        object.__setattr__(self, "_raw", self._raw + bytes(data))
        self.SetInParent()
        return len(data)

    def _canonical(self) -> Any:
        return self._raw

    def __repr__(self) -> str:
        return f"# {len(self._raw)} bytes\n" if self._raw else ""


def _wrapped(field: Field, value: int) -> int:
    """A varint as the field's kind of integer: protocol buffers drop the bits that do not fit."""
    bits = 32 if field.kind == "int32" else 64
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if field.kind != "uint64" and low >> (bits - 1) else low


def _encode(field: Field, value: Any) -> bytes:
    if field.message is not None:
        return field_bytes(field.number, value.SerializeToString())
    if field.kind == "string":
        return field_bytes(field.number, value.encode())
    if field.kind == "double":
        return field_double(field.number, value)
    return field_varint(field.number, int(value))


def _text(field: Field, value: Any) -> str:
    """A line of protocol buffers' text format, or several."""
    if field.message is not None:
        inner = "".join(f"  {line}\n" for line in repr(value).splitlines())
        return f"{field.name} {{\n{inner}}}\n"
    if field.kind == "bool":
        return f"{field.name}: {'true' if value else 'false'}\n"
    if field.kind == "string":
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{field.name}: "{escaped}"\n'
    return f"{field.name}: {_number(value)}\n" if field.kind == "double" else f"{field.name}: {value}\n"


def _number(value: float) -> str:
    """The shortest of the ways to write a double that is read as the same."""
    short = f"{value:g}"
    return short if float(short) == value or value != value else f"{value:.17g}"


def convert(kind: type[M], value: Any) -> M:
    """The value if it is such a message; a copy of one that another library made, by its wire form. TypeError for anything else."""
    if isinstance(value, kind):
        return value
    if type(value).__name__ == kind.__name__ and callable(getattr(value, "SerializeToString", None)):
        return kind.FromString(value.SerializeToString())
    raise TypeError(f"a {kind.__name__} is needed, got {value!r}")
