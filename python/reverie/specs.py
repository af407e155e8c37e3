"""What a table expects of a column: `TensorSpec`, and `BoundedTensorSpec` which also carries limits."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reverie import _arguments, _dtypes, nest

__all__ = ["BoundedTensorSpec", "TensorSpec"]

MAX_RANK = 33


def _canonical_shape(shape: Any) -> tuple[int | None, ...] | None:
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    sizes: list[int | None] = []
    for size in _arguments.listed("shape", shape, "sizes (ints or None)"):
        size = getattr(size, "value", size)  # a Dimension of TensorFlow 1
        if size is None:
            sizes.append(None)
            continue
        size = _arguments.integer("a size of shape", size)
        if size < 0:
            raise ValueError(f"shape {tuple(shape)}: a size must not be negative; write None where any size fits")
        sizes.append(size)
    if len(sizes) > MAX_RANK:
        raise ValueError(f"shape {tuple(sizes)} has {len(sizes)} dimensions; at most {MAX_RANK} can be stored")
    return tuple(sizes)


class TensorSpec:
    """dtype and shape of a tensor.

    Parameters
    ----------
    shape : sequence of int or None
        ``None`` as a size fits any size; ``None`` instead of the sequence fits any shape.
    dtype : dtype-like
        Anything NumPy or ml_dtypes has a dtype for, or a tf.DType. Strings are ``object`` (also ``str`` and ``"string"``).
    name : str, optional
        Kept, and shown to others; not checked but for NUL characters, and what UTF-8 cannot encode, which no name may have.
    """

    __slots__ = ("_dtype", "_name", "_shape")

    def __init__(self, shape: Sequence[int | None] | None, dtype: Any = np.float32, name: str | None = None) -> None:
        self._shape = _canonical_shape(shape)
        self._dtype = _dtypes.canonical(dtype)
        self._name = None if name is None else _arguments.text("a spec's name", name)

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """Its sizes, None where any will do; None in the place of all of them: any shape."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's; of strings ``object``."""
        return self._dtype

    @property
    def name(self) -> str | None:
        """As given."""
        return self._name

    def _key(self) -> tuple[Any, ...]:
        return (type(self), self._shape, self._dtype, self._name)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, TensorSpec) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype}, name={self._name!r})"

    def __reduce__(self) -> Any:
        return (type(self), (self._shape, self._dtype, self._name))


class BoundedTensorSpec(TensorSpec):
    """A `TensorSpec` with the least and the greatest value, which are kept and shown but never checked.

    Parameters
    ----------
    shape, dtype, name
        As for `TensorSpec`.
    minimum, maximum : array-like
        Of the spec's dtype; broadcastable to its shape.
    """

    __slots__ = ("_maximum", "_minimum")

    def __init__(
        self, shape: Sequence[int | None] | None, dtype: Any, minimum: Any, maximum: Any, name: str | None = None
    ) -> None:
        super().__init__(shape, dtype, name)
        self._minimum = _limit("minimum", minimum, self._dtype)
        self._maximum = _limit("maximum", maximum, self._dtype)

    @property
    def minimum(self) -> np.ndarray[Any, Any]:
        """The least value: an array that cannot be written to."""
        return self._minimum

    @property
    def maximum(self) -> np.ndarray[Any, Any]:
        """The greatest value: an array that cannot be written to."""
        return self._maximum

    def _key(self) -> tuple[Any, ...]:
        limits = (self._minimum, self._maximum)
        contents = tuple(tuple(each.flat) if each.dtype.hasobject else each.tobytes() for each in limits)
        return (*super()._key(), contents, self._minimum.shape, self._maximum.shape)

    def __repr__(self) -> str:
        return (
            f"BoundedTensorSpec(shape={self._shape}, dtype={self._dtype}, name={self._name!r}, "
            f"minimum={self._minimum!r}, maximum={self._maximum!r})"
        )

    def __reduce__(self) -> Any:
        return (type(self), (self._shape, self._dtype, self._minimum, self._maximum, self._name))


