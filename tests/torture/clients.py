"""The processes of the loads: which there are, how they are started, ended, killed, and begun anew."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
from typing import Any

from .loads import KINDS

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What runs together in one process, and whether through the proxy.
GROUPS: dict[str, list[tuple[str, bool]]] = {
    "first": [("keeper", True), ("queue-reader", False), ("ratio-reader", False), ("framer", False)],
    "second": [("keeper", False), ("queue-writer", True), ("reader", True)],
    "third": [("adder", True), ("stepper", True), ("ratio-writer", True), ("hauler", True)],
    "fourth": [("episodes", True), ("administrator", False), ("reader", False), ("bounder", True)],
}
WRITER = "writer"  # the program in C
WRITER_TABLE = "best"
KEEPER, KEEPS = "keeper", "keep"  # what it leaves behind nobody but its successor removes


@dataclasses.dataclass
class Running:
    group: str
    process: subprocess.Popen[bytes]
    loads: list[str]
    streams: list[tuple[int, str]]
    inherited: dict[str, list[int]]  # by kind: streams of those that were killed before
    stopped: bool = False


class Clients:
    """All processes of loads.

    Parameters
    ----------
    folder : Path
        For ledgers, status and reports.
    direct, proxied : str
        Addresses. A direct one is a unix socket where `authority` is given.
    authority : str, optional
        Whom the clients of the proxy trust.
    writer : Path
        The program in C.
    """

    def __init__(
        self, folder: pathlib.Path, direct: str, proxied: str, authority: str | None, writer: pathlib.Path, seed: int
    ) -> None:
        self.folder, self.direct, self.proxied, self.authority, self.writer = folder, direct, proxied, authority, writer
        self.random = random.Random(seed)
        self.running: dict[str, Running] = {}
        self.next_stream, self.generation = 1, 0
        for name in ("streams", "status"):
            (folder / name).mkdir()

    def start_all(self) -> None:
        for group in (*GROUPS, WRITER):
            self.start(group)

    def start(self, group: str, inherited: dict[str, list[int]] | None = None) -> None:
        inherited = {} if inherited is None else inherited
        self.generation += 1
        log = open(self.folder / f"client.{self.generation}.{group}.log", "wb")  # noqa: SIM115 - the child has it
        options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log, "start_new_session": True}
        if group == WRITER:
            stream = self._take(1)
            arguments = [str(self.writer), self.direct, str(stream), str(self.folder / "streams" / f"{stream}.{WRITER_TABLE}")]
            process = subprocess.Popen(arguments, **options)
            self.running[group] = Running(group, process, [], [(stream, WRITER_TABLE)], {})
        else:
            loads: list[dict[str, Any]] = []
            streams = []
            for kind, proxied in GROUPS[group]:
                tables = KINDS[kind].tables
                stream = self._take(len(tables))
                streams += [(stream + i, table) for i, table in enumerate(tables)]
                name = f"{kind}-{self.generation}-{'proxy' if proxied else 'direct'}"
                address = self.proxied if proxied else self.direct
                seed = self.random.randrange(2**32)
                load = {"name": name, "kind": kind, "address": address, "stream": stream, "seed": seed}
                loads.append({**load, "inherited": inherited.get(kind, [])})
            job = {"folder": str(self.folder), "authority": self.authority, "loads": loads}
            arguments = [sys.executable, "-m", "tests.torture.loads", json.dumps(job)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            process = subprocess.Popen(arguments, cwd=ROOT, env=environment, **options)
            self.running[group] = Running(group, process, [load["name"] for load in loads], streams, inherited)
        log.close()

    def _take(self, n: int) -> int:
        first = self.next_stream
        self.next_stream += n
        return first

    def kill(self, group: str) -> Running:
        """SIGKILL, and the same group begins anew with other streams. Returns what ended."""
        ended = self.running[group]
        ended.process.kill()
        self._reap(ended)
        inherited = {KEEPER: ended.inherited.get(KEEPER, []) + [stream for stream, table in ended.streams if table == KEEPS]}
        self.start(group, inherited)
        return ended

    def set_stopped(self, group: str, stopped: bool) -> None:
        one = self.running[group]
        one.process.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)
        one.stopped = stopped

    def ended(self) -> list[str]:
        """Those that have gone although nobody ended them."""
        return [one.group for one in self.running.values() if one.process.poll() is not None]

    def finish(self, seconds: float) -> list[str]:
        """Asks all to end what they do, and waits. Returns those that did not."""
        for one in self.running.values():
            if one.stopped:
                self.set_stopped(one.group, False)
            assert one.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                one.process.stdin.write(b"stop\n")
                one.process.stdin.flush()
        late = []
        for one in self.running.values():
            try:
                one.process.wait(seconds)
            except subprocess.TimeoutExpired:
                late.append(one.group)
        return late

    def end(self) -> None:
        """Whatever they are doing."""
        for one in self.running.values():
            if one.process.poll() is None:
                one.process.kill()
            self._reap(one)

    @staticmethod
    def _reap(one: Running) -> None:
        one.process.wait()
        if one.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                one.process.stdin.close()
