"""What all loads share: a thread that calls `step` over and over, with a bound on every call and a record of what went wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import reverie

from .. import items, ledger, status
from ..starved import Starved

PATIENCE = 8.0  # seconds that a call may take
SLACK = 1.5  # and so much more until it is late: a client gives the server's own answer a second, a busy machine the rest


class Place:
    """One process of loads: where it writes, and when it got no processor."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.stop = threading.Event()
        self.starved = Starved()
        path = folder / "reports"
        self.reports = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def report(self, kind: str, load: str, what: str, **more: Any) -> None:
        line = {"at": time.monotonic(), "kind": kind, "load": load, "what": what, **more}
        os.write(self.reports, json.dumps(line).encode() + b"\n")


class Load(threading.Thread):
    """One thread with a client of its own.

    Parameters
    ----------
    place : Place
    name : str
        In reports.
    connect : callable
        Makes a client.
    stream : int
        The first of the streams that it may use, one for each of `tables`.
    seed : int
    inherited : list of int
        Streams of a load of this kind that was killed.
    """

    tables: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        place: Place,
        name: str,
        connect: Callable[[], reverie.Client],
        stream: int,
        seed: int,
        inherited: Sequence[int] = (),
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.inherited = list(inherited)
        self.place, self.random, self.client = place, random.Random(seed), connect()
        self.streams = [Stream(place.folder / "streams", stream + i, table) for i, table in enumerate(self.tables)]
        self.status = status.create(place.folder / "status" / name)

    # ---- what each kind does ----

    def step(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """After the last step, with the server in good health: brings to an end what is under way."""

    # ---- what they use ----

    @property
    def stream(self) -> Stream:
        return self.streams[0]

    def run(self) -> None:
        try:
            while not self.place.stop.is_set():
                self.step()
            self.finish()
        except BaseException:
            self.place.report("crash", self.name, "the load itself failed", text=traceback.format_exc())

    def rest(self, seconds: float) -> None:
        self.place.stop.wait(seconds)

    def wrong(self, what: str) -> None:
        """Something that must never be so was seen."""
        self.place.report("wrong", self.name, what)

    def call(self, what: str, function: Callable[..., Any], *args: Any, patience: float = PATIENCE, **options: Any) -> Call:
        """Calls it; an error of the store is reported. `patience`: what it was told to wait at most."""
        began = time.monotonic()
        self.status[status.LIMIT], self.status[status.BEGAN] = patience, began
        result, failed = None, None
        try:
            result = function(*args, **options)
        except reverie.ReverieError as error:
            failed = error
        ended = time.monotonic()
        self.status[status.BEGAN] = 0.0
        waited = ended - began - self.place.starved.between(began, ended)
        self.status[status.CALLS] += 1
        self.status[status.LONGEST] = max(self.status[status.LONGEST], waited)
        if waited > patience + SLACK:
            self.place.report("late", self.name, what, waited=waited, limit=patience)
        if failed is not None:
            self.place.report("error", self.name, what, code=type(failed).__name__, text=str(failed), began=began)
            self.rest(0.05)
        return Call(result, failed)

    def add_rows(self, what: str, n: int, width: int) -> items.Ids:
        """Adds the next n rows to the load's table at once. Those that are in: fewer where the time ran out, none where it failed."""
        ids = self.stream.take(n)
        data = {"id": ids, "payload": items.payload(ids, width)}
        call = self.call(what, self.client.add_batch, self.tables[0], data, ids.astype(np.float64), timeout=PATIENCE)
        return ids[: call.result if call.succeeded else 0]

    def until_done(self, what: str, function: Callable[..., Any], *args: Any, **options: Any) -> bool:
        """The same call again and again, until it succeeds or the load shall end; a few times more then."""
        last_tries = 3
        while not self.call(what, function, *args, **options).succeeded:
            if self.place.stop.is_set():
                last_tries -= 1
                if last_tries == 0:
                    return False
        return True


class Call:
    """What became of a call: its result, or its error."""

    def __init__(self, result: Any, error: reverie.ReverieError | None) -> None:
        self.result, self.error = result, error

    @property
    def succeeded(self) -> bool:
        return self.error is None


class Stream:
    """A stream's items, numbered as they are made."""

    def __init__(self, folder: pathlib.Path, number: int, table: str) -> None:
        self.number, self.table, self.next = number, table, 1
        self.ledger = ledger.Ledger(folder, number, table)
        self.since = 0.0

    def take(self, n: int) -> items.Ids:
        """The next n ids, about to be sent."""
        low, self.next = self.next, self.next + n
        self.since = self.ledger.sent(low, self.next - 1)
        return items.ids_of(self.number, low, self.next - 1)

    def confirm(self, ids: items.Ids) -> None:
        """Of the last `take`; none is fine."""
        if len(ids) == 0:
            return
        first = items.first_id(self.number)
        self.ledger.confirmed(int(ids[0]) - first, int(ids[-1]) - first, self.since)


@contextlib.contextmanager
def closing(writer: Any) -> Any:
    """Closes a writer or sampler without waiting."""
    try:
        yield writer
    finally:
        writer.close()
