"""Python objects behind `tf.data` iterators: what a graph has of each is a number. Importing this imports TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from reverie import _core
from reverie.errors import InvalidArgumentError, ReverieError

__all__ = [
    "Streams",
    "apart",
    "call",
    "followed",
    "have_elements",
    "numbered",
    "only_found",
    "op",
    "operation",
    "slices",
    "tf_dtype",
    "tuples",
]

Stream = TypeVar("Stream")
_CHECK = [tf.int32, tf.uint8]  # of `_checked`


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


class _Dataset(tf.data.Dataset):
    """What one of TensorFlow's operations makes.

    Parameters
    ----------
    variant : variant tensor
    spec : nest of tf.TensorSpec
        Of an element.
    kept : object
        What the operation calls: to be kept as long as somebody may call it.
    inputs : sequence of tf.data.Dataset
    """

    def __init__(self, variant: Any, spec: Any, kept: Any, inputs: Sequence[Any] = ()) -> None:
        self._spec = spec
        self._kept = kept
        self._read = list(inputs)
        super().__init__(variant)

    def __getstate__(self) -> Any:
        # As TensorFlow's datasets say; also of one that was made within a graph, whose tensor has no values to ask for.
        raise tf.errors.InvalidArgumentError(None, None, "Cannot convert a Tensor of dtype variant to a NumPy array.")

    def _inputs(self) -> list[Any]:
        return self._read

    @property
    def element_spec(self) -> Any:
        return self._spec


def numbered(begin: Callable[..., Any], end: Callable[[Any], Any], arguments: Any) -> Any:
    """A dataset that gives a number again and again.

    Parameters
    ----------
    begin : callable
        Makes an iterator's number, of the arguments. Traced, as is `end`.
    end : callable
        ``end(number)`` gives a number; when the iterator was dropped.
    arguments : sequence of tensors
    """
    number = tf.TensorSpec([], tf.int64)
    traced = [
        _traced(begin, [tf.TensorSpec(each.shape, each.dtype) for each in arguments]),
        _untouched(lambda number: [number], [number]),
        _traced(end, [number]),
    ]
    variant = tf.raw_ops.GeneratorDataset(
        init_func_other_args=arguments,
        next_func_other_args=[],
        finalize_func_other_args=[],
        init_func=traced[0],
        next_func=traced[1],
        finalize_func=traced[2],
        output_types=[number.dtype],
        output_shapes=[number.shape],
    )
    return _Dataset(variant, number, traced)


def followed(dataset: Any, function: Callable[..., Any], spec: Any) -> Any:
    """``dataset.map(function)`` in the thread that asks for an element, which mostly is one of a `prefetch`. TensorFlow's own hands every
    call to a pool of threads, whose idle ones look for work in a loop for a while.

    Parameters
    ----------
    function : callable
        Of the leaves of an element; with an operation that has effects, or else TensorFlow makes this parallel. Where it fails with
        OUT_OF_RANGE, that is the end.
    spec : nest of tf.TensorSpec
        Of what it gives.
    """
    traced = _traced(lambda *leaves: tf.nest.flatten(function(*leaves)), tf.nest.flatten(dataset.element_spec))
    variant = tf.raw_ops.MapDataset(
        input_dataset=dataset._variant_tensor,
        other_arguments=traced.captured_inputs,
        f=traced,
        use_inter_op_parallelism=False,
        preserve_cardinality=False,
        **_described(spec),
    )
    return _Dataset(variant, spec, traced, [dataset])


def only_found(dataset: Any, spec: Any) -> Any:
    """Of elements with a bool in front, those where it is true, without it.

    Parameters
    ----------
    spec : nest of tf.TensorSpec
        Of what is behind it.
    """
    leaves = tf.nest.flatten(dataset.element_spec)
    first = _untouched(lambda *leaves: leaves[0], leaves)
    variant = tf.raw_ops.FilterDataset(
        input_dataset=dataset._variant_tensor, other_arguments=[], predicate=first, **_described(dataset.element_spec)
    )
    return followed(_Dataset(variant, dataset.element_spec, first, [dataset]), _without_first, spec)


def _without_first(_: Any, *leaves: Any) -> list[Any]:
    with tf.control_dependencies([_checked(0, tf.constant([], tf.uint8))]):  # an operation that has effects
        return [tf.identity(leaf) for leaf in leaves]


def _described(spec: Any) -> dict[str, Any]:
    flat = tf.nest.flatten(spec)
    return {"output_types": [each.dtype for each in flat], "output_shapes": [each.shape for each in flat]}


def _untouched(function: Callable[..., Any], specs: list[Any]) -> Any:
    """A function that returns arguments as they are. TensorFlow sees that, and does not call it, where nothing is put around them."""
    return tf.compat.v1.wrap_function(function, specs)


def _traced(function: Callable[..., Any], specs: list[Any]) -> Any:
    """The function as a graph, which runs where tf.data does, whatever device the caller has named."""

    def on_host(*arguments: Any) -> Any:
        with tf.device("/CPU:0"):
            return function(*arguments)

    return tf.function(on_host, input_signature=specs, autograph=False).get_concrete_function()


def call(function: Callable[..., Sequence[Any]], inputs: Sequence[Any], specs: Sequence[Any]) -> tuple[Any, ...]:
    """The tensors of these specs that a Python function returns as arrays. Arrays that are 64-aligned are not copied.

    What the function raises is TensorFlow's error of its kind.
    """
    if tf.executing_eagerly():
        made = [tf.convert_to_tensor(each) for each in _now(function, inputs)]
    else:
        code, text, *made = tf.numpy_function(_later(function, specs), inputs, [*_CHECK, *(spec.dtype for spec in specs)])
        with tf.control_dependencies([_checked(code, text)]):
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
    return _checked(*tf.numpy_function(_later(run, ()), inputs, _CHECK)).op


def op(name: str, inputs: Sequence[Any], dtypes: Sequence[Any], attributes: dict[str, Any] | None = None) -> Any:
    """One of our operations, in the graph that is being made."""
    given = [tf.convert_to_tensor(each) for each in inputs]
    return tf.compat.v1.get_default_graph().create_op(name, given, dtypes, attrs=attributes or {}).outputs


def _register() -> None:
    with tf.Graph().as_default():
        try:
            op("ReverieCheck", [0, tf.constant([], tf.uint8)], [tf.int32])
        except (RuntimeError, tf.errors.NotFoundError):
            _core.register_tensorflow_operations()


_register()

# ---- errors: they keep their kind ----


def _now(function: Callable[..., Sequence[Any]], inputs: Sequence[Any]) -> Sequence[Any]:
    try:
        return function(*(each.numpy() if tf.is_tensor(each) else each for each in inputs))
    except _KNOWN as error:
        raise tf.compat.v1.errors.exception_type_from_error_code(_code(error))(None, None, str(error)) from None


def _later(function: Callable[..., Sequence[Any]], specs: Sequence[Any]) -> Callable[..., list[Any]]:
    """For `numpy_function`: what the function returns after a code and a text, or zeros after those of its error (`_checked`)."""

    def run(*arguments: Any) -> list[Any]:
        try:
            return [np.int32(0), _text(""), *_core.call_in_graph(function, arguments)]
        except _KNOWN as error:
            return [np.int32(_code(error)), _text(str(error)), *(_zeros(spec) for spec in specs)]

    return run


_KNOWN = (ReverieError, TypeError, ValueError)  # others are a bug: `numpy_function` says where


def _code(error: Exception) -> int:
    return error.code if isinstance(error, ReverieError) else InvalidArgumentError.code


def _text(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


def _checked(code: Any, text: Any) -> Any:
    """An operation that fails if the code is not 0."""
    return op("ReverieCheck", [code, text], [tf.int32])[0]


def _zeros(spec: Any) -> Any:
    shape = [size or 0 for size in spec.shape] if spec.shape.rank else []
    return np.full(shape, b"" if spec.dtype == tf.string else 0, spec.dtype.as_numpy_dtype)


def apart(blocks: Any, specs: Any) -> Any:
    """The elements of blocks, one by one.

    Parameters
    ----------
    blocks : tf.data.Dataset
    specs : sequence of tf.TensorSpec
        Of an element's tensors; those that have no sizes may be left out.
    """
    return blocks.unbatch() if have_elements(specs) else slices(blocks)


def have_elements(specs: Any) -> bool:
    """Every tensor of these specs has elements. TensorFlow's own `unbatch`, the quicker one, ends the process at one that has none."""
    return all(spec.shape.is_fully_defined() and 0 not in spec.shape.as_list() for spec in specs)


def slices(blocks: Any) -> Any:
    """The elements of blocks, one by one, whatever their sizes."""
    return blocks.flat_map(lambda *block: tf.data.Dataset.from_tensor_slices(block if len(block) > 1 else block[0]))


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
