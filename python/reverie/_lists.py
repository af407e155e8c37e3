"""Python's lists as columns, for `Client.add_batch`: of rows, a list of numbers can only be an array."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from reverie.errors import InvalidArgumentError
from reverie.nest import Structure

_Path = tuple[Any, ...]

_FOUR_BITS = {np.dtype(ml_dtypes.int4): (-8, 7), np.dtype(ml_dtypes.uint4): (0, 15)}


class _DiffersError(Exception):
    """The data has not the signature's structure."""


def as_columns(data: Any, signature: Structure | None, dtypes: Sequence[np.dtype[Any]]) -> Any:
    """The nest with arrays in the place of lists.

    What stands where the signature has a leaf is taken as `numpy.asarray` takes it, and Python's numbers get the leaf's dtype. Elsewhere a
    list or tuple of numbers or strings is an array, and lists of anything else are containers, as in every nest.

    Parameters
    ----------
    data : nest of arrays and lists
        Lists and dicts may stand for each other: they are matched by keys where both have some, else by position.
    signature : Structure, optional
    dtypes : sequence of dtype
        Of the signature's leaves.

    Raises
    ------
    TypeError
        A list that is no array: its rows differ in shape.
    ValueError
        A number that does not fit into the leaf's dtype. Data of another structure, in which a list may be a column or a container. Data
        that is nested too deep.
    """
    try:
        return _found(data, signature, dtypes)
    except RecursionError:
        Structure(data)  # says how deep data may be
        raise


def _found(data: Any, signature: Structure | None, dtypes: Sequence[np.dtype[Any]]) -> Any:
    if signature is None:
        return _by_content(data, ())
    try:
        return _by_place(data, signature.unflatten(range(len(signature))), dtypes, ())
    except _DiffersError:
        pass
    made = _by_content(data, ())
    list_at = _list_inside(made, ())
    if list_at is None or len(Structure(made)) != len(signature) or _is_flat(made, len(signature)):
        return made
    raise InvalidArgumentError(
        f"{list_at!r}: a {type(_at(made, list_at)).__name__} that may be a column or a container, as the data has not the structure of the "
        "signature; give the data that structure, or each column as an array (numpy.asarray)"
    )


def _by_place(value: Any, wanted: Any, dtypes: Sequence[np.dtype[Any]], path: _Path) -> Any:
    """For data of the structure of `wanted`, whose leaves are their numbers."""
    parts = _parts(value)
    if type(wanted) is int:
        if _is_list(value):
            return _array(value, dtypes[wanted], path)
        if parts is not None:
            raise _DiffersError
        return value
    places = _parts(wanted)
    if parts is None or places is None or len(parts) != len(places):
        raise _DiffersError
    if not (_is_list(value) or _is_list(wanted)):
        if parts.keys() != places.keys():
            raise _DiffersError
        pairs = [(key, key) for key in parts]
    else:
        pairs = list(zip(_in_order(value, parts), _in_order(wanted, places), strict=True))
    return _like(value, {key: _by_place(parts[key], places[place], dtypes, (*path, key)) for key, place in pairs})


def _by_content(value: Any, path: _Path) -> Any:
    if _is_list(value) and len(value) > 0 and all(np.isscalar(each) for each in value):
        return _array(value, None, path)
    parts = _parts(value)
    return value if parts is None else _like(value, {key: _by_content(each, (*path, key)) for key, each in parts.items()})


def _is_list(value: Any) -> bool:
    return _is_ordered(value) and not hasattr(value, "_fields")


def _is_ordered(value: Any) -> bool:
    """A list, a tuple or another sequence that is a container of a nest, as the extension sees it."""
    if isinstance(value, (list, tuple)):
        return True
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, range)):
        return False
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return True
    return False


