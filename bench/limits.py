"""What this machine can do at all: plain send/recv over loopback, and memcpy."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import numpy as np

_SENDER = """
import socket, sys, time
size, seconds, port = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
connection = socket.create_connection(("127.0.0.1", port))
data = bytes(size)
stop = time.monotonic() + seconds
while time.monotonic() < stop:
    for _ in range(16):
        connection.sendall(data)
"""


def loopback_megabytes(io_size: int, seconds: float) -> float:
    """MB/s from one process to another over loopback TCP with reads and writes of ``io_size`` bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        sender = subprocess.Popen([sys.executable, "-c", _SENDER, str(io_size), str(seconds), str(port)])
        connection, _ = listener.accept()
        buffer = bytearray(max(io_size, 65_536))
        received = 0
        begin = time.monotonic()
        with connection:
            while count := connection.recv_into(buffer):
                received += count
        took = time.monotonic() - begin
        sender.wait()
    return received / took / 1e6


def memcpy_megabytes(seconds: float) -> float:
    """MB/s copying 64 MiB on one core."""
    source = np.ones(64 << 20, np.uint8)
    target = np.ones(64 << 20, np.uint8)
    copies = 0
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        np.copyto(target, source)
        copies += 1
    return copies * source.nbytes / (time.monotonic() - begin) / 1e6
