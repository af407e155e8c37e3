"""What the disk under a folder can do without any store: plain writes and reads of as many bytes, through the system's cache or past it."""

from __future__ import annotations

import mmap
import os
import pathlib
import time

PAST_CACHE = "machine, past the cache"  # what such a cell's store is called
KEPT = "machine, past the cache, kept"
BLOCK = 8 << 20


def can_pass_cache(folder: pathlib.Path) -> bool:
    """Whether the file system takes O_DIRECT."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_DIRECT, 0o600))
    except OSError:
        return False
    return True


def write(folder: pathlib.Path, size: int, *, past_cache: bool = False) -> float:
    """MB/s of writing a new file and waiting until it is on the disk. Past the cache whole blocks are written: up to 8 MiB more."""
    path = folder / "plain"
    block = mmap.mmap(-1, BLOCK)  # begins with a page, as O_DIRECT wants it
    block[:] = os.urandom(BLOCK)
    begin = time.monotonic()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | (os.O_DIRECT if past_cache else 0))
    try:
        written = 0
        while written < size:
            part = BLOCK if past_cache else min(size - written, BLOCK)
            written += os.write(file, memoryview(block)[:part])
        os.fsync(file)
        return written / (time.monotonic() - begin) / 1e6
    finally:
        os.close(file)
        path.unlink()


def read(paths: list[pathlib.Path], *, past_cache: bool = False, keep: bool = False) -> float:
    """MB/s of reading the files, of which the system's cache has nothing: into one block again and again, or each part into memory of its
    own that is kept, as a store's data is."""
    forget(paths)
    blocks, total = [mmap.mmap(-1, BLOCK)], 0
    begin = time.monotonic()
    for path in paths:
        file = os.open(path, os.O_RDONLY | (os.O_DIRECT if past_cache else 0))
        try:
            while count := os.readv(file, [blocks[-1]]):
                total += count
                if keep:
                    blocks.append(mmap.mmap(-1, BLOCK))
                if count % mmap.PAGESIZE != 0:
                    break  # the file's end
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