def _parts(value: Any) -> dict[Any, Any] | None:
    """What a container holds, by key, field or position; None for a leaf."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if _is_ordered(value):
        return dict(enumerate(value))
    if hasattr(type(value), "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in type(value).__attrs_attrs__}
    return dict(value) if isinstance(value, Mapping) else None


def _in_order(value: Any, parts: dict[Any, Any]) -> list[Any]:
    """The keys in the order of the leaves."""
    try:
        return sorted(parts) if isinstance(value, Mapping) else list(parts)
    except TypeError:
        raise _DiffersError from None


def _like(value: Any, parts: dict[Any, Any]) -> Any:
    """A container like this one, of other parts."""
    former = _parts(value) or {}
    if all(former[key] is each for key, each in parts.items()):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(parts[name] for name in value._fields))
    if _is_list(value):
        values = [parts[i] for i in range(len(parts))]
        return tuple(values) if isinstance(value, tuple) else values
    if isinstance(value, Mapping):
        return {key: parts[key] for key in former}
    made = copy.copy(value)
    for name, part in parts.items():
        object.__setattr__(made, name, part)  # it may be frozen
    return made


def _list_inside(value: Any, path: _Path) -> _Path | None:
    """Where the first list is that holds no other."""
    for key, each in (_parts(value) or {}).items():
        found = _list_inside(each, (*path, key))
        if found is not None:
            return found
    return path if _is_list(value) else None


def _is_flat(value: Any, num_leaves: int) -> bool:
    """Are these the columns, one after another?"""
    return _is_list(value) and len(value) == num_leaves and all(_parts(each) is None for each in value)


def _at(value: Any, path: _Path) -> Any:
    for key in path:
        value = (_parts(value) or {})[key]
    return value


def _place(path: _Path) -> str:
    """What an error begins with; data that is one column has no place in it."""
    return f"{path!r}: " if path else ""


def _array(value: Any, dtype: np.dtype[Any] | None, path: _Path) -> np.ndarray[Any, Any]:
    try:
        if any(np.ma.is_masked(each) for each in value if isinstance(each, np.ma.MaskedArray)):
            raise TypeError("elements of it are masked, and no mask is kept: give array.filled(value) of each")
        found = np.asarray(value)
        if found.dtype.kind in "SU":  # which would take the zeros at a text's end for padding
            found = np.asarray(value, object)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _has_tensors(value):
            raise
        remedy = "; where rows differ in shape, add them one by one" if isinstance(error, ValueError) else ""
        raise TypeError(f"{_place(path)}a {type(value).__name__} cannot be made an array of: {error}{remedy}") from None
    if dtype is None or found.dtype == dtype or not _is_plain(value):
        return found
    bounds = _bounds(dtype)
    integers = found.dtype.kind in "iu"
    if bounds is not None and found.dtype.kind == "f" and found.size > 0 and _is_whole(value):
        found = np.asarray(value, object)  # NumPy makes floats of -1 and 2**63
        integers = True
    if bounds is not None and integers:
        least, largest = bounds
        for number in (found.min(), found.max()) if found.size > 0 else ():
            if not least <= int(number) <= largest:
                raise ValueError(f"{_place(path)}the integer {number} does not fit into {dtype}")
        return found.astype(dtype)
    # ml_dtypes' floats have kinds of their own, and so have its integers
    if bounds is None and ((found.dtype.kind in "iuf" and dtype.kind not in "biuOSUT") or found.dtype.kind == dtype.kind == "c"):
        with np.errstate(over="ignore"):
            made = found.astype(dtype)
        lost = found[np.isfinite(found) & ~np.isfinite(made)]
        if len(lost) > 0:
            raise ValueError(f"{_place(path)}the number {lost[0]} does not fit into {dtype}")
        return made
    return found


def _has_tensors(value: Any) -> bool:
    """Is one of PyTorch's inside? NumPy's refusals are TypeErrors, and PyTorch's of one that requires grad a RuntimeError."""
    if _is_list(value):
        return any(_has_tensors(each) for each in value)
    return any(kind.__module__ == "torch" for kind in type(value).__mro__)


def _bounds(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """The least and the largest number of a dtype of integers; None for others."""
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return bounds.min, bounds.max
    return _FOUR_BITS.get(dtype)


def _is_whole(value: Any) -> bool:
    """Are they all integers of Python's?"""
    return all(_is_whole(each) for each in value) if _is_list(value) else isinstance(value, int) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    """Are they Python's own numbers, which have no dtype yet?"""
    if _is_list(value):
        return all(_is_plain(each) for each in value)
    return isinstance(value, (int, float, complex)) and not isinstance(value, (bool, np.generic))
