"""What sampling gives: `SampleInfo` and `ReplaySample` for single items."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["ItemInfo", "ReplaySample", "SampleInfo"]


class SampleInfo(NamedTuple):
    """What is known of a sampled item at its draw.

    Attributes
    ----------
    key : int
        The item's, unsigned 64 bits; for `Client.update_priorities` and `Client.mutate_priorities`.
    probability : float
        Of this choice; 1 for deterministic selectors.
    table_size : int
        Items in the table, this one included.
    priority : float
    times_sampled : int
        This draw included.
    """

    key: Any
    probability: Any
    table_size: Any
    priority: Any
    times_sampled: Any

    @classmethod
    def dtypes(cls) -> SampleInfo:
        """The NumPy dtype of each field when it stands in arrays."""
        return cls(*(np.dtype(name) for name in ("uint64", "float64", "int64", "float64", "int32")))

    @classmethod
    def tf_dtypes(cls) -> SampleInfo:
        """The same as TensorFlow's dtypes. Imports TensorFlow."""
        import tensorflow as tf

        return cls(*(tf.as_dtype(dtype) for dtype in cls.dtypes()))

    @classmethod
    def tf_shapes(cls) -> SampleInfo:
        """Five times ``tf.TensorShape([])``. Imports TensorFlow."""
        import tensorflow as tf

        return cls(*(tf.TensorShape([]) for _ in cls._fields))

    @classmethod
    def zeros(cls) -> SampleInfo:
        """All fields zero."""
        return cls(0, 0.0, 0, 0.0, 0)


class ReplaySample(NamedTuple):
    """A sampled item, or one step of it: its `SampleInfo` and its data (a nest of arrays)."""

    info: Any
    data: Any


class ItemInfo(NamedTuple):
    """An item as `Client.items` lists it.

    Attributes
    ----------
    key : int
    priority : float
    times_sampled : int
    inserted_at : float
        Seconds since 1970-01-01 UTC.
    length : int
        Rows of its longest column.
    """

    key: int
    priority: float
    times_sampled: int
    inserted_at: float
    length: int
