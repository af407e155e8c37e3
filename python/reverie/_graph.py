"""Python objects behind `tf.data` iterators: what a graph has of each is a number. Importing this imports TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from reverie.errors import NotFoundError, ResourceExhaustedError, ReverieError

__all__ = ["Streams", "call", "operation", "tf_dtype", "tuples"]

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

    What the function raises is TensorFlow's error of its kind, in a graph as far as `_later` knows it.
    """
    if tf.executing_eagerly():
        made = [tf.convert_to_tensor(each) for each in _now(function, inputs)]
    else:
        missing, *made = tf.numpy_function(_later(function, specs), inputs, [tf.string, *(spec.dtype for spec in specs)])
        with tf.control_dependencies([_found(missing)]):
            made = [tf.identity(tensor) for tensor in made]
    for tensor, spec in zip(made, specs, strict=True):
        tensor.set_shape(spec.shape)
    return tuple(made)


def operation(function: Callable[..., None], inputs: Sequence[Any]) -> Any:
    """Calls a Python function for what it does; errors as in `call`. None; in a graph, the operation that does it."""

    def run(*arguments: Any) -> tuple[()]:
        function(*arguments)
        return ()

    if tf.executing_eagerly():
        _now(run, inputs)
        return None
    return _found(tf.numpy_function(_later(run, ()), inputs, [tf.string])[0]).op


# ---- errors: a graph's have the kind of the operation that fails ----


def _now(function: Callable[..., Sequence[Any]], inputs: Sequence[Any]) -> Sequence[Any]:
    try:
        return function(*(each.numpy() if tf.is_tensor(each) else each for each in inputs))
    except ReverieError as error:
        kinds = (getattr(tf.errors, kind.__name__, None) for kind in type(error).__mro__)  # TensorFlow's have the same names
        raise next(filter(None, kinds), tf.errors.UnknownError)(None, None, str(error)) from None
    except (TypeError, ValueError) as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from None


def _later(function: Callable[..., Sequence[Any]], specs: Sequence[Any]) -> Callable[..., list[Any]]:
    """For `numpy_function`: what the function returns after an empty text, or zeros after the text of a `NotFoundError`.

    Of Python's errors `numpy_function` knows ValueError and TypeError as INVALID_ARGUMENT, MemoryError as RESOURCE_EXHAUSTED and
    NotImplementedError as UNIMPLEMENTED. All others are UNKNOWN.
    """

    def run(*arguments: Any) -> list[Any]:
        try:
            return [b"", *function(*arguments)]
        except NotFoundError as error:
            return [_as_path(error), *(_zeros(spec) for spec in specs)]
        except ResourceExhaustedError as error:
            raise MemoryError(str(error)) from None

    return run


def _found(missing: Any) -> Any:
    missing.set_shape([])
    return tf.cond(tf.equal(missing, ""), lambda: missing, lambda: _read(missing))


def _read(path: Any) -> Any:
    """Reads the file, which is not there. The assertion is why a graph cannot leave it out where nobody needs what it says."""
    said = tf.io.read_file(path)
    with tf.control_dependencies([tf.debugging.Assert(False, [said])]):
        return tf.identity(said)


def _as_path(error: NotFoundError) -> bytes:
    """The error's text as what no file is called: reading it is an operation that fails with NOT_FOUND and says so.

    A part of a path may not be long, nor begin like an address.
    """
    text = str(error).encode()[:200].decode("utf-8", "ignore").replace("://", ": //").replace("\0", "")
    return f"{text} (in a graph TensorFlow adds:) /".encode()


def _zeros(spec: Any) -> Any:
    shape = [size or 0 for size in spec.shape] if spec.shape.rank else []
    return np.full(shape, b"" if spec.dtype == tf.string else 0, spec.dtype.as_numpy_dtype)


def tf_dtype(dtype: Any) -> Any:
    """TensorFlow's dtype for one of ours, or of its own."""
    return dtype if isinstance(dtype, tf.DType) else tf.as_dtype("string" if np.dtype(dtype) == np.dtype(object) else dtype)


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
