"""What a caller gave, checked: each error names the argument, says what it must be, and shows what it was."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MAX_UINT64 = 2**64 - 1


def integer(name: str, value: Any) -> int:
    """An int of any size. TypeError for what is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None


def clamped(name: str, value: Any) -> int:
    """An int, of those beyond 64 bits the last that has them: of what is counted or waited for, one is as much as another."""
    return max(-MAX_INT64, min(integer(name, value), MAX_INT64))


def positive(name: str, value: Any, most: int | None = None) -> int:
    """An int from 1 to `most`."""
    number = integer(name, value)
    if number < 1:
        raise ValueError(f"{name} must be a positive integer, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most:,}, got {number}")
    return number


def not_negative(name: str, value: Any, most: int = MAX_INT64) -> int:
    """An int from 0 to `most`."""
    number = integer(name, value)
    if not 0 <= number <= most:
        raise ValueError(f"{name} must be an integer from 0 to {most:,}, got {number}")
    return number


def number(name: str, value: Any) -> float:
    """A float of whatever float() takes but text and complex numbers, and of arrays of one number. TypeError for the rest."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf":
        value = value.item()
    if not isinstance(value, (str, bytes, bytearray, np.complexfloating)):  # float() takes the real part of NumPy's
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
        except OverflowError:
            raise ValueError(f"{name} is too large for a float: {value!r}") from None
    raise TypeError(f"{name} must be a number, got {value!r}")


def timeout(seconds: Any) -> float | None:
    """Seconds to wait, at least 0; None: for ever."""
    if seconds is None:
        return None
    value = number("timeout", seconds)
    if not value >= 0:
        raise ValueError(f"timeout must be a number of seconds >= 0, or None to wait for ever, got {seconds!r}")
    return value


def peer_timeout(seconds: Any) -> int:
    """Seconds until a silent peer is given up, as the extension takes them: milliseconds, -1 for None (never)."""
    if seconds is None:
        return -1
    value = number("peer_timeout", seconds)
    if not 0.001 <= value <= 1e9:
        raise ValueError(f"peer_timeout must be a number of seconds > 0, or None to wait for ever, got {seconds!r}")
    return int(value * 1000)


def truth(name: str, value: Any) -> bool:
    """True or False; TypeError for anything else."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {value!r}")


def text(name: str, value: Any) -> str:
    """A str that can be one of the library's: UTF-8 can encode it, and it has no NUL character, with which it would end."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {value!r}")
    if "\0" in value:
        raise ValueError(f"{name} must not contain a NUL character, got {value!r}; take it out")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must be text that UTF-8 can encode, got {value!r}: {error.reason}") from None
    return value


def name(what: str, value: Any) -> str:
    """The same of a table's or a server's name, for which Reverb takes UTF-8 as bytes, too."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise ValueError(
                f"{what} must be a str, or bytes of UTF-8, got {value!r}; decode() it from the encoding that it has"
            ) from None
    return text(what, value)


def secret(name: str, value: Any) -> str:
    """A token that can be one of the library's, which checks the rest of it. No error shows what it was."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got one of type {type(value).__name__}")
    if not all("!" <= each <= "~" for each in value):
        remedy = "; it has the end of its line, or blanks, around it: strip() them" if value.strip() != value else ""
        raise ValueError(f"{name} has characters other than visible ASCII{remedy}")
    return value


def path(name: str, value: Any) -> str:
    """A path as a str, from which os.fsencode makes the bytes that the file system has, whether or not they are text."""
    try:
        found = os.fsdecode(value)
    except TypeError:
        raise TypeError(f"{name} must be a str or a path, got {value!r}") from None
    if "\0" in found:
        raise ValueError(f"{name} must not contain a NUL character, got {value!r}; take it out")
    try:
        os.fsencode(found)
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must be a path that a file can have, got {value!r}: {error.reason}") from None
    return found


def as_text(value: str) -> str:
    """The same of what is only shown: "?" stands for each character that it cannot have."""
    return value.replace("\0", "?").encode("utf-8", "replace").decode()


def listed(name: str, value: Any, of: str) -> list[Any]:
    """A list of the elements; TypeError for text and for what has no elements. `of` says what they should be."""
    if not isinstance(value, (str, bytes, bytearray)) and isinstance(value, Iterable) and getattr(value, "shape", None) != ():
        return list(value)
    raise TypeError(f"{name} must be a sequence of {of}, got {value!r}")


def function(name: str, value: Any, of: str) -> Any:
    """A callable; ValueError for anything else. `of` says what it is a function of."""
    if callable(value):
        return value
    raise ValueError(f"{name} must be a function of {of}, got {value!r}")


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of the words; ValueError for anything else."""
    if isinstance(value, str) and value in choices:
        return value
    words = [f'"{choice}"' for choice in choices]
    raise ValueError(f"{name} must be {', '.join(words[:-1])} or {words[-1]}, got {value!r}")
