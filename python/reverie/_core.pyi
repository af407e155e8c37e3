from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

version: str

def check_rate_limiter(samples_per_insert: float, min_size_to_sample: int, min_diff: float, max_diff: float, /) -> None: ...
def replay_batch(
    data: Any,
    table_size: int,
    keys: ArrayLike,
    probabilities: ArrayLike,
    priorities: ArrayLike,
    times_sampled: ArrayLike,
    lengths: ArrayLike | None,
    table_sizes: ArrayLike | None = None,
    /,
) -> ReplayBatch: ...

@final
class Structure:
    def __new__(cls, nest: Any) -> Structure: ...
    def __len__(self) -> int: ...
    def flatten(self, nest: Any, /) -> list[Any]: ...
    def unflatten(self, leaves: Sequence[Any], /) -> Any: ...
    def paths(self) -> list[tuple[Any, ...]]: ...

@final
class Checkpointer:
    def __new__(
        cls,
        path: str,
        group: str = "",
        fallback_path: str = "",
        keep: int = 0,
        level: int = 0,
        incremental: bool = False,
        required: bool = False,
        fresh: bool = False,
    ) -> Checkpointer: ...
    def export(self, checkpoint: str, timeout: float | None = None, /) -> str: ...
    def save(self, store: Store, timeout: float | None = None, /) -> str: ...

@final
class Saver:
    def __new__(
        cls, store: Store, checkpointer: Checkpointer, every_ms: int, every_inserts: int, every_journal_bytes: int = 0
    ) -> Saver: ...
    def stop(self) -> None: ...

@final
class Store:
    def __new__(
        cls,
        tables: list[tuple[Any, ...]],
        gather_threads: int = 0,
        checkpointer: Checkpointer | None = None,
        journal: tuple[bytes, int, int, int, bool] | None = None,
        memory_limit: int = 0,
        spill: bytes | None = None,
        spill_bytes: int = 0,
        seed: int | None = None,
    ) -> Store: ...
    def sync_journal(self, timeout: float | None = None, /) -> None: ...
    def journal_stats(self) -> dict[str, Any]: ...
    def info(self, table: str, /) -> dict[str, Any]: ...
    def can_sample(self, table: str, n: int, /) -> bool: ...
    def can_insert(self, table: str, n: int, /) -> bool: ...
    def close(self) -> None: ...

@final
class Server:
    def __new__(
        cls,
        store: Store,
        addresses: list[str],
        io_threads: int = 0,
        max_message_bytes: int = 0,
        max_connections: int = 0,
        max_streams: int = 0,
        max_writers: int = 0,
        writer_ttl_ms: int = 0,
        checkpointer: Checkpointer | None = None,
        checkpoint_every_ms: int = 0,
        checkpoint_every_inserts: int = 0,
        checkpoint_journal_bytes: int = 0,
        tls: tuple[bytes | None, bytes | None, bytes | None, str | None, bytes | None] | None = None,
        identities: list[Any] | None = None,
        peer_timeout_ms: int = 0,
        max_connections_per_address: int = 0,
        max_streams_per_identity: int = 0,
        max_bytes_per_identity: int = 0,
        shared_memory: bool = True,
    ) -> Server: ...
    def reload_tls(self) -> None: ...
    def set_identities(self, identities: list[Any], /) -> None: ...
    def ports(self) -> list[int]: ...
    def stop(self, drain_ms: int = 0, /) -> None: ...

@final
class Cancel:
    def fire(self) -> None:
        """Ends every call that waits with it, and every later one."""

@final
class ReplayBatch:
    @property
    def data(self) -> Any:
        """The items' columns, each [B, T, ...] or [B, ...], in a nest where sample_batch knows it, else in a list."""
    @property
    def keys(self) -> NDArray[np.uint64]:
        """The items' keys: uint64 [B]."""
    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of each draw: float64 [B]."""
    @property
    def priorities(self) -> NDArray[np.float64]:
        """At the draw: float64 [B]."""
    @property
    def times_sampled(self) -> NDArray[np.int32]:
        """Draws of each item so far, this one included: int32 [B]."""
    @property
    def lengths(self) -> NDArray[np.int64] | None:
        """Rows of each item's longest column, int64 [B], with unequal="pad"; else None. An item of add is one row, whatever its shape."""
    @property
    def table_sizes(self) -> NDArray[np.int64]:
        """Items in the table at each draw, int64 [B], which its probability goes with. All are table_size, unless the table grew or
        shrank between the draws: items go with theirs (max_times_sampled), or the batch waited for inserts.
        """
    @property
    def table_size(self) -> int:
        """Items in the table at the last draw."""
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

