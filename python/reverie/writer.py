"""The legacy step writer: items are the last n steps, all columns alike."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

from reverie import _arguments, _core, _leaving, nest
from reverie._unmade import set_by_init
from reverie.errors import DeadlineExceededError, FailedPreconditionError, InvalidArgumentError, ReverieError

if TYPE_CHECKING:
    from reverie.client import Client

__all__ = ["Writer"]


class Writer(_leaving.Block):
    """Made by `Client.writer`. Belongs to one thread at a time; its life is one episode.

    `TrajectoryWriter` does all this and more; new code has no reason to use this one.

    Leaving its ``with`` block waits until all items are confirmed, and closes it. An exception that leaves the block is not
    kept waiting: items get one second, and with KeyboardInterrupt, SystemExit and GeneratorExit none; what is unconfirmed then
    is given up and logged. So it is with a writer that is dropped without `close`. What the server refused and no call has raised is
    logged, and a note of that exception.

    Each `timeout` is in seconds; None, the default, waits for ever. `DeadlineExceededError` says what was waited for.
    """

    _ends_with_block = True
    _writer: _core.StepWriter = set_by_init()

    def __init__(
        self,
        client: Client,
        max_sequence_length: int,
        delta_encoded: bool,
        chunk_length: int,
        max_in_flight_items: int,
        timeout: float | None = None,
    ) -> None:
        self._client = client
        self._description = (
            f"chunk_length={chunk_length}, max_timesteps={max_sequence_length}, delta_encoded={int(delta_encoded)}, "
            f"max_in_flight_items={max_in_flight_items}"
        )
        self._created_items = False
        self._writer = _core.StepWriter(client, max_sequence_length, chunk_length, max_in_flight_items, delta_encoded, timeout)

    def append(self, data: Any, *, timeout: float | None = None) -> None:
        """Adds one step; waits only while 64 MiB are unconfirmed.

        Raises
        ------
        ValueError
            Another number of leaves, another dtype or shape than the steps before, within a chunk. Where a chunk begins, which is
            after `chunk_length` steps and after a `flush` that found items waiting, a step may differ from those before it; but
            no item may have both.
        TypeError
            A leaf that cannot be stored, with its path.
        """
        leaves, structure = self._flatten(data)
        self._writer.append(leaves, structure, timeout)

    def append_sequence(self, sequence: Any, *, timeout: float | None = None) -> None:
        """Adds T steps at once: every leaf is an array [T, ...], T at least 1. At the timeout the steps before stay."""
        leaves, structure = self._flatten(sequence)
        self._writer.append_sequence(leaves, structure, timeout)

    def _flatten(self, data: Any) -> tuple[list[Any], nest.Structure]:
        where: Exception | None = None
        before = self._writer.structure
        if before is not None:
            try:
                return before.flatten(data), before
            except ValueError as error:
                where = error
        structure = nest.Structure(data)
        if before is not None and len(structure) != len(before):
            if self._writer.closed:  # that is why
                raise FailedPreconditionError("a step for a Writer after Close has been called; make a new one")
            if not self._writer.begins_chunk:
                raise InvalidArgumentError(
                    f"the step is inconsistent with those before it in its chunk, which have {len(before)} leaves: {where}"
                )
        return structure.flatten(data), structure

    def create_item(self, table: str, num_timesteps: int, priority: float, *, timeout: float | None = None) -> None:
        """Makes an item of the last `num_timesteps` steps; waits while more than max_in_flight_items are unconfirmed.

        Raises
        ------
        DeadlineExceededError
            The item is made and stays queued: do not make it again.
        ResourceExhaustedError
            The item is not made: what earlier calls that timed out left queued is over 64 MiB, and was not confirmed in time; or
            another thread was in a call of this writer for so long.
        ValueError
            More steps than were appended or are kept, steps with other leaves, dtypes or shapes among them, a NaN priority, no
            such table, columns that do not fit its signature.
        """
        steps = _arguments.integer("num_timesteps", num_timesteps)
        if not 1 <= steps < 2**32:
            raise InvalidArgumentError(f"num_timesteps must be a positive integer, got {steps}")
        try:
            self._writer.create_item(table, steps, priority, self._writer.structure, timeout)
        except (DeadlineExceededError, KeyboardInterrupt):
            self._created_items = True
            raise
        self._created_items = True
        structure = self._writer.structure
        if structure is not None:
            self._client._remember(table, structure)

    def flush(self, *, timeout: float | None = None) -> None:
        """Sends pending items without waiting for them; with none pending, waits until all are confirmed."""
        self._writer.flush(timeout)

    def discard_failed(self) -> int:
        """Forgets items that the server refused, so that `flush` waits for the others again. Returns how many.

        Such an item's error is raised by the next call, once, and by every `flush` that waits for all items, and the end of the
        ``with`` block, until then; by `close` only if no call has raised it.
        """
        return self._writer.discard_failed()

    def close(self, retry_on_unavailable: bool = True, *, timeout: float | None = None) -> None:
        """Sends what is pending, waits until all of it is confirmed or refused, and closes; then raises a refusal that no call has.

        Parameters
        ----------
        retry_on_unavailable : bool
            False: gives up, silently, when the server is not there.
        timeout : float, optional
            None: no end, but beside an item that was refused the others have a second. When it runs out, the writer is closed
            nevertheless, and what was not confirmed is lost with it; not so if it runs out because another thread is in a call of
            this writer.
        """
        try:
            self._writer.close(retry_on_unavailable, timeout)
        except BaseException as error:
            _leaving.tell_refused(self._writer.take_failure(), f"left by {type(error).__name__}", error)
            raise

    def __enter__(self) -> Self:
        if self._writer.closed:
            raise InvalidArgumentError("a closed Writer cannot be entered; make a new one")
        return self

    def _is_over(self) -> bool:
        return self._writer.closed

    def _finish(self) -> None:
        self.flush()
        self.flush()  # of what the first has only sent
        self.close()

    def _settle(self, timeout: float | None, /) -> None:
        self._writer.settle(True, timeout)

    def _take_failure(self) -> str | None:
        return self._writer.take_failure()

    def _abandon(self) -> int:
        return self._writer.abandon()

    def __del__(self) -> None:
        if not getattr(self, "_created_items", False) or self._writer.closed or self._outlives_modules():
            return
        if _leaving.ends_by_ctrl_c():
            self._give_up(KeyboardInterrupt)
            return
        text = "a reverie.Writer was dropped without close(); its last items get one second"
        warnings.warn(text, ResourceWarning, stacklevel=2)
        why: object = "no server answers"
        try:
            self._writer.settle(False, _leaving.GRACE)
        except ReverieError as error:
            why = error
        _leaving.tell_dropped(self._writer.abandon(), why)
        _leaving.tell_refused(self._writer.take_failure(), "dropped")

    def __repr__(self) -> str:
        closed = self._writer.closed
        return (
            f"Writer({self._description}, episode_id={self._writer.episode_id}, "
            f"index_within_episode={self._writer.num_steps}, closed={int(closed)}), closed: {closed}"
        )

    def __reduce__(self) -> Any:
        raise TypeError("a Writer cannot be pickled; pickle its client and make a new one")
