"""Runs the checkpoint benchmark: what others wait, memory and speed while one is saved, loading one, and what a journal costs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .. import limits
from ..cells import Results
from ..latency.histogram import PERCENTILES, percentiles
from ..latency.run import Caller
from ..processes import Process, ProcessError
from ..turns import Measurement, run_turns
from ..wire.board import Board
from ..wire.job import PAYLOADS
from ..wire.run import note_versions
from ..wire.side import MODULE, PYTHON, Pace, Side, Work
from . import disk

HERE = pathlib.Path(__file__).parent
PARTS = ("waits", "memory", "speed", "journal")
MEANWHILE = ("nothing", "file", "checkpoint")
REMOVERS = ("Fifo", "Lifo", "Uniform", "MinHeap", "MaxHeap")
MODES = ("off", "periodic", "always")
FILL_TIMEOUT = 300.0
SAVE_TIMEOUT = 600.0


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked for on the command line."""

    payload: str = "4kB"
    items: int = 1_000_000
    peer_items: int = 50_000  # of dm-reverb, which compresses while all wait
    stores: tuple[str, ...] = ("reverie", "dm-reverb")
    parts: tuple[str, ...] = PARTS
    calls: float = 500.0  # inserts a second, and as many samples, whose waits are measured
    remover_items: int = 100_000  # of the tables of other removers than Fifo, at most
    insert_megabytes: float = 240.0  # a second, while memory is measured
    seconds: float = 10.0
    rounds: int = 1
    journal_payloads: tuple[str, ...] = ("400B", "4kB")
    journal_items: int = 100_000
    journal_pace: Pace = dataclasses.field(default_factory=lambda: Pace(2.0, 0.5, 6.0, 50, 8.0))


def quick() -> Options:
    return Options(
        items=20_000,
        peer_items=2_000,
        calls=200.0,
        insert_megabytes=40.0,
        seconds=1.0,
        journal_payloads=("400B",),
        journal_items=2_000,
        journal_pace=Pace(0.2, 0.1, 2.0, 2, 8.0),
    )


class Host:
    """A server process with a checkpointer."""

    def __init__(
        self, store: str, elements: int, items: int, root: pathlib.Path, *, fill: int = 0, remover: str = REMOVERS[0]
    ) -> None:
        self.store, self.elements, self.items, self.remover = store, elements, items, remover
        words = [str(HERE / "server.py"), MODULE[store], str(elements), str(items), str(fill), str(root), "off", remover]
        self.server = Process(PYTHON[store], *words)
        try:
            self.started_in = float(self.server.receive_word("made", FILL_TIMEOUT))
            self.port = int(self.server.receive_word("port", FILL_TIMEOUT))
        except BaseException:
            self.server.stop(0)
            raise

    @property
    def data_bytes(self) -> int:
        return 4 * self.elements * self.items

    def save(self) -> dict:
        self.server.send("save")
        return self.server.receive(SAVE_TIMEOUT)

    def anonymous_bytes(self) -> int:
        """What the process itself takes: files that the system keeps in memory are not its."""
        for line in pathlib.Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise ProcessError("the system does not tell the server's memory")


def files_of(checkpoint: str) -> list[pathlib.Path]:
    return sorted(path for path in pathlib.Path(checkpoint).iterdir() if path.suffix == ".tfrecord")


def size_of(checkpoint: str) -> int:
    return sum(path.stat().st_size for path in files_of(checkpoint))


# ---- what others wait ----


def loop_times(pid: int) -> tuple[int, int]:
    """Nanoseconds for which the server's I/O threads ran, and for which they were ready and had no core."""
    ran = ready = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended: the I/O threads stay
            if (task / "comm").read_text().startswith("rv-io"):
                words = (task / "schedstat").read_text().split()
                ran, ready = ran + int(words[0]), ready + int(words[1])
    return ran, ready


@contextlib.contextmanager
def plain_writer(host: Host, folder: str) -> Iterator[None]:
    """A process that writes a file of the table's size, forces it to the disk, and begins again."""
    writer = Process(sys.executable, str(HERE / "plain.py"), folder, str(host.data_bytes))
    try:
        yield
    finally:
        writer.stop(2)


