"""What the dataset modules share: samples that enter a `tf.data` graph in blocks.

A call into Python for each element would cost more than all else. Here one call gives as many samples as are there already, gathered
into one array a column, and the graph takes them apart. Where `batch` follows at once, it gives whole batches, and only small ones are
taken apart. While nothing can be sampled it gives empty blocks, so that the graph can be cancelled.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf

from reverie import _core
from reverie._feeding import Stream
from reverie._graph import Streams, call, tf_dtype, tuples
from reverie._iteration import QuickDataset, QuickIteration
from reverie.client import Client
from reverie.samples import ReplaySample, SampleInfo

__all__ = ["SampleDataset", "first_step"]

_WAIT_MS = 100  # between looks at whether anybody still wants samples
_BLOCK = 1024  # samples that enter the graph at once, at most
_BLOCK_BYTES = 4 << 20
_BATCH_BYTES = 256 << 10  # of a batch that is a block of its own: taking it apart would copy it


@dataclasses.dataclass(frozen=True)
class _Cut:
    """How blocks are cut: into single samples (`batch` is None), into batches, or not at all: then a block is a batch."""

    batch: int | None = None
    drop_remainder: bool = False
    alone: bool = False

    @property
    def least(self) -> int:
        return self.batch or 1

    def leading(self) -> tuple[int | None, ...]:
        """The dimensions of a block in front of a sample's."""
        if self.batch is None or self.alone:
            return (None,)
        return (None, self.batch if self.drop_remainder else None)

    def most(self, samples: int) -> int:
        return self.least if self.alone else max(samples // self.least, 1) * self.least

    def shape(self, array: Any) -> Any:
        """[n, ...] as [batches, size, ...]; what is too little for a batch is one, shorter."""
        if self.batch is None or self.alone:
            return array
        size = min(self.batch, len(array))
        return array.reshape(-1, size, *array.shape[1:])


def _info_specs(leading: tuple[int | None, ...]) -> list[Any]:
    return [tf.TensorSpec(leading, dtype) for dtype in SampleInfo.dtypes()]


class SampleDataset(QuickIteration, tf.compat.v1.data.Dataset):
    """Items of a table, or their steps, as a dataset. See `reverie.TrajectoryDataset` and `reverie.TimestepDataset`."""

    _timesteps: bool

    def __init__(
        self,
        server_address: Any,
        table: Any,
        dtypes: Any,
        shapes: Any,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        max_samples: int = -1,
    ) -> None:
        dtypes, shapes = tuples(dtypes), tuples(shapes)
        try:
            tf.nest.assert_same_structure(dtypes, shapes, check_types=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"dtypes and shapes must be nests of the same structure: {error}") from None
        wrong = [shape for shape in tf.nest.flatten(shapes) if not isinstance(shape, tf.TensorShape)]
        if wrong:
            raise ValueError(f"shapes must be a nest of tf.TensorShape, got {wrong[0]!r}")
        arguments = (
            max_in_flight_samples_per_worker,
            num_workers_per_iterator,
            max_samples_per_stream,
            rate_limiter_timeout_ms,
            max_samples,
        )
        Stream("", *arguments)  # says now what is wrong with them
        self._source = (tf.convert_to_tensor(server_address, tf.string), tf.convert_to_tensor(table, tf.string))
        self._arguments = arguments
        self._structure = dtypes
        self._specs = [
            tf.TensorSpec(shape, dtype) for shape, dtype in zip(tf.nest.flatten(shapes), tf.nest.flatten(dtypes), strict=True)
        ]
        super().__init__()

    # ---- what tf.data asks of a dataset ----

    def _inputs(self) -> list[Any]:
        return []

    def _as_variant_tensor(self) -> Any:
        return self._samples(_Cut())._variant_tensor

    @property
    def element_spec(self) -> Any:
        return ReplaySample(SampleInfo(*_info_specs(())), tf.nest.pack_sequence_as(self._structure, self._specs))

    @tf.autograph.experimental.do_not_convert
    def batch(
        self,
        batch_size: Any,
        drop_remainder: Any = False,
        num_parallel_calls: Any = None,
        deterministic: Any = None,
        name: Any = None,
    ) -> Any:
        """As `tf.data.Dataset.batch`; each batch is gathered once, and enters the graph whole."""
        size = tf.get_static_value(batch_size)
        drop = tf.get_static_value(drop_remainder)
        fixed = all(spec.shape.is_fully_defined() for spec in self._specs)
        if size is None or drop is None or size < 1 or self._timesteps or not fixed:
            return super().batch(batch_size, drop_remainder, num_parallel_calls, deterministic, name)
        bytes_ = int(size) * sum(math.prod(spec.shape) * spec.dtype.size for spec in self._specs)
        return QuickDataset(self._samples(_Cut(int(size), bool(drop), bytes_ >= _BATCH_BYTES)))

    @tf.autograph.experimental.do_not_convert
    def _samples(self, cut: _Cut) -> Any:
        """Samples, or batches of them."""
        leading = cut.leading()
        specs = [*_info_specs(leading), *(_preceded(leading, spec) for spec in self._specs)]
        streams = Streams(
            lambda server, table: _Blocks(server.decode(), table.decode(), self._arguments, self._timesteps, cut, self._specs),
            _Blocks.close,
        )

        def block(number: Any) -> tuple[Any, Any]:
            going, *leaves = call(lambda number: streams[number].next(), [number], [tf.TensorSpec([], tf.bool), *specs])
            return going, ReplaySample(SampleInfo(*leaves[:5]), tf.nest.pack_sequence_as(self._structure, leaves[5:]))

        blocks = streams.numbers(self._source).map(block)
        blocks = blocks.take_while(lambda going, sample: going).map(lambda going, sample: sample)
        if cut.alone:
            return self._whole(blocks.filter(lambda sample: tf.size(sample.info.key) > 0), cut)
        return blocks.unbatch()

    @staticmethod
    def _whole(batches: Any, cut: _Cut) -> Any:
        """Says of batches, now that none is empty, that they are whole."""
        if not cut.drop_remainder:
            return batches
        return batches.map(
            lambda sample: tf.nest.map_structure(lambda leaf: tf.ensure_shape(leaf, [cut.batch, *leaf.shape[1:]]), sample)
        )

    @classmethod
    @tf.autograph.experimental.do_not_convert
    def from_table_signature(
        cls,
        server_address: str,
        table: str,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        get_signature_timeout_secs: int | None = None,
        max_samples: int = -1,
    ) -> Any:
        """A dataset whose dtypes and shapes are those of the table's signature, which the server is asked for.

        Parameters
        ----------
        get_signature_timeout_secs : int, optional
            Seconds to wait for the server; None waits for ever.
        server_address, table, max_in_flight_samples_per_worker, num_workers_per_iterator, max_samples_per_stream, \
rate_limiter_timeout_ms, max_samples
            As for the dataset itself.

        Raises
        ------
        ValueError
            No such table, or it has no signature.
        DeadlineExceededError
            The server did not answer in time.
        """
        tables = Client(server_address).server_info(get_signature_timeout_secs)
        if table not in tables:
            raise ValueError(
                f'server at {server_address} does not contain any table named "{table}"; it has {", ".join(sorted(tables))}'
            )
        signature = tables[table].signature
        if not signature:
            raise ValueError(f'table "{table}" at {server_address} does not have a signature; name dtypes and shapes instead')
        signature = tuples(signature)
        return cls(
            server_address,
            table,
            tf.nest.map_structure(lambda spec: tf_dtype(spec.dtype), signature),
            tf.nest.map_structure(lambda spec: tf.TensorShape(spec.shape), signature),
            max_in_flight_samples_per_worker,
            num_workers_per_iterator,
            max_samples_per_stream,
            rate_limiter_timeout_ms,
            max_samples,
        )


def _preceded(leading: tuple[int | None, ...], spec: Any) -> Any:
    shape = spec.shape
    return tf.TensorSpec(None if shape.rank is None else [*leading, *shape.as_list()], spec.dtype)


class _Blocks:
    """The samples of one iterator."""

    def __init__(self, server: str, table: str, arguments: tuple[int, ...], timesteps: bool, cut: _Cut, specs: list[Any]) -> None:
        stream = Stream(table, *arguments)
        self._table = table
        self._timesteps = timesteps
        self._cut = cut
        self._specs = specs
        self._sampler: _core.Sampler = stream.sampler(Client(server), unpack=False)
        self._most = cut.most(_BLOCK)
        self._nothing = _nothing(specs, cut)

    def next(self) -> list[Any]:
        """Whether the sequence goes on, and then the infos and columns of a block."""
        cut = self._cut
        drawn = self._sampler.block(cut.least, self._most, _WAIT_MS)
        if drawn is None:
            return [np.False_, *self._nothing]
        infos, columns, squeezed = drawn
        n = len(infos[0])
        if n == 0 or (n < cut.least and cut.drop_remainder):
            return [np.True_, *self._nothing]
        self._most = cut.most(min(self._most, _BLOCK_BYTES // max(sum(array.nbytes for array in columns) // n, 1)))
        if self._timesteps:
            infos, columns = _steps(infos, columns, squeezed)
        _check(columns, self._specs, self._table)
        return [np.True_, *(cut.shape(array) for array in (*infos, *columns))]

    def close(self) -> None:
        self._sampler.close()


def _nothing(specs: list[Any], cut: _Cut) -> tuple[Any, ...]:
    leading = [0, *(size or 0 for size in cut.leading()[1:])]
    rows = [
        np.zeros([*leading, *(size or 0 for size in (spec.shape.as_list() if spec.shape.rank else []))], _numpy(spec))
        for spec in specs
    ]
    return (*(np.zeros(leading, dtype) for dtype in SampleInfo.dtypes()), *rows)


def _numpy(spec: Any) -> Any:
    return spec.dtype.as_numpy_dtype


def _steps(infos: list[Any], columns: list[Any], squeezed: list[bool]) -> tuple[list[Any], list[Any]]:
    """Items [n, T, ...] as steps [n * T, ...], each with its item's info. A squeezed column has one step."""
    lengths = [1 if single else column.shape[1] for column, single in zip(columns, squeezed, strict=True)]
    if len(set(lengths)) != 1:
        raise ValueError(
            f"items cannot be decomposed into steps where their columns are of {', '.join(map(str, lengths))} steps; "
            "read trajectories instead"
        )
    return [np.repeat(array, lengths[0]) for array in infos], [
        column if single else column.reshape(-1, *column.shape[2:]) for column, single in zip(columns, squeezed, strict=True)
    ]


def first_step(client: Client, table: str) -> tuple[list[Any], list[Any]]:
    """Infos and columns of one item's first step, as arrays. Waits as long as the rate limiter wants."""
    sampler = Stream(table, 1, -1, -1, -1, 1).sampler(client, unpack=False)
    try:
        drawn = None
        while drawn is None or len(drawn[0][0]) == 0:
            drawn = sampler.block(1, 1, _WAIT_MS)
    finally:
        sampler.close()
    infos, columns = _steps(*drawn)
    return [array[0, ...] for array in infos], [array[0, ...] for array in columns]


def _check(columns: list[Any], specs: list[Any], table: str) -> None:
    """ValueError where what was sampled is not what the dataset was made for."""
    if len(columns) != len(specs):
        raise ValueError(
            f'Inconsistent number of tensors: items of table "{table}" have {len(columns)}, the dataset was made for {len(specs)}'
        )
    for i, (column, spec) in enumerate(zip(columns, specs, strict=True)):
        dtype = tf_dtype(column.dtype)
        if dtype != spec.dtype or not spec.shape.is_compatible_with(column.shape[1:]):
            raise ValueError(
                f'Received incompatible tensor from table "{table}": tensor {i} is {dtype.name} {list(column.shape[1:])}, '
                f"the dataset was made for {spec.dtype.name} {spec.shape}"
            )
