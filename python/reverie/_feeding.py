"""What the datasets of all frameworks share: whom to ask, and how far ahead."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
from collections.abc import Iterator
from typing import Any, Self

from reverie import _arguments, _core, nest
from reverie.client import Client
from reverie.samples import ReplaySample
from reverie.server import Server

__all__ = ["Samples", "Source", "Stream"]


class Source:
    """Makes a client of its own in every process that it is used in, so that a data loader's workers may have it.

    Where the server is given as a client, and a table is named, such a client knows what that one knows of the table when the process
    begins: without a signature, the nest that it inserted last.
    """

    def __init__(self, server: str | Server | Client, table: str | None = None) -> None:
        if not isinstance(server, (str, Server, Client)):
            raise TypeError(f"server must be an address, a reverie.Server or a reverie.Client, got {server!r}")
        self._server = server
        self._client: Client | None = server if isinstance(server, Client) else None
        self._process = os.getpid()
        self._table = table
        self._nest: bytes | None = None  # pickled

    def client(self) -> Client:
        if self._client is None or self._process != os.getpid():
            server = self._server
            if isinstance(server, Client):
                self._client = copy.copy(server) if server.server_address else server
            else:
                self._client = Client(server)
            self._process = os.getpid()
            self._remember(self._client)
        return self._client

    def _structure(self) -> nest.Structure | None:
        if self._nest is not None:
            with contextlib.suppress(Exception):  # a class that this process cannot find: batches are lists here
                return nest.Structure(pickle.loads(self._nest))
            return None
        if self._table is None or not isinstance(self._server, Client):
            return None
        return self._server._remembered(self._table)

    def _remember(self, client: Client) -> None:
        structure = self._structure()
        if structure is not None and self._table is not None and client is not self._server:
            client._remember(self._table, structure)

    def _pickled_nest(self) -> bytes | None:
        structure = self._structure()
        if structure is None:
            return None
        with contextlib.suppress(Exception):  # likewise, of no other process
            return pickle.dumps(structure.unflatten([0] * len(structure)))
        return None

    def __getstate__(self) -> dict[str, Any]:
        address = self._server.server_address if isinstance(self._server, Client) else self._server
        if not isinstance(address, str) or not address:
            raise TypeError("only a source with an address can go to another process; give the server an address and name that")
        return {"_server": self._server, "_client": None, "_process": 0, "_table": self._table, "_nest": self._pickled_nest()}


class Stream:
    """The arguments of an endless sequence of samples, checked; those of Reverb's datasets, with their names and meanings."""

    def __init__(
        self,
        table: str,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int,
        max_samples_per_stream: int,
        rate_limiter_timeout_ms: int,
        max_samples: int,
        timeout: float | None = None,
    ) -> None:
        self.table = _arguments.name("table", table)
        self.in_flight = _arguments.positive("max_in_flight_samples_per_worker", max_in_flight_samples_per_worker, 1_000_000)
        self.workers = _positive_or_default("num_workers_per_iterator", num_workers_per_iterator)
        self.per_stream = _positive_or_default("max_samples_per_stream", max_samples_per_stream)
        self.max_samples = _positive_or_default("max_samples", max_samples)
        self.limiter_ms = _arguments.clamped("rate_limiter_timeout_ms", rate_limiter_timeout_ms)
        if self.limiter_ms < -1:
            raise ValueError(f"rate_limiter_timeout_ms must be at least 0, or -1 to wait for ever, got {rate_limiter_timeout_ms}")
        self.timeout = _arguments.timeout(timeout)

    def sampler(self, client: Client, emit_timesteps: bool = False, unpack: bool = True) -> _core.Sampler:
        """With `unpack`, which gives samples the nest of the table's signature, the first one waits until the server has told it."""
        workers = min(max(self.workers, 0), 2**32 - 1)  # which is refused with the bound that there is
        ahead = (self.in_flight, workers, max(self.per_stream, 0), self.limiter_ms)
        return _core.Sampler(client, self.table, self.max_samples, emit_timesteps, unpack, True, self.timeout, ahead)

    def samples(self, client: Client, emit_timesteps: bool) -> Samples:
        return Samples(self.sampler(client, emit_timesteps), emit_timesteps)

    def share(self, number: int, of: int) -> Stream | None:
        """For one of several equal readers, who divide `max_samples` among them; None: there is nothing for this one."""
        if self.max_samples < 0:
            return self
        mine = copy.copy(self)
        mine.max_samples = self.max_samples // of + (1 if number < self.max_samples % of else 0)
        return mine if mine.max_samples > 0 else None


class Samples:
    """Samples one after another, or their steps; goes on after a `DeadlineExceededError`, as a sampler does."""

    def __init__(self, sampler: _core.Sampler, emit_timesteps: bool) -> None:
        self._sampler = sampler
        self._emit_timesteps = emit_timesteps
        self._steps: Iterator[ReplaySample] = iter(())
        self.close = sampler.close

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReplaySample:
        while True:
            for step in self._steps:
                return step
            item = next(self._sampler)
            self._steps = iter(item if self._emit_timesteps else (item,))


def _positive_or_default(name: str, value: int) -> int:
    """An int from 1; -1 stands for the default."""
    number = _arguments.clamped(name, value)
    if number != -1 and number < 1:
        raise ValueError(f"{name} must be a positive integer, or -1 for the default, got {value}")
    return number
