"""The trajectory writer: a stream of steps, and items that refer to any of the recent ones."""

from __future__ import annotations

import dataclasses
from typing import Any

from reverie import _arguments, _core, _leaving

__all__ = ["TrajectoryColumn", "TrajectoryWriter", "WriterStatus"]

TrajectoryColumn = _core.TrajectoryColumn


@dataclasses.dataclass(frozen=True)
class WriterStatus:
    """What became of a writer's items.

    Attributes
    ----------
    items_created, items_confirmed, items_in_flight, items_failed : int
    bytes_in_flight : int
        Of what was appended for items that are not confirmed.
    bytes_sent : int
        Encoded.
    reconnects : int
    state : str
        For people: ``"connected"``, ``"in process"``, or why it is not connected.
    """

    items_created: int
    items_confirmed: int
    items_in_flight: int
    items_failed: int
    bytes_in_flight: int
    bytes_sent: int
    reconnects: int
    state: str


def _milliseconds(timeout_ms: int | None) -> int | None:
    return None if timeout_ms is None else _arguments.clamped("timeout_ms", timeout_ms)


class TrajectoryWriter(_leaving.Block, _core.TrajectoryWriter):
    """Made by `Client.trajectory_writer`. Belongs to one thread at a time.

    Steps are appended as nests of arrays; `history` has the same nest of columns, and indexing those gives what
    `create_item` makes items of::

        with client.trajectory_writer(num_keep_alive_refs=3) as writer:
            for step in episode:
                writer.append({"obs": step.obs, "reward": step.reward})
                if writer.episode_steps >= 3:
                    last = {name: column[-3:] for name, column in writer.history.items()}
                    writer.create_item("replay", 1.0, last)
            writer.end_episode()

    Appending and creating items never waits. `flush` and `end_episode` wait until items are in their tables, and so does the
    end of the ``with`` block. An exception that leaves the block is not kept waiting: items get one second, and with
    KeyboardInterrupt, SystemExit and GeneratorExit none, for then the writer is closed; what is unconfirmed is logged. Errors of
    this package that are raised in the block leave it as it is. What is still unconfirmed at `close` or deletion is lost, and logged:
    call `flush` first.

    An item that the server refused is raised by the next call, once, and by every `flush`, `end_episode` and end of a ``with`` block
    until `discard_failed`. What no call has raised is a note of the exception that ends the block, and logged; so is it at `close` or
    deletion.
    """

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """Sends what is pending and waits until at most `block_until_num_items` items are unconfirmed.

        Parameters
        ----------
        block_until_num_items : int
        timeout_ms : int, optional
            Milliseconds; None, 0 and negative values wait for ever.

        Raises
        ------
        DeadlineExceededError
            The sentence says what it waits for; the items go on in the background.
        """
        keep = _arguments.integer("block_until_num_items", block_until_num_items)
        if keep < 0:
            raise ValueError(f"block_until_num_items must be >= 0, got {keep}")
        timeout = _milliseconds(timeout_ms)
        self._flush(min(keep, 2**32 - 1), None if timeout is None or timeout <= 0 else timeout / 1000)

    def end_episode(self, clear_buffers: bool = True, timeout_ms: int | None = None) -> None:
        """Flushes everything, then begins a new episode.

        Parameters
        ----------
        clear_buffers : bool
            Empties the history: rows are numbered from 0 again. Otherwise items may reach across the episode's border.
        timeout_ms : int, optional
            Milliseconds; None waits for ever, 0 and negative values do not wait at all.

        Raises
        ------
        DeadlineExceededError
            Nothing was reset: call again.
        """
        timeout = _milliseconds(timeout_ms)
        self._end_episode(bool(clear_buffers), None if timeout is None else max(timeout, 0) / 1000)

    def configure(self, path: tuple[Any, ...], *, num_keep_alive_refs: int, max_chunk_length: int | None) -> None:
        """Sets how one column is kept and sent, also before the column has come.

        Parameters
        ----------
        path : tuple
            Where the column is in the data: keys, indices, field names.
        num_keep_alive_refs : int
            Rows that items may still refer to; at least 1.
        max_chunk_length : int or None
            Rows sent together, from 1 to `num_keep_alive_refs`; None: chosen by the writer.

        Raises
        ------
        FailedPreconditionError
            Its `max_chunk_length` was given, and it has unfinished rows: flush, or end the episode, first.
        """
        keep = _arguments.positive("num_keep_alive_refs", num_keep_alive_refs, _arguments.MAX_INT32)
        length = 0
        if max_chunk_length is not None:
            length = _arguments.integer("max_chunk_length", max_chunk_length)
            if not 1 <= length <= keep:
                raise ValueError(f"max_chunk_length must be positive and at most num_keep_alive_refs ({keep}), got {length}")
        if not isinstance(path, tuple):
            raise TypeError(f"path must be a tuple of keys, indices and field names, such as ('obs', 0), got {path!r}")
        self._configure(path, (keep, length))

    def status(self) -> WriterStatus:
        """What became of the items so far. May be called from any thread."""
        return WriterStatus(**self._status())

    def _is_made(self) -> bool:
        return self._is_initialised

    def __reduce__(self) -> Any:
        raise TypeError("a TrajectoryWriter cannot be pickled; pickle its client and make a new one")
