"""Python objects behind `tf.data` iterators: what a graph has of each is a number. Importing this imports TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from reverie.errors import NotFoundError

__all__ = ["Streams", "call", "tf_dtype", "tuples"]

Stream = TypeVar("Stream")


class Streams(Generic[Stream]):
    """One object for each iterator that is under way.

    Parameters
    ----------
    make : callable
        Makes the object when an iterator begins; is called with what `numbers` was given, as arrays.
    close : callable
        Is called with it when the iterator has ended, or was dropped.
    """

    def __init__(self, make: Callable[..., Stream], close: Callable[[Stream], None]) -> None:
        self._make = make
        self._close = close
        self._numbers = itertools.count()
        self._running: dict[int, Stream] = {}

    def numbers(self, arguments: Sequence[Any] = ()) -> Any:
        """A dataset that gives the number of its iterator's object again and again."""
        once = tf.data.Dataset.from_generator(self._hold, args=arguments, output_signature=tf.TensorSpec([], tf.int64))
        return once.flat_map(lambda number: tf.data.Dataset.from_tensors(number).repeat())

    def _hold(self, *arguments: Any) -> Iterator[np.int64]:
        number = next(self._numbers)
        stream = self._make(*arguments)
        self._running[number] = stream
        try:
            yield np.int64(number)
        finally:  # tf.data drops the generator with the iterator
            del self._running[number]
            self._close(stream)

    def __getitem__(self, number: Any) -> Stream:
        return self._running[int(number)]


def call(function: Callable[..., Sequence[Any]], inputs: Sequence[Any], specs: Sequence[Any]) -> tuple[Any, ...]:
    """The tensors of these specs that a Python function returns as arrays. Arrays that are 64-aligned are not copied.

    What the function raises is an `InvalidArgumentError` or `UnknownError` in a graph, but a `reverie.NotFoundError` is one of that name,
    wherever a result is used: a graph leaves out what nobody needs.
    """

    def run(*arguments: Any) -> list[Any]:
        try:
            return [b"", *function(*arguments)]
        except NotFoundError as error:
            return [_as_path(error), *(_zeros(spec) for spec in specs)]

    missing, *made = tf.numpy_function(run, inputs, [tf.string, *(spec.dtype for spec in specs)])
    missing.set_shape([])
    # A graph's errors have the kind of the operation that fails. This one's, of a file that is not there, is the one wanted.
    with tf.control_dependencies([tf.cond(tf.equal(missing, ""), lambda: missing, lambda: tf.io.read_file(missing))]):
        made = [tf.identity(tensor) for tensor in made]
    for tensor, spec in zip(made, specs, strict=True):
        tensor.set_shape(spec.shape)
    return tuple(made)


def _as_path(error: NotFoundError) -> bytes:
    """The error's text as what no file is called: a path may not be long, nor begin like an address."""
    return str(error).encode()[:200].replace(b"://", b": //").replace(b"\0", b"") + b" /"


def _zeros(spec: Any) -> Any:
    shape = [size or 0 for size in spec.shape] if spec.shape.rank else []
    return np.full(shape, b"" if spec.dtype == tf.string else 0, spec.dtype.as_numpy_dtype)


def tf_dtype(dtype: Any) -> Any:
    """TensorFlow's dtype for one of ours."""
    return tf.as_dtype("string" if np.dtype(dtype) == np.dtype(object) else dtype)


def tuples(nest: Any) -> Any:
    """Lists become tuples, as everywhere in tf.data."""
    if isinstance(nest, list):
        return tuple(tuples(each) for each in nest)
    if isinstance(nest, tuple):
        made = [tuples(each) for each in nest]
        return type(nest)(*made) if hasattr(nest, "_fields") else tuple(made)
    if isinstance(nest, dict):
        return type(nest)((key, tuples(value)) for key, value in nest.items())
    return nest
