"""Whether what a dataset was made for can come of a table's items: looked at before one is asked for."""

from __future__ import annotations

from typing import Any

from reverie import _dtypes
from reverie.errors import InvalidArgumentError

Shape = tuple[int | None, ...] | None


def check(table: str, signature: list[tuple[str, int, Any]], wanted: list[tuple[int, Shape]], timesteps: bool) -> None:
    """Raises InvalidArgumentError where no item that fits the signature gives the wanted tensors.

    Parameters
    ----------
    table : str
    signature : list of (str, int, shape)
        Columns as the extension tells them: name, number of the dtype, sizes with -1 for what varies, or None. Empty: anything goes.
    wanted : list of (int, shape)
        Tensors of an element: number of the dtype, sizes with None for what varies, or None.
    timesteps : bool
        An element is a step of an item, not an item.
    """
    if not signature:
        return
    if len(signature) != len(wanted):
        names = ", ".join(f'"{name}"' for name, _, _ in signature)
        raise InvalidArgumentError(
            f'Inconsistent number of tensors: the signature of table "{table}" has {len(signature)} ({names}), '
            f"the dataset was made for {len(wanted)}"
        )
    for i, ((name, dtype, sizes), (wanted_dtype, wanted_shape)) in enumerate(zip(signature, wanted, strict=True)):
        shape = None if sizes is None else tuple(None if size < 0 else size for size in sizes)
        same = _dtypes.from_number(dtype) == _dtypes.from_number(wanted_dtype)
        if same and any(_may_be_equal(each, wanted_shape) for each in _of_elements(shape, timesteps)):
            continue
        hint = "; steps have no time dimension: give their shapes without it" if timesteps and same else ""
        raise InvalidArgumentError(
            f'Requested incompatible tensor from table "{table}": tensor {i} "{name}" is {_text(dtype, shape)} in its signature, '
            f"the dataset was made for {_text(wanted_dtype, wanted_shape)}{hint}"
        )


def _of_elements(shape: Shape, timesteps: bool) -> list[Shape]:
    """The shapes that elements may have: a column that fits its spec has the spec's shape, or is a sequence of rows that have."""
    if shape is None:
        return [None]
    if timesteps:
        return [shape, shape[1:]] if shape else [shape]
    return [shape, (None, *shape)]


def _may_be_equal(a: Shape, b: Shape) -> bool:
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


def _text(dtype: int, shape: Shape) -> str:
    name = "string" if dtype == _dtypes.STRING else _dtypes.from_number(dtype).name
    return f"{name} of any shape" if shape is None else f"{name} {list(shape)}"
