"""The disk that the torture makes fail fails when it is told to, and never when it is not."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

from . import faults

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / os.environ.get("RV_TORTURE_BUILD", "release") / "torture" / "torture-faults.so"

# Writes until its input ends; then says how many of its writes failed.
CHILD = """
import os, select, sys
file, failed, written = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 0, 0
print("writes", flush=True)
while not (failed or written) or not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        try:
            written += os.write(file, b"x")
        except OSError:
            failed += 1
    os.lseek(file, 0, os.SEEK_SET)
print(written, failed)
"""


def on_the_disk(disk: faults.Faults, program: str, *paths: pathlib.Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, paths)],
        env={**os.environ, **disk.environment(False)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def write_during(tmp_path: pathlib.Path, disk: faults.Faults, act: Callable[[], None]) -> tuple[int, int]:
    """How many writes of a process went well, and how many failed, while this was done over and over."""
    with on_the_disk(disk, CHILD, tmp_path / "file") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "writes\n"
        for _ in range(100_000):
            act()
        out, _ = child.communicate(timeout=60)
    written, failed = (int(each) for each in out.split())
    return written, failed


def test_healing_a_disk_that_is_in_order_fails_nobodys_write(tmp_path: pathlib.Path) -> None:
    disk = faults.Faults(LIBRARY, tmp_path / "faults")
    written, failed = write_during(tmp_path, disk, disk.heal)
    assert written > 0
    assert (failed, disk.get(faults.FULL_WRITES)) == (0, 0)


def test_a_full_disk_that_was_healed_while_it_was_written_to_stays_healed(tmp_path: pathlib.Path) -> None:
    disk = faults.Faults(LIBRARY, tmp_path / "faults")

    def fill_and_heal() -> None:
        disk.set(faults.ROOM, 3)
        disk.heal()
        assert disk.get(faults.ROOM) == -1

    write_during(tmp_path, disk, fill_and_heal)
    assert disk.get(faults.ROOM) == -1


# Forces a file in a thread; when it is told to another one meanwhile.
FORCING_CHILD = """
import os, sys, threading
slow, quick = (os.open(path, os.O_WRONLY | os.O_CREAT) for path in sys.argv[1:])
threading.Thread(target=os.fsync, args=(slow,), daemon=True).start()
sys.stdin.readline()
os.fsync(quick)
print("forced", flush=True)
sys.stdin.readline()
"""


def test_an_fsync_that_a_kill_interrupts_counts_as_long_as_it_took_whatever_others_did_meanwhile(tmp_path: pathlib.Path) -> None:
    disk = faults.Faults(LIBRARY, tmp_path / "faults")
    disk.set(faults.SYNC_DELAY_US, 600_000_000)
    with on_the_disk(disk, FORCING_CHILD, tmp_path / "slow", tmp_path / "quick") as child:
        assert child.stdin is not None
        assert child.stdout is not None
        while not any(disk.get(field) for field in faults.SYNCS_BEGAN_NS):
            assert child.poll() is None
        seen = time.monotonic()
        disk.heal()
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "forced\n"
        killed = time.monotonic()
        child.kill()
    assert disk.slowest_sync() >= killed - seen
    assert disk.slowest_sync() == 0.0
