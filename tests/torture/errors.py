"""Which errors a fault explains."""

from __future__ import annotations

import dataclasses
from typing import Any

AFTERWARDS = 15.0  # seconds in which clients may still feel a fault
DISK = frozenset({"disk full", "slow disk", "failing writes", "failing fsync"})
WAITS_FOR_ITEMS = ("sample", "batches", "queue", "ratio")


@dataclasses.dataclass(frozen=True)
class Disturbance:
    """A fault, and when it was."""

    kind: str
    begin: float
    end: float


class Judge:
    """Knows all faults so far."""

    def __init__(self) -> None:
        self.disturbances: list[Disturbance] = []

    def add(self, kind: str, begin: float, end: float) -> None:
        self.disturbances.append(Disturbance(kind, begin, end))

    def kinds_at(self, begin: float, end: float) -> set[str]:
        """What was going on, or had been not long before."""
        return {one.kind for one in self.disturbances if one.begin <= end and begin <= one.end + AFTERWARDS}

    def explains(self, report: dict[str, Any]) -> bool:
        """Whether this error (a line of the loads' reports) is one that may be."""
        code, what = report["code"], report["what"]
        kinds = self.kinds_at(report["began"], report["at"])
        if code in ("UnavailableError", "DeadlineExceededError"):
            waits = code == "DeadlineExceededError" and any(word in what for word in WAITS_FOR_ITEMS)
            return waits or report["load"].endswith("-proxy") or bool(kinds)
        if code == "CancelledError":  # the server was told to end while the call waited in a table
            return bool(kinds & {"terminate"})
        if code == "ResourceExhaustedError":
            return bool(kinds & (DISK | {"memory", "stop"}))
        if code == "AbortedError":  # a listing goes on in one life of a server only
            return what == "items" and bool(kinds)
        if code == "UnknownError":  # a checkpoint that met an I/O error
            return what == "checkpoint" and bool(kinds & DISK)
        return bool(code == "NotFoundError" and what == "get")  # it has gone meanwhile
