"""Sampling more data than the machine has memory for, from a disk: ``python -m bench.growth.from_disk``.

As the growth benchmark's rows "more than memory" (a server in this process with a memory limit, filled with four times that), but in
a control group of its own whose memory ends at three times the limit: so the system cannot keep the spill's file in its cache either,
and what is sampled is read from the disk. Needs a control group's memory controller that may be written to (root, as a rule).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Iterator

from ..processes import Process
from .run import SPILL_ROWS

ROOTS = (pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup"))
LIMITS = ("memory.limit_in_bytes", "memory.max")  # of the first version, of the second
SHARE = 4


@contextlib.contextmanager
def control_group(limit: int) -> Iterator[pathlib.Path]:
    """One of our own, for processes that together may have so many bytes, the system's cache of their files included."""
    for root, name in zip(ROOTS, LIMITS, strict=True):
        folder = root / f"reverie-bench-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if (folder / name).exists():
                (folder / name).write_text(str(limit))
                yield folder
                return
        finally:
            folder.rmdir()
    raise SystemExit(
        "no control group can be made here whose memory is limited; run this as root where there is a memory controller"
    )


def read_bytes(pid: int) -> int:
    """What the process has had read from disks so far."""
    lines = pathlib.Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def measure(
    directory: str, row_bytes: int, limit: int, seconds: float, rounds: int, group: pathlib.Path | None
) -> dict[str, float]:
    """Medians, of each sample: microseconds, processor time, bytes read from the disk."""
    side = pathlib.Path(__file__).with_name("spill_side.py")
    process = Process(sys.executable, str(side), directory, str(limit), str(SHARE), str(row_bytes))
    try:
        if group is not None:
            (group / "cgroup.procs").write_text(str(process.pid))
        process.receive(600)
        turns = []
        for _ in range(rounds):
            before = read_bytes(process.pid)
            process.send(str(seconds))
            answer = process.receive(60 + 10 * seconds)
            samples = seconds * 1e6 / answer["us"]
            turns.append({**answer, "read": (read_bytes(process.pid) - before) / samples})
        return {name: statistics.median(turn[name] for turn in turns) for name in ("us", "cpu_us", "read", "spilled_bytes")}
    finally:
        process.stop(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth.from_disk", description=__doc__)
    parser.add_argument("--directory", help="of the spill's file; a new one in the system's place for them")
    parser.add_argument("--limit", type=int, default=64 << 20, help="of memory, bytes (64 MiB)")
    parser.add_argument("--seconds", type=float, default=2.0, help="2")
    parser.add_argument("--rounds", type=int, default=3, help="3")
    given = parser.parse_args()
    print("| rows of bytes | the file | us a sample | processor time | bytes read from the disk |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=given.directory) as directory, control_group(3 * given.limit) as group:
        for row_bytes in SPILL_ROWS:
            for where in (None, group):
                found = measure(directory, row_bytes, given.limit, given.seconds, given.rounds, where)
                kept = "in the system's cache" if where is None else "on the disk"
                print(
                    f"| {row_bytes:,} | {kept} | {found['us']:,.1f} | {found['cpu_us']:,.1f} | {found['read']:,.0f} |", flush=True
                )


if __name__ == "__main__":
    main()
