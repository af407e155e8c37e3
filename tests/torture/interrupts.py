"""Ctrl-C and SIGTERM, held back while a process is being started: one that nobody knows of yet would be left behind."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class Interrupts:
    """Turns both signals into KeyboardInterrupt, from `install` on."""

    def __init__(self) -> None:
        self.holding = self.came = False

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._come)

    def _come(self, _number: int, _frame: object) -> None:
        self.came = True
        self.check()

    def check(self) -> None:
        """Raises what came: now and then an interpreter that is in a finaliser throws away what a handler raised."""
        if self.came and not self.holding:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """What comes meanwhile is raised at the end."""
        self.holding = True
        try:
            yield
        finally:
            self.holding = False
            self.check()
