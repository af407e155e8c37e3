"""tensorflow.StructuredValue <-> nests of specs: how signatures stand on the wire and in checkpoints."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from reverie import _arguments, _dtypes
from reverie._protobuf import (
    as_double,
    expect_bytes,
    expect_int,
    field_bytes,
    field_double,
    field_varint,
    fields,
    read_varint,
    signed,
    unzigzag,
    zigzag,
)
from reverie.specs import BoundedTensorSpec, TensorSpec

__all__ = ["decode", "encode"]

MAX_DEPTH = 64
_NONE, _FLOAT, _INT, _STRING, _BOOL, _SHAPE, _DTYPE, _SPEC, _TYPE_SPEC, _BOUNDED = 1, 11, 12, 13, 14, 31, 32, 33, 34, 35
_LIST, _TUPLE, _DICT, _NAMED_TUPLE = 51, 52, 53, 54


# ---- writing ----


def _encode_shape(shape: tuple[int | None, ...] | None) -> bytes:
    if shape is None:
        return field_varint(3, 1)
    return b"".join(field_bytes(2, b"" if size == 0 else field_varint(1, -1 if size is None else size)) for size in shape)


def _encode_spec(spec: TensorSpec) -> bytes:
    name = field_bytes(1, spec.name.encode()) if spec.name else b""
    return name + field_bytes(2, _encode_shape(spec.shape)) + field_varint(3, _dtypes.number_of(spec.dtype))


def _encode_tensor(array: np.ndarray[Any, Any]) -> bytes:
    out = field_varint(1, _dtypes.number_of(array.dtype)) + field_bytes(2, _encode_shape(array.shape))
    if array.dtype.hasobject:
        items = [item.encode() if isinstance(item, str) else bytes(item) for item in array.ravel()]
        return out + b"".join(field_bytes(8, item) for item in items)
    return out + field_bytes(4, array.tobytes())


def encode(nest: Any, depth: int = 0) -> bytes:
    """The serialized message of a nest of specs (and None, numbers, strings).

    Raises
    ------
    TypeError
        For a dict whose keys are not all strings, and for what has no place in the message.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"the signature is nested more than {MAX_DEPTH} deep")
    below = functools.partial(encode, depth=depth + 1)
    if isinstance(nest, BoundedTensorSpec):
        limits = field_bytes(4, _encode_tensor(nest.minimum)) + field_bytes(5, _encode_tensor(nest.maximum))
        return field_bytes(_BOUNDED, _encode_spec(nest) + limits)
    if isinstance(nest, TensorSpec):
        return field_bytes(_SPEC, _encode_spec(nest))
    if nest is None:
        return field_bytes(_NONE, b"")
    if isinstance(nest, bool):
        return field_varint(_BOOL, int(nest))
    if isinstance(nest, int):
        return field_varint(_INT, zigzag(nest))
    if isinstance(nest, float):
        return field_double(_FLOAT, nest)
    if isinstance(nest, str):
        return field_bytes(_STRING, nest.encode())
    if isinstance(nest, Mapping):
        for key in nest:
            if not isinstance(key, str):
                raise TypeError(f"dict keys must be strings, got {key!r}")
        entries = (field_bytes(1, field_bytes(1, key.encode()) + field_bytes(2, below(nest[key]))) for key in sorted(nest))
        return field_bytes(_DICT, b"".join(entries))
    names = getattr(nest, "_fields", None)
    if isinstance(nest, tuple) and names is not None:
        pairs = (field_bytes(2, field_bytes(1, n.encode()) + field_bytes(2, below(v))) for n, v in zip(names, nest, strict=True))
        return field_bytes(_NAMED_TUPLE, field_bytes(1, type(nest).__name__.encode()) + b"".join(pairs))
    if isinstance(nest, (list, tuple)):
        body = b"".join(field_bytes(1, below(value)) for value in nest)
        return field_bytes(_LIST if isinstance(nest, list) else _TUPLE, body)
    raise TypeError(f"a {type(nest).__name__} cannot stand in a signature; use dicts, lists, tuples and namedtuples of specs")


# ---- reading ----


@functools.lru_cache(maxsize=1024)
def _named_tuple(name: str, names: tuple[str, ...]) -> Any:
    return collections.namedtuple(name if name.isidentifier() else "NamedTuple", names, rename=True)  # noqa: PYI024


def _decode_shape(data: bytes) -> tuple[int | None, ...] | None:
    sizes: list[int | None] = []
    for number, value in fields(data):
        if number == 3 and value:
            return None
        if number == 2:
            size = 0
            for inner, amount in fields(expect_bytes(value)):
                if inner == 1:
                    size = signed(expect_int(amount))
            sizes.append(None if size < 0 else size)
    return tuple(sizes)


