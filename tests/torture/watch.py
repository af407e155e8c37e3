"""The server's memory, descriptors and threads."""

from __future__ import annotations

import os
import threading

from .server import Server

MIB = 1 << 20


class Usage:
    """Of one process at one moment."""

    def __init__(self, pid: int) -> None:
        with open(f"/proc/{pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        self.memory = int(fields["VmRSS"].split()[0]) * 1024
        self.threads = int(fields["Threads"])
        self.descriptors = len(os.listdir(f"/proc/{pid}/fd"))


class Watch:
    """Looks twice a second; keeps the most of everything."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.memory = self.threads = self.descriptors = self.life_memory = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def look(self) -> Usage | None:
        pid = self.server.pid
        if pid is None:
            return None
        try:
            return Usage(pid)
        except (OSError, KeyError):  # it is ending
            return None

    def _run(self) -> None:
        while not self.stopping.wait(0.5):
            usage = self.look()
            if usage is not None:
                self.memory = max(self.memory, usage.memory)
                self.life_memory = max(self.life_memory, usage.memory)
                self.threads = max(self.threads, usage.threads)
                self.descriptors = max(self.descriptors, usage.descriptors)

    def take_life(self) -> int:
        """The most memory since this was asked last."""
        most, self.life_memory = self.life_memory, 0
        return most

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
