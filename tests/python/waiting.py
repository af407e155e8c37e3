"""What tests of calls that wait share: threads, deadlines that are long enough on a busy machine, too, and ports to come back to."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import reverie

LONG = 60.0  # a bound on what should take a moment
ATTEMPTS = 10
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


class TooSlowError(AssertionError):
    """A call was over before it was seen to wait."""


def wait_until_waiting(calls: list[Call], client: reverie.Client, table: str, kind: str) -> None:
    """Until all the calls, and no less, wait at the table."""
    while getattr(client.server_info(LONG)[table], f"num_waiting_{kind}") < len(calls):
        if not all(call.is_alive() for call in calls):
            raise TooSlowError([call.result for call in calls])


def with_a_deadline(body: Callable[[float], T], first: float = 2.0) -> T:
    """Runs the body with a deadline for its calls that is long enough for them to do what they shall be seen to do; on a busy machine a
    short one is not."""
    for timeout in (first, 10.0):
        try:
            return body(timeout)
        except TooSlowError:
            pass
    return body(LONG)


def says_at_its_deadline(
    call: Callable[[float], object], words: str, first: float = 0.1, error: type[Exception] = reverie.DeadlineExceededError
) -> None:
    """The call ends with these words at its deadline. A server has a moment to say what it waits for; on a busy machine that may be too
    short: then it is called again, with a longer deadline."""
    for attempt in range(ATTEMPTS):
        with pytest.raises(error) as caught:
            call(first * 1.5**attempt)
        if re.search(words, str(caught.value)):
            return
    raise AssertionError(f"{str(caught.value)!r} does not say {words!r}")


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
