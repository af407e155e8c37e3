"""A server's journal: nothing that was confirmed is lost when it is killed (docs/journal.md)."""

from __future__ import annotations

import dataclasses
import math
import os

from reverie import _arguments

__all__ = ["Journal", "JournalInfo", "JournalStats"]

_MODES = {"periodic": 1, "always": 2}


class Journal:
    """What a `Server` takes as its journal: every change, on disk soon after it happened.

    Parameters
    ----------
    path : str or os.PathLike
        A directory of the journal's own; made if need be. One server has it at a time.
    mode : str
        ``"always"``: inserts are confirmed to remote writers, and their updates, deletes and resets answered, when they are on the disk.
        ``"periodic"``: at once; the disk has everything that is older than the period and the time one fsync takes.
    period_seconds : float
        Of ``"periodic"``.
    max_queued_bytes : int
        Changes that are not on the disk yet, with their rows; beyond it inserts wait. 0: 256 MiB.
    checkpoint_bytes : int
        The server saves a checkpoint when the journal grew by so many bytes since the last; what that covers goes. 0: 4 GiB.
    salvage : bool
        Where the journal is damaged other than at its end, the server does not start and says what going on would cost
        (`DataLossError`). True: it goes on without.

    Raises
    ------
    ValueError
        No path, an unknown mode, a period that is not positive.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str = "always",
        *,
        period_seconds: float = 1.0,
        max_queued_bytes: int = 0,
        checkpoint_bytes: int = 0,
        salvage: bool = False,
    ) -> None:
        self.path = _arguments.path("path", path)
        if not self.path:
            raise ValueError("path must name a directory; it is empty")
        if mode not in _MODES:
            raise ValueError(f"mode must be 'always' or 'periodic', got {mode!r}")
        period = _arguments.number("period_seconds", period_seconds)
        if not 0 < period <= 1e6:
            raise ValueError(f"period_seconds must be more than 0 and at most 1e6, got {period_seconds!r}")
        self.mode = mode
        self.period_seconds = period
        self.max_queued_bytes = _arguments.not_negative("max_queued_bytes", max_queued_bytes)
        self.checkpoint_bytes = _arguments.not_negative("checkpoint_bytes", checkpoint_bytes)
        self.salvage = bool(salvage)

    def _configuration(self) -> tuple[bytes, int, int, int, bool]:
        return (
            os.fsencode(self.path),
            _MODES[self.mode],
            math.ceil(self.period_seconds * 1000),
            self.max_queued_bytes,
            self.salvage,
        )

    def __repr__(self) -> str:
        return f"Journal(path={self.path!r}, mode={self.mode!r})"


@dataclasses.dataclass(frozen=True)
class JournalInfo:
    """How a server's journal fares. Of a server that has none, and of a plain Reverb server: no fault, no lag.

    Attributes
    ----------
    fault : str
        What keeps the journal from writing now, in the disk's words; empty: nothing.
    lag_seconds : float
        How long the oldest change that is not on the disk has waited; 0.0: all are.
    """

    fault: str
    lag_seconds: float


@dataclasses.dataclass(frozen=True)
class JournalStats:
    """What a journal has done since its server began.

    Attributes
    ----------
    changes, groups, bytes : int
        Changes written, in so many groups of so many bytes.
    fsyncs : int
        That succeeded.
    errors : int
        Writes, fsyncs and the like that failed and were tried again.
    queued_bytes : int
        That wait to be written now.
    lag_seconds : float
        How long the oldest change that is not on the disk has waited; 0.0: all are.
    max_fsync_seconds : float
        The longest so far.
    disk_bytes : int
        What a recovery would read now.
    segment : int
        The file that is being written.
    fault : str
        What keeps the journal from writing now; empty: nothing.
    """

    changes: int
    groups: int
    bytes: int
    fsyncs: int
    errors: int
    queued_bytes: int
    lag_seconds: float
    max_fsync_seconds: float
    disk_bytes: int
    segment: int
    fault: str
