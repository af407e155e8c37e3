"""Which NumPy dtype stands for which of TensorFlow's DataType numbers, which the wire and the store use."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

STRING = 7

# A quantized integer is shown as the integer that it is stored as.
_TO_NUMPY: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    3: np.dtype(np.int32),
    4: np.dtype(np.uint8),
    5: np.dtype(np.int16),
    6: np.dtype(np.int8),
    STRING: np.dtype(object),
    8: np.dtype(np.complex64),
    9: np.dtype(np.int64),
    10: np.dtype(np.bool_),
    14: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(np.uint16),
    18: np.dtype(np.complex128),
    19: np.dtype(np.float16),
    22: np.dtype(np.uint32),
    23: np.dtype(np.uint64),
    24: np.dtype(ml_dtypes.float8_e5m2),
    25: np.dtype(ml_dtypes.float8_e4m3fn),
    29: np.dtype(ml_dtypes.int4),
    30: np.dtype(ml_dtypes.uint4),
}
_QUANTIZED: dict[int, np.dtype[Any]] = {
    11: np.dtype(np.int8),
    12: np.dtype(np.uint8),
    13: np.dtype(np.int32),
    15: np.dtype(np.int16),
    16: np.dtype(np.uint16),
}
_FROM_NUMPY = {dtype: number for number, dtype in _TO_NUMPY.items()}


def canonical(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of anything that names one: a dtype, a scalar type, a name, a tf.DType, or a dtype of jax or torch.

    Strings of any kind (`str`, `bytes`, ``"string"``, ``"U5"``, ``"S3"``) become ``object``.

    Raises
    ------
    TypeError
        For a dtype that cannot be stored; the text names it.
    """
    number = getattr(dtype, "as_datatype_enum", None)
    if isinstance(number, int) and number in _QUANTIZED:
        return _QUANTIZED[number]
    named = getattr(dtype, "as_numpy_dtype", dtype)
    if isinstance(named, str) and named == "string":
        return np.dtype(object)
    if isinstance(named, str) and hasattr(ml_dtypes, named):
        named = getattr(ml_dtypes, named)
    if named is None:
        raise TypeError("a dtype is needed, got None")
    try:
        found = np.dtype(named)
    except (TypeError, ValueError, SyntaxError):
        raise TypeError(f'{dtype!r} names no dtype; give one such as np.float32, "int64" or str') from None
    if found.kind in "USO" or found.char == "T":
        return np.dtype(object)
    found = found.newbyteorder("=")
    if found not in _FROM_NUMPY:
        raise TypeError(f"dtype {found} cannot be stored; these can: {', '.join(sorted(map(str, _FROM_NUMPY)))}")
    return _TO_NUMPY[_FROM_NUMPY[found]]


def number_of(dtype: np.dtype[Any]) -> int:
    """TensorFlow's DataType number of a canonical dtype."""
    return _FROM_NUMPY[dtype]


def from_number(number: int) -> np.dtype[Any]:
    """The dtype that shows tensors of this DataType number; ValueError for a number that is no dtype here."""
    dtype = _TO_NUMPY.get(number) or _QUANTIZED.get(number)
    if dtype is None:
        raise ValueError(f"DataType {number} is not one that tables can hold")
    return dtype
