"""The server that is tortured: reverie-server, on addresses that stay the same over its deaths."""

from __future__ import annotations

import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import threading
import time

from .faults import Faults
from .tables import server_flags

START = 60.0  # seconds that a start may take
DRAIN = 2.0
MEMORY_LIMITS = (96 << 20, 112 << 20, 192 << 20)  # begins with the second; what cannot be spilled takes up to 75 MiB
BAD_LINES = re.compile(r"Sanitizer|runtime error:|assertion|Assertion|BUG|double free|corrupted")


class ServerError(Exception):
    """The server did what it must never do; the sentence says what."""


class Server:
    """One server, in as many lives as it takes.

    Parameters
    ----------
    program : Path
    folder : Path
        For its journal, checkpoints, logs and socket.
    faults : Faults
    mode : str
        The journal's: always, periodic, or both, of which each life has one.
    tls : tuple of str, optional
        Files: certificate and authority.
    seed : int
        Says which life saves incremental checkpoints, and which mode its journal has.
    """

    def __init__(
        self,
        program: pathlib.Path,
        folder: pathlib.Path,
        faults: Faults,
        mode: str,
        period: float,
        tls: tuple[str, str] | None,
        seed: int,
    ) -> None:
        self.program, self.folder, self.faults, self.random = program, folder, faults, random.Random(seed)
        self.modes = ("always", "periodic") if mode == "both" else (mode,)
        self.mode, self.incremental = "", False  # of the present life
        (folder / "spill").mkdir()
        self.sanitized = program.parents[1].name in ("asan", "tsan")
        self.held = socket.socket()  # bound, without listening: while the server is dead nobody else is given its port
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.held.bind(("127.0.0.1", 0))
        self.port = self.held.getsockname()[1]
        self.tcp = f"127.0.0.1:{self.port}"
        self.unix = f"unix:{folder}/socket"
        settings = {
            "journal_period_seconds": str(period),
            "journal_max_queued_bytes": "16MiB",
            "journal_checkpoint_bytes": "64MiB",
            "checkpoint_every_seconds": "2",
            "checkpoint_keep": "2",
            "drain_seconds": str(DRAIN),
            "memory_limit": str(MEMORY_LIMITS[1]),
        }
        if tls is not None:
            settings["tls_certificate"] = tls[0]
        self.flags = ["--listen", self.tcp, "--listen", self.unix, *server_flags()]
        self.flags += [
            "--checkpoints",
            str(folder / "checkpoints"),
            "--journal",
            str(folder / "journal"),
            "--spill",
            str(folder / "spill"),
        ]
        for name, value in settings.items():
            self.flags += ["--set", f"{name}={value}"]
        self.process: subprocess.Popen[str] | None = None
        self.lives = 0
        self.asked = False  # SIGTERM was sent

    @property
    def pid(self) -> int | None:
        process = self.process
        return process.pid if process is not None and process.poll() is None else None

    def log(self, life: int) -> pathlib.Path:
        return self.folder / f"server.{life}.log"

    def start(self) -> float:
        """Seconds until it listened."""
        began = time.monotonic()
        self.lives += 1
        self.mode, self.incremental = self.random.choice(self.modes), self.random.random() < 0.5
        life = ["--set", f"journal_mode={self.mode}", "--set", f"checkpoint_incremental={int(self.incremental)}"]
        environment = {**os.environ, **self.faults.environment(self.sanitized)}
        with open(self.log(self.lives), "w") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(self.program), *self.flags, *life],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        patience = threading.Timer(START, self.process.kill)
        patience.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        patience.cancel()
        if not line.startswith("listening"):
            status = self.process.wait()
            raise ServerError(
                f"life {self.lives}: the server did not start within {START:g} s (status {status}): {self.last_words()}"
            )
        return time.monotonic() - began

    def last_words(self) -> str:
        lines = self.log(self.lives).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL. An end before that is an error."""
        process = self._must_live()
        process.kill()
        self._reap()

    def send_terminate(self) -> None:
        """What `terminate` does first; it may still be called."""
        self._must_live()
        self.send(signal.SIGTERM)
        self.asked = True

    def _must_live(self) -> subprocess.Popen[str]:
        assert self.process is not None
        ended = self.process.poll()
        if ended is not None:
            raise ServerError(f"life {self.lives}: the server ended by itself with status {ended}: {self.last_words()}")
        return self.process

    def terminate(self, patience: float) -> float:
        """SIGTERM, unless it was sent already; seconds until it had ended, which must be with status 0."""
        began = time.monotonic()
        if not self.asked:
            self.send_terminate()
        self.asked = False
        process = self.process
        assert process is not None
        try:
            status = process.wait(patience)
        except subprocess.TimeoutExpired:
            raise ServerError(
                f"life {self.lives}: the server had not ended {patience:g} s after SIGTERM: {self.last_words()}"
            ) from None
        self._reap()
        if status != 0:
            raise ServerError(f"life {self.lives}: the server ended with status {status} after SIGTERM: {self.last_words()}")
        return time.monotonic() - began

    def _reap(self) -> None:
        assert self.process is not None
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def end(self) -> None:
        """Whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self._reap()
        self.held.close()

    def bad_lines(self) -> list[str]:
        """What no log may have."""
        found = []
        for life in range(1, self.lives + 1):
            for line in self.log(life).read_text(errors="replace").splitlines():
                if BAD_LINES.search(line):
                    found.append(f"life {life}: {line}")
        return found
