"""The board: a file that the benchmark and all clients map. The benchmark writes the phase on it, each client what it has moved.

All clients, of either store and language, are started, counted and stopped at the same instants by it, and counting costs them a store to
memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

from .job import GO, HOLD, LINE_WORDS, STOP


class Board:
    """Lines for at most `clients` clients."""

    def __init__(self, clients: int) -> None:
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.file = tempfile.NamedTemporaryFile(prefix="reverie-bench-", dir=folder)  # noqa: SIM115 - it lives as long as the board
        self.path = self.file.name
        self.file.truncate((clients + 1) * LINE_WORDS * 8)
        self.words = np.frombuffer(mmap.mmap(self.file.fileno(), 0), np.int64)

    def hold(self) -> None:
        """Back to the start: clients that are made now wait."""
        self.words[:] = 0
        self.words[0] = HOLD

    def go(self) -> None:
        self.words[0] = GO

    def stop(self) -> None:
        self.words[0] = STOP

    def moved(self, clients: int) -> np.ndarray:
        """Items that each client has moved so far."""
        return self.words[LINE_WORDS : (clients + 1) * LINE_WORDS : LINE_WORDS].copy()

    def close(self) -> None:
        self.file.close()
