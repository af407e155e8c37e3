"""Just enough of protocol buffers' wire format to read and write the small recursive messages that Python looks into."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Value = int | bytes


def varint(value: int) -> bytes:
    """An int64 or uint64 as a varint."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_varint(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)


def field_bytes(number: int, value: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def field_double(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)


def unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def signed(value: int) -> int:
    """A varint read as int64."""
    return value - (1 << 64) if value >> 63 else value


def as_double(value: Value) -> float:
    if not isinstance(value, bytes) or len(value) != 8:
        raise ValueError("a double has eight bytes")
    return float(struct.unpack("<d", value)[0])


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a varint does not end")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return result & ((1 << 64) - 1), at


def varints(values: Iterable[int]) -> bytes:
    """What a packed field of integers holds."""
    return b"".join(varint(value) for value in values)


def unpacked(data: bytes) -> list[int]:
    """The integers of a packed field."""
    found, at = [], 0
    while at < len(data):
        value, at = read_varint(data, at)
        found.append(value)
    return found


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Each field's number and value: an int for a varint, else bytes. ValueError for what is no message."""
    for number, value, _ in spans(data):
        yield number, value


def spans(data: bytes) -> Iterator[tuple[int, Value, bytes]]:
    """As `fields`, with the bytes that number and value stand in."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield number, value, data[begin:at]
            continue
        if kind == BYTES:
            size, at = read_varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"field {number} has wire type {kind}")
        if number == 0 or size > len(data) - at:
            raise ValueError(f"field {number} does not fit into its message")
        yield number, data[at : at + size], data[begin : at + size]
        at += size


def expect_bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number stands where bytes were expected")
    return value


def expect_int(value: Value) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes stand where a number was expected")
    return value
