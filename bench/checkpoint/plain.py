"""Writes plain files one after another, each forced to the disk: ``plain.py FOLDER BYTES``. Ends with standard input."""

from __future__ import annotations

import os
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.checkpoint import disk
from bench.child import die_with_parent

die_with_parent()
folder = pathlib.Path(sys.argv[1])


def write() -> None:
    while True:
        disk.write(folder, int(sys.argv[2]))


threading.Thread(target=write, daemon=True).start()
sys.stdin.read()
os._exit(0)  # in the middle of a file: the folder is temporary
