"""How writers leave a ``with`` block that ends by an exception: nobody who wants out waits for items to be confirmed."""

from __future__ import annotations

import atexit
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


class Block:
    """What the ``with`` block of a writer does, over its `flush`, `_flush`, `status` and `_abandon`."""

    if TYPE_CHECKING:

        def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None: ...
        def _flush(self, keep: int, timeout: float | None, /) -> None: ...
        def status(self) -> WriterStatus: ...
        def _abandon(self) -> int: ...

    def __enter__(self) -> Self:
        self.status()  # which a closed writer refuses
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None:
            try:
                self.flush()
            except AT_ONCE as error:
                self._give_up(type(error))
                raise
        elif issubclass(kind, AT_ONCE):
            self._give_up(kind)
        elif not issubclass(kind, ReverbError):
            try:
                self._flush(0, GRACE)
            except ReverieError as error:
                tell_unconfirmed(self._unconfirmed(), kind, error)

    def _unconfirmed(self) -> int:
        try:
            return self.status().items_in_flight
        except (ReverieError, RuntimeError):  # it is closed, was never made, or this is a forked child
            return 0

    def _give_up(self, kind: type[BaseException]) -> None:
        tell_given_up(self._abandon(), kind)