class Waits:
    """Inserts and samples on a schedule, from two clients each.

    While nothing else goes on; while another process writes a file as large as a checkpoint again and again, which is what this machine
    makes anybody wait; and while checkpoints are saved, one after another. Beside them sleeps a thread that no other can keep waiting: what
    it is late by, nobody's requests can be spared.
    """

    def __init__(self, host: Host, folder: str, options: Options, results: Results) -> None:
        self.host, self.folder, self.options, self.results = host, folder, options, results
        language = "c" if host.store == "reverie" else "python"
        self.row = {"what": "wait", "items": str(host.items), "language": language, "store": host.store}
        self.callers: dict[str, Caller] = {}
        for operation in ("insert", "sample"):
            own = pathlib.Path(folder, f"{host.store}-{operation}")
            own.mkdir()
            self.callers[operation] = Caller(host, language, str(own), {operation: "uniform"})

    def measure(self, meanwhile: str) -> None:
        saves: list[float] = []
        before = loop_times(self.host.server.pid)
        with (
            plain_writer(self.host, self.folder) if meanwhile == "file" else contextlib.nullcontext(),
            ThreadPoolExecutor(3) as pool,
        ):
            asked = {
                operation: pool.submit(caller.call, operation, 2, self.options.calls, self.options.seconds)
                for operation, caller in self.callers.items()
            }
            machine = pool.submit(limits.late_wakeups, self.options.calls, self.options.seconds)
            while meanwhile == "checkpoint" and not all(each.done() for each in asked.values()):
                saves.append(self.host.save()["seconds"])
        worked, ready = (after - value for after, value in zip(loop_times(self.host.server.pid), before, strict=True))
        details = {"loops_worked_ms": worked / 1e6, "loops_ready_ms": ready / 1e6}
        if saves:
            details |= {"saves": float(len(saves)), "save_seconds": float(np.median(saves))}
        for operation, each in asked.items():
            rate, trips = each.result()
            row = {**self.row, "operation": operation, "meanwhile": meanwhile}
            # a client that the machine runs late begins late: what was asked of the server takes from then on
            self.note(row, "schedule", trips[:, 0], {**details, "rate": rate})
            self.note(row, "call", trips[:, 1], {**details, "rate": rate})
        with contextlib.suppress(ProcessError):  # not everybody may have such a thread
            row = {**self.row, "operation": "waking up", "language": "c", "store": "machine", "meanwhile": meanwhile}
            self.note(row, "schedule", machine.result(), {})

    def note(self, row: dict[str, str], since: str, waits: np.ndarray, details: dict[str, float]) -> None:
        values, counts = np.unique(waits, return_counts=True)
        found = percentiles(zip(values.tolist(), counts.tolist(), strict=True))
        details = {**details, "count": float(len(waits)), "over_2_ms": float((waits > 2_000_000).sum())}
        for name in PERCENTILES:
            cell = self.results.cell(
                {**row, "since": since, "percentile": name}, "us", "lower" if row["store"] != "machine" else ""
            )
            cell.add(found[name], details if name == "p50" else None)

    def stop(self) -> None:
        for caller in self.callers.values():
            caller.process.stop(2)


# ---- memory and speed ----


