"""Batches as JAX arrays, put on their device ahead of the step that uses them::

    import reverie.jax

    with reverie.jax.batches("learner-host:8000", "replay", batch_size=256) as batches:
        for batch in batches:
            state, priorities = update(state, batch.data, batch.probabilities)
            client.update_priorities("replay", batch.keys, priorities)

A thread draws and starts the transfer; by the time that a batch is asked for it is, or soon will be, on the device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

try:
    import jax
except ModuleNotFoundError as error:
    if error.name == "jax":
        error.msg += "; reverie.jax needs it: pip install jax"
    raise

from reverie import _arguments, _core, nest
from reverie._feeding import Source
from reverie.batches import BatchIterator
from reverie.client import DEFAULT_TIMEOUT, Client
from reverie.server import Server

__all__ = ["DeviceBatch", "batches"]


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
    """

    data: Any
    keys: NDArray[np.uint64]
    probabilities: NDArray[np.float64]
    priorities: NDArray[np.float64]
    times_sampled: NDArray[np.int32]
    table_size: int
    lengths: NDArray[np.int64] | None


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
    if not isinstance(table, str):
        raise TypeError(f"table must be a str, got {table!r}")
    client = Source(server).client()
    size = _arguments.positive("batch_size", batch_size)
    seconds = _arguments.timeout(timeout)
    _arguments.one_of("unequal", unequal, ("error", "pad"))

    def put(array: Any) -> Any:
        return array if array.dtype == object else jax.device_put(array, device)

    def draw(cancel: _core.Cancel) -> DeviceBatch:
        batch = client.sample_batch(table, size, timeout=seconds, unequal=unequal, cancel=cancel)
        return DeviceBatch(
            nest.map_structure(put, batch.data),
            batch.keys,
            batch.probabilities,
            batch.priorities,
            batch.times_sampled,
            batch.table_size,
            batch.lengths,
        )

    return BatchIterator(draw, prefetch)
