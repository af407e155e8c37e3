"""Batches, samples and items of recorded steps as JAX arrays, put on their device ahead of the step that uses them::

    import reverie.jax

    with reverie.jax.batches("learner-host:8000", "replay", batch_size=256) as batches:
        for batch in batches:
            state, priorities = update(state, batch.data, batch.probabilities)
            client.update_priorities("replay", batch.keys, priorities)

A thread draws and starts the transfer; by the time that a batch is asked for it is, or soon will be, on the device. `trajectories` and
`timesteps` give sampled items and their steps one by one, as Reverb's datasets of these names, `patterns` what structured-writer configs
make of a stream of steps.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

try:
    import jax
except ModuleNotFoundError as error:
    if error.name == "jax":
        error.msg += "; reverie.jax needs it: pip install jax"
    raise

from reverie import _arguments, _core, _leaving, nest
from reverie._feeding import Source, Stream
from reverie.batches import BatchIterator
from reverie.cc import patterns_pb2
from reverie.client import DEFAULT_TIMEOUT, Client
from reverie.samples import ReplaySample
from reverie.server import Server
from reverie.structured_writer import pattern_items

__all__ = ["DeviceBatch", "batches", "patterns", "timesteps", "trajectories"]


class DeviceBatch(NamedTuple):
    """Sampled items, gathered column by column.

    Attributes
    ----------
    data : nest of jax.Array
        On the device, each [B, T, ...], or [B, ...] where items have one row and no time dimension. Strings stay arrays of
        ``object`` on the host. Unless JAX is set to 64 bits it makes 32 of them, as always.
    keys : ndarray
        uint64 [B], on the host, where they are whole whatever JAX is set to; for `Client.update_priorities`.
    probabilities, priorities : ndarray
        float64 [B], on the host: of each draw, and at the draw.
    times_sampled : ndarray
        int32 [B], this draw included.
    table_size : int
        Items in the table at the last draw.
    lengths : ndarray or None
        int64 [B] with ``unequal="pad"``: rows of each item's longest column.
    table_sizes : ndarray
        int64 [B], on the host: items in the table at each draw; with `probabilities` for importance weights.
    """

    data: Any
    keys: NDArray[np.uint64]
    probabilities: NDArray[np.float64]
    priorities: NDArray[np.float64]
    times_sampled: NDArray[np.int32]
    table_size: int
    lengths: NDArray[np.int64] | None
    table_sizes: NDArray[np.int64]


def _sender(device: Any) -> Callable[[Any], Any]:
    """Of a nest of arrays makes one of arrays on the device; strings stay."""

    def put(array: Any) -> Any:
        return array if array.dtype == object else jax.device_put(array, device)

    return lambda data: nest.map_structure(put, data)


def batches(
    server: str | Server | Client,
    table: str,
    batch_size: int,
    *,
    device: Any = None,
    prefetch: int = 2,
    timeout: float | None = DEFAULT_TIMEOUT,
    unequal: str = "error",
) -> BatchIterator[DeviceBatch]:
    """An endless iterator of batches on a device.

    Parameters
    ----------
    server : str, Server or Client
    table : str
    batch_size : int
    device : jax.Device or jax.sharding.Sharding, optional
        Where the data goes; a sharding divides each column, for instance its rows among devices. JAX's default device.
    prefetch : int
        Batches drawn and sent ahead, at least 1. They count as sampled.
    timeout : float or None
        Seconds for each batch. What was drawn when they run out is a shorter batch; `DeadlineExceededError` if it is nothing, and
        the iteration may go on.
    unequal : {"error", "pad"}
        Items of different lengths: an error before anything is drawn, or zeros up to the longest of the batch.
    """
    table = _arguments.name("table", table)
    client = Source(server).client()
    size = _arguments.positive("batch_size", batch_size)
    seconds = _arguments.timeout(timeout)
    _arguments.one_of("unequal", unequal, ("error", "pad"))
    put = _sender(device)

    def draw(cancel: _core.Cancel) -> DeviceBatch:
        batch = client.sample_batch(table, size, timeout=seconds, unequal=unequal, cancel=cancel)
        return DeviceBatch(
            put(batch.data),
            batch.keys,
            batch.probabilities,
            batch.priorities,
            batch.times_sampled,
            batch.table_size,
            batch.lengths,
            batch.table_sizes,
        )

    return BatchIterator(draw, prefetch)


def _samples(
    server: str | Server | Client, stream: Stream, emit_timesteps: bool, device: Any, prefetch: int
) -> BatchIterator[ReplaySample]:
    samples = stream.samples(Source(server).client(), emit_timesteps)
    put = _sender(device)

    def draw(_: _core.Cancel) -> ReplaySample:
        sample = next(samples)
        return ReplaySample(sample.info, put(sample.data))

    return BatchIterator(draw, prefetch, give_up=samples.close)


def trajectories(
    server_address: str | Server | Client,
    table: str,
    max_in_flight_samples_per_worker: int,
    num_workers_per_iterator: int = -1,
    max_samples_per_stream: int = -1,
    rate_limiter_timeout_ms: int = -1,
    max_samples: int = -1,
    *,
    device: Any = None,
    prefetch: int = 2,
    timeout: float | None = None,
) -> BatchIterator[ReplaySample]:
    """One sampled item after another on a device: columns [T, ...], squeezed ones [...].

    The arguments are those of Reverb's `TrajectoryDataset`; there is no need to say dtypes and shapes. Data has the nest of the table's
    signature; without one it is a list. Strings stay arrays of ``object`` on the host, and so does the info, whose key is whole whatever
    JAX is set to. For batches of items that look alike `batches` is many times faster.

    Parameters
    ----------
    server_address : str, Server or Client
    table : str
    max_in_flight_samples_per_worker : int
        Samples fetched ahead by each stream; they count as sampled.
    num_workers_per_iterator : int
        Streams that fetch side by side; with more than one the order is lost. -1: one.
    max_samples_per_stream : int
        Then a stream is opened anew, which spreads load behind a balancer. -1: 10,000.
    rate_limiter_timeout_ms : int
        The iteration ends when the rate limiter lets nothing through for so long. -1: it waits for ever; 0: at once.
    max_samples : int
        Items in all. -1: no bound.
    device : jax.Device or jax.sharding.Sharding, optional
        Where the data goes. JAX's default device.
    prefetch : int
        Samples sent to the device ahead, at least 1.
    timeout : float, optional
        Seconds for each item, whether the rate limiter holds it back or no server is there; then `DeadlineExceededError`, and the
        iteration may go on. None waits for ever.
    """
    stream = Stream(
        table,
        max_in_flight_samples_per_worker,
        num_workers_per_iterator,
        max_samples_per_stream,
        rate_limiter_timeout_ms,
        max_samples,
        timeout,
    )
    return _samples(server_address, stream, False, device, prefetch)


def timesteps(
    server_address: str | Server | Client,
    table: str,
    max_in_flight_samples_per_worker: int,
    num_workers_per_iterator: int = -1,
    max_samples_per_stream: int = -1,
    rate_limiter_timeout_ms: int = -1,
    max_samples: int = -1,
    *,
    device: Any = None,
    prefetch: int = 2,
    timeout: float | None = None,
) -> BatchIterator[ReplaySample]:
    """As `trajectories`, but the steps of each item one by one: columns [...]. `max_samples` counts items, `prefetch` steps.

    A column without a time dimension is one step, so a row of `Client.add` comes as it was added. An item whose columns are not all of as
    many steps is a `ValueError`, and the iteration may go on behind it.
    """
    stream = Stream(
        table,
        max_in_flight_samples_per_worker,
        num_workers_per_iterator,
        max_samples_per_stream,
        rate_limiter_timeout_ms,
        max_samples,
        timeout,
    )
    return _samples(server_address, stream, True, device, prefetch)


def patterns(
    input_dataset: Iterable[Any],
    configs: Sequence[patterns_pb2.StructuredWriterConfig],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[[Any], Any],
    *,
    device: Any = None,
    prefetch: int = 2,
) -> BatchIterator[Any]:
    """The items that a structured writer with these configs would make of a stream of steps, in its order, on a device.

    Parameters
    ----------
    input_dataset : iterable of nests
        Steps, all of one structure, for instance recorded ones, or the data of `timesteps`. A leaf that is None has no row in that step.
        JAX arrays come back to the host, where rows are kept.
    configs : sequence
        What `structured.create_config` returns. Their tables and priorities play no part.
    respect_episode_boundaries : bool
        No item reaches back across the end of an episode.
    is_end_of_episode : callable
        ``is_end_of_episode(step) -> bool``: does the episode end with this step?
    device : jax.Device or jax.sharding.Sharding, optional
        Where items go. JAX's default device.
    prefetch : int
        Items sent to the device ahead, at least 1.

    Returns
    -------
    BatchIterator of nests of jax.Array
        Like the pattern of the item's config; each [T, ...], or [...] for a row without a time dimension. Strings stay arrays of
        ``object`` on the host.

    Raises
    ------
    TypeError, ValueError
        A config that cannot be applied. At the step in question: one that cannot be applied to these steps, a leaf whose dtype or shape
        changes, or of what no table holds.

    Notes
    -----
    A thread asks for steps and calls `is_end_of_episode`; what either raises is raised by the iterator, which ends. A step that the thread
    waits for has a second to come when the iterator is closed; when it comes later the thread ends then.
    """
    closed = threading.Event()
    steps = itertools.takewhile(lambda _: not closed.is_set(), input_dataset)
    items = pattern_items(steps, configs, respect_episode_boundaries, is_end_of_episode)
    put = _sender(device)
    return BatchIterator(lambda _: put(next(items)), prefetch, give_up=closed.set, grace=_leaving.GRACE)
