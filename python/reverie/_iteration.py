"""Eager loops over a dataset, without most of what `next` costs in TensorFlow.

Its iterator builds the nest of each element anew, by rules for every kind of value there is: for a sample's six tensors that takes several
times as long as to fetch them. Here it is the same iterator, but where all values are plain tensors the nest is built by a function
that is made once. Inside a graph nothing changes. Importing this imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from reverie import _core

try:  # not public; without it, iterators are TensorFlow's own
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator
except ImportError:
    OwnedIterator = None

__all__ = ["QuickDataset", "QuickIteration"]

Pack = Callable[[Iterator[Any]], Any]


def _packer(spec: Any) -> Pack | None:
    """What makes an element of its flat tensors; None for a spec with anything but tensors, dicts and tuples."""
    if type(spec) is tf.TensorSpec:
        return next
    if type(spec) is dict:
        keys = sorted(spec)
        parts = [_packer(spec[key]) for key in keys]
        order = list(spec)

        def of_dict(tensors: Iterator[Any]) -> Any:
            values = {key: part(tensors) for key, part in zip(keys, parts, strict=True)}  # type: ignore[misc]
            return {key: values[key] for key in order}

        return None if None in parts else of_dict
    if isinstance(spec, tuple):
        parts = [_packer(each) for each in spec]
        make = getattr(type(spec), "_make", tuple)
        return None if None in parts else lambda tensors: make([part(tensors) for part in parts])  # type: ignore[misc]
    return None


def _quick(iterator: Any) -> Any:
    """The iterator, made quick if it can be."""
    pack = _packer(iterator.element_spec)
    if type(iterator) is OwnedIterator and pack is not None and tf.config.experimental.get_synchronous_execution():
        iterator.__class__ = _QuickIterator
        iterator._pack = pack
        iterator._types = [dtype.as_datatype_enum for dtype in iterator._flat_output_types]
        # Unknown: the tensors have theirs, which were checked where they were made, and to say them again takes time.
        iterator._shapes = [None] * len(iterator._types)
    return iterator


if OwnedIterator is not None:

    class _QuickIterator(OwnedIterator):
        def _next_internal(self) -> Any:
            if not tf.executing_eagerly():
                return super()._next_internal()
            _core.settle_interrupts()
            try:
                tensors = tf.raw_ops.IteratorGetNext(
                    iterator=self._iterator_resource, output_types=self._types, output_shapes=self._shapes
                )
            except RuntimeError as error:  # what TensorFlow makes of Ctrl-C that is raised where it makes an error
                if "KeyboardInterrupt" in str(error):
                    raise KeyboardInterrupt from None
                raise
            return self._pack(iter(tensors))


class QuickIteration:
    """Of a dataset: it, and what is usually put behind it, are iterated over quickly."""

    @tf.autograph.experimental.do_not_convert
    def __iter__(self) -> Any:
        return _quick(super().__iter__())  # type: ignore[misc]

    @tf.autograph.experimental.do_not_convert
    def prefetch(self, *args: Any, **kwargs: Any) -> Any:
        return QuickDataset(super().prefetch(*args, **kwargs))  # type: ignore[misc]

    @tf.autograph.experimental.do_not_convert
    def take(self, *args: Any, **kwargs: Any) -> Any:
        return QuickDataset(super().take(*args, **kwargs))  # type: ignore[misc]

    @tf.autograph.experimental.do_not_convert
    def repeat(self, *args: Any, **kwargs: Any) -> Any:
        return QuickDataset(super().repeat(*args, **kwargs))  # type: ignore[misc]

    @tf.autograph.experimental.do_not_convert
    def batch(self, *args: Any, **kwargs: Any) -> Any:
        return QuickDataset(super().batch(*args, **kwargs))  # type: ignore[misc]

    @tf.autograph.experimental.do_not_convert
    def with_options(self, *args: Any, **kwargs: Any) -> Any:
        return QuickDataset(super().with_options(*args, **kwargs))  # type: ignore[misc]


class QuickDataset(QuickIteration, tf.data.Dataset):
    """Another dataset, to be iterated over quickly."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        super().__init__(dataset._variant_tensor)

    def _inputs(self) -> list[Any]:
        return [self._dataset]

    @property
    def element_spec(self) -> Any:
        return self._dataset.element_spec
