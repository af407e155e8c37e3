"""How writers end: nobody who wants out waits for items to be confirmed, and nothing that the server refused goes untold.

What a server refused is told once at least: by a call that raises it (the end of a ``with`` block is one), or, where no call
did before the writer ends, by a warning of the logger `reverie`, and by a note of the exception that ends the block.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Self

from reverie.errors import ReverbError, ReverieError

if TYPE_CHECKING:
    from reverie.trajectory_writer import WriterStatus

# These say "end now": nothing is waited for.
AT_ONCE = (KeyboardInterrupt, SystemExit, GeneratorExit)
# Seconds that items get when the block ends by another exception, or a writer is dropped.
GRACE = 1.0

_log = logging.getLogger("reverie")
_interrupted: list[bool] = []  # filled when Ctrl-C ends the interpreter: what it takes down then is not waited for either


@atexit.register
def _note_ctrl_c() -> None:
    if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
        _interrupted.append(True)


def ends_by_ctrl_c() -> bool:
    """Is the interpreter on its way out because of Ctrl-C?"""
    return bool(_interrupted)


def tell_given_up(items: int, kind: type[BaseException]) -> None:
    """Logs that a writer was closed with so many items unconfirmed."""
    if items > 0:
        _log.warning("a writer was left by %s: %d of its items were not confirmed and are given up", kind.__name__, items)


def tell_unconfirmed(items: int, kind: type[BaseException], why: BaseException) -> None:
    """Logs that so many items are still unconfirmed although they got their second."""
    if items > 0:
        _log.warning("a writer was left by %s with %d items unconfirmed: %s", kind.__name__, items, why)


def tell_closed(items: int) -> None:
    """Logs that a writer was closed with so many items unconfirmed, by the user's own wish."""
    if items > 0:
        _log.warning("a writer was closed with %d of its items unconfirmed, which are given up: flush it first", items)


def tell_dropped(items: int, why: object) -> None:
    """Logs that so many items of a writer that was dropped are lost although they got their second."""
    if items > 0:
        _log.warning("a writer was dropped with %d items unconfirmed, which are lost: %s", items, why)


def tell_refused(failure: str | None, how: str, error: BaseException | None = None) -> None:
    """Logs what the server refused and no call had raised when a writer ended so, and notes it on the exception that ended it."""
    if failure is None:
        return
    _log.warning("a writer was %s before any call raised this: %s", how, failure)
    if error is not None:
        with contextlib.suppress(Exception):  # of a frozen class, for one: it is told by the line above
            error.add_note(f"before any call of its writer raised this: {failure}")


class Block:
    """What the ``with`` block of a writer does. An exception that leaves it is never replaced but by one that says "end now"."""

    _ends_with_block = False
    _taken_down = _interrupted  # which is not to be found under its name any more where modules are empty

    def _is_over(self) -> bool:
        """Was it closed already, by a call that told what was to tell?"""
        return False

    def _is_made(self) -> bool:
        """False: its class, such as a test's double, has an `__init__` that does not call ours, and does itself what is asked of it."""
        return True

    if TYPE_CHECKING:

        def flush(self) -> None: ...
        def status(self) -> WriterStatus: ...
        def _settle(self, timeout: float | None, /) -> None: ...
        def _take_failure(self) -> str | None: ...
        def _abandon(self) -> int: ...

    def __enter__(self) -> Self:
        if self._is_made():
            self.status()  # which a closed writer refuses
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None = None, *trace: object) -> None:
        if not self._is_made():
            if kind is None or not issubclass(kind, (ReverbError, *AT_ONCE)):
                self.flush()
            return
        if kind is not None:
            self._leave_by(kind, error, waits=self._ends_with_block or not issubclass(kind, ReverbError))
            return
        try:
            self._finish()
        except BaseException as raised:
            self._leave_by(type(raised), raised)
            raise

    def _finish(self) -> None:
        """The end of a block that nothing went wrong in."""
        self.flush()

    def _leave_by(self, kind: type[BaseException], error: BaseException | None, waits: bool = True) -> None:
        if issubclass(kind, AT_ONCE):
            self._give_up(kind, error)
            return
        if self._is_over():
            return
        try:
            if waits:
                self._settle(GRACE)
        except AT_ONCE as interrupt:
            self._give_up(type(interrupt), interrupt)
            raise
        except ReverieError as why:
            if not self._ends_with_block:
                tell_unconfirmed(self._left_over(), kind, why)
        except BaseException as other:  # a signal handler's
            if self._ends_with_block:
                self._give_up(type(other), other)
            raise
        if self._ends_with_block:
            self._give_up(kind, error)
        else:
            tell_refused(self._take_failure(), f"left by {kind.__name__}", error)

    def _outlives_modules(self) -> bool:
        """Was it dropped when the interpreter had emptied its modules already, as it does with those that something keeps (JAX does)? Then
        its items have had their second, unless Ctrl-C took it down, and the library says on stderr what is lost."""
        if GRACE:
            return False
        try:
            if not self._taken_down:
                self._settle(1.0)
        except BaseException:
            pass
        return True

    def _unconfirmed(self) -> int:
        try:
            return self.status().items_in_flight
        except (ReverieError, RuntimeError):  # it is closed, was never made, or this is a forked child
            return 0

    def _left_over(self) -> int:
        """The same. Of a writer whose client was closed, which has no status, it is what this takes from it, and so tells once."""
        with contextlib.suppress(ReverieError, RuntimeError):
            return self.status().items_in_flight
        with contextlib.suppress(ReverieError, RuntimeError):
            return self._abandon()
        return 0

    def _give_up(self, kind: type[BaseException], error: BaseException | None = None) -> None:
        """Closes it without waiting."""
        tell_given_up(self._abandon(), kind)
        tell_refused(self._take_failure(), f"left by {kind.__name__}", error)
