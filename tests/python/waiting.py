"""What tests of calls that wait share: threads, deadlines that are long enough on a busy machine, too, and ports to come back to."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import reverie
from deadlines import says_at_its_deadline as says_at_its_deadline

LONG = 60.0  # a bound on what should take a moment
T = TypeVar("T")


class Call(threading.Thread):
    """A call in a thread of its own; `join` gives what it returned or raised, and fails if it never ends."""

    def __init__(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        super().__init__(daemon=True)
        self.call, self.result = lambda: call(*arguments, **options), None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.call()
        except BaseException as error:
            self.result = error

    def join(self, timeout: float | None = LONG) -> Any:
        super().join(timeout)
        assert not self.is_alive(), "the call hangs"
        return self.result


def until(seen: Callable[[], T]) -> T:
    """What is seen, once it is true; fails if it never is. Sleeps between looks: who spins keeps the interpreter's lock from others."""
    deadline = time.monotonic() + LONG
    while not (result := seen()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)
    return result


class TooSlowError(AssertionError):
    """A call was over before it was seen to wait."""


def wait_until_waiting(calls: list[Call], client: reverie.Client, table: str, kind: str) -> None:
    """Until all the calls, and no less, wait at the table."""

    def all_wait() -> bool:
        if getattr(client.server_info(LONG)[table], f"num_waiting_{kind}") >= len(calls):
            return True
        if not all(call.is_alive() for call in calls):
            raise TooSlowError([call.result for call in calls])
        return False

    until(all_wait)


def with_a_deadline(body: Callable[[float], T], first: float = 2.0) -> T:
    """Runs the body with a deadline for its calls that is long enough for them to do what they shall be seen to do; on a busy machine a
    short one is not."""
    for timeout in (first, 10.0):
        try:
            return body(timeout)
        except TooSlowError:
            pass
        gc.collect()  # what its calls raised holds them, and so their clients and writers: these are not to meet the next attempt's
    return body(LONG)


class HeldPort:
    """A port of the loopback on which a server comes and goes: while it is away nobody else is given it, for it is bound here, too."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server has it as well
        self.socket.bind(("127.0.0.1", 0))
        self.number: int = self.socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"

    def close(self) -> None:
        self.socket.close()
