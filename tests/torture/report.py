"""What a run comes to: a live line, a table, JSON."""

from __future__ import annotations

import collections
import dataclasses
import sys
import time
from typing import Any

MIB = 1 << 20


@dataclasses.dataclass
class Life:
    """One life of the server, from when it listened."""

    number: int
    journal: str
    incremental: bool
    start: float  # seconds that it took
    began: float
    seconds: float = 0.0
    confirmed: int = 0
    memory: int = 0
    end: str = ""


@dataclasses.dataclass
class Report:
    """Everything that is said at the end. `violations` are sentences; none: the run was right."""

    seed: int
    journal: str
    tls: bool
    build: str
    seconds: float = 0.0
    confirmed: int = 0
    calls: int = 0
    lost: int = 0
    doubled: int = 0
    late: int = 0
    checks: int = 0
    compared: int = 0
    longest_wait: float = 0.0
    longest_start: float = 0.0
    memory: int = 0
    descriptors: int = 0
    threads: int = 0
    used: int = 0  # by the server's own account
    spilled: int = 0
    lives: list[Life] = dataclasses.field(default_factory=list)
    faults: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    errors: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    violations: list[str] = dataclasses.field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "lives": [vars(life) for life in self.lives], "confirmed_per_second": self.rate()}

    def rate(self) -> float:
        return self.confirmed / self.seconds if self.seconds > 0 else 0.0

    def table(self) -> str:
        rows = [
            ("seed, build, journal, TLS", f"{self.seed}, {self.build}, {self.journal}, {'yes' if self.tls else 'no'}"),
            ("ran", f"{self.seconds:.0f} s, {self.calls:,} calls, {self.calls / max(self.seconds, 1.0):,.0f} a second"),
            ("items confirmed", f"{self.confirmed:,}, {self.rate():,.0f} a second"),
            ("faults injected", f"{sum(self.faults.values()):,}: " + counts(self.faults)),
            (
                "errors that callers saw, all explained by faults" if not self.violations else "errors",
                counts(self.errors) or "none",
            ),
            ("comparisons of all tables", f"{self.checks:,}, of {self.compared:,} items"),
            ("lost", f"{self.lost:,}"),
            ("doubled", f"{self.doubled:,}"),
            ("calls that were late", f"{self.late:,}"),
            ("longest wait of a call, longest start", f"{self.longest_wait:.1f} s, {self.longest_start:.1f} s"),
            ("server: memory, descriptors, threads at most", f"{self.memory / MIB:,.0f} MiB, {self.descriptors}, {self.threads}"),
            ("tables and streams, spill file at most", f"{self.used / MIB:,.0f} MiB, {self.spilled / MIB:,.0f} MiB"),
            ("violations", f"{len(self.violations)}"),
        ]
        return "\n".join(["| what | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])

    def table_of_lives(self) -> str:
        rows = [
            f"| {life.number} | {life.journal}{', incremental' if life.incremental else ''} | {life.start:.1f} | {life.seconds:.0f} "
            f"| {life.confirmed:,} | {life.memory / MIB:,.0f} | {life.end} |"
            for life in self.lives
        ]
        head = "| life | journal, checkpoints | start, s | lived, s | items confirmed | MiB at most | ended by |"
        return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def counts(counter: collections.Counter[str]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counter.most_common())


class LiveLine:
    """One line that is written over once a second; a line each ten seconds where nobody looks."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.next = 0.0

    def show(self, text: str) -> None:
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (1.0 if self.terminal else 10.0)
        print(f"\r\033[K{text}" if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.terminal:
            print(file=sys.stderr)
