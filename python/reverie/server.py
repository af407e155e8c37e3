"""A server: tables, offered to this process and to others."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from reverie import _arguments, _core, _inproc, _log
from reverie._latch import Latch
from reverie._unmade import set_by_init
from reverie.batches import LOOK
from reverie.checkpointers import CheckpointerBase, DefaultCheckpointer
from reverie.errors import AddressInUseError, DeadlineExceededError, FailedPreconditionError, OpenPortWarning, UnavailableError
from reverie.extensions import TableExtensionBase
from reverie.journal import Journal, JournalStats
from reverie.security import TLS, Identity, RawTLS, raw_identities, raw_tls, warn_of_certificates
from reverie.table import Table

if TYPE_CHECKING:
    from reverie.client import Client

__all__ = ["Server", "Table", "TableExtensionBase"]


class Server:
    """Serves tables until it is stopped, or garbage-collected.

    What it logs are records of ``logging.getLogger("reverie")``: warnings and errors are seen on stderr unless the program sets up
    logging otherwise, lines of level INFO where it asks for them. Those of its making were handled when it is there.

    Parameters
    ----------
    tables : sequence of Table
        At least one; names must differ. A table belongs to one server at a time.
    port : int, optional
        Listens on this port of all interfaces (0 or None: a free one, see `port`), without encryption or passwords, as Reverb
        does, and warns that it does (`OpenPortWarning`). Give an `address` instead to say where.
    checkpointer : reverie.checkpointers.CheckpointerBase, optional
        Where `Client.checkpoint` has the tables saved. The server begins with the newest whole checkpoint that is there: items, and of
        each table that was saved everything but its name and extensions; what differs from the tables given is logged. None: a
        temporary directory, which goes with the server unless a checkpoint was saved in it; where none can be made, a warning says so,
        and the server saves none.
    address : str or sequence of str, optional
        ``"localhost:8000"``, ``"[::1]:0"``, ``"unix:/path"``: listens there and nowhere else.
    in_process : bool
        Listens nowhere: only clients of this process reach it, by ``Client(server)`` or by `name`.
    name : str, optional
        Clients of this process find it as ``"inproc://name"``, whether or not it listens as well.
    io_threads : int
        0: one for two cores, at most 8.
    max_message_bytes : int
        At least 16,384; 0: 256 MiB. A longer message ends its stream.
    max_connections : int
        0: 10,000.
    gather_threads : int
        Threads that copy one large batch (512 KiB and more) for clients of this process, the caller included. They are started when first
        needed and sleep in between. 0: one per core, at most 4; 1: the caller alone.
    memory_limit : int
        Bytes that all tables may take, with their books and with what streams have brought that is no item's yet; a chunk counts
        once, whoever refers to it. Near it inserts wait until something goes (reason ``"memory"`` in `TableInfo.waiting`). 0: no limit.
    spill : str or os.PathLike, optional
        A directory. Near `memory_limit`, which it needs, the chunks that tables have had longest go to a file there, which has no
        name, and are sampled from it; inserts wait where it can take no more. It ends with the server; what is to last is
        for checkpoints.
    spill_bytes : int
        Of that file; 0: what the disk has room for, up to 1 TiB.

    checkpoint_every_seconds : float
        The server saves a checkpoint by itself whenever so much time has passed since the last one began; 0: never.
    checkpoint_every_inserts : int
        And whenever there were so many inserts into all tables together since then, looked at once a second; 0: never. Either needs a
        checkpointer. Each is logged; where one fails, the next is tried when it is due.
    tls : TLS, optional
        On all addresses but unix sockets. Without it everything is sent in the clear.
    identities : sequence of Identity, optional
        Who may call, and what they may do. None: everybody everything. Clients of this process are never asked.
    peer_timeout : float, optional
        Seconds; a connection whose other end gives no sign of life for so long is lost, and what it held is free. None: never.
    max_connections_per_address : int
        Of one IP address (an IPv6 network of 64 bits). 0: nine tenths of `max_connections`.
    max_streams_per_identity : int
        Calls that are open at a time by one of the `identities`. 0: 50,000. Beyond it, and beyond the next where nothing waits that could
        make room, they end with `ResourceExhaustedError`.
    max_bytes_per_identity : int
        Of chunks that are kept for items to come, and of inserts that wait, which wait longer beyond it. 0: 16 GiB.
    shared_memory : bool
        Reverie's clients on this machine share memory with the server (up to 2 MiB each, the first 512 of them) also where they come by a
        TCP address without TLS: it is faster than the loopback device. False: only those who come by a unix socket.
    seed : int, optional
        From 0 to 2**64 - 1. With it the same calls, in the same order, draw and remove the same items, and give them the same keys:
        calls of one thread of this process to a server with the same tables, in the same order, that begins empty. In more threads
        their order decides; items of clients elsewhere have keys that those choose. Whoever knows it foresees draws and keys, so it
        is for experiments, not for servers open to strangers. None: every server draws otherwise; `numpy.random.seed` has no part in
        it.

    journal : Journal, optional
        Every change is written to disk, and a server that begins again with the same journal and checkpointer goes on where the last one
        was, killed or not: nothing that was confirmed to clients over the network is lost or there twice (with ``mode="always"``). A
        ``Client(server)`` is told that its items are in the table, not that they are on the disk: see `sync_journal`. Needs a
        checkpointer.

    Raises
    ------
    ValueError
        No tables, two of one name, an address that cannot be parsed or bound (`AddressInUseError`), a checkpoint with a table that is
        not among the tables.
    DataLossError
        There are checkpoints, and none of them is whole; the journal is damaged.
    FailedPreconditionError
        Another server has the journal; a journal goes on from the newest checkpoint, and none was given.
    """

    _stopped: Latch = set_by_init()
    _name: str | None = set_by_init()
    _port: int | None = set_by_init()

    def __init__(
        self,
        tables: Sequence[Table] | None = None,
        port: int | None = None,
        checkpointer: CheckpointerBase | None = None,
        *,
        address: str | Sequence[str] | None = None,
        in_process: bool = False,
        name: str | None = None,
        io_threads: int = 0,
        max_message_bytes: int = 0,
        max_connections: int = 0,
        gather_threads: int = 0,
        memory_limit: int = 0,
        spill: str | os.PathLike[str] | None = None,
        spill_bytes: int = 0,
        checkpoint_every_seconds: float = 0.0,
        checkpoint_every_inserts: int = 0,
        journal: Journal | None = None,
        tls: TLS | None = None,
        identities: Sequence[Identity] | None = None,
        peer_timeout: float | None = 10.0,
        max_connections_per_address: int = 0,
        max_streams_per_identity: int = 0,
        max_bytes_per_identity: int = 0,
        shared_memory: bool = True,
        seed: int | None = None,
    ) -> None:
        self._process = os.getpid()
        self._stopped = Latch()
        self._stop_lock = threading.RLock()  # a signal handler may stop it while its thread does
        self._server: _core.Server | None = None
        self._name = None
        self._port = None
        self._tables = _check_tables(tables)
        if isinstance(port, bool):
            raise TypeError(f"port must be an integer, got {port!r}")
        port = None if port is None else _arguments.integer("port", port)
        if (address is not None) + (port is not None) + bool(in_process) > 1:
            raise ValueError("give one of port, address and in_process")
        threads = _arguments.not_negative("gather_threads", gather_threads, 64)
        spill_path = None if spill is None else os.fsencode(_arguments.path("spill", spill))
        addresses = [] if in_process else _addresses(port, address)
        if name is not None:
            _arguments.text("name", name)
        files, callers = raw_tls(tls), raw_identities(identities)
        every = _every(checkpoint_every_seconds, checkpoint_every_inserts)
        if any(every) and checkpointer is None:
            raise ValueError("checkpoints by time or by inserts need a checkpointer, which says where they go")
        self._saver: _core.Saver | None = None
        if journal is not None and not isinstance(journal, Journal):
            hint = f"; give reverie.Journal({journal!r})" if isinstance(journal, (str, os.PathLike)) else ""
            raise TypeError(f"journal must be a reverie.Journal, got {journal!r}{hint}")
        if journal is not None and checkpointer is None:
            raise ValueError("a journal goes on from checkpoints: give a checkpointer, too")
        self._journal = journal
        self._checkpointer, self._remove_directory = _checkpointer(self, checkpointer)
        self._internal = self._checkpointer.internal_checkpointer()
        if journal is not None and self._internal is None:
            raise ValueError(
                "a journal goes on from checkpoints: its checkpointer must save; this one has no internal_checkpointer()"
            )
        if any(every) and self._internal is None:
            raise ValueError(
                "checkpoints by time or by inserts need a checkpointer that saves; this one has no internal_checkpointer()"
            )
        with _log.told_before_it_ends():
            self._store = _core.Store(
                [table._configuration() for table in self._tables],
                threads,
                None if checkpointer is None else self._internal,
                None if journal is None else journal._configuration(),
                _arguments.not_negative("memory_limit", memory_limit),
                spill_path,
                _arguments.not_negative("spill_bytes", spill_bytes),
                None if seed is None else _arguments.not_negative("seed", seed, _arguments.MAX_UINT64),
            )
            if in_process and (tls is not None or identities is not None):
                raise ValueError(
                    "a server in process is reached by this process alone, which is asked for nothing: leave tls and identities out"
                )
            if addresses:
                self._listen(
                    addresses,
                    address is None,
                    _arguments.not_negative("io_threads", io_threads, 1024),
                    _arguments.not_negative("max_message_bytes", max_message_bytes),
                    _arguments.not_negative("max_connections", max_connections),
                    every,
                    files,
                    callers,
                    _arguments.truth("shared_memory", shared_memory),
                    peer_timeout_ms=_arguments.peer_timeout(peer_timeout),
                    max_connections_per_address=_arguments.not_negative(
                        "max_connections_per_address", max_connections_per_address
                    ),
                    max_streams_per_identity=_arguments.not_negative("max_streams_per_identity", max_streams_per_identity),
                    max_bytes_per_identity=_arguments.not_negative("max_bytes_per_identity", max_bytes_per_identity),
                )
            elif checkpointer is not None and self._internal is not None:
                # also where nothing is saved by itself: it keeps another server on the same directory from removing this one's last
                self._saver = _core.Saver(self._store, self._internal, *every, 0 if journal is None else journal.checkpoint_bytes)
        if name is not None:
            try:
                _inproc.register(name, self)
            except ValueError:
                self.stop()
                raise
            self._name = name
        for table in self._tables:
            table._store = self._store
            table._server_stopped = self._stopped

    def _listen(
        self,
        addresses: list[str],
        everywhere: bool,
        io_threads: int,
        max_message_bytes: int,
        max_connections: int,
        every: tuple[int, int],
        tls: RawTLS | None,
        identities: list[Any] | None,
        shared_memory: bool,
        **limits: int,
    ) -> None:
        try:
            self._server = _core.Server(
                self._store,
                addresses,
                io_threads,
                max_message_bytes,
                max_connections,
                checkpointer=self._internal,
                checkpoint_every_ms=every[0],
                checkpoint_every_inserts=every[1],
                checkpoint_journal_bytes=0 if self._journal is None else self._journal.checkpoint_bytes,
                tls=tls,
                identities=identities,
                shared_memory=shared_memory,
                **limits,
            )
        except UnavailableError as error:
            raise AddressInUseError(str(error)) from None
        self._tls = tls
        warn_of_certificates(identities, tls)
        self._addresses = [
            address if port == 0 else f"{address.rpartition(':')[0]}:{port}"
            for address, port in zip(addresses, self._server.ports(), strict=True)
        ]
        self._port = next((port for port in self._server.ports() if port != 0), None)
        missing = [what for what, given in (("encryption", tls), ("passwords", identities)) if given is None]
        if everywhere and missing:
            warnings.warn(
                f"port {self._port} is open to everybody who reaches this machine, without {' or '.join(missing)}; "
                f'give address="localhost:{self._port}" to keep it to this machine',
                OpenPortWarning,
                stacklevel=3,
            )

    @property
    def port(self) -> int | None:
        """The port it listens on; None if it listens on none."""
        return self._port

    @property
    def address(self) -> str | None:
        """The first address it listens on, with the port that was bound; None if it listens nowhere."""
        return None if self._server is None else self._addresses[0]

    def reload_tls(self) -> None:
        """Reads the files of its `tls` again, for connections that begin from now on.

        Raises
        ------
        ValueError
            They cannot be used; those that were read before stay.
        FailedPreconditionError
            It has no TLS.
        """
        if self._server is None:
            raise FailedPreconditionError("the server listens nowhere and has no TLS")
        self._server.reload_tls()

    def set_identities(self, identities: Sequence[Identity]) -> None:
        """Who may call from now on, in place of those that the server was made with.

        Calls in progress of an identity that is not in the list as it was (name, token, certificate name and rights) end with
        `UnauthenticatedError`; others go on. Returns when they have ended.

        Parameters
        ----------
        identities : sequence of Identity
            Empty: nobody may call.

        Raises
        ------
        ValueError
            One of them cannot be used; all is as before.
        FailedPreconditionError
            The server listens nowhere, or is stopped.
        """
        raw = raw_identities(identities)
        if raw is None:
            raise TypeError("identities is None; a server that asks who calls cannot stop asking")
        if self._server is None:
            raise FailedPreconditionError("the server listens nowhere, so nobody is asked")
        self._server.set_identities(raw)
        warn_of_certificates(raw, self._tls)

    def stop(self, drain: float = 0.0) -> None:
        """Stops serving. Idempotent. Saves nothing: what is to last is for `Client.checkpoint` before.

        Calls of this process that wait on a table end with `CancelledError`. Remote clients do not learn whether the server is
        gone or comes back: their calls, and the items of their writers, wait for a server at its address until their own
        deadline (`DeadlineExceededError`), and without one for ever.

        Parameters
        ----------
        drain : float
            Seconds that remote calls in progress get to finish. Ctrl-C and a second call, from another thread, end a drain; what it
            waits for longer than 10 s is logged.
        """
        seconds = _arguments.number("drain", drain)
        if not 0 <= seconds <= 1e9:
            raise ValueError(f"drain must be a number of seconds from 0 to 1e9, got {drain!r}")
        if self._name is not None:
            _inproc.unregister(self._name, self)
        self._end(int(seconds * 1000))

    def _end(self, milliseconds: int) -> None:
        try:
            if self._server is not None:
                self._drain(self._server, milliseconds)
        finally:
            with self._stop_lock:
                if self._saver is not None:
                    self._saver.stop()
                self._store.close()
                self._remove_directory()
                self._stopped.set()

    @staticmethod
    def _drain(server: _core.Server, milliseconds: int) -> None:
        """In a thread of its own: a wait for that is one which Ctrl-C ends. In the interpreter's last moments there can be none."""
        try:
            if milliseconds > 0:
                draining = threading.Thread(target=server.stop, args=(milliseconds,), name="reverie-drain", daemon=True)
                try:
                    draining.start()
                except RuntimeError:  # from Python 3.12 on in a function of atexit
                    server.stop(milliseconds)
                    return
                while draining.is_alive():
                    draining.join(LOOK)
        finally:
            server.stop()  # at once, if it is not over

    def sync_journal(self, *, timeout: float | None = 60.0) -> None:
        """Returns when everything that happened in the tables before the call is on the disk.

        Remote writers need not call it: with ``mode="always"`` what is confirmed to them is on the disk. It is for a process that adds
        to its own server (`Client(server)`), where an add returns when the item is in its table.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Raises
        ------
        DeadlineExceededError
            It is not there yet; the sentence says what the disk says.
        FailedPreconditionError
            The server has no journal, or was stopped.
        """
        self._store.sync_journal(timeout)

    def journal_stats(self) -> JournalStats:
        """The journal's numbers: bytes, fsyncs, how far the disk is behind.

        Raises
        ------
        FailedPreconditionError
            The server has no journal, or was stopped.
        """
        return JournalStats(**self._store.journal_stats())

    def wait(self, *, timeout: float | None = None) -> None:
        """Returns once the server was stopped. On Ctrl-C it stops the server and raises KeyboardInterrupt.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Raises
        ------
        DeadlineExceededError
            It still serves.
        """
        seconds = _arguments.timeout(timeout)
        end = math.inf if seconds is None else monotonic() + seconds
        try:
            while not self._stopped.wait(min(LOOK, max(0.0, end - monotonic()))):
                if monotonic() >= end:
                    raise DeadlineExceededError(f"waited {seconds:g} s for the server to be stopped; it still serves")
        except KeyboardInterrupt:
            self.stop()
            raise

    def localhost_client(self, *, tls: TLS | None = None, token: str | None = None) -> Client:
        """A client that talks to it over the network stack, or in process if it listens nowhere.

        Parameters
        ----------
        tls, token : optional
            As `Client`'s, for a server that asks for them.
        """
        from reverie.client import Client

        if self._port is not None:
            return Client(f"localhost:{self._port}", tls=tls, token=token)
        return Client(self) if self.address is None else Client(self.address, tls=tls, token=token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not hasattr(self, "_store"):
            return
        try:
            self.stop()
        except (AttributeError, TypeError):
            if not is_finalizing():  # which empties modules that something keeps (JAX does) before it drops the rest
                raise
            self._end(0)

    def __repr__(self) -> str:
        return f"Server(port={self._port}, tables={self._tables}, checkpointer={self._checkpointer})"

    def __reduce__(self) -> Any:
        raise TypeError("a Server cannot be pickled: it lives in this process")


def _check_tables(tables: Sequence[Table] | None) -> list[Table]:
    if isinstance(tables, Table):
        raise TypeError("tables must be a sequence of tables, got one table: put it into a list")
    found = [] if tables is None else _arguments.listed("tables", tables, "reverie.Table")
    if not found:
        raise ValueError("At least one table is needed")
    names = set()
    for table in found:
        if not isinstance(table, Table):
            raise TypeError(f"tables must be reverie.Table objects, got {table!r}")
        if table.name in names:
            raise ValueError(f"two tables have the same name: {table.name!r}")
        names.add(table.name)
        if table._server_stopped is not None and not table._server_stopped.is_set():
            raise ValueError(f"table {table.name!r} is served by another server; use table.replace() for a new one like it")
    return found


class _NoCheckpoints(CheckpointerBase):
    """Of a server that was given none, and has no temporary directory either."""

    def internal_checkpointer(self) -> None:
        """See `CheckpointerBase`."""


def _checkpointer(server: Server, given: CheckpointerBase | None) -> tuple[CheckpointerBase, Callable[[], object]]:
    """The server's checkpointer, and what to call once it was stopped."""
    if given is not None:
        if not isinstance(given, CheckpointerBase):
            hint = f"; give reverie.checkpointers.DefaultCheckpointer({given!r})" if isinstance(given, (str, os.PathLike)) else ""
            raise TypeError(f"checkpointer must be a reverie.checkpointers.CheckpointerBase, got {given!r}{hint}")
        return given, lambda: None
    try:
        path = tempfile.mkdtemp(prefix="reverie-checkpoints-")
    except OSError as error:  # everything is read-only in a container, or full; most servers are never asked for a checkpoint
        logging.getLogger("reverie").warning(
            "there is no temporary directory for checkpoints (%s), so this server saves none; to save some, give it a checkpointer",
            error,
        )
        return _NoCheckpoints(), lambda: None
    return DefaultCheckpointer(path), weakref.finalize(server, _remove_empty, path, os.getpid())


def _every(seconds: float, inserts: int) -> tuple[int, int]:
    """Milliseconds and inserts from one checkpoint to the next."""
    time = _arguments.number("checkpoint_every_seconds", seconds)
    if not 0 <= time <= 1e9:
        raise ValueError(f"checkpoint_every_seconds must be a number of seconds from 0 to 1e9, got {seconds!r}")
    return math.ceil(time * 1000), _arguments.not_negative("checkpoint_every_inserts", inserts)


def _remove_empty(path: str, process: int) -> None:
    """Of the server of this process: a forked child that ends has one of its parent's."""
    if process != os.getpid():
        return
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _addresses(port: int | None, address: str | Sequence[str] | None) -> list[str]:
    if address is not None:
        found = [address] if isinstance(address, str) else _arguments.listed("address", address, "str, or a str")
        if not found:
            raise ValueError("address must name at least one address")
        return [_arguments.text("an address", each) for each in found]
    everything = "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"
    if port is not None and not 0 <= port < 65536:
        raise ValueError(f"port must be from 0 to 65535, got {port}")
    return [f"{everything}:{port or 0}"]