class Client:
    def __init__(
        self,
        address: str | None = None,
        store: Store | None = None,
        max_message_bytes: int = 0,
        tls: tuple[bytes | None, bytes | None, bytes | None, str | None, bytes | None] | None = None,
        token: str | None = None,
        peer_timeout_ms: int = 0,
        shared_memory: bool = True,
    ) -> None: ...
    def add(self, table: str, data: Any, priority: float = 1.0, *, timeout: float | None = 60.0) -> int:
        """Inserts one item of one row and returns its key.

        Sample it with sample_batch, or with sample(..., emit_timesteps=False): sample's steps are cuts along the first dimension, which
        are features here.

        Parameters
        ----------
        table : str
        data : nest of arrays and scalars
            The row; sampled, each leaf has just this shape (no time dimension). Python's own numbers take
            the dtype of the table's signature.
        priority : float
        timeout : float or None
            Seconds to wait while the rate limiter forbids it; None waits for ever. At the timeout nothing was
            inserted; over the network the item may still get in if room appears before the server learns that the caller gave
            up, and is in where it waited for the disk of the server's journal alone: an add that timed out and is tried again
            may be there twice.

        Raises
        ------
        DeadlineExceededError, InvalidArgumentError (signature, priority), NotFoundError, TypeError (a dtype that cannot be stored)
        """
    def add_batch(self, table: str, data: Any, priorities: ArrayLike | None = None, *, timeout: float | None = 60.0) -> int:
        """Inserts n rows as n items, in order, and returns how many were inserted.

        Parameters
        ----------
        table : str
        data : nest of arrays [n, ...]
            Where the table's signature has a column, what numpy.asarray takes, and Python's own numbers take its dtype.
            Elsewhere a list of numbers is a column, and a list of lists or arrays is a list of columns.
        priorities : array-like of float [n], optional
            All 1.0 without it.
        timeout : float or None
            Seconds for all of them. When it runs out, what was inserted stays: the number returned is then less than n. Over
            the network, rows that get in before the server learns that the caller gave up,
            or that waited for the disk of its journal alone, are in the table and not counted.

        Raises
        ------
        DeadlineExceededError
            If not even one could be inserted.
        InvalidArgumentError
            Data that does not fit the signature, or is not of its structure so that a list may be a column or a container.
        """
    def sample_batch(
        self,
        table: str,
        batch_size: int,
        *,
        timeout: float | None = 60.0,
        out: Any = None,
        unequal: str = "error",
        copy: bool = True,
        cancel: Cancel | None = None,
    ) -> ReplayBatch:
        """Draws items one by one as the rate limiter allows and gathers them into arrays.

        From a server, small batches that are asked for again and again are drawn ahead (at most 1,024 samples and 512 KiB), which counts as
        sampled, where nobody can tell: random selector, no max_times_sampled, no bound on samples per insert. What this client changes is
        always taken into account; changes by others are as they were when it was drawn, at most a second ago.

        Parameters
        ----------
        table : str
        batch_size : int
        timeout : float or None
            Seconds. When it runs out, what was drawn is returned: the batch is then shorter than batch_size.
            It is shorter, too, if something fails on the way from a server elsewhere once some items are here, such as one that
            is larger than max_message_bytes: they are returned, and the next call for the table raises what failed, before it draws.
        out : nest of arrays or callable, optional
            Filled instead of new arrays: C-contiguous, writable, [batch_size, ...] and of the columns' dtypes, in a nest with
            the items' keys, or a list in column order. Checked before anything is drawn is all but the columns' own shapes and
            dtypes, and keys that come with the items: those of a signature do not (see Returns). Or a function that is called
            with shape and dtype of each column but strings and returns such an array, for memory of a special kind (pinned,
            shared, mapped).
        unequal : {'error', 'pad', 'list'}
            Items of unequal length: an error before anything is counted, zeros up to the longest (see ReplayBatch.lengths),
            or lists of one array an item. 'pad' also fills up rows of different shapes, in each dimension.
            Items that padding cannot make one (dtypes, dimensions) are found once they are drawn, and so count as sampled.
        copy : bool
            With unequal='list': False gives read-only views that hold the store's memory.
        cancel : Cancel, optional
            Ends the call from another thread.

        Returns
        -------
        ReplayBatch
            Its data has the nest of the table's signature. Without one it has the nest that this client inserted last, if all items
            in the table were inserted with the same containers and keys, by whomever; else it is the flat list of columns.

        Raises
        ------
        DeadlineExceededError
            If not even one item could be drawn.
        FailedPreconditionError
            The items cannot stand in one batch; see `unequal`.
        KeyboardInterrupt
            Ctrl-C. What was drawn by then counts as sampled: where max_times_sampled is 1, it is gone.
        """
    def update_priorities(
        self, table: str, keys: ArrayLike, priorities: ArrayLike, *, timeout: float | None = 60.0
    ) -> NDArray[np.uint64] | None:
        """Sets the priorities of items by key, all or none.

        Parameters
        ----------
        table : str
        keys : array-like of int [n]
            An array of int64, as they become where there is no uint64, stands for the keys of the same bits.
        priorities : array-like of float [n]
            NaN is refused everywhere; negative and infinite where a Prioritized selector is attached.

        Returns
        -------
        numpy.ndarray or None
            The keys that are not in the table (uint64); None where a plain Reverb server does not say.
        """
    def get(self, table: str, key: int, *, copy: bool = True, timeout: float | None = 60.0) -> Any:
        """The item of this key as a ReplaySample, without counting it as sampled.

        With copy=False its arrays are read-only views of the store's memory, where that is uncompressed; they hold it.

        Raises
        ------
        NotFoundError
            No such table, and which there are; or no item of this key in it. The sentence says which of the two.
        UnimplementedError
            From a plain Reverb server.
        """
    def _mutate(self, table: str, keys: Any, priorities: Any, deletes: Any, timeout: float | None, /) -> Any: ...
    def _items_page(self, table: str, cursor: int, size: int, only_keys: bool, timeout: float | None, /) -> tuple[Any, int]: ...
    def _server_info(self, timeout: float | None, /) -> list[dict[str, Any]]: ...
    def _journal_info(self, timeout: float | None, /) -> tuple[str, float]: ...
    def _memory_info(self, timeout: float | None, /) -> tuple[int, int, int, int, int]: ...
    def _reset(self, table: str, timeout: float | None, /) -> None: ...
    def _set_bounds(
        self, table: str, max_size: int, max_times_sampled: int, max_bytes: int, timeout: float | None, /
    ) -> None: ...
    def _set_memory_limit(self, limit: int, timeout: float | None, /) -> None: ...
    def _set_rate_limiter(self, table: str, limiter: tuple[float, int, float, float], timeout: float | None, /) -> None: ...
    def _checkpoint(self, timeout: float | None, /) -> str: ...
    def _remember(self, table: str, structure: Structure, /) -> None: ...
    def _remembered(self, table: str, /) -> Structure | None: ...
    def _close(self) -> None: ...
    def _check_open(self) -> None: ...
    def _plain(self) -> Client: ...
    def _take_idle_writer(self) -> Stream | None: ...
    def _give_idle_writer(self, stream: Stream, /) -> None: ...

