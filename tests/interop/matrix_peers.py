"""The four processes of the matrix: a client and a server of either package, started when first needed and kept for all cells."""

from __future__ import annotations

import json
import os
import pathlib
import queue
import signal
import subprocess
import tempfile
import threading

import reverie
from peer import PYTHON, PeerCrashError

HERE = pathlib.Path(__file__).parent
PACKAGES = {"T": "reverb", "O": "reverie"}
PATIENCE = 120  # seconds that one command may take; a cell that hangs fails and says where


class WorkerProcess:
    """matrix_worker.py in a process of its own."""

    def __init__(self, package: str, packages: str) -> None:
        self.package = package
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [PYTHON, str(HERE / "matrix_worker.py"), package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{packages}:{HERE}", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"},
        )
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def call(self, name: str, **arguments: object) -> object:
        try:
            self.process.stdin.write(json.dumps([name, arguments]) + "\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=PATIENCE)
        except BrokenPipeError:
            line = ""
        except queue.Empty:
            self.process.send_signal(signal.SIGABRT)  # faulthandler writes where each thread is
            self.process.wait()
            raise AssertionError(f"{self.package} did not answer {name} {arguments} in {PATIENCE} s:\n{self.said()}") from None
        if not line:
            status = self.process.wait()
            kind = PeerCrashError if self.package == "reverb" and status < 0 else AssertionError
            raise kind(f"{self.package} ended with {status} in {name} {arguments}:\n{self.said()}")
        answer = json.loads(line)
        if "failure" in answer:
            raise AssertionError(f"{self.package}: {name} {arguments} raised\n{answer['failure']}")
        return answer["answer"]

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()[-4000:].decode(errors="replace")

    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Peers:
    """``peers["client", "T"]`` is a client's process of theirs, ``peers["server", "O"]`` a server's of ours; dead ones are made again."""

    def __init__(self) -> None:
        self.packages = tempfile.TemporaryDirectory()
        (pathlib.Path(self.packages.name) / "reverie").symlink_to(pathlib.Path(reverie.__file__).parent)
        self.workers: dict[tuple[str, str], WorkerProcess] = {}

    def start(self) -> None:
        """All four at once: each imports TensorFlow or what needs it."""
        for role in ("client", "server"):
            for whose in PACKAGES:
                self[role, whose]

    def __getitem__(self, which: tuple[str, str]) -> WorkerProcess:
        worker = self.workers.get(which)
        if worker is None or not worker.alive():
            if worker is not None:
                worker.end()
            worker = self.workers[which] = WorkerProcess(PACKAGES[which[1]], self.packages.name)
        return worker

    def end(self) -> None:
        for worker in self.workers.values():
            worker.end()
        self.packages.cleanup()
