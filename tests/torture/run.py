"""One run: everything is started, faults come one after another, tables are compared, everything is ended."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import random
import shutil
import tempfile
import time
from typing import Any

import numpy as np
import reverie

from . import schedule, status
from .afflict import Afflict
from .certificates import Certificates
from .checker import Before, Found, check_handed_out, compare
from .clients import WRITER, Clients
from .errors import DISK, Judge
from .faults import Faults
from .interrupts import Interrupts
from .loads import content
from .loads.load import SLACK
from .model import Model
from .proxy import Proxy
from .report import Life, LiveLine, Report
from .server import DRAIN, Server, ServerError
from .starved import Starved
from .tables import TABLES
from .watch import MIB, Watch

PERIOD = 0.25  # of a journal that writes periodically, seconds
RETRY = 1.5  # seconds after which a journal that failed has tried again
LATE = 2.0  # seconds that the journal's thread may wait for a processor while we do not
RECENT = 30.0  # and all of these seconds before a kill in which even we got none
COMPARE_EVERY = 10.0
MAX_FAULT = 12.0
MAX_MEMORY = {"release": 512 * MIB, "asan": 4096 * MIB, "tsan": 8192 * MIB}
MAX_DESCRIPTORS, MAX_THREADS = 500, 64
STUCK = 20.0  # seconds beyond a call's bound after which it counts as one that never returns
TERMINATES_WITHIN = DRAIN + 20.0
CONTENTS = 3000  # items of which each last look reads the data


@dataclasses.dataclass(frozen=True)
class Options:
    seconds: float
    seed: int
    build: str
    journal: str
    tls: bool
    output: pathlib.Path | None = None
    keep: bool = False


class ViolationError(Exception):
    """Something that must never be; the sentence says what."""


class Run:
    """`go` once."""

    def __init__(self, options: Options, build: pathlib.Path, interrupts: Interrupts) -> None:
        self.options, self.build, self.interrupts = options, build, interrupts
        self.report = Report(options.seed, options.journal, options.tls, options.build)
        if options.output is not None:
            options.output.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reverie-torture.", dir=options.output)).absolute()
        self.line = LiveLine()
        self.starved = Starved()
        self.judge = Judge()
        self.random = random.Random(f"run {options.seed}")
        self.began = time.monotonic()
        self.next_compare = 0.0
        self.reports_read = 0
        self.unexplained: list[dict[str, Any]] = []  # errors that no fault so far explains: one that is not over yet may

    def go(self) -> Report:
        with contextlib.ExitStack() as ends:
            try:
                self.begin(ends)
                self.torture()
                self.finish()
            except (ViolationError, ServerError) as error:
                self.report.violations.append(str(error))
            finally:
                if hasattr(self, "model"):
                    self.sum_up()
                self.line.end()
        if not self.report.violations and not self.options.keep:
            shutil.rmtree(self.folder)
        return self.report

    # ---- beginning ----

    def begin(self, ends: contextlib.ExitStack) -> None:
        seeds = [self.random.randrange(2**32) for _ in range(4)]
        (self.folder / "faults").touch()
        self.disk = Faults(self.build / "torture" / "torture-faults.so", self.folder / "faults")
        certificates = Certificates(self.folder) if self.options.tls else None
        files = None if certificates is None else (str(certificates.certificate), str(certificates.authority))
        program = self.build / "tools" / "reverie-server"
        self.server = Server(program, self.folder, self.disk, self.options.journal, PERIOD, files, seeds[3])
        ends.callback(self.server.end)
        self.start_server()
        self.watch = Watch(self.server)
        ends.callback(self.watch.stop)
        proxy = Proxy(("127.0.0.1", self.server.port), seeds[0])
        ends.callback(proxy.stop)
        self.proxy = proxy
        direct = self.server.unix if self.options.tls else self.server.tcp
        authority = None if files is None else files[1]
        self.clients = Clients(self.folder, direct, proxy.address, authority, self.build / "torture" / "torture-writer", seeds[1])
        ends.callback(self.clients.end)
        self.afflict = Afflict(self.server, self.disk, proxy, self.clients, certificates, seeds[2])
        self.client = reverie.Client(direct)
        self.client.server_info(30)
        self.fresh = self.watch.look()
        self.model = Model(self.folder / "streams")
        with self.interrupts.held():
            self.clients.start_all()
        self.began = time.monotonic()

    def start_server(self) -> None:
        with self.interrupts.held():
            took = self.server.start()
        self.note(f"life {self.server.lives} began after {took:.2f} s")
        self.report.longest_start = max(self.report.longest_start, took)
        server = self.server
        self.report.lives.append(Life(server.lives, server.mode, server.incremental, took, time.monotonic()))

    # ---- faults ----

    def torture(self) -> None:
        end = self.began + self.options.seconds
        self.wait_for_progress(60.0)
        self.proxy.gentle = False
        self.proxy.reset_all()
        for fault in schedule.faults(self.options.seed, self.options.tls, min(MAX_FAULT, self.options.seconds / 4)):
            self.pause(min(fault.after, max(0.0, end - time.monotonic())))
            if time.monotonic() >= end:
                return
            self.report.faults[fault.kind] += 1
            if fault.kind == "kill":
                self.kill()
            elif fault.kind == "terminate":
                self.terminate()
            else:
                self.suffer(fault)
            if time.monotonic() >= self.next_compare:
                self.compare()

    def suffer(self, fault: schedule.Fault) -> None:
        began = time.monotonic()
        self.note(f"{fault.kind} for {fault.seconds:.1f} s, then {fault.ending or 'over'}")
        with self.interrupts.held():
            undo = self.afflict.begin(fault.kind, fault.seconds)
        try:
            self.pause(fault.seconds)
            self.judge.add(fault.kind, began, time.monotonic())
            if fault.ending:
                self.report.faults[f"{fault.ending} in it"] += 1
            if fault.ending == "kill":
                self.kill(undo, fault.kind)
            elif fault.ending == "terminate":
                self.terminate(undo, fault.kind)
        finally:
            undo()
        self.judge.add(fault.kind, began, time.monotonic())

    def end_life(self, end: str, fault: str) -> None:
        life = self.report.lives[-1]
        life.seconds, life.end = time.monotonic() - life.began, f"{end} in: {fault}" if fault else end
        life.memory = self.watch.take_life()
        life.confirmed = self.model.confirmed() - sum(each.confirmed for each in self.report.lives)

    def kill(self, heal: Any = None, fault: str = "") -> None:
        killed, mode = time.monotonic(), self.server.mode
        usage = self.watch.look()
        self.note(f"kill; the server had {0 if usage is None else usage.memory / MIB:.0f} MiB")
        self.server.kill()
        self.model.killed(time.monotonic())  # until now it may have answered
        slowest_sync = self.disk.slowest_sync()  # before the next life has any
        self.end_life("kill", fault)
        if heal is not None:
            heal()
        self.start_server()
        ready = time.monotonic()
        self.judge.add("kill", killed, ready)
        if mode == "periodic":
            self.model.lose(self.last_safe(killed, slowest_sync), ready)
        self.compare()

    def note(self, text: str) -> None:
        """Into the run's own log, which stays with the evidence."""
        with open(self.folder / "run.log", "a") as file:
            file.write(f"{time.monotonic():.3f} {text}\n")

    def last_safe(self, killed: float, slowest_sync: float) -> float:
        """What was confirmed before this was on the disk when the server was killed."""
        late = PERIOD + 2 * slowest_sync + LATE + self.starved.between(killed - RECENT, killed)
        safe = edge = killed - late
        # The newest first: between two that follow each other closely the journal may not have been written once.
        for one in sorted(self.judge.disturbances, key=lambda each: each.end, reverse=True):
            if one.kind in DISK | {"stop", "memory"} and one.end >= edge:
                safe, edge = min(safe, one.begin - late), min(edge, one.begin - RETRY)
        self.note(f"what was confirmed {killed - safe:.2f} s before may be lost")
        return safe

    def terminate(self, heal: Any = None, fault: str = "") -> None:
        """With a fault that goes on for a moment after the signal, if it comes in one."""
        began, mode = time.monotonic(), self.server.mode
        self.note("terminate")
        if heal is None:
            self.server.terminate(TERMINATES_WITHIN)
        else:
            self.server.send_terminate()
            time.sleep(min(1.0, DRAIN))
            heal()
            self.server.terminate(TERMINATES_WITHIN)
        self.model.killed(time.monotonic())
        slowest_sync = self.disk.slowest_sync()
        self.end_life("terminate", fault)
        self.start_server()
        ready = time.monotonic()
        self.judge.add("terminate", began, ready)
        if heal is not None and mode == "periodic":  # it may have ended while the disk took nothing
            self.model.lose(self.last_safe(began, slowest_sync), ready)
        self.compare()

    # ---- looking ----

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            self.look()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.25))

    def look(self) -> None:
        """Is everybody alive, and within bounds?"""
        self.interrupts.check()
        self.model.read()
        confirmed, seconds = self.model.confirmed(), time.monotonic() - self.began
        self.line.show(
            f"{seconds:6.0f} s  {confirmed:,} items confirmed, {confirmed / seconds:,.0f}/s  life {self.server.lives}  "
            f"faults {sum(self.report.faults.values())}  compared {self.report.checks}  "
            f"lost {self.report.lost}, doubled {self.report.doubled}"
        )
        if self.server.pid is None:
            raise ViolationError(f"life {self.server.lives}: the server ended by itself: {self.server.last_words()}")
        gone = self.clients.ended()
        if gone:
            raise ViolationError(f"the clients {', '.join(gone)} ended by themselves: see their logs")
        self.read_reports()
        for one in self.clients.running.values():
            for name in () if one.stopped else one.loads:
                self.look_at_call(name)
        bound = MAX_MEMORY[self.options.build]
        if self.watch.memory > bound:
            raise ViolationError(f"the server took {self.watch.memory / MIB:,.0f} MiB, more than {bound / MIB:,.0f}")
        if self.watch.descriptors > MAX_DESCRIPTORS or self.watch.threads > MAX_THREADS:
            raise ViolationError(f"the server had {self.watch.descriptors} descriptors and {self.watch.threads} threads")

    def look_at_call(self, name: str) -> None:
        path = self.folder / "status" / name
        found = status.look(path) if path.exists() else None
        if found is None or found[status.BEGAN] == 0.0:
            return
        began, now = float(found[status.BEGAN]), time.monotonic()
        waited = now - began - self.starved.between(began, now)  # where nobody runs no call returns
        if waited > found[status.LIMIT] + SLACK + STUCK:
            raise ViolationError(f"{name}: a call that may take {found[status.LIMIT]:g} s has not returned after {waited:.0f}")

    def read_reports(self) -> None:
        path = self.folder / "reports"
        if not path.exists():
            return
        with open(path) as file:
            file.seek(self.reports_read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self.reports_read += len(whole.encode())
        for line in whole.splitlines():
            self.judge_report(json.loads(line))

    def judge_report(self, report: dict[str, Any]) -> None:
        load, what = report["load"], report["what"]
        if report["kind"] == "error":
            self.report.errors[report["code"].removesuffix("Error")] += 1
            if not self.judge.explains(report):
                self.unexplained.append(report)
        elif report["kind"] == "memory":
            self.report.used, self.report.spilled = (
                max(self.report.used, report["used"]),
                max(self.report.spilled, report["spilled"]),
            )
        elif report["kind"] == "late":
            self.report.late += 1
            self.report.violations.append(f"{load}: {what} took {report['waited']:.1f} s, {report['limit']:g} were allowed")
        else:
            self.report.violations.append(f"{load}: {what} {report.get('text', '')}".strip())

    # ---- comparing ----

    def wait_for_progress(self, seconds: float) -> None:
        """Until every table has something."""
        end = time.monotonic() + seconds
        while True:
            self.look()
            empty = [
                table.name for table in self.model.tables.values() if not any(s.certain.runs for s in table.streams.values())
            ]
            if not empty:
                return
            if time.monotonic() > end:
                raise ViolationError(f"nothing was confirmed into {', '.join(empty)} within {seconds:g} s, without any fault")
            time.sleep(0.1)

    def compare(self) -> None:
        """All tables, while the loads go on."""
        self.next_compare = time.monotonic() + COMPARE_EVERY
        self.model.read()
        before = {name: Before.of(table, self.model.read_at) for name, table in self.model.tables.items()}
        listed = {name: self.listing(name) for name in TABLES}
        self.model.read()
        found = Found()
        for name, table in self.model.tables.items():
            found.add(compare(table, before[name], listed[name]))
            self.report.compared += len(listed[name])
        found.add(check_handed_out(self.model))
        self.report.checks += 1
        self.report.lost += found.lost
        self.report.doubled += found.doubled
        if found.sentences:
            self.report.violations += found.sentences[1:]
            raise ViolationError(found.sentences[0])

    def listing(self, table: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The priorities of all items, in order of insertion."""
        end = time.monotonic() + 60.0
        while True:
            try:
                return np.array([item.priority for item in self.client.items(table, page_size=10_000, timeout=30.0)], np.float64)
            except reverie.ReverieError as error:
                if time.monotonic() > end:
                    raise ViolationError(f"{table} could not be listed within a minute: {error}") from None
                time.sleep(0.1)

    def compare_contents(self) -> None:
        """The data of items, each by its key."""
        for name, table in TABLES.items():
            if not table.kept:
                continue
            found = list(self.client.items(name, page_size=5000, timeout=30.0))
            for item in self.random.sample(found, min(CONTENTS // 10, len(found))):
                data = self.client.get(name, item.key, timeout=30.0).data
                fault = content.fault(data, content.number_of(item.priority, table.scrambled))
                if fault is not None:
                    raise ViolationError(f"{name}: {fault}")

    # ---- the end ----

    def finish(self) -> None:
        """No faults any more: clients bring to an end what they do; then every item is looked at, and again after a kill."""
        self.report.seconds = time.monotonic() - self.began
        self.disk.heal()
        self.proxy.calm()
        late = self.clients.finish(90.0)
        self.read_reports()
        if late:
            raise ViolationError(f"the clients {', '.join(late)} did not end within 90 s, with the server in good health")
        self.look_at_writer()
        self.compare()
        self.compare_contents()
        self.check_leaks()
        for again in ("kill", "terminate"):
            getattr(self, again)()
            self.report.faults[again] += 1
            self.compare_contents()
        self.server.terminate(TERMINATES_WITHIN)
        self.end_life("terminate", "")
        bad = self.server.bad_lines()
        if bad:
            raise ViolationError(f"the server's log has {bad[0]}")
        for report in self.unexplained:
            if not self.judge.explains(report):
                self.report.violations.append(f"{report['load']}: {report['what']} failed: {report['code']}: {report['text']}")

    def look_at_writer(self) -> None:
        for path in sorted(self.folder.glob(f"client.*.{WRITER}.log")):
            said = path.read_text(errors="replace").strip()
            if said:
                raise ViolationError(f"the writer in C said: {said.splitlines()[0]}")

    def check_leaks(self) -> None:
        """When all clients have gone, so have their descriptors and threads."""
        end = time.monotonic() + 30.0
        while True:
            usage = self.watch.look()
            if usage is None or self.fresh is None:
                raise ViolationError("the server's process cannot be looked at")
            if usage.descriptors <= self.fresh.descriptors + 4 and usage.threads <= self.fresh.threads + 4:
                return
            if time.monotonic() > end:
                raise ViolationError(
                    f"without clients the server has {usage.descriptors} descriptors and {usage.threads} threads; "
                    f"it began with {self.fresh.descriptors} and {self.fresh.threads}"
                )
            time.sleep(0.2)

    def sum_up(self) -> None:
        self.model.read()
        report = self.report
        report.confirmed = self.model.confirmed()
        if report.seconds == 0.0:
            report.seconds = time.monotonic() - self.began
        report.memory, report.descriptors, report.threads = self.watch.memory, self.watch.descriptors, self.watch.threads
        for kind, n in self.proxy.counts.items():
            report.faults[f"proxy: {kind}"] += n
        for path in (self.folder / "status").iterdir():
            found = status.look(path)
            if found is not None:
                report.calls += int(found[status.CALLS])
                report.longest_wait = max(report.longest_wait, float(found[status.LONGEST]))
