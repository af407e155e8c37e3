"""An iterator of batches, or of samples, with a thread that draws ahead."""

from __future__ import annotations

import os
import queue
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Generic, NoReturn, Self, TypeVar

from reverie import _core
from reverie.errors import CancelledError, FailedPreconditionError

__all__ = ["BatchIterator"]

LOOK = 0.25  # seconds after which who waits looks whether a signal came that another thread took, which wakes nobody

Batch = TypeVar("Batch")


def _let_go_of_locals(error: BaseException) -> BaseException:
    """The same error, whose traceback refers to nothing of its frames' any more: one that waits to be taken would hold its drawer's
    client, and with it the iterator that is to be dropped."""
    errors, seen = [error], set()
    while errors:
        each = errors.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        errors += [other for other in (each.__cause__, each.__context__) if other is not None]
    return error


class _Drawer(Generic[Batch]):
    """What the thread and the iterator share. It knows nothing of the iterator, so that dropping that ends the thread."""

    def __init__(
        self, draw: Callable[[_core.Cancel], Batch], prefetch: int, give_up: Callable[[], None] | None, grace: float | None
    ) -> None:
        self.draw = draw
        self.give_up = give_up
        self.grace = grace
        self.results: queue.SimpleQueue[Batch | BaseException | None] = queue.SimpleQueue()
        self.cancel = _core.Cancel()
        self.prefetch = prefetch
        # One for each that was taken. No semaphore: it has a lock, which the call that a signal handler interrupts may hold.
        self.taken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.stopped = False
        self.ended = False
        self.process = os.getpid()
        self.drawing = threading.Lock()  # by the thread that draws, for good
        self.thread: threading.Thread | None = None  # that one

    def run(self) -> None:
        if not self.drawing.acquire(blocking=False):
            return
        self.thread = threading.current_thread()
        room = self.prefetch
        while True:
            if room > 0:
                room -= 1
            else:
                self.taken.get()
            if self.stopped:
                break
            try:
                self.results.put(self.draw(self.cancel))
            except StopIteration:
                break
            except CancelledError as error:
                if not self.stopped:
                    self.results.put(_let_go_of_locals(error))
                break
            except BaseException as error:
                self.results.put(_let_go_of_locals(error))
        self.ended = True
        self.results.put(None)  # wakes one who waits

    def next(self) -> Batch | BaseException | None:
        """The next batch or error; None, however often and by whomever it is asked: there are no more."""
        while not (self.stopped or (self.ended and self.results.empty())):
            try:
                result = self.results.get(timeout=LOOK)
            except queue.Empty:
                continue
            if result is not None:
                self.taken.put(None)
            return result
        return None

    def start(self) -> None:
        """Starts a thread, unless one draws; of several the first does, and the others end. So whoever asks for a batch gets on, also
        after a start that failed or that an exception ended, and in a signal handler that interrupts one."""
        if not self.drawing.locked():
            threading.Thread(target=self.run, name="reverie-batches", daemon=True).start()

    def stop(self) -> None:
        if self.process != os.getpid():  # a forked child: the thread is not here, and its locks may be held for ever
            return
        self.stopped = True
        self.cancel.fire()
        self.taken.put(None)
        if self.give_up is not None:
            self.give_up()
        thread = self.thread
        if thread is not None and thread.is_alive() and threading.current_thread() is not thread:
            thread.join(self.grace)


class BatchIterator(Generic[Batch]):
    """Made by `Client.batches`, `reverie.torch` and `reverie.jax`. Iterate over it; leave a ``with`` block of it,
    `close` it, or drop it to stop its thread.

    Parameters
    ----------
    draw : callable
        Draws one batch, and gives up with a `CancelledError` when the `Cancel` that it is called with fires. `StopIteration`: there are
        no more.
    prefetch : int
        Batches drawn ahead, at least 1.
    source : object
        What `draw` needs, and refers to weakly; it lives as long as the iterator.
    give_up : callable, optional
        Called when the thread is to stop: ends a wait of `draw` that its `Cancel` does not.
    grace : float, optional
        Seconds that stopping waits for the thread, where nothing ends what `draw` may wait for: the thread ends after it. None: as long
        as it takes.
    """

    def __init__(
        self,
        draw: Callable[[_core.Cancel], Batch],
        prefetch: int,
        source: object = None,
        *,
        give_up: Callable[[], None] | None = None,
        grace: float | None = None,
    ) -> None:
        if isinstance(prefetch, bool) or not isinstance(prefetch, int):
            raise TypeError(f"prefetch must be an integer, got {prefetch!r}")
        if prefetch < 1:
            raise ValueError(f"prefetch must be a positive integer, got {prefetch}")
        self._source = source
        self._drawer = _Drawer(draw, prefetch, give_up, grace)
        self._finalizer = weakref.finalize(self, self._drawer.stop)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an iterator of batches cannot be pickled: a thread draws ahead for it; make one in the other process")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if not self._finalizer.alive:
            raise StopIteration
        if self._drawer.process != os.getpid():
            raise FailedPreconditionError(
                f"the iterator was made in process {self._drawer.process} and does not work in this one ({os.getpid()}): its thread "
                "and the batches drawn ahead are not here; make a new client after fork"
            )
        self._drawer.start()
        result = self._drawer.next()
        if result is None:
            raise StopIteration
        if isinstance(result, BaseException):
            raise result
        return result

    def close(self) -> None:
        """Stops the thread, which gives up what it waits for. Idempotent."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
