"""The client: one object for a server in this process, on this machine or elsewhere."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from reverie import _arguments, _core, _inproc, nest, table_info
from reverie._unmade import set_by_init
from reverie.batches import BatchIterator
from reverie.errors import CancelledError, FailedPreconditionError, InvalidArgumentError
from reverie.journal import JournalInfo
from reverie.rate_limiters import RateLimiter
from reverie.samples import ItemInfo
from reverie.security import TLS, from_environment, raw_tls
from reverie.server import Server
from reverie.structured_writer import Config, StructuredWriter, raw_configs
from reverie.table_info import MemoryInfo, TableInfo
from reverie.trajectory_writer import TrajectoryWriter
from reverie.transitions import Transitions
from reverie.writer import Writer

__all__ = ["Client"]

DEFAULT_TIMEOUT = 60.0
_UNCHANGED = -1
_COMPRESSION = {"auto": 0, "none": 1, "snappy": 2}


class _Options(NamedTuple):
    """How a client is connected, besides the address."""

    max_message_bytes: int = 0
    tls: TLS | None = None
    token: str | None = None
    peer_timeout: float | None = 10.0
    shared_memory: bool = True


class Client(_core.Client):
    """Talks to one server. May be used from many threads; does not survive a fork (make a new one in the child).

    Parameters
    ----------
    server_address : str or Server
        ``"host:port"``, ``"unix:/path"``, ``"inproc://name"`` for a server of this process, or that server itself, which the
        client then holds: it is not stopped because nobody else does. Nothing is connected before the first call.
    max_message_bytes : int
        The longest message to receive, at least 16,384; 0: 256 MiB.
    tls : TLS, optional
        For a server that has TLS. None: as the environment says (``REVERIE_TLS_AUTHORITY``, ``REVERIE_TLS_CERTIFICATE``,
        ``REVERIE_TLS_KEY``, ``REVERIE_TLS_REVOCATION_LIST``), else none. Unix sockets have none.
    token : str, optional
        Who the client is, to a server that asks; without TLS it is sent to this machine only. None: ``REVERIE_TOKEN``, else nobody.
    peer_timeout : float, optional
        Seconds; a connection whose server gives no sign of life for so long is lost, and another is made. None: never.
    shared_memory : bool
        Where the server is on this machine (and, unless the address is a unix socket, runs as the same user or as root) the two share
        memory, up to 2 MiB, and only what wakes them goes through a socket. False: all goes through the socket of the address.

    Notes
    -----
    Every call that may wait takes a `timeout` in seconds. Calls that Reverb has too keep its default: None, they wait for ever,
    and log what for after 10 s. Calls of our own give up after 60 s unless told otherwise. All of them end within 0.2 s of
    Ctrl-C.

    A client that has an address is pickled and copied by it and by its options, those from the environment included. A subclass is
    called with the address, and with those options only that its own constructor takes, as this one was given them.
    """

    _address: str = set_by_init()
    _saved_here: tuple[_core.Checkpointer | None, _core.Store] | None = set_by_init()

    def __init__(
        self,
        server_address: str | bytes | Server,
        *,
        max_message_bytes: int = 0,
        tls: TLS | None = None,
        token: str | None = None,
        peer_timeout: float | None = 10.0,
        shared_memory: bool = True,
    ) -> None:
        server: Server | None = None
        if isinstance(server_address, bytes):
            server_address = _arguments.name("server_address", server_address)
        if isinstance(server_address, Server):
            server = self._server = server_address  # a server that nobody holds stops
            self._address = f"{_inproc.PREFIX}{server._name}" if server._name is not None else ""
        elif not isinstance(server_address, str):
            raise TypeError(f"server_address must be a str or a reverie.Server, got {server_address!r}")
        else:
            self._address = _arguments.text("server_address", server_address)
            if server_address.startswith(_inproc.PREFIX):
                server = _inproc.find(server_address[len(_inproc.PREFIX) :])
        message_bytes = _arguments.not_negative("max_message_bytes", max_message_bytes)
        peer_timeout_ms = _arguments.peer_timeout(peer_timeout)
        share = _arguments.truth("shared_memory", shared_memory)
        if token is not None:
            _arguments.secret("token", token)
        self._given = _Options(max_message_bytes, tls, token, peer_timeout, share)
        if server is not None:
            if server._process != os.getpid():  # its memory here is a copy, which nobody else reads
                raise FailedPreconditionError(
                    f"the server lives in process {server._process}, and a forked child ({os.getpid()}) has only a copy of it; "
                    "give the server an address and connect to that"
                )
            super().__init__(store=server._store, max_message_bytes=message_bytes)
            self._saved_here = (server._internal, server._store)
        else:
            tls, token = from_environment(tls, token, has_tls=not self._address.startswith("unix:"))
            super().__init__(
                self._address,
                max_message_bytes=message_bytes,
                tls=raw_tls(tls),
                token=token,
                peer_timeout_ms=peer_timeout_ms,
                shared_memory=share,
            )
            self._saved_here = None
        self._connection = self._given._replace(tls=tls, token=token)

    @property
    def server_address(self) -> str:
        """As given; empty for a server of this process that has no name."""
        return self._address

    def close(self) -> None:
        """Ends its connections now. Idempotent, and does not wait for anybody; leaving a ``with`` block of the client does it, too.

        Calls of other threads that wait end with `CancelledError` within 0.2 s, and every later call of the client, and of the writers,
        samplers and iterators made of it, fails with `FailedPreconditionError`. What its writers have not had confirmed is given up,
        as by their own `close`, which says how much that is: flush them first, or leave their ``with`` blocks, which does. To flush or
        close one of which everything was confirmed, and to leave its block, is no error afterwards either. Of a server in this process,
        which it no longer holds, items that wait to be inserted go when their writer does.

        A client that is dropped is closed once nothing made of it is left.
        """
        self._close()
        self._saved_here = None
        self.__dict__.pop("_server", None)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---- inserting ----

    def insert(self, data: Any, priorities: Mapping[str, float], *, timeout: float | None = None) -> None:
        """Inserts one step as an item into each of the tables, and returns once they have it.

        Parameters
        ----------
        data : nest of arrays
            Sampled, each leaf has a time dimension of length 1 (see `add` for rows without). A signature of rows, such as
            ``TensorSpec((4,))``, takes it all the same, as Reverb's does: do not mix it with `add` in one table, whose items
            could then not stand in one batch. Python's ints and floats are int64 and float64 whatever the signature says, as with
            Reverb: give ``np.float32(1.5)``. (`add` gives them the signature's dtype.)
        priorities : mapping of str to float
            Table names and the item's priority in each. All items share the data.
        timeout : float, optional
            Seconds; None waits for ever. When it runs out, items may be in some of the tables, and one that was on its way to a
            server may still get in.

        Raises
        ------
        DeadlineExceededError
            The sentence says what was waited for.
        ValueError
            No tables, no such table, a NaN priority, data that does not fit a signature. Of several tables those before the one that
            refuses it may have it.
        TypeError
            A leaf that cannot be stored, with its path, or priorities that are no mapping.
        """
        if priorities is not None and not isinstance(priorities, Mapping):
            raise TypeError(f"priorities must be a dict {{table: priority}}, such as {{'replay': 1.0}}, got {priorities!r}")
        seconds = _arguments.timeout(timeout)
        if not priorities:
            raise ValueError("priorities must name at least one item: {table: priority}")
        self._insert(data, priorities.items(), seconds)

    def _insert(self, data: Any, priorities: Iterable[tuple[str, float]], seconds: float | None) -> None:
        """The same for tables that may be named more than once: each time an item."""
        checked = [(table, _priority(f"the priority for table {table!r}", given)) for table, given in priorities]
        structure = nest.Structure(data)
        leaves = structure.flatten(data)
        if not leaves:
            raise InvalidArgumentError("the data has no leaves: there is nothing to insert")
        writer = self._take_idle_writer() or _core.Stream(self)
        try:
            try:
                writer.append(leaves, structure)
            except InvalidArgumentError:  # it was used for other dtypes or shapes
                writer.close()
                writer = _core.Stream(self)
                writer.append(leaves, structure)
            for table, priority in checked:
                writer.create_item(table, priority, structure)
                self._remember(table, structure)
            writer.end_episode(True, seconds)
        except BaseException:
            writer.close()
            raise
        self._give_idle_writer(writer)

    def writer(
        self,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        max_in_flight_items: int | None = 25,
        *,
        timeout: float | None = None,
    ) -> Writer:
        """A legacy step writer, whose items are the last n steps, with a time dimension also where n is 1 (see `insert`).

        Parameters
        ----------
        max_sequence_length : int
            Steps that items may reach back.
        delta_encoded : bool
            Send integer columns as differences from step to step.
        chunk_length : int, optional
            Steps sent together, from 1 to `max_sequence_length`; ``min(10, max_sequence_length)`` by default.
        max_in_flight_items : int, optional
            `Writer.create_item` waits while more are unconfirmed; None: a million.
        timeout : float, optional
            Seconds to wait until the server has said what its tables expect; None waits for ever. The writer's calls have
            timeouts of their own.
        """
        length = _positive("max_sequence_length", max_sequence_length)
        chunk = min(10, length) if chunk_length is None else _positive("chunk_length", chunk_length)
        if chunk > length:
            raise ValueError(f"chunk_length must be a positive integer up to max_sequence_length ({length}), got {chunk}")
        in_flight = 1_000_000 if max_in_flight_items is None else _positive("max_in_flight_items", max_in_flight_items)
        return Writer(self, length, bool(delta_encoded), chunk, in_flight, timeout)

    def trajectory_writer(
        self,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        get_signature_timeout_ms: int | None = None,
        chunk_length: int | None = None,
        delta_encoded: bool = False,
        compression: str = "auto",
        max_in_flight_items: int | None = None,
        max_in_flight_bytes: int | None = None,
    ) -> TrajectoryWriter:
        """A writer of steps and of items that refer to any of the last ones.

        Parameters
        ----------
        num_keep_alive_refs : int
            Steps that items may still refer to; at least 1.
        validate_items : bool
            Check items against the tables' signatures here, at `TrajectoryWriter.create_item`.
        get_signature_timeout_ms : int, optional
            Wait here until the server has answered, for so many milliseconds at most; 0 and negative values wait for ever. Acme
            0.4.0 asks for it, as Reverb took it until 2022. None, the default, does not wait: items do.
        chunk_length : int, optional
            Steps sent together; chosen by the writer by default.
        delta_encoded : bool
            Send integer columns as differences from step to step.
        compression : {"auto", "none", "snappy"}
            ``"auto"`` compresses what becomes at least a fifth smaller by it, and 256 bytes a chunk.
        max_in_flight_items, max_in_flight_bytes : int, optional
            Above these `TrajectoryWriter.create_item` and `TrajectoryWriter.append` fail; 100,000 and 64 MiB by default.

        Raises
        ------
        DeadlineExceededError
            No answer within `get_signature_timeout_ms`.
        """
        keep = _positive("num_keep_alive_refs", num_keep_alive_refs)
        chunk = 0 if chunk_length is None else _positive("chunk_length", chunk_length)
        if not isinstance(compression, str) or compression not in _COMPRESSION:
            raise ValueError(f"compression must be one of {', '.join(_COMPRESSION)}, got {compression!r}")
        if get_signature_timeout_ms is not None:
            self.server_info(max(0, _arguments.clamped("get_signature_timeout_ms", get_signature_timeout_ms)) / 1000)
        return TrajectoryWriter(
            self,
            keep,
            chunk,
            bool(delta_encoded),
            _COMPRESSION[compression],
            0 if max_in_flight_items is None else _positive("max_in_flight_items", max_in_flight_items),
            0
            if max_in_flight_bytes is None
            else _arguments.positive("max_in_flight_bytes", max_in_flight_bytes, _arguments.MAX_INT64),
            bool(validate_items),
        )

    def transitions(
        self,
        table: str,
        num_envs: int,
        *,
        next: Mapping[Any, Any] | None = None,  # noqa: A002 - what the column is
        stack: Mapping[Any, int] | None = None,
    ) -> Transitions:
        """A writer of transitions that stores once what repeats from step to step.

        Parameters
        ----------
        table : str
        num_envs : int
            Environments that step together: rows of every step.
        next : mapping, optional
            ``{"next_obs": "obs"}``: ``next_obs`` is mostly ``obs`` of the same environment one step later, and costs no memory
            where it is. Columns are named by their place in the data, ``"next_obs/pixels"`` too; the name of a nest stands for all
            its leaves.
        stack : mapping, optional
            ``{"obs": 4}``: ``obs`` is [num_envs, 4, ...frame], a stack of frames with the oldest first, of which each is stored
            once. It holds for the column's next as well.

        Notes
        -----
        A table whose rows come partly from here with `stack` and partly from `add` holds items of two kinds, which
        `sample_batch` gives only one by one (``unequal="list"``).
        """
        return Transitions(self, table, _positive("num_envs", num_envs), next, stack)

    def structured_writer(self, configs: Sequence[Config]) -> StructuredWriter:
        """A writer of steps that makes items by patterns; see `reverie.structured`.

        Parameters
        ----------
        configs : sequence
            What `reverie.structured.create_config` returns; Reverb's own messages are taken, too.

        Raises
        ------
        ValueError
            No configs, or one that can never make an item; the text names its position, and the node or condition.
        """
        return StructuredWriter(self, raw_configs(configs))

    # ---- sampling ----

    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool = True,
        unpack_as_table_signature: bool = False,
        copy: bool = True,
        timeout: float | None = None,
    ) -> Iterator[Any]:
        """Samples items one after another, waiting for each as long as the rate limiter wants.

        Over the network the next ones are on their way while one is looked at (at most 1,024; one where that could be seen: a sampler
        that is not random, `max_times_sampled`, a bound on samples an insert). They count as sampled: whoever breaks off an iteration
        over a queue loses the one that was on its way, and takes exactly n by ``num_samples=n``.

        Parameters
        ----------
        table : str
        num_samples : int
            At least 1; checked, like the table, at the first ``next``.
        emit_timesteps : bool
            Yield each item as a list of steps (`ReplaySample` of one row each): every column is cut along its first dimension,
            as Reverb does. Otherwise as one `ReplaySample` of whole columns. Items of `add` and of ``history["x"][-1]`` have no
            time dimension, and are cut through their features, or refused where a column is a scalar (`TypeError`): give False
            for them, or use `sample_batch`.
        unpack_as_table_signature : bool
            The data has the nest of the table's signature, if it has one; otherwise it is the flat list of columns.
        copy : bool
            False: arrays are read-only views of the store's or the received memory, which they hold, where that is possible.
        timeout : float, optional
            Seconds for each item; None waits for ever. After a `DeadlineExceededError` the iteration may go on.

        Yields
        ------
        ReplaySample or list of ReplaySample
        """
        number = _arguments.clamped("num_samples", num_samples)  # below 1: see ``next``
        unpack = bool(unpack_as_table_signature)
        return _core.Sampler(self, table, number, bool(emit_timesteps), unpack, bool(copy), timeout)

    def batches(
        self,
        table: str,
        batch_size: int,
        *,
        prefetch: int = 2,
        timeout: float | None = DEFAULT_TIMEOUT,
        unequal: str = "error",
    ) -> BatchIterator[_core.ReplayBatch]:
        """An endless iterator of `sample_batch`, which a thread draws ahead of.

        Parameters
        ----------
        table : str
        batch_size : int
        prefetch : int
            Batches drawn ahead, at least 1. They count as sampled, and are lost when the iterator is closed: of a queue take them by
            `sample_batch`.
        timeout : float or None
            Seconds for each batch, as in `sample_batch`; when not one item could be drawn, iteration raises
            `DeadlineExceededError`, and may go on.
        unequal : {"error", "pad", "list"}
            As in `sample_batch`.
        """
        _arguments.one_of("unequal", unequal, ("error", "pad", "list"))

        # A thread that held a client which holds the iterator would keep both for as long as it waits: it holds the plain one. A
        # subclass's own sample_batch needs the client, which then stays while that waits.
        plain, weak = self._plain(), weakref.ref(self)
        overridden = type(self).sample_batch is not _core.Client.sample_batch

        def draw(cancel: _core.Cancel) -> _core.ReplayBatch:
            client = weak() if overridden else plain
            if client is None:
                raise CancelledError("the iterator and its client have been dropped")
            return client.sample_batch(table, batch_size, timeout=timeout, unequal=unequal, cancel=cancel)

        return BatchIterator(draw, prefetch, self)

    # ---- items ----

    def mutate_priorities(
        self,
        table: str,
        updates: Mapping[int, float] | None = None,
        deletes: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Deletes items, then updates priorities; all or nothing. Keys that are not in the table are passed over.

        Parameters
        ----------
        table : str
        updates : mapping of int to float, optional
            Keys and new priorities.
        deletes : sequence of int, optional
            Keys.
        timeout : float, optional
            Seconds; None waits for ever.

        Raises
        ------
        ValueError
            A priority that the table refuses: NaN always, negative or infinite ones where a Prioritized selector is attached.
        NotFoundError
            No such table.
        UnavailableError
            With `deletes`: the connection was lost before the answer came, so that it is not known whether this was done. Updates alone
            are sent again.
        """
        if updates is not None and not isinstance(updates, Mapping):
            raise TypeError(f"updates must be a dict {{key: priority}}, got {updates!r}; update_priorities takes two arrays")
        pairs = {} if updates is None else updates
        priorities = [_arguments.number(f"the priority for key {key!r}", value) for key, value in pairs.items()]
        gone = [] if deletes is None else _arguments.listed("deletes", deletes, "keys")
        self._mutate(table, list(pairs), np.array(priorities, np.float64), gone, timeout)

    def keys(self, table: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The keys of all items, in order of insertion: uint64 [n].

        Raises
        ------
        AbortedError
            The server was started again meanwhile: ask again.
        UnimplementedError
            From a plain Reverb server.
        """
        pages = list(self._pages(table, 10_000, True, timeout))
        return np.concatenate(pages) if pages else np.zeros(0, np.uint64)

    def items(self, table: str, *, page_size: int = 1000, timeout: float | None = DEFAULT_TIMEOUT) -> Iterator[ItemInfo]:
        """All items in order of insertion, fetched in pages of `page_size`.

        What is inserted or removed meanwhile may be missing or present; nothing that stays is missed or given twice.

        Raises
        ------
        AbortedError
            The server was started again between two pages, and counts its items anew: list again from the start.
        """
        size = _arguments.positive("page_size", page_size, 1_000_000)
        for page in self._pages(table, size, False, timeout):
            for entry in page:
                yield ItemInfo(*entry)

    def _pages(self, table: str, size: int, only_keys: bool, timeout: float | None) -> Iterator[Any]:
        cursor = 0
        while True:
            page, cursor = self._items_page(table, cursor, size, only_keys, timeout)
            if len(page):
                yield page
            if cursor == 0:
                return

    # ---- tables ----

    def reset(self, table: str, *, timeout: float | None = None) -> None:
        """Removes all items and zeroes the rate limiter's counters. Callers that wait go on waiting."""
        self._reset(table, timeout)

    def server_info(self, timeout: float | None = None) -> dict[str, TableInfo]:
        """All tables by name.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None, 0 and negative values wait for ever.
        """
        if timeout is not None and _arguments.number("timeout", timeout) <= 0:
            timeout = None
        return {raw["name"]: table_info.from_raw(raw) for raw in self._server_info(timeout)}

    def memory_info(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> MemoryInfo:
        """What the server's tables, streams and connections take, in bytes.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.
        """
        return MemoryInfo(*self._memory_info(timeout))

    def journal_info(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> JournalInfo:
        """How far the server's journal is behind, and what keeps it from its disk.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.
        """
        fault, lag_seconds = self._journal_info(timeout)
        if self._saved_here is not None:
            with contextlib.suppress(FailedPreconditionError):  # it has no journal, or was stopped
                stats = self._saved_here[1].journal_stats()
                fault, lag_seconds = stats["fault"], stats["lag_seconds"]
        return JournalInfo(fault, lag_seconds)

    def set_rate_limiter(self, table: str, rate_limiter: RateLimiter, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Gives a running table another rate limiter; its counters go on. Callers that wait are looked at again."""
        if not isinstance(rate_limiter, RateLimiter):
            raise TypeError(f"rate_limiter must be a reverie.rate_limiters.RateLimiter, got {rate_limiter!r}")
        limiter = rate_limiter
        values = (limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff)
        self._set_rate_limiter(table, values, timeout)

    def set_bounds(
        self,
        table: str,
        *,
        max_size: int | None = None,
        max_times_sampled: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Gives a running table other bounds. Callers of the table go on meanwhile; journals and checkpoints keep the new ones.

        Parameters
        ----------
        max_size : int, optional
            Items, 1 to 2^31 - 1. Where there are more, the remover takes them away before this returns, a few at a time. None: as it is.
        max_times_sampled : int, optional
            Samples after which an item goes, 0: never. One that was sampled so often already goes when it is sampled next. None: as it is.
        max_bytes : int, optional
            Bytes that items and their chunks may take, 0: no bound. Where they take more, the remover takes items away, as above.
            None: as it is.
        timeout : float, optional
            Seconds; None waits for ever. What has begun goes on.

        Raises
        ------
        ValueError
            Out of range, or the table's rate limiter waits for more items than there could be.
        AbortedError
            Another change of its bounds came in between, and holds, or a rate limiter did that waits for more items than were to
            stay.
        """
        self._set_bounds(
            table,
            _UNCHANGED if max_size is None else _arguments.positive("max_size", max_size, _arguments.MAX_INT32),
            _UNCHANGED
            if max_times_sampled is None
            else _arguments.not_negative("max_times_sampled", max_times_sampled, _arguments.MAX_INT32),
            _UNCHANGED if max_bytes is None else _arguments.not_negative("max_bytes", max_bytes),
            timeout,
        )

    def set_memory_limit(self, limit: int, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Changes the server's `memory_limit` while it is in use; it begins with its configuration's when it starts again.

        Parameters
        ----------
        limit : int
            Bytes that all tables may take, with what streams have brought; 0: no limit. Raised, inserts that waited for memory go
            on. Lowered below what is used, nothing is thrown away: inserts wait until there is room again.
        timeout : float, optional
            Seconds; None waits for ever.
        """
        self._set_memory_limit(_arguments.not_negative("limit", limit), timeout)

    def checkpoint(self, *, timeout: float | None = None) -> str:
        """Has the server save all tables as they are now, and returns the checkpoint's path once it is on the disk.

        Inserts and samples go on meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever. The server may still finish what has begun.

        Raises
        ------
        ValueError
            The server has no checkpointer, or one with a group.
        UnavailableError
            No server is there.
        FailedPreconditionError
            The server was stopped, and its journal goes on from the newest checkpoint, whose place this one would take.
        ResourceExhaustedError, PermissionDeniedError
            The disk is full, or may not be written to. The checkpoints that are there stay.
        """
        if self._saved_here is None:
            return self._checkpoint(timeout)
        checkpointer, store = self._saved_here
        if checkpointer is None:
            raise ValueError(
                "no Checkpointer is configured: this server does not write checkpoints; make it with "
                "Server(..., checkpointer=reverie.checkpointers.DefaultCheckpointer(directory))"
            )
        return checkpointer.save(store, timeout)

    def __reduce__(self) -> Any:
        if not self._address:
            raise TypeError(
                "a client of a server in this process cannot be pickled; pickle one of its address: Client(server.address)"
            )
        # A subclass need not take our options, and of those from the environment it was given none.
        options = self._connection if type(self) is Client else self._given
        return _connect, (type(self), self._address, _taken(type(self), options._asdict()))

    def __repr__(self) -> str:
        return f"Client, server_address={self._address or 'in process'}"


def _connect(kind: type[Client], address: str, options: Mapping[str, Any]) -> Client:
    return kind(address, **options)


def _taken(kind: type[Client], options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that the constructor names; if it takes any, those that are not the defaults, too."""
    parameters = inspect.signature(kind).parameters.values()
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    named = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    defaults = _Options()._asdict()
    return {name: value for name, value in options.items() if name in named or (takes_any and value != defaults[name])}


def _positive(name: str, value: Any) -> int:
    return _arguments.positive(name, value, _arguments.MAX_INT32)


def _priority(name: str, value: Any) -> float:
    number = _arguments.number(name, value)
    if math.isnan(number):
        raise InvalidArgumentError(f"{name} must not be nan")
    return number
