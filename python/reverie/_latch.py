"""An event that signal handlers may set. `threading.Event` takes a lock to be set and while it is waited for, which a handler that runs on
the same thread in between would wait for without end."""

from __future__ import annotations

import threading


class Latch:
    """Set once, by any thread, and in a signal handler of whichever thread waits for it or is about to set it."""

    def __init__(self) -> None:
        self._set = False
        self._gate = threading.Lock()  # held until it is set, and for a moment by each who waited
        self._gate.acquire()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._open()

    def wait(self, seconds: float) -> bool:
        """Waits until it is set, or so long; whether it is set."""
        if not self._set and self._gate.acquire(timeout=seconds):
            self._open()  # for the next one
        return self._set

    def _open(self) -> None:
        try:  # noqa: SIM105 - of contextlib nothing may be left at the interpreter's end
            self._gate.release()
        except RuntimeError:  # it is open: somebody else did it meanwhile
            pass