@final
class Sampler:
    def __new__(
        cls,
        client: Client,
        table: str,
        max_samples: int,
        emit_timesteps: bool,
        unpack: bool,
        copy: bool,
        timeout: float | None = None,
        ahead: tuple[int, int, int, int] | None = None,
    ) -> Sampler: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def raw(self) -> tuple[Any, list[Any], list[bool]]: ...
    def close(self) -> None: ...

@final
class TensorSource:
    number: int
    def __new__(
        cls,
        sampler: Sampler,
        specs: list[tuple[int, tuple[int | None, ...] | None]],
        timesteps: bool,
        batch: int,
        drop_remainder: bool,
        alone: bool,
    ) -> TensorSource: ...
    def close(self) -> None: ...

def call_in_graph(function: Callable[..., Any], arguments: tuple[Any, ...], /) -> Any: ...
def settle_interrupts() -> None: ...
def take_log() -> tuple[int, str, int, int] | None: ...
def settle_log() -> None: ...
def close_log() -> None: ...
def register_tensorflow_operations() -> None: ...

@final
class Stream:
    def __new__(cls, client: Client) -> Stream: ...
    def append(self, leaves: list[Any], structure: Structure, /) -> None: ...
    def create_item(self, table: str, priority: float, structure: Structure, /) -> int: ...
    def end_episode(self, clear_buffers: bool, timeout: float | None, /) -> None: ...
    def close(self) -> None: ...

