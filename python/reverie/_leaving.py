"""How writers leave a ``with`` block that ends by an exception: nobody who wants out waits for items to be confirmed."""

from __future__ import annotations

import atexit
import logging
import sys

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