def _limit(name: str, value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    try:
        array = np.array(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must be of the spec's dtype {dtype}, got {value!r}") from None
    if dtype.hasobject:
        flat = [item.encode() if isinstance(item, str) else bytes(item) for item in array.flat]
        array = np.array([*flat, None], dtype=object)[:-1].reshape(array.shape)
    array.setflags(write=False)
    return array


def as_spec(leaf: Any, path: tuple[Any, ...]) -> TensorSpec:
    """The spec that a leaf of a signature is, or looks like: whatever has a shape and a dtype and is not itself an array."""
    if isinstance(leaf, TensorSpec):
        return leaf
    if not isinstance(leaf, type) and all(hasattr(leaf, each) for each in ("__array__", "shape", "dtype")):
        raise ValueError(
            f"Unsupported signature spec at {path}: an array is a value and no spec; give reverie.TensorSpec(array.shape, array.dtype)"
        )
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype") or hasattr(leaf, "__array__") or isinstance(leaf, type):
        raise ValueError(
            f"Unsupported signature spec at {path}: {leaf!r}; give a reverie.TensorSpec (or what has .shape and .dtype)"
        )
    if leaf.dtype is None:
        raise ValueError(
            f"Unsupported signature spec at {path}: {leaf!r} has no dtype: its values are not arrays; give a "
            "reverie.TensorSpec of what is stored of them"
        )
    if (
        any(hasattr(leaf, other) for other in ("ragged_rank", "row_splits_dtype", "dense_shape"))
        or "Sparse" in type(leaf).__name__
    ):
        raise ValueError(f"Unsupported signature spec at {path}: {leaf!r}; only dense tensors can be stored")
    name = getattr(leaf, "name", None)
    name = name if isinstance(name, str) else None
    minimum, maximum = getattr(leaf, "minimum", None), getattr(leaf, "maximum", None)
    if minimum is None or maximum is None:
        return TensorSpec(leaf.shape, leaf.dtype, name)
    return BoundedTensorSpec(leaf.shape, leaf.dtype, minimum, maximum, name)


def _with_plain_containers(signature: Any) -> Any:
    """The signature with dicts and tuples in the place of Gymnasium's Dict and Tuple spaces, which hold nothing but spaces."""
    spaces = getattr(signature, "spaces", None)
    if isinstance(signature, Mapping) and isinstance(spaces, Mapping):
        return {name: _with_plain_containers(each) for name, each in spaces.items()}
    if isinstance(signature, Sequence) and isinstance(spaces, (tuple, list)):
        return tuple(map(_with_plain_containers, spaces))
    if type(signature) is dict:
        return {name: _with_plain_containers(each) for name, each in signature.items()}
    if type(signature) in (list, tuple):
        return type(signature)(map(_with_plain_containers, signature))
    if isinstance(signature, tuple) and hasattr(signature, "_fields"):
        return type(signature)(*map(_with_plain_containers, signature))
    return signature


def canonical_signature(signature: Any) -> Any | None:
    """The signature with every leaf a `TensorSpec`; None for one that says nothing (None, and empty containers)."""
    try:
        signature = _with_plain_containers(signature)
    except RecursionError:
        nest.Structure(signature)  # says how deep one may be
        raise
    if signature is None or (isinstance(signature, (dict, list, tuple)) and not signature):
        return None
    paths = nest.paths(signature)
    leaves = [as_spec(leaf, path) for path, leaf in zip(paths, nest.flatten(signature), strict=True)]
    return nest.unflatten_as(signature, leaves)


def shown(signature: Any | None) -> Any | None:
    """The signature as who asks for it expects it: with tf.TensorSpec leaves where "reverb" is this package and TensorFlow is loaded.

    Code that was written for Reverb may ask a spec for what only TensorFlow's has, such as ``spec.shape.as_list()``.
    """
    tensorflow = sys.modules.get("tensorflow")
    if (
        signature is None
        or not hasattr(tensorflow, "as_dtype")
        or getattr(sys.modules.get("reverb"), "__name__", "") != "reverie"
    ):
        return signature
    return nest.map_structure(lambda spec: _of_tensorflow(tensorflow, spec), signature)


def _of_tensorflow(tensorflow: Any, spec: TensorSpec) -> Any:
    dtype = tensorflow.as_dtype("string" if spec.dtype.hasobject else spec.dtype)
    if not isinstance(spec, BoundedTensorSpec):
        return tensorflow.TensorSpec(spec.shape, dtype, spec.name)
    from tensorflow.python.framework.tensor_spec import BoundedTensorSpec as Bounded

    return Bounded(spec.shape, dtype, spec.minimum, spec.maximum, spec.name)
