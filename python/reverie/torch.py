"""Samples, batches and items of recorded steps as PyTorch tensors, for `torch.utils.data.DataLoader` or without one::

    import reverie.torch

    dataset = reverie.torch.BatchDataset("learner-host:8000", "replay", batch_size=256, pin_memory=True)
    for batch in dataset:                                  # or DataLoader(dataset, batch_size=None, num_workers=2)
        observations = batch.data["obs"].to("cuda", non_blocking=True)
        ...
        client.update_priorities("replay", batch.keys, priorities)

Tensors share their memory with the arrays that the samples were gathered into: nothing is copied a second time. Tensors on the host are
taken wherever arrays are, but those that require grad and those of dtypes that NumPy does not have: `as_array` makes arrays of them.
Priorities may be on a device, and require grad.
Needs PyTorch 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
    from torch.utils.data._utils.collate import default_collate_fn_map
except ModuleNotFoundError as error:
    if error.name == "torch":
        error.msg += "; reverie.torch needs it: pip install torch"
    raise

from reverie import _arguments, _core, nest
from reverie._feeding import Source, Stream
from reverie.batches import BatchIterator
from reverie.cc import patterns_pb2
from reverie.client import DEFAULT_TIMEOUT, Client
from reverie.samples import ReplaySample, SampleInfo
from reverie.server import Server
from reverie.structured_writer import pattern_items

__all__ = ["BatchDataset", "PatternDataset", "TensorBatch", "TimestepDataset", "TrajectoryDataset", "as_array", "as_tensor"]

# dtypes that NumPy does not have: the integers of their size through which memory is shared, and PyTorch's own name
_FOREIGN: dict[np.dtype[Any], tuple[np.dtype[Any], torch.dtype]] = {
    np.dtype(ml_dtypes.bfloat16): (np.dtype(np.uint16), torch.bfloat16),
    np.dtype(ml_dtypes.float8_e5m2): (np.dtype(np.uint8), torch.float8_e5m2),
    np.dtype(ml_dtypes.float8_e4m3fn): (np.dtype(np.uint8), torch.float8_e4m3fn),
}
_FOUR_BITS = {np.dtype(ml_dtypes.int4): np.dtype(np.int8), np.dtype(ml_dtypes.uint4): np.dtype(np.uint8)}


def as_tensor(array: Any) -> Any:
    """A tensor over the same memory.

    Parameters
    ----------
    array : ndarray
        Of any dtype that a table holds.

    Returns
    -------
    Tensor or ndarray
        Strings stay an array of ``object``, which PyTorch has no tensors for; 4-bit integers become int8 or uint8 (a copy).
    """
    if array.dtype == object:
        return array
    if array.dtype in _FOUR_BITS:
        array = array.astype(_FOUR_BITS[array.dtype])
    foreign = _FOREIGN.get(array.dtype)
    if foreign is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(foreign[0])).view(foreign[1])


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """An array over the same memory, for `Client.add` and the writers: also of dtypes that NumPy does not have, such as bfloat16.

    Parameters
    ----------
    tensor : Tensor
        On the host. What computes its gradient is left behind. A conjugate or negative view, which PyTorch has not computed yet, is copied.
    """
    array: np.ndarray[Any, Any]
    tensor = tensor.detach().resolve_conj().resolve_neg()
    for dtype, (stored, name) in _FOREIGN.items():
        if tensor.dtype == name:
            array = tensor.view(getattr(torch, stored.name)).numpy().view(dtype)
            return array
    array = tensor.numpy()
    return array


def _leaf_as_array(leaf: Any) -> Any:
    """A tensor of a dtype that NumPy does not have as an array over the same memory; anything else as it is."""
    if isinstance(leaf, torch.Tensor) and any(leaf.dtype == name for _, name in _FOREIGN.values()):
        return as_array(leaf)
    return leaf


class TensorBatch(NamedTuple):
    """Sampled items, gathered column by column.

    Attributes
    ----------
    data : nest of Tensor
        Each [B, T, ...], or [B, ...] where items have one row and no time dimension.
    keys : Tensor
        uint64 [B]; for `Client.update_priorities`.
    probabilities, priorities : Tensor
        float64 [B]: of each draw, and at the draw.
    times_sampled : Tensor
        int32 [B], this draw included.
    table_size : int
        Items in the table at the last draw.
    lengths : Tensor or None
        int64 [B] with ``unequal="pad"``: rows of each item's longest column.
    table_sizes : Tensor
        int64 [B]: items in the table at each draw; with `probabilities` for importance weights.
    """

    data: Any
    keys: torch.Tensor
    probabilities: torch.Tensor
    priorities: torch.Tensor
    times_sampled: torch.Tensor
    table_size: int
    lengths: torch.Tensor | None
    table_sizes: torch.Tensor


def _not_collated(batches: Any, *, collate_fn_map: Any = None) -> Any:
    raise TypeError(
        "what BatchDataset gives are batches already, of which a loader makes no others: "
        "DataLoader(dataset, batch_size=None) hands them out as they are"
    )


default_collate_fn_map[TensorBatch] = _not_collated  # a loader's own batch_size is 1, and its error would only name NoneType


def _collated(infos: Any, *, collate_fn_map: Any = None) -> SampleInfo:
    fields = zip(SampleInfo.dtypes(), zip(*infos, strict=True), strict=True)
    return SampleInfo(*(torch.from_numpy(np.array(values, dtype)) for dtype, values in fields))


default_collate_fn_map[SampleInfo] = _collated  # of whole numbers a loader makes int64, and half of all keys are larger


def _in_tensors(batch: _core.ReplayBatch, tensor_of: Callable[[Any], Any] = as_tensor) -> TensorBatch:
    return TensorBatch(
        nest.map_structure(tensor_of, batch.data),
        torch.from_numpy(batch.keys),
        torch.from_numpy(batch.probabilities),
        torch.from_numpy(batch.priorities),
        torch.from_numpy(batch.times_sampled),
        batch.table_size,
        None if batch.lengths is None else torch.from_numpy(batch.lengths),
        torch.from_numpy(batch.table_sizes),
    )


class _Pinned:
    """Makes arrays over page-locked memory from PyTorch's own cache of it, and knows the tensor that each is made over.

    That tensor is what is to be handed out. A copy of a slice to a device finds the memory by what the tensor's storage says of it; of
    `torch.from_numpy`'s storage PyTorch knows nothing, and would give the memory to the next batch while it is still copied.
    """

    def __init__(self) -> None:
        self._tensors: dict[int, torch.Tensor] = {}  # by address

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        if dtype in _FOUR_BITS:
            return np.empty(shape, dtype)
        stored = _FOREIGN[dtype][0] if dtype in _FOREIGN else dtype
        tensor = torch.empty(shape, dtype=torch.from_numpy(np.empty(0, stored)).dtype, pin_memory=True)
        array: np.ndarray[Any, Any] = tensor.numpy().view(dtype)
        if array.size > 0:
            self._tensors[array.ctypes.data] = tensor.view(_FOREIGN[dtype][1]) if dtype in _FOREIGN else tensor
        return array

    def tensor_of(self, array: np.ndarray[Any, Any]) -> Any:
        """Of an array that was made here, or of its first rows; as `as_tensor` of another."""
        tensor = self._tensors.get(array.ctypes.data) if array.size > 0 else None
        return as_tensor(array) if tensor is None else tensor[: len(array)]


class BatchDataset(IterableDataset[TensorBatch]):
    """Batches without end, drawn ahead by a thread.

    Iterate over it, or give it to ``DataLoader(dataset, batch_size=None)``. A thread draws without holding Python's lock, so a loader's
    worker processes gain something only where more is done with a batch than to fetch it.

    Parameters
    ----------
    server : str, Server or Client
        ``"host:port"`` or ``"unix:/path"`` where a loader's workers are to use it, or a client of such a server; each worker makes a
        client of its own. Where the table has no signature, data has the nest that this client inserted last (`Client.sample_batch`),
        in a worker what it had inserted when the worker began, and else is a list.
    table : str
    batch_size : int
    prefetch : int
        Batches drawn ahead, at least 1. They count as sampled.
    timeout : float or None
        Seconds for each batch. What was drawn when they run out is a shorter batch; `DeadlineExceededError` if it is nothing.
    unequal : {"error", "pad"}
        Items of different lengths: an error before anything is drawn, or zeros up to the longest of the batch.
    pin_memory : bool
        Gather straight into page-locked memory, from which ``tensor.to("cuda", non_blocking=True)`` copies while the processor goes on.
        (A loader's own `pin_memory` copies each batch once more.)

    Notes
    -----
    Breaking off an iteration ends its thread; each iteration has its own.
    """

    def __init__(
        self,
        server: str | Server | Client,
        table: str,
        batch_size: int,
        *,
        prefetch: int = 2,
        timeout: float | None = DEFAULT_TIMEOUT,
        unequal: str = "error",
        pin_memory: bool = False,
    ) -> None:
        table = _arguments.name("table", table)
        if pin_memory and not torch.cuda.is_available():
            raise RuntimeError(
                "pin_memory needs a CUDA device, and PyTorch finds none; leave it out where batches stay on the host"
            )
        self._source = Source(server, table)
        self._prefetch = _arguments.positive("prefetch", prefetch)
        self._pin_memory = bool(pin_memory)
        self._arguments: dict[str, Any] = {
            "table": table,
            "batch_size": _arguments.positive("batch_size", batch_size),
            "timeout": _arguments.timeout(timeout),
            "unequal": _arguments.one_of("unequal", unequal, ("error", "pad")),
        }

    def __iter__(self) -> Iterator[TensorBatch]:
        sample, arguments, pin_memory = self._source.client().sample_batch, self._arguments, self._pin_memory

        def draw(cancel: _core.Cancel) -> TensorBatch:
            if not pin_memory:
                return _in_tensors(sample(**arguments, cancel=cancel))
            pinned = _Pinned()
            return _in_tensors(sample(**arguments, out=pinned, cancel=cancel), pinned.tensor_of)

        return BatchIterator(draw, self._prefetch)


class _SampleDataset(IterableDataset[ReplaySample]):
    _emit_timesteps: bool

    def __init__(
        self,
        server_address: str | Server | Client,
        table: str,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        max_samples: int = -1,
        *,
        timeout: float | None = None,
    ) -> None:
        self._source = Source(server_address)
        self._stream = Stream(
            table,
            max_in_flight_samples_per_worker,
            num_workers_per_iterator,
            max_samples_per_stream,
            rate_limiter_timeout_ms,
            max_samples,
            timeout,
        )

    def __iter__(self) -> Iterator[ReplaySample]:
        worker = get_worker_info()
        stream = self._stream if worker is None else self._stream.share(worker.id, worker.num_workers)
        if stream is None:
            return
        for sample in stream.samples(self._source.client(), self._emit_timesteps):
            yield ReplaySample(sample.info, nest.map_structure(as_tensor, sample.data))


class TrajectoryDataset(_SampleDataset):
    """One sampled item after another, as `ReplaySample` of tensors: columns [T, ...], squeezed ones [...].

    The arguments are those of Reverb's dataset of this name; there is no need to say dtypes and shapes. Data has the nest of the
    table's signature; without one it is a list. For batches of items that look alike `BatchDataset` is many times faster.
    Of a loader's batches of them the info is tensors, too, with keys as uint64.

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
        Items in all, divided among a loader's workers. -1: no bound.
    timeout : float, optional
        Seconds for each item, whether the rate limiter holds it back or no server is there; then the iteration ends with
        `DeadlineExceededError`. None waits for ever.
    """

    _emit_timesteps = False


class TimestepDataset(_SampleDataset):
    """As `TrajectoryDataset`, but the steps of each item one by one: columns [...]. `max_samples` counts items.

    A column without a time dimension is one step, so a row of `Client.add` comes as it was added. An item whose columns are not all of as
    many steps is a `ValueError`, with which the iteration ends.
    """

    _emit_timesteps = True


class PatternDataset(IterableDataset[Any]):
    """The items that a structured writer with these configs would make of the steps of another dataset, in its order: a nest of tensors
    like the pattern of the item's config, each [T, ...], or [...] for a row without a time dimension.

    Parameters
    ----------
    input_dataset : iterable of nests
        Steps, all of one structure: a dataset of them, or recorded ones. Leaves are tensors on the host, or arrays; one that is None has no
        row in that step.
    configs : sequence
        What `structured.create_config` returns. Their tables and priorities play no part.
    respect_episode_boundaries : bool
        No item reaches back across the end of an episode.
    is_end_of_episode : callable
        ``is_end_of_episode(step) -> bool``: does the episode end with this step?

    Raises
    ------
    TypeError, ValueError
        A config that cannot be applied. At the step in question: one that cannot be applied to these steps, a leaf whose dtype or shape
        changes, or of what no table holds.

    Notes
    -----
    A step is only asked for when all items of those before it were taken. In a loader's workers each has a copy of `input_dataset`, which
    divides its steps among them if they are not to come once from each (``torch.utils.data.get_worker_info``); `TimestepDataset` does.
    """

    def __init__(
        self,
        input_dataset: Iterable[Any],
        configs: Sequence[patterns_pb2.StructuredWriterConfig],
        respect_episode_boundaries: bool,
        is_end_of_episode: Callable[[Any], Any],
    ) -> None:
        if not (hasattr(input_dataset, "__iter__") or hasattr(input_dataset, "__getitem__")):
            raise TypeError(f"input_dataset must be an iterable of steps, got {input_dataset!r}")
        self._input = input_dataset
        self._configs = _arguments.listed("configs", configs or (), "what create_config returns")
        self._respect = bool(respect_episode_boundaries)
        self._is_end = is_end_of_episode
        pattern_items((), self._configs, self._respect, is_end_of_episode)  # says now what is wrong with them

    def __iter__(self) -> Iterator[Any]:
        step: Any = None

        def in_arrays() -> Iterator[Any]:
            nonlocal step
            for step in self._input:
                yield nest.map_structure(_leaf_as_array, step)

        # The caller's function is asked about the step as it came.
        items = pattern_items(in_arrays(), self._configs, self._respect, lambda _: self._is_end(step))
        for item in items:
            yield nest.map_structure(as_tensor, item)
