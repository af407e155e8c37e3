"""Log lines of the C library, as records of the logger "reverie"."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator

_log = logging.getLogger("reverie")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_FORK_SECONDS = 1.0  # that a fork waits for handlers at most
_handling = threading.RLock()  # a line; and a fork, between two lines
_forking = threading.local()


def wants_debug() -> bool:
    """Is the logger to have lines of level DEBUG? The library does not even make them otherwise."""
    return _log.isEnabledFor(logging.DEBUG)


@contextlib.contextmanager
def told_before_it_ends() -> Iterator[None]:
    """What is logged in the block was handled when it ends, unless handlers are slow."""
    from reverie import _core

    try:
        yield
    finally:
        _core.settle_log()


def begin() -> None:
    """Called once in each process, before its first line can be said."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing import util

        # Children of multiprocessing mostly end by os._exit, without atexit. The log is not closed: threads of theirs may go on.
        util.Finalize(None, _settle, exitpriority=-100)


def _settle() -> None:
    from reverie import _core

    with contextlib.suppress(KeyboardInterrupt):  # who presses Ctrl-C now wants the end, which comes
        _core.settle_log()


def start() -> None:
    """Begins to hand over lines, in a thread that ends when there are no more."""
    try:
        threading.Thread(target=_hand_over, name="reverie-log", daemon=True).start()
    except RuntimeError:  # there are too many; or the program ends, from Python 3.12 on
        _hand_over()


def _hand_over() -> None:
    from reverie import _core

    while (said := _core.take_log()) is not None:
        level, line, dropped, dropped_level = said
        with _handling:
            if dropped > 0:
                text = f"{dropped} lines of the log were dropped here: they came faster than they were handled"
                _tell(_LEVELS[dropped_level], text)  # whoever would not have had them does not miss them
            _tell(_LEVELS[level], line)


def _tell(level: int, line: str) -> None:
    try:
        _log.log(level, "%s", line)
    except BaseException:  # of somebody's filter, say: the lines after it are told all the same
        try:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        except BaseException:
            with contextlib.suppress(BaseException):
                sys.excepthook(*sys.exc_info())


@atexit.register
def _close() -> None:
    from reverie import _core

    with contextlib.suppress(KeyboardInterrupt):  # who presses Ctrl-C now wants the end, which comes
        _core.close_log()


# Of a stream that another thread writes to just then, a forked child has the lock for ever: to print one line there it would wait
# without end. Python makes those of logging anew, and not those of streams. So no line of ours is at a handler while a process forks.


def _before_fork() -> None:
    _forking.between_lines = _handling.acquire(timeout=_FORK_SECONDS)


def _after_fork() -> None:
    if _forking.between_lines:
        _handling.release()


def _after_fork_in_child() -> None:
    global _handling
    if _forking.between_lines:
        _handling.release()
    else:
        _handling = threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
