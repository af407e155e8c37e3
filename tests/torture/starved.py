"""How long this process got no processor, or was stopped: seen by a thread that looks at the clock."""

from __future__ import annotations

import threading
import time

LOOK = 0.05  # seconds between looks
LATE = 3 * LOOK  # a look that comes no later is in time


class Starved:
    """The times between two looks that were too long, each without the pause that was wanted."""

    def __init__(self) -> None:
        self._times: list[tuple[float, float]] = []  # begin and end, one after the other
        self._looked = time.monotonic()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(LOOK)
            now = time.monotonic()
            if now - self._looked > LATE:
                self._times.append((self._looked + LOOK, now))
            self._looked = now

    def between(self, begin: float, end: float) -> float:
        """Seconds; also those of which the thread does not know yet, if `end` is now."""
        looked = self._looked  # before the list: what is found in both counts once
        times = list(self._times)
        if end - looked > LATE:
            times.append((looked + LOOK, end))
        seconds = 0.0
        for first, last in reversed(times):
            if last <= begin:
                break
            seconds += max(0.0, min(last, end) - max(first, begin))
            end = min(end, first)
        return seconds