def _decode_tensor(data: bytes) -> np.ndarray[Any, Any]:
    number, content = 0, b""
    shape: tuple[int, ...] = ()
    strings: list[bytes] = []
    packed: dict[int, bytes] = {}
    for field, value in fields(data):
        if field == 1:
            number = expect_int(value)
        elif field == 2:
            shape = tuple(-1 if size is None else size for size in _decode_shape(expect_bytes(value)) or ())
        elif field == 4:
            content = expect_bytes(value)
        elif field == 8:
            strings.append(expect_bytes(value))
        else:
            packed[field] = packed.get(field, b"") + (value if isinstance(value, bytes) else b"")
    dtype = _dtypes.from_number(number)
    values: np.ndarray[Any, Any]
    if dtype.hasobject:
        values = np.array(strings, dtype=object)
    elif content:
        values = np.frombuffer(content, dtype)
    else:
        values = _decode_typed_values(dtype, packed)
    count = int(np.prod(shape, dtype=np.int64))
    if count < 0 or count > 1 << 20:
        raise ValueError(f"a limit of shape {shape} is more than a signature may hold")
    if values.size == 1 and count > 1:
        values = np.broadcast_to(values, (count,))
    return values.reshape(shape).copy() if values.size == count else np.zeros(shape, dtype)


def _decode_typed_values(dtype: np.dtype[Any], packed: dict[int, bytes]) -> np.ndarray[Any, Any]:
    """Values outside tensor_content: packed fixed-size numbers (5, 6, 9, 12) or varints."""
    fixed = {5: np.float32, 6: np.float64, 9: np.complex64, 12: np.complex128}
    for field, data in packed.items():
        if field in fixed:
            return np.frombuffer(data, fixed[field]).astype(dtype)
        numbers = []
        at = 0
        while at < len(data):
            value, at = read_varint(data, at)
            numbers.append(value)
        if field == 13:
            return np.array(numbers, np.uint16).view(dtype)
        if dtype.kind != "u":
            numbers = [signed(value) for value in numbers]
        return np.array(numbers).astype(dtype)
    return np.zeros((0,), dtype)


def _decode_spec(data: bytes, bounded: bool) -> TensorSpec:
    name, number = "", 0
    shape: tuple[int | None, ...] | None = ()
    limits: dict[int, np.ndarray[Any, Any]] = {}
    for field, value in fields(data):
        if field == 1:
            name = _arguments.as_text(expect_bytes(value).decode())
        elif field == 2:
            shape = _decode_shape(expect_bytes(value))
        elif field == 3:
            number = expect_int(value)
        elif field in (4, 5):
            limits[field] = _decode_tensor(expect_bytes(value))
    dtype = _dtypes.from_number(number)
    if bounded and len(limits) == 2:
        return BoundedTensorSpec(shape, dtype, limits[4], limits[5], name or None)
    return TensorSpec(shape, dtype, name or None)


def _decode_sequence(data: bytes, depth: int) -> list[Any]:
    return [decode(expect_bytes(value), depth) for number, value in fields(data) if number == 1]


def _decode_pair(data: bytes, depth: int) -> tuple[str, Any]:
    key, inner = "", b""
    for number, value in fields(data):
        if number == 1:
            key = expect_bytes(value).decode()
        elif number == 2:
            inner = expect_bytes(value)
    return key, decode(inner, depth)


def _decode_named_tuple(data: bytes, depth: int) -> Any:
    name, pairs = "", []
    for number, value in fields(data):
        if number == 1:
            name = expect_bytes(value).decode()
        elif number == 2:
            pairs.append(_decode_pair(expect_bytes(value), depth))
    return _named_tuple(name, tuple(key for key, _ in pairs))(*(value for _, value in pairs))


_SCALARS: dict[int, Callable[[Any], Any]] = {
    _FLOAT: as_double,
    _INT: lambda value: unzigzag(expect_int(value)),
    _STRING: lambda value: expect_bytes(value).decode(),
    _BOOL: bool,
    _SHAPE: lambda value: _decode_shape(expect_bytes(value)),
    _DTYPE: lambda value: _dtypes.from_number(expect_int(value)),
    _SPEC: lambda value: _decode_spec(expect_bytes(value), bounded=False),
    _BOUNDED: lambda value: _decode_spec(expect_bytes(value), bounded=True),
}


def decode(data: bytes, depth: int = 0) -> Any:
    """The nest that the serialized message stands for; namedtuple classes are made from their names and fields.

    Raises
    ------
    ValueError
        For what is no such message, is nested too deep, or holds a kind of spec that tables do not have.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"a signature is nested more than {MAX_DEPTH} deep")
    result = None
    for number, value in fields(data):
        if number in _SCALARS:
            result = _SCALARS[number](value)
        elif number in (_LIST, _TUPLE):
            values = _decode_sequence(expect_bytes(value), depth + 1)
            result = values if number == _LIST else tuple(values)
        elif number == _DICT:
            entries = [_decode_pair(expect_bytes(entry), depth + 1) for n, entry in fields(expect_bytes(value)) if n == 1]
            result = dict(sorted(entries, key=lambda entry: entry[0]))
        elif number == _NAMED_TUPLE:
            result = _decode_named_tuple(expect_bytes(value), depth + 1)
        elif number != _NONE:
            raise ValueError(f"a signature holds a value of kind {number}, which tables do not have")
    return result