@contextlib.contextmanager
def most_memory(host: Host) -> Iterator[Callable[[], int]]:
    """Watches the server; what is yielded tells by how much it grew at most."""
    before = most = host.anonymous_bytes()
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.005):
            most = max(most, host.anonymous_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: max(most, host.anonymous_bytes()) - before
    finally:
        done.set()
        thread.join()


def _save(host: Host, inserts: str, results: Results) -> tuple[float, dict[str, float]]:
    """MB/s, with the memory's cell filled beside."""
    with most_memory(host) as grown:
        answer = host.save()
        percent = 100 * grown() / host.data_bytes
    size = size_of(answer["path"])
    row = {"what": "memory", "items": str(host.items), "inserts": inserts, "remover": host.remover, "store": host.store}
    results.cell(row, "% of the data", "lower").add(percent, {"MB": percent * host.data_bytes / 1e8})
    details = {"seconds": answer["seconds"], "seconds_removing": answer["removing"], "MB": size / 1e6}
    return size / answer["seconds"] / 1e6, details


def _insert_meanwhile(host: Host, options: Options, results: Results) -> None:
    rate = options.insert_megabytes * 1e6 / (4 * host.elements)
    writer = Process(PYTHON[host.store], str(HERE / "inserts.py"), f"localhost:{host.port}", str(host.elements), str(rate))
    try:
        time.sleep(min(2.0, options.seconds))  # until the server has the memory that inserts take anyway
        inserts = f"{options.insert_megabytes:g} MB/s"
        speed, details = _save(host, inserts, results)
        writer.process.stdin.close()
        answer = writer.receive(60)
    finally:
        writer.stop(2)
    row = {"what": "save", "items": str(host.items), "inserts": inserts, "remover": host.remover, "store": host.store}
    inserted = answer["count"] * 4e-6 * host.elements / answer["seconds"]
    results.cell(row, "MB/s", "higher").add(speed, {**details, "inserted_MBps": inserted})


def _memory_of(remover: str, root: pathlib.Path, options: Options, results: Results) -> None:
    items = min(options.items, options.remover_items)
    host = Host("reverie", PAYLOADS[options.payload], items, root, fill=items, remover=remover)
    try:
        _insert_meanwhile(host, options, results)
    finally:
        host.server.stop(30)


def _speed(host: Host, root: pathlib.Path, options: Options, results: Results, say: Callable[[str], None]) -> None:
    """Saving beside plain writes, in turns; the last checkpoint stays for loading."""
    size = size_of(host.save()["path"])
    row = {"what": "save", "items": str(host.items), "inserts": "none", "remover": host.remover}
    measurements = [
        Measurement(results.cell({**row, "store": host.store}, "MB/s", "higher"), lambda: _save(host, "none", results)),
        Measurement(results.cell({**row, "store": "machine"}, "MB/s", ""), lambda: disk.write(root.parent, size)),
    ]
    if disk.can_pass_cache(root.parent):
        cell = results.cell({**row, "store": disk.PAST_CACHE}, "MB/s", "")
        measurements.append(Measurement(cell, lambda: disk.write(root.parent, size, past_cache=True)))
    run_turns(measurements, max(2, options.rounds), say)


def _load(store: str, host: Host, root: pathlib.Path, options: Options, results: Results, say: Callable[[str], None]) -> None:
    checkpoint = max(path for path in root.iterdir() if not path.name.startswith("."))
    files, size = files_of(str(checkpoint)), size_of(str(checkpoint))

    def load() -> tuple[float, dict[str, float]]:
        disk.forget(files)
        loaded = Host(store, host.elements, host.items, root)
        loaded.server.stop(30)
        return size / loaded.started_in / 1e6, {"seconds": loaded.started_in}

    row = {"what": "load", "items": str(host.items), "inserts": "none", "remover": host.remover}
    measurements = [
        Measurement(results.cell({**row, "store": store}, "MB/s", "higher"), load),
        Measurement(results.cell({**row, "store": "machine"}, "MB/s", ""), lambda: disk.read(files)),
    ]
    if disk.can_pass_cache(root.parent):
        cell = results.cell({**row, "store": disk.PAST_CACHE}, "MB/s", "")
        measurements.append(Measurement(cell, lambda: disk.read(files, past_cache=True)))
        cell = results.cell({**row, "store": disk.KEPT}, "MB/s", "")
        measurements.append(Measurement(cell, lambda: disk.read(files, past_cache=True, keep=True)))
    run_turns(measurements, max(2, options.rounds), say)


def _store(store: str, folder: str, options: Options, results: Results, say: Callable[[str], None]) -> None:
    items = options.items if store == "reverie" else options.peer_items
    root = pathlib.Path(folder, store, "checkpoints")
    root.parent.mkdir()
    say(f"{store}: filling with {items:,} items of {options.payload}")
    with contextlib.ExitStack() as stack:
        host = Host(store, PAYLOADS[options.payload], items, root, fill=items)
        stack.callback(host.server.stop, 30)
        if "waits" in options.parts:
            waits = Waits(host, folder, options, results)
            stack.callback(waits.stop)
            for meanwhile in MEANWHILE * options.rounds:
                waits.measure(meanwhile)
                say(f"{store}: waits are measured; meanwhile: {meanwhile}")
        if "memory" in options.parts and store == "reverie":
            _insert_meanwhile(host, options, results)
        if "speed" in options.parts:
            _speed(host, root, options, results, say)
    if "speed" in options.parts:
        _load(store, host, root, options, results, say)
    if "memory" in options.parts and store == "reverie":
        for remover in REMOVERS[1:]:
            _memory_of(remover, root.with_name(remover), options, results)
            say(f"{store}: memory is measured where {remover} removes")


# ---- the journal ----


def _journal(folder: str, options: Options, results: Results, say: Callable[[str], None]) -> None:
    """Inserts a second of two C clients, confirmed, where a journal is kept."""
    board = Board(2)
    try:
        for payload in options.journal_payloads:
            with contextlib.ExitStack() as stack:
                measurements = []
                for mode in MODES:
                    root = pathlib.Path(folder, f"journal-{payload}-{mode}", "checkpoints")
                    root.parent.mkdir()
                    elements = PAYLOADS[payload]
                    items = min(options.journal_items, 400_000_000 // (4 * elements))
                    command = [
                        str(HERE / "server.py"),
                        "reverie",
                        str(elements),
                        str(items),
                        str(items),
                        str(root),
                        mode,
                        REMOVERS[0],
                    ]
                    side = Side("reverie", elements, board, [], command=command)
                    stack.callback(side.stop)
                    row = {"what": "journal", "payload": payload, "journal": mode, "clients": "2", "store": "reverie"}
                    cell = results.cell(row, "items/s", "higher")
                    work = Work("insert", 2, "c")
                    measurements.append(Measurement(cell, functools.partial(side.measure, work, options.journal_pace)))
                run_turns(measurements, max(2, options.rounds), say)
    finally:
        board.close()


def run(results: Results, options: Options, say: Callable[[str], None]) -> None:
    """Adds the cells to `results` as they are measured."""
    note_versions(results, options.stores)
    for store in options.stores:
        if not {"waits", "memory", "speed"} & set(options.parts):
            continue
        with tempfile.TemporaryDirectory(prefix="reverie-bench-") as folder:
            try:
                _store(store, folder, options, results, say)
            except ProcessError as error:
                results.notes.append(f"{store} is left out from here on: {error}")
                say(f"FAILED: {store}: {error}")
    if "reverie" in options.stores and "journal" in options.parts:
        with tempfile.TemporaryDirectory(prefix="reverie-bench-") as folder:
            _journal(folder, options, results, say)
    if "dm-reverb" in options.stores:
        results.notes.append(f"dm-reverb held {options.peer_items:,} items, Reverie {options.items:,}")
