"""What the dataset modules share: samples that enter a `tf.data` graph in blocks.

A Python generator that gives one element at a time costs a call into Python for each. This one gives as many samples as are there
already, gathered into one array a column, and the graph takes them apart. Where `batch` follows at once, it gives whole batches, and
nothing is taken apart. While nothing can be sampled it gives empty blocks, so that the graph can be cancelled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from reverie._feeding import Stream
from reverie.client import Client
from reverie.samples import ReplaySample, SampleInfo

__all__ = ["SampleDataset"]

_WAIT_MS = 100  # between looks at whether anybody still wants samples
_BLOCK = 1024  # samples that enter the graph at once, at most
_BLOCK_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True)
class _Cut:
    """How blocks are cut: into single samples, or into batches."""

    size: int = 1
    drop_remainder: bool = False

    def leading(self) -> tuple[int | None, ...]:
        if self.size == 1:
            return (None,)
        return (None, self.size if self.drop_remainder else None)

    def round_down(self, samples: int) -> int:
        return max(samples // self.size, 1) * self.size

    def shape(self, array: Any) -> Any:
        """[n, ...] as [batches, size, ...]; what is too little for a batch is one, shorter."""
        if self.size == 1:
            return array
        size = min(self.size, len(array))
        return array.reshape(-1, size, *array.shape[1:])


def _info_specs(leading: tuple[int | None, ...]) -> list[Any]:
    return [tf.TensorSpec(leading, dtype) for dtype in SampleInfo.dtypes()]


def _tuples(nest: Any) -> Any:
    """Lists become tuples, as everywhere in tf.data."""
    if isinstance(nest, list):
        return tuple(_tuples(each) for each in nest)
    if isinstance(nest, tuple):
        made = [_tuples(each) for each in nest]
        return type(nest)(*made) if hasattr(nest, "_fields") else tuple(made)
    if isinstance(nest, dict):
        return type(nest)((key, _tuples(value)) for key, value in nest.items())
    return nest


class SampleDataset(tf.compat.v1.data.Dataset):
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
        dtypes, shapes = _tuples(dtypes), _tuples(shapes)
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
        return self._blocks(_Cut()).unbatch()._variant_tensor

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
        return self._blocks(_Cut(int(size), bool(drop))).unbatch()

    def _blocks(self, cut: _Cut) -> Any:
        """Elements with a dimension more than is wanted, in front."""
        leading = cut.leading()
        signature = (*_info_specs(leading), *(_preceded(leading, spec) for spec in self._specs))
        generate = _generator(self._arguments, self._timesteps, cut, self._specs)
        flat = tf.data.Dataset.from_generator(generate, args=self._source, output_signature=signature)
        structure = self._structure
        return flat.map(lambda *leaves: ReplaySample(SampleInfo(*leaves[:5]), tf.nest.pack_sequence_as(structure, leaves[5:])))

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
        signature = _tuples(signature)
        return cls(
            server_address,
            table,
            tf.nest.map_structure(lambda spec: tf.as_dtype("string" if spec.dtype == object else spec.dtype), signature),
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


def _generator(arguments: tuple[int, ...], timesteps: bool, cut: _Cut, specs: list[Any]) -> Callable[..., Iterator[Any]]:
    def generate(server_address: bytes, table: bytes) -> Iterator[Any]:
        name = table.decode()
        stream = Stream(name, *arguments)
        sampler = stream.sampler(Client(server_address.decode()), unpack=False)
        nothing = _nothing(specs, cut)
        most = cut.round_down(min(stream.in_flight * max(stream.workers, 1), _BLOCK))
        try:
            while (drawn := sampler.block(cut.size, most, _WAIT_MS)) is not None:
                infos, columns = drawn
                n = len(infos[0])
                if n == 0 or (n < cut.size and cut.drop_remainder):
                    yield nothing
                    continue
                most = cut.round_down(min(most, _BLOCK_BYTES // max(sum(array.nbytes for array in columns) // n, 1)))
                if timesteps:
                    infos, columns = _steps(infos, columns)
                _check(columns, specs, name)
                yield tuple(cut.shape(array) for array in (*infos, *columns))
        finally:
            sampler.close()

    return generate


def _nothing(specs: list[Any], cut: _Cut) -> tuple[Any, ...]:
    leading = [0, *(size or 0 for size in cut.leading()[1:])]
    rows = [
        np.zeros([*leading, *(size or 0 for size in (spec.shape.as_list() if spec.shape.rank else []))], _numpy(spec))
        for spec in specs
    ]
    return (*(np.zeros(leading, dtype) for dtype in SampleInfo.dtypes()), *rows)


def _numpy(spec: Any) -> Any:
    return spec.dtype.as_numpy_dtype


def _steps(infos: list[Any], columns: list[Any]) -> tuple[list[Any], list[Any]]:
    """Items [n, T, ...] as steps [n * T, ...], each with its item's info."""
    if any(column.ndim < 2 for column in columns) or len({column.shape[1] for column in columns}) != 1:
        shapes = ", ".join(str(list(column.shape[1:])) for column in columns)
        raise ValueError(
            f"items cannot be decomposed into steps where their columns are of shapes {shapes}; read trajectories instead"
        )
    length = columns[0].shape[1]
    return [np.repeat(array, length) for array in infos], [column.reshape(-1, *column.shape[2:]) for column in columns]


def _check(columns: list[Any], specs: list[Any], table: str) -> None:
    """ValueError where what was sampled is not what the dataset was made for."""
    if len(columns) != len(specs):
        raise ValueError(
            f'Inconsistent number of tensors: items of table "{table}" have {len(columns)}, the dataset was made for {len(specs)}'
        )
    for i, (column, spec) in enumerate(zip(columns, specs, strict=True)):
        dtype = tf.string if column.dtype == object else tf.as_dtype(column.dtype)
        if dtype != spec.dtype or not spec.shape.is_compatible_with(column.shape[1:]):
            raise ValueError(
                f'Received incompatible tensor from table "{table}": tensor {i} is {dtype.name} {list(column.shape[1:])}, '
                f"the dataset was made for {spec.dtype.name} {spec.shape}"
            )
