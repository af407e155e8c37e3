"""What the dataset modules share: samples that enter a `tf.data` graph in blocks.

An operation of ours gives as many samples as are there already, gathered into one tensor a column, and the graph takes them apart. Where
`batch` follows at once, it gives whole batches, and only small ones are taken apart. While nothing can be sampled it gives empty blocks,
so that the graph can be cancelled. Python is only there when an iterator begins and ends.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from reverie import _arguments, _core, _fitting
from reverie._feeding import Stream
from reverie._graph import call, followed, have_elements, numbered, only_found, op, slices, tf_dtype, tuples
from reverie._iteration import QuickDataset, QuickIteration
from reverie.client import Client
from reverie.errors import ReverieError
from reverie.samples import ReplaySample, SampleInfo

__all__ = ["SampleDataset", "first_step"]

_BATCH_BYTES = 256 << 10  # of a batch that is a block of its own: taking it apart would copy it
_SIGNATURE_SECONDS = 2.0  # that an iterator waits for a table's signature


@dataclasses.dataclass(frozen=True)
class _Cut:
    """How blocks are cut: into single samples (`batch` is 0), into batches, or not at all: then a block is a batch."""

    batch: int = 0
    drop_remainder: bool = False
    alone: bool = False

    def leading(self) -> tuple[int | None, ...]:
        """The dimensions of a block in front of a sample's."""
        if self.batch == 0 or self.alone:
            return (None,)
        return (None, self.batch if self.drop_remainder else None)


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
        *,
        timeout: float | None = None,
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
            timeout,
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
        self._elements = self._samples(_Cut())  # kept, for what it traced
        return self._elements._variant_tensor

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
        spec = self._block_spec(cut.leading())
        types = tf.compat.v1.AttrValue.ListValue(type=[each.dtype.as_datatype_enum for each in self._specs])
        attributes = {"dtypes": tf.compat.v1.AttrValue(list=types)}
        dtypes = [tf.bool, *(each.dtype for each in tf.nest.flatten(spec))]

        def draw(number: Any, name: str = "ReverieSamples") -> Any:
            return op(name, [number], dtypes, attributes)

        def blocks(numbers: Any, name: str = "ReverieSamples") -> Any:
            return followed(numbers, lambda number: draw(number, name)[1:], spec)

        sources = _Sources(self._arguments, self._specs, self._timesteps, cut)
        numbers = numbered(sources.begin, sources.end, self._source)
        if cut.alone:
            looks = followed(numbers, draw, (tf.TensorSpec([], tf.bool), spec))
            return only_found(looks, self._block_spec((cut.batch,)) if cut.drop_remainder else spec)
        return blocks(numbers).unbatch() if have_elements(self._specs) else self._apart(numbers, blocks)

    def _block_spec(self, leading: tuple[int | None, ...]) -> Any:
        specs = [_preceded(leading, spec) for spec in self._specs]
        return ReplaySample(SampleInfo(*_info_specs(leading)), tf.nest.pack_sequence_as(self._structure, specs))

    def _apart(self, numbers: Any, blocks: Callable[..., Any]) -> Any:
        """Single samples where a column may be without elements, which TensorFlow's `unbatch` cannot have, but few have such a column:
        the quick way up to the first of these, and from there on the other."""

        def samples(number: Any) -> Any:
            again = tf.data.Dataset.from_tensors(number).repeat()
            quick, other = blocks(again, "ReverieFilledSamples"), blocks(again)
            self._parts = (quick, other)  # kept, for what they traced
            return quick.unbatch().concatenate(slices(other))

        return numbers.take(1).flat_map(samples)

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
        *,
        timeout: float | None = None,
    ) -> Any:
        """A dataset whose dtypes and shapes are those of the table's signature, which the server is asked for.

        Parameters
        ----------
        get_signature_timeout_secs : int, optional
            Seconds to wait for the server; None: as long as `timeout`, and without one for ever.
        server_address, table, max_in_flight_samples_per_worker, num_workers_per_iterator, max_samples_per_stream, \
rate_limiter_timeout_ms, max_samples, timeout
            As for the dataset itself.

        Raises
        ------
        ValueError
            No such table, or it has no signature.
        DeadlineExceededError
            The server did not answer in time.
        """
        table = _arguments.name("table", table)
        seconds = timeout if get_signature_timeout_secs is None else get_signature_timeout_secs
        tables = Client(server_address).server_info(seconds)
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
            timeout=timeout,
        )


def _preceded(leading: tuple[int | None, ...], spec: Any) -> Any:
    shape = spec.shape
    return tf.TensorSpec(None if shape.rank is None else [*leading, *shape.as_list()], spec.dtype)


class _Sources:
    """What the iterators of one dataset read, by number."""

    def __init__(self, arguments: tuple[Any, ...], specs: list[Any], timesteps: bool, cut: _Cut) -> None:
        self._arguments = arguments
        self._specs = [
            (spec.dtype.as_datatype_enum, None if spec.shape.rank is None else tuple(spec.shape.as_list())) for spec in specs
        ]
        self._timesteps = timesteps
        self._cut = cut
        self._running: dict[int, _core.TensorSource] = {}

    def begin(self, server: Any, table: Any) -> Any:
        return call(self._begin, [server, table], [tf.TensorSpec([], tf.int64)])[0]

    def end(self, number: Any) -> Any:
        return call(self._end, [number], [tf.TensorSpec([], tf.int64)])[0]

    def _begin(self, server: bytes, table: bytes) -> list[Any]:
        cut = self._cut
        client, stream = Client(server), Stream(_arguments.name("table", table), *self._arguments)
        self._check(client, stream)
        sampler = stream.sampler(client, unpack=False)
        source = _core.TensorSource(sampler, self._specs, self._timesteps, cut.batch, cut.drop_remainder, cut.alone)
        self._running[source.number] = source
        return [np.int64(source.number)]

    def _check(self, client: Client, stream: Stream) -> None:
        """Else a dataset that can never fit would wait at an empty table, and take an item of a queue before it says so. Where the
        server does not answer, or does not tell, it is the first sample that shows it, and the sampler that says what there is to
        wait for."""
        seconds = _SIGNATURE_SECONDS if stream.timeout is None else min(stream.timeout, _SIGNATURE_SECONDS)
        try:
            tables = client._server_info(seconds)
        except ReverieError:
            return
        for table in tables:
            if table["name"] == stream.table:
                _fitting.check(stream.table, table["specs"], self._specs, self._timesteps)

    def _end(self, number: Any) -> list[Any]:
        self._running.pop(int(number)).close()
        return [np.int64(0)]


def first_step(client: Client, table: str, timeout: float | None) -> tuple[list[Any], list[Any]]:
    """Info and columns of one item's first step, as arrays."""
    sampler = Stream(table, 1, -1, -1, -1, 1, timeout).sampler(client, unpack=False)
    try:
        info, columns, squeezed = sampler.raw()
    finally:
        sampler.close()
    lengths = [1 if single else len(column) for column, single in zip(columns, squeezed, strict=True)]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"items cannot be decomposed into steps where their columns are of {', '.join(map(str, lengths))} steps; "
            "read trajectories instead"
        )
    infos = [np.asarray(value, dtype) for value, dtype in zip(info[:5], SampleInfo.dtypes(), strict=True)]
    return infos, [column if single else column[0, ...] for column, single in zip(columns, squeezed, strict=True)]
