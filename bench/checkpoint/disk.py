"""What the disk under a folder can do without any store: plain writes and reads of as many bytes."""

from __future__ import annotations

import os
import pathlib
import time

BLOCK = 8 << 20


def write(folder: pathlib.Path, size: int) -> float:
    """MB/s of writing a new file and waiting until it is on the disk."""
    path = folder / "plain"
    block = os.urandom(min(BLOCK, size))
    begin = time.monotonic()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        left = size
        while left > 0:
            left -= os.write(file, memoryview(block)[: min(left, len(block))])
        os.fsync(file)
        return size / (time.monotonic() - begin) / 1e6
    finally:
        os.close(file)
        path.unlink()


def read(paths: list[pathlib.Path]) -> float:
    """MB/s of reading the files, of which the system's cache has nothing."""
    forget(paths)
    block, total = bytearray(BLOCK), 0
    begin = time.monotonic()
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            while count := os.readv(file, [block]):
                total += count
        finally:
            os.close(file)
    return total / (time.monotonic() - begin) / 1e6


def forget(paths: list[pathlib.Path]) -> None:
    """Takes what is on the disk already out of the system's cache."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
