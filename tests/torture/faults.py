"""The other end of faults.c: what shall fail in the server's disk and clock."""

from __future__ import annotations

import mmap
import os
import pathlib
import time

CLOCK_OFFSET_NS, ROOM, WRITES_FAIL, SYNCS_FAIL, WRITE_DELAY_US, SYNC_DELAY_US = range(6)
FAILED_WRITES, FAILED_SYNCS, FULL_WRITES, DELAYED, SLOWEST_SYNC_NS = range(6, 11)
SYNCS_BEGAN_NS = range(11, 19)
FIELDS = 19


class Faults:
    """A file that the server maps, too."""

    def __init__(self, library: pathlib.Path, path: pathlib.Path) -> None:
        self.library, self.path = library, path
        path.write_bytes(bytes(FIELDS * 8))
        with open(path, "r+b") as file:
            self.fields = memoryview(mmap.mmap(file.fileno(), FIELDS * 8)).cast("q")
        self.heal()

    def set(self, field: int, value: int) -> None:
        """At once: the server never sees a half of it (struct.pack_into would clear the field first)."""
        self.fields[field] = value

    def get(self, field: int) -> int:
        return self.fields[field]

    def heal(self) -> None:
        """The disk is in order; the clock stays where it is."""
        self.set(ROOM, -1)
        for field in (WRITES_FAIL, SYNCS_FAIL, WRITE_DELAY_US, SYNC_DELAY_US):
            self.set(field, 0)

    def slowest_sync(self) -> float:
        """Of a server that has ended: seconds that its slowest fsync took, or had taken when it ended."""
        began = [self.get(field) for field in SYNCS_BEGAN_NS]
        took = [self.get(SLOWEST_SYNC_NS), *(time.monotonic_ns() - each for each in began if each != 0)]
        for field in (SLOWEST_SYNC_NS, *SYNCS_BEGAN_NS):
            self.set(field, 0)
        return max(took) / 1e9

    def environment(self, sanitized: bool) -> dict[str, str]:
        """For the server's process."""
        given = {"LD_PRELOAD": str(self.library), "RV_TORTURE_FAULTS": str(self.path)}
        if sanitized:
            options = os.environ.get("ASAN_OPTIONS", "")
            given["ASAN_OPTIONS"] = f"{options}:verify_asan_link_order=0"
        return given
