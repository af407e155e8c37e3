"""`PatternDataset`: items that structured-writer configs make of a dataset of steps. Importing this imports TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from reverie import _arguments, nest, structured_writer
from reverie._graph import Streams, apart, call, tf_dtype, tuples
from reverie._patterns import ItemStream, columns_of
from reverie.cc import patterns_pb2
from reverie.samples import ReplaySample, SampleInfo

__all__ = ["PatternDataset", "pattern_dataset_with_info"]

_BLOCK = 64  # steps that leave the graph at once


class PatternDataset(tf.data.Dataset):
    """The items that a structured writer with these configs would make of the steps of another dataset, in its order.

    Parameters
    ----------
    input_dataset : tf.data.Dataset
        Of steps.
    configs : sequence
        What `structured.create_config` returns: for one table, with patterns of one structure. Their priorities play no part.
    respect_episode_boundaries : bool
        No item reaches back across the end of an episode.
    is_end_of_episode : callable
        ``is_end_of_episode(step)`` gives a bool tensor without dimensions: does the episode end with this step? It is traced, and called
        like the function of `tf.data.Dataset.map`: a step that is a tuple is several arguments.

    Raises
    ------
    ValueError
        A config that cannot be applied, or not to these steps; configs whose items are of different kinds (see
        `structured.infer_signature`); ``is_end_of_episode`` gives something else.

    Notes
    -----
    Steps are read in blocks of 64 where their shapes are known, so some are read before their items are asked for.
    """

    def __init__(
        self,
        input_dataset: Any,
        configs: Sequence[patterns_pb2.StructuredWriterConfig],
        respect_episode_boundaries: bool,
        is_end_of_episode: Callable[..., Any],
    ) -> None:
        step = input_dataset.element_spec
        _arguments.function("is_end_of_episode", is_end_of_episode, "a step")
        signature = structured_writer.infer_signature(configs, step)
        raw = structured_writer.raw_configs(configs)
        structure = nest.Structure(step)
        clear_buffers = bool(respect_episode_boundaries)
        ItemStream(raw, structure, clear_buffers)  # says now what is wrong with them
        self._input = input_dataset
        self._spec = tuples(nest.map_structure(lambda spec: tf.TensorSpec(spec.shape, tf_dtype(spec.dtype)), signature))
        self._streams = Streams(lambda: ItemStream(raw, structure, clear_buffers), lambda _: None)
        self._columns = columns_of(raw)
        self._num_columns = len(structure)
        steps = input_dataset.map(lambda *step: self._ended_columns(is_end_of_episode(*step), step))
        super().__init__(self._items(steps)._variant_tensor)

    # ---- what tf.data asks of a dataset ----

    def _inputs(self) -> list[Any]:
        return [self._input]

    @property
    def element_spec(self) -> Any:
        return self._spec

    # ---- steps into items ----

    @tf.autograph.experimental.do_not_convert
    def _items(self, steps: Any) -> Any:
        fixed = all(spec.shape.is_fully_defined() for spec in steps.element_spec)
        blocks = tf.data.Dataset.zip((self._streams.numbers(), steps.batch(_BLOCK if fixed else 1))).map(self._in_blocks)
        items = self._apart(blocks)
        # In a graph it could not be told, and to ask would keep TensorFlow from optimising it.
        if tf.executing_eagerly() and self._input.cardinality() == tf.data.INFINITE_CARDINALITY:
            items = items.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return items

    @tf.autograph.experimental.do_not_convert
    def _ended_columns(self, end: Any, step: Any) -> tuple[Any, ...]:
        """What leaves the graph of a step: whether the episode ends, and the leaves that configs refer to."""
        if isinstance(end, (bool, np.bool_)):
            end = tf.constant(end)
        if end is None or end.dtype != tf.bool or end.shape.rank != 0:
            raise ValueError(f"is_end_of_episode must return `bool` without dimensions, got {end}")
        leaves = tf.nest.flatten(step)
        return (end, *(leaves[column] for column in self._columns))

    @property
    def _leaves(self) -> list[tuple[Any, bool]]:
        """The spec of each leaf of an item, and whether its first size differs."""
        return [(spec, spec.shape.rank > 0 and spec.shape[0] is None) for spec in tf.nest.flatten(self._spec)]

    def _append(self, number: Any, ends: Any, *columns: Any) -> list[Any]:
        """Outside of the graph: the items of a block, an array a leaf, or two where they differ in length."""
        given: list[Any] = [None] * self._num_columns
        for index, rows in zip(self._columns, columns, strict=True):
            given[index] = np.ascontiguousarray(rows)
        items = self._streams[number].append(given, ends)
        out: list[Any] = []
        for i, (spec, varies) in enumerate(self._leaves):
            if len(items) == 0:
                out.append(np.zeros([0, *(size or 0 for size in spec.shape[varies:])], spec.dtype.as_numpy_dtype))
                out += [np.zeros(1, np.int64)] * varies
            elif varies:
                out += items.joined(i)
            else:
                out.append(items.stacked(i))
        return out

    def _in_blocks(self, number: Any, block: Any) -> tuple[Any, ...]:
        signature = []
        for spec, varies in self._leaves:
            signature.append(tf.TensorSpec([None, *spec.shape[varies:]], spec.dtype))
            signature += [tf.TensorSpec([None], tf.int64)] * varies
        return call(self._append, [number, *block], signature)

    def _apart(self, blocks: Any) -> Any:
        leaves = self._leaves
        if not any(varies for _, varies in leaves):
            return apart(blocks, [spec for spec, _ in leaves]).map(lambda *leaves: tf.nest.pack_sequence_as(self._spec, leaves))

        def item(block: tuple[Any, ...], i: Any) -> Any:
            tensors, out = iter(block), []
            for _, varies in leaves:
                rows = next(tensors)
                borders = next(tensors) if varies else None
                out.append(rows[i] if borders is None else rows[borders[i] : borders[i + 1]])
            return tf.nest.pack_sequence_as(self._spec, out)

        def items(*block: Any) -> Any:
            at = next(i for i, (_, varies) in enumerate(leaves) if varies)
            borders = block[at + sum(varies for _, varies in leaves[:at]) + 1]
            return tf.data.Dataset.range(tf.size(borders, tf.int64) - 1).map(lambda i: item(block, i))

        return blocks.flat_map(items)


def pattern_dataset_with_info(
    input_dataset: Any,
    configs: Sequence[patterns_pb2.StructuredWriterConfig],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[..., Any],
) -> Any:
    """As `PatternDataset`, but of `ReplaySample`, with an info of zeros: for what is made for sampled items."""
    items = PatternDataset(input_dataset, configs, respect_episode_boundaries, is_end_of_episode)
    unpacked = type(items.element_spec) is tuple  # as tf.data does it
    return items.map(lambda *item: ReplaySample(SampleInfo.zeros(), item if unpacked else item[0]))