@final
class StepWriter:
    def __new__(
        cls,
        client: Client,
        max_sequence_length: int,
        chunk_length: int,
        max_in_flight_items: int,
        delta_encoded: bool,
        timeout: float | None = None,
    ) -> StepWriter: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def episode_id(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def structure(self) -> Structure | None: ...
    @property
    def begins_chunk(self) -> bool: ...
    def append(self, leaves: list[Any], structure: Structure, timeout: float | None, /) -> None: ...
    def append_sequence(self, leaves: list[Any], structure: Structure, timeout: float | None, /) -> None: ...
    def create_item(
        self, table: str, num_timesteps: int, priority: float, structure: Structure | None, timeout: float | None, /
    ) -> None: ...
    def flush(self, timeout: float | None, /) -> None: ...
    def discard_failed(self) -> int: ...
    def settle(self, retry_on_unavailable: bool, timeout: float | None, /) -> None: ...
    def take_failure(self) -> str | None: ...
    def close(self, retry_on_unavailable: bool, timeout: float | None, /) -> None: ...
    def abandon(self) -> int: ...

@final
class Transitions:
    def __new__(
        cls, client: Client, table: str, num_envs: int, structure: Structure, following: list[int], stack: list[int]
    ) -> Transitions: ...
    def add(self, data: Any, priority: ArrayLike | None, where: ArrayLike | None, timeout: float | None) -> None: ...
    def flush(self, timeout: float | None, /) -> None: ...
    def discard_failed(self) -> int: ...
    def settle(self, timeout: float | None, /) -> None: ...
    def take_failure(self) -> str | None: ...
    def close(self) -> int: ...

class TrajectoryWriter:
    def __init__(
        self,
        client: Client,
        num_keep_alive_refs: int,
        chunk_length: int = 0,
        delta_encoded: bool = False,
        compression: int = 0,
        max_in_flight_items: int = 0,
        max_in_flight_bytes: int = 0,
        validate_items: bool = True,
    ) -> None: ...
    @property
    def history(self) -> Any:
        """The columns so far, in the nest of the data, a new one each time: index them to make the columns of an item."""
    @property
    def episode_steps(self) -> int:
        """Completed steps of this episode."""
    @property
    def step_is_open(self) -> bool:
        """Was the last append a partial step?"""
    @property
    def _is_initialised(self) -> bool: ...
    def append(self, data: Any, *, partial_step: bool = False) -> None:
        """Adds one row to the columns of the data's leaves. Never waits; the data is copied.

        Parameters
        ----------
        data : nest of arrays and scalars
            A leaf that is None or missing has no row in this step. The first value of a column fixes its dtype and shape.
        partial_step : bool
            Leaves the step open: later appends fill other columns of the same row. Until then these have None there in `history`.

        Raises
        ------
        InvalidArgumentError
            Wrong dtype or shape, or a column that was already set in the open step; the writer is as it was.
        ResourceExhaustedError
            Too many bytes are in flight: flush, or slow down.
        """
    def create_item(self, table: str, priority: float, trajectory: Any) -> int:
        """Queues an item and returns its key. Never waits; the item is sent once the rows it needs are complete.

        Parameters
        ----------
        table : str
        priority : float
        trajectory : nest of TrajectoryColumn
            Columns of `history`, indexed.

        Raises
        ------
        InvalidArgumentError
            Rows that are missing or no longer kept, columns that do not fit the table's signature, a NaN priority.
        NotFoundError
            No such table.
        ResourceExhaustedError
            Too much is in flight: flush, or slow down.
        """
    def discard_failed(self) -> int:
        """Forgets items that failed for good, so that the writer can go on. Returns how many."""
    def close(self) -> None:
        """Returns at once; items that were not sent and confirmed are dropped, which is logged, as is what the server refused
        and no call has raised. A flush or end_episode that another thread is in, or that this one is in while a signal handler
        calls close, ends with CancelledError. Idempotent.
        """
    def _flush(self, keep: int, timeout: float | None, /) -> None: ...
    def _end_episode(self, clear_buffers: bool, timeout: float | None, /) -> None: ...
    def _configure(self, path: tuple[Any, ...], config: tuple[int, int], /) -> None: ...
    def _settle(self, timeout: float | None, /) -> None: ...
    def _take_failure(self) -> str | None: ...
    def _status(self) -> dict[str, Any]: ...
    def _abandon(self) -> int: ...

class StructuredWriter:
    def __init__(self, client: Client, configs: list[tuple[Any, ...]]) -> None: ...
    @property
    def step_is_open(self) -> bool:
        """Was the last append a partial step?"""
    def append(self, data: Any, *, partial_step: bool = False) -> None:
        """Adds a step, or a part of one, and makes the items that are due. Never waits; the data is copied.

        Parameters
        ----------
        data : nest of arrays and scalars
            The first step says how many leaves every step has. A leaf that is None has no row in this step.
        partial_step : bool
            Leaves the step open: later appends fill other leaves of the same step.

        Raises
        ------
        InvalidArgumentError
            Another number of leaves than the first step, another dtype or shape than a leaf's first value, a pattern that refers to
            a leaf that steps do not have: nothing was added. An item whose priority is nan: the step is in, the item is not.
        FailedPreconditionError
            A leaf that was already set in the open step; nothing was added.
        ResourceExhaustedError
            Too much is in flight: flush, or slow down; nothing was added.
        """
    def discard_failed(self) -> int:
        """Forgets items that failed for good, so that the writer can go on. Returns how many."""
    def close(self) -> None:
        """Returns at once; items that were not sent and confirmed are dropped, which is logged, as is what the server refused
        and no call has raised. A flush or end_episode that another thread is in, or that this one is in while a signal handler
        calls close, ends with CancelledError. Idempotent.
        """
    def _flush(self, keep: int, timeout: float | None, /) -> None: ...
    def _end_episode(self, clear_buffers: bool, timeout: float | None, /) -> None: ...
    def _settle(self, timeout: float | None, /) -> None: ...
    def _take_failure(self) -> str | None: ...
    def _status(self) -> dict[str, Any]: ...
    def _abandon(self) -> int: ...

@final
class Patterns:
    def __new__(cls, configs: list[tuple[Any, ...]], step: Structure) -> Patterns: ...
    def append(
        self, columns: list[NDArray[Any] | None], ends: NDArray[np.bool_], clear_buffers: bool, /
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]: ...
    def column_window(self, column: int, /) -> int: ...

@final
class ColumnHistory:
    def path(self) -> tuple[Any, ...]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[RowReference | None]: ...
    def __getitem__(self, key: int | slice | list[int], /) -> TrajectoryColumn: ...

@final
class TrajectoryColumn:
    def __new__(
        cls, data_references: Sequence[RowReference], *, squeeze: bool = False, path: tuple[Any, ...] | None = None
    ) -> TrajectoryColumn: ...
    @property
    def is_squeezed(self) -> bool:
        """Is it one row, shown without the time dimension?"""
    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that numpy() gives."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the array that numpy() gives."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[RowReference]: ...
    def __getitem__(self, key: int | slice | list[int], /) -> TrajectoryColumn: ...
    def numpy(self) -> NDArray[Any]:
        """A copy of the rows, stacked along dimension 0; of the one row when squeezed."""

@final
class RowReference:
    @property
    def expired(self) -> bool: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def numpy(self) -> NDArray[Any]: ...
