"""Processes that talk in JSON lines, and are given up on when they do not."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import tempfile
import time


class ProcessError(RuntimeError):
    """A process ended, failed, or did not answer in time; says what it printed last."""


class Process:
    """One process of the benchmark. What it prints besides its answers is kept, and shown when it fails."""

    def __init__(self, *command: str, env: dict[str, str] | None = None) -> None:
        self.name = os.path.basename(command[1] if command[1:] and command[1].endswith(".py") else command[0])
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                env={**os.environ, **(env or {})},
                start_new_session=True,  # Ctrl-C is the benchmark's to handle
            )
        except OSError as error:
            self.log.close()
            raise ProcessError(f"{command[0]} does not start: {error.strerror}") from None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.received = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def failed(self, how: str) -> ProcessError:
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 2000))
        said = self.log.read().decode(errors="replace").strip()
        return ProcessError(f"{self.name} {how}" + (f"; it said last: {said.splitlines()[-1]}" if said else ""))

    def send(self, line: str) -> None:
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.failed("has ended") from None

    def has_answered(self) -> bool:
        """A line is there, or the process is gone, which the next receive says."""
        data = self.process.stdout.read(65536)
        self.received += data or b""
        return b"\n" in self.received or data == b""

    def read_line(self, deadline: float) -> str:
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.received:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise self.failed("did not answer in time")
                data = self.process.stdout.read(65536)
                if data == b"":
                    raise self.failed(f"ended with status {self.process.wait()}")
                self.received += data or b""
        line, self.received = self.received.split(b"\n", 1)
        return line.decode()

    def receive(self, timeout: float) -> dict:
        """The next answer. ProcessError when it is an error."""
        answer = json.loads(self.read_line(time.monotonic() + timeout))
        if "error" in answer:
            raise ProcessError(f"{self.name}: {answer['error']}")
        return answer

    def receive_word(self, word: str, timeout: float) -> str:
        """What follows ``word`` on the first line that begins with it."""
        deadline = time.monotonic() + timeout
        while True:
            line = self.read_line(deadline)
            if line.startswith(word + " "):
                return line[len(word) + 1 :]

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far, kernel included."""
        return time.clock_gettime((~self.pid << 3) | 2)  # the process's clock; see clock_getcpuclockid(3)

    def resident_bytes(self) -> int:
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self, patience: float = 10) -> None:
        """Ends with its standard input; is killed when it does not."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


def ask(*command: str, timeout: float = 60) -> dict:
    """The one JSON object that a program prints."""
    process = Process(*command)
    try:
        return process.receive(timeout)
    finally:
        process.stop(0)
