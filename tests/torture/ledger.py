"""What a load did, as it did it: lines in a file, which outlive the process that wrote them.

Each stream of items has a file of its own; its items are numbered from 1. A line says what kind it is, when (CLOCK_MONOTONIC, one
clock for all processes), and which items: what was about to be done is written before the call, what was confirmed after it.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Iterable, Iterator

SENT, CONFIRMED = "I", "C"
DELETING, DELETED = "D", "d"
UPDATING, UPDATED = "U", "u"
ASKING, RECEIVED, MAYBE_RECEIVED = "A", "S", "T"


@dataclasses.dataclass(frozen=True)
class Entry:
    """`since` is when what is confirmed was begun; `version` is an update's; `ids` are what was received."""

    kind: str
    at: float
    low: int = 0
    high: int = 0
    since: float = 0.0
    version: int = 0
    ids: tuple[int, ...] = ()


def file_of(folder: pathlib.Path, stream: int, table: str) -> pathlib.Path:
    return folder / f"{stream}.{table}"


class Ledger:
    """Written by one load, or by its successor when it was killed."""

    def __init__(self, folder: pathlib.Path, stream: int, table: str) -> None:
        path = file_of(folder, stream, table)
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.ftruncate(self.file, path.read_bytes().rfind(b"\n") + 1)  # who was killed may have left half a line

    def _put(self, kind: str, *numbers: float) -> float:
        now = time.monotonic()
        os.write(self.file, f"{kind} {now:.6f} {' '.join(map(str, numbers))}\n".encode())
        return now

    def sent(self, low: int, high: int) -> float:
        """From now on these may be there."""
        return self._put(SENT, low, high)

    def confirmed(self, low: int, high: int, since: float) -> None:
        """They are there; `since` is what `sent` returned."""
        self._put(CONFIRMED, low, high, since)

    def deleting(self, low: int, high: int) -> float:
        return self._put(DELETING, low, high)

    def deleted(self, low: int, high: int, since: float) -> None:
        self._put(DELETED, low, high, since)

    def updating(self, low: int, high: int, version: int) -> float:
        return self._put(UPDATING, low, high, version)

    def updated(self, low: int, high: int, version: int, since: float) -> None:
        self._put(UPDATED, low, high, version, since)

    def asking(self, count: int) -> None:
        """Up to so many may be handed out until `received` says which were."""
        self._put(ASKING, count)

    def received(self, ids: Iterable[int]) -> None:
        """Items (of any stream) that were handed out, in this order."""
        self._put(RECEIVED, *ids)

    def maybe_received(self, count: int) -> None:
        """A call that failed may have been answered with up to so many."""
        self._put(MAYBE_RECEIVED, count)


def parse(line: str) -> Entry:
    kind, at, *rest = line.split(" ")
    if kind == RECEIVED:
        return Entry(kind, float(at), ids=tuple(int(one) for one in rest if one))
    if kind in (ASKING, MAYBE_RECEIVED):
        return Entry(kind, float(at), high=int(rest[0]))
    low, high = int(rest[0]), int(rest[1])
    if kind in (UPDATING, UPDATED):
        return Entry(kind, float(at), low, high, float(rest[3]) if kind == UPDATED else 0.0, int(rest[2]))
    return Entry(kind, float(at), low, high, float(rest[2]) if kind in (CONFIRMED, DELETED) else 0.0)


class Tail:
    """What was written to a ledger since one last looked. A line that is not whole yet waits."""

    def __init__(self, path: pathlib.Path) -> None:
        stream, self.table = path.name.split(".")
        self.stream = int(stream)
        self.path, self.offset = path, 0

    def entries(self) -> Iterator[Entry]:
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.decode().splitlines():
            yield parse(line)
