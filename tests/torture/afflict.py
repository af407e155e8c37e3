"""How each fault is done, and undone."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Callable

from . import faults
from .certificates import Certificates
from .clients import GROUPS, WRITER, Clients
from .faults import Faults
from .proxy import Proxy
from .server import Server

DAY_NS = 24 * 3600 * 10**9
LITTLE_MEMORY = 8 << 20  # bytes that the server may still take
ADDRESS_SPACE = resource.RLIMIT_AS

Undo = Callable[[], None]


def nothing() -> None:
    pass


class Afflict:
    """`begin` brings a fault about and returns what ends it. Kills and terminations are not here: `Run` does those."""

    def __init__(
        self, server: Server, disk: Faults, proxy: Proxy, clients: Clients, certificates: Certificates | None, seed: int
    ) -> None:
        self.server, self.disk, self.proxy, self.clients, self.certificates = server, disk, proxy, clients, certificates
        self.random = random.Random(seed)
        self.kinds: dict[str, Callable[[float], Undo]] = {
            "stop": self.stop,
            "disk full": self.disk_full,
            "slow disk": self.slow_disk,
            "failing writes": self.failing_writes,
            "failing fsync": self.failing_fsync,
            "clock": self.clock,
            "cut connections": self.cut_connections,
            "refuse connections": self.refuse_connections,
            "stall connections": self.stall_connections,
            "client killed": self.client_killed,
            "client stopped": self.client_stopped,
            "certificate": self.certificate,
            "memory": self.memory,
        }

    def begin(self, kind: str, seconds: float) -> Undo:
        return self.kinds[kind](seconds)

    def stop(self, _seconds: float) -> Undo:
        self.server.send(signal.SIGSTOP)
        return lambda: self.server.send(signal.SIGCONT) if self.server.pid is not None else None

    def disk_full(self, _seconds: float) -> Undo:
        self.disk.set(faults.ROOM, self.random.choice((0, 100, 10_000, 1_000_000)))
        return self.disk.heal

    def slow_disk(self, _seconds: float) -> Undo:
        self.disk.set(faults.WRITE_DELAY_US, int(10 ** self.random.uniform(3, 5.5)))
        self.disk.set(faults.SYNC_DELAY_US, int(10 ** self.random.uniform(4, 6.3)))
        return self.disk.heal

    def failing_writes(self, _seconds: float) -> Undo:
        self.disk.set(faults.WRITES_FAIL, self.random.choice((10, 200, 1000)))
        return self.disk.heal

    def failing_fsync(self, _seconds: float) -> Undo:
        self.disk.set(faults.SYNCS_FAIL, self.random.choice((10, 200, 1000)))
        return self.disk.heal

    def clock(self, _seconds: float) -> Undo:
        """It jumps, and stays there."""
        days = self.random.choice((0.0, 1.0, -1.0, 400.0, -4000.0, 1 / 86400, -3600 / 86400))
        self.disk.set(faults.CLOCK_OFFSET_NS, int(days * DAY_NS))
        return nothing

    def cut_connections(self, _seconds: float) -> Undo:
        self.proxy.reset_all()
        return nothing

    def refuse_connections(self, seconds: float) -> Undo:
        self.proxy.reset_all()
        self.proxy.refuse(seconds)
        return nothing

    def stall_connections(self, seconds: float) -> Undo:
        self.proxy.stall_all(seconds)
        return nothing

    def client_killed(self, _seconds: float) -> Undo:
        self.clients.kill(self.random.choice((*GROUPS, WRITER)))
        return nothing

    def client_stopped(self, _seconds: float) -> Undo:
        group = self.random.choice((*GROUPS, WRITER))
        self.clients.set_stopped(group, True)
        return lambda: self.clients.set_stopped(group, False)

    def certificate(self, _seconds: float) -> Undo:
        """Another one; now and then first something that cannot be read, which must change nothing."""
        if self.certificates is None:
            return nothing
        if self.random.random() < 0.3:
            self.certificates.damage()
        else:
            self.certificates.replace()
        self.server.send(signal.SIGHUP)
        return self.certificates.replace

    def memory(self, _seconds: float) -> Undo:
        """The server gets hardly any more."""
        pid = self.server.pid
        if pid is None or self.server.sanitized:
            return nothing
        with open(f"/proc/{pid}/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        soft, hard = resource.prlimit(pid, ADDRESS_SPACE)
        resource.prlimit(pid, ADDRESS_SPACE, (size + LITTLE_MEMORY, hard))

        def undo() -> None:
            if self.server.pid == pid:
                resource.prlimit(pid, ADDRESS_SPACE, (soft, hard))

        return undo
