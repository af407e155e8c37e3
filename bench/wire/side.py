"""One store in the wire benchmark: its server, the client processes that stay for several cells, and how a cell is measured."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from ..processes import Process, ProcessError
from ..programs import REVERB_PYTHON, program
from .board import Board
from .job import Job, batch_size, in_flight, table_size

HERE = pathlib.Path(__file__).parent
PYTHON = {"reverie": sys.executable, "dm-reverb": REVERB_PYTHON}
MODULE = {"reverie": "reverie", "dm-reverb": "reverb"}
FILL_TIMEOUT = 180.0
READY_TIMEOUT = 60.0


@dataclasses.dataclass(frozen=True)
class Work:
    """What the clients of one cell do."""

    operation: str
    clients: int
    language: str = "python"  # python, c
    transport: str = "tcp"  # tcp, unix; socket: tcp without shared memory
    sampler: str = "uniform"
    tables: int = 1

    @property
    def program(self) -> str:
        """Which kind of client process does it."""
        return "tensorflow" if self.operation == "dataset" else self.language


@dataclasses.dataclass(frozen=True)
class Pace:
    """How long a cell is measured: at least `seconds`, and until the clients have moved enough, but not for ever."""

    seconds: float
    warm: float  # seconds before the clock starts, in which all clients shall have moved something
    at_most: float
    units: int  # items, or batches, that each client shall have moved on average
    no_answer: float  # seconds without anything moved after which the cell is given up


class Side:
    """A store's server and its clients."""

    def __init__(
        self,
        store: str,
        elements: int,
        board: Board,
        tables: list[str],
        items: int | None = None,
        server_env: dict[str, str] | None = None,
        client_env: dict[str, str] | None = None,
        command: list[str] | None = None,
    ) -> None:
        """`command` is the server's in place of server.py; it prints its port as that does."""
        self.store = store
        self.elements = elements
        self.board = board
        self.client_env = client_env
        self.clients: dict[str, list[Process]] = {"python": [], "tensorflow": [], "c": []}
        self.folder = tempfile.TemporaryDirectory(prefix="reverie-bench-")
        self.socket = f"{self.folder.name}/s"
        size = str(table_size(elements) if items is None else items)
        if command is None:
            command = [str(HERE / "server.py"), MODULE[store], str(elements), size, self.socket, *tables]
        try:
            self.server = Process(PYTHON[store], *command, env=server_env)
        except ProcessError:
            self.folder.cleanup()
            raise
        try:
            self.port = int(self.server.receive_word("port", FILL_TIMEOUT))
        except BaseException:
            self.stop(0)
            raise

    def processes(self, kind: str, number: int) -> list[Process]:
        """So many client processes of that kind."""
        started = self.clients[kind]
        while len(started) < number:
            started.append(self._client(kind))
        return started[:number]

    def _client(self, kind: str) -> Process:
        if kind == "c":
            return Process(program("wire"), env=self.client_env)
        command, env = [str(HERE / "client.py"), MODULE[self.store]], dict(self.client_env or {})
        if kind == "python":
            return Process(PYTHON[self.store], *command, env=env)
        if self.store == "reverie":
            env["PYTHONPATH"] = self._package()
        return Process(REVERB_PYTHON, *command, env=env)

    def _package(self) -> str:
        """A folder with nothing but our package, for an interpreter that has its own of everything else."""
        folder = pathlib.Path(self.folder.name, "package")
        if not folder.exists():
            folder.mkdir()
            (places,) = importlib.util.find_spec("reverie").submodule_search_locations
            (folder / "reverie").symlink_to(places)
        return str(folder)

    def drop_clients(self, patience: float = 0) -> None:
        for processes in self.clients.values():
            while processes:
                processes.pop().stop(patience)

    def jobs(self, work: Work, number: int) -> list[Job]:
        """The work, shared among so many processes."""
        address = f"unix:{self.socket}" if work.transport == "unix" else f"127.0.0.1:{self.port}"
        small = self.elements < 50_000
        made, first = [], 0
        for i in range(number):
            share = work.clients // number + (i < work.clients % number)
            made.append(
                Job(
                    address=address,
                    operation=work.operation,
                    sampler=work.sampler,
                    tables=work.tables,
                    elements=self.elements,
                    first=first,
                    clients=share,
                    in_flight=in_flight(self.elements, work.clients),
                    batch=batch_size(self.elements, work.clients),
                    step=10 if small else 1,
                    board=self.board.path,
                    shared_memory=int(work.transport != "socket"),
                )
            )
            first += share
        return made

    def measure(self, work: Work, pace: Pace, at_edges: Callable[[], object] = lambda: None) -> tuple[float, dict[str, float]]:
        """Items a second over all clients, and what was noted beside it. ProcessError says what failed.

        `at_edges` is called when the clock starts and when it stops.
        """
        if self.server.process.poll() is not None:
            raise self.server.failed(f"ended with status {self.server.process.returncode}")
        processes = self.processes(work.program, min(2 if work.clients <= 500 else 4, work.clients))
        self.board.hold()
        try:
            for process, job in zip(processes, self.jobs(work, len(processes)), strict=True):
                process.send(job.words())
            for process in processes:
                process.receive(READY_TIMEOUT)
            self.board.go()
            measured = self._watch(work, pace, processes, at_edges)
            self.board.stop()
        except BaseException:
            self.board.stop()
            self.drop_clients()
            raise
        self._wait_until_stopped(processes)
        return measured

    def _watch(
        self, work: Work, pace: Pace, processes: list[Process], at_edges: Callable[[], object]
    ) -> tuple[float, dict[str, float]]:
        begin = time.monotonic()
        settled = self._settled(work)
        while True:
            time.sleep(0.02)
            self._raise_what_failed(processes)
            moved, waited = self.board.moved(work.clients), time.monotonic() - begin
            if waited >= pace.warm and (moved >= settled).all():
                break
            if waited >= pace.no_answer:
                if not moved.any():
                    raise ProcessError(f"no answer in {pace.no_answer:.0f} s")
                break
        at_edges()
        unit = batch_size(self.elements, work.clients) if work.operation in ("batch", "dataset") else 1
        wanted = pace.units * unit * work.clients
        first, first_cpu, start = moved, self._cpu(processes), time.monotonic()
        last_total, last_change = int(first.sum()), start
        while True:
            time.sleep(0.01)
            moved, now = self.board.moved(work.clients), time.monotonic()
            total = int(moved.sum())
            if total != last_total:
                last_total, last_change = total, now
            elif now - last_change > pace.no_answer:
                raise ProcessError(f"no answer in {pace.no_answer:.0f} s")
            took = now - start
            if took >= pace.at_most or (took >= pace.seconds and total - int(first.sum()) >= wanted):
                break
        at_edges()
        last_cpu = self._cpu(processes)
        self._raise_what_failed(processes)
        each = moved - first
        items = int(each.sum())
        if items == 0:
            raise ProcessError(f"moved nothing in {took:.0f} s")
        details = {
            "server_cpu_us": (last_cpu[0] - first_cpu[0]) * 1e6 / items,
            "clients_cpu_us": (last_cpu[1] - first_cpu[1]) * 1e6 / items,
            "MBps": items * self.elements * 4e-6 / took,
            "seconds": took,
            "slowest_client_share": float(each.min() * work.clients / items),
            "settled": float((first >= settled).all()),  # 0: it was too slow for that, and measured from `no_answer` on
        }
        if work.operation == "both":
            details["inserts_per_s"] = float(each[0::2].sum() / took)
            details["samples_per_s"] = float(each[1::2].sum() / took)
        return items / took, details

    def _settled(self, work: Work) -> np.ndarray:
        """Items after which each client's figure is its rate.

        A writer first sends what may be on its way without being confirmed, through memory that is then used again; who samples again and
        again is fetched for ahead, the further the more he has taken.
        """
        first_samples = max(1, min(200, 4_000_000 // (4 * self.elements)))
        first_batches = 8 * batch_size(self.elements, work.clients)
        first = {
            "insert": 4 * in_flight(self.elements, work.clients) + 1,
            "iterate": first_samples,
            "batch": first_batches,
            "dataset": first_batches,
        }
        operations = ["insert", "iterate"] if work.operation == "both" else [work.operation]
        return np.array([first.get(operations[i % len(operations)], 1) for i in range(work.clients)])

    def _cpu(self, processes: list[Process]) -> tuple[float, float]:
        return self.server.cpu_seconds(), sum(process.cpu_seconds() for process in processes)

    def _raise_what_failed(self, processes: list[Process]) -> None:
        for process in processes:
            if process.has_answered():
                process.receive(1)
                raise ProcessError(f"{process.name} stopped early")

    def _wait_until_stopped(self, processes: list[Process]) -> None:
        """Clients that cannot stop are ended: what they moved was measured before."""
        try:
            for process in processes:
                process.receive(20)
        except ProcessError:
            self.drop_clients()

    def memory_a_client(self, clients: int, pace: Pace) -> tuple[float, dict[str, float]]:
        """KiB by which the server grows for each of so many C clients that insert and sample once and hold their connection."""
        before = self.server.resident_bytes()
        work = Work("idle", clients, "c")
        processes = self.processes("c", min(4, clients))
        self.board.hold()
        try:
            for process, job in zip(processes, self.jobs(work, len(processes)), strict=True):
                process.send(job.words())
            for process in processes:
                process.receive(READY_TIMEOUT)
            self.board.go()
            deadline = time.monotonic() + max(30.0, pace.no_answer)
            while not (self.board.moved(clients) > 0).all():
                self._raise_what_failed(processes)
                if time.monotonic() > deadline:
                    count = int((self.board.moved(clients) > 0).sum())
                    raise ProcessError(f"{count} of {clients} clients were served in time")
                time.sleep(0.05)
            time.sleep(0.2)
            grown = self.server.resident_bytes() - before
        finally:
            self.board.stop()
            self.drop_clients(5)
        return grown / 1024 / clients, {"server_MB_before": before / 1e6}

    def stop(self, patience: float = 10) -> None:
        self.drop_clients()
        self.server.stop(patience)
        self.folder.cleanup()
