"""Where a server saves its tables, and begins with what was saved there (docs/checkpoints.md)."""

from __future__ import annotations

import abc
import os
import tempfile

from reverie import _arguments, _core

__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer", "default_checkpointer", "export"]


class CheckpointerBase(metaclass=abc.ABCMeta):
    """What a `Server` takes as its checkpointer."""

    @abc.abstractmethod
    def internal_checkpointer(self) -> _core.Checkpointer | None:
        """The library's own checkpointer; None: the server saves no checkpoints, and asking for one is a ValueError."""


class DefaultCheckpointer(CheckpointerBase):
    """Checkpoints in a directory, each in one of its own that is named by the time.

    Parameters
    ----------
    path : str or os.PathLike
        The root; made when a checkpoint is first saved. A server that is given one begins with the newest whole checkpoint in it. One
        checkpoint's own directory, as `Client.checkpoint` returns it, is refused when the server is made (ValueError).
    group : str
        Reverb's; saving with one that is not empty is a ValueError.
    fallback_checkpoint_path : str or os.PathLike, optional
        One checkpoint's own directory, for servers that begin while the root has no checkpoint. One that cannot be used is passed over
        with a line in the log.
    keep : int
        So many of Reverie's newest checkpoints stay in the root. What others wrote always stays.
    level : int, optional
        zlib's compression: 1 is fast, 9 is small, 0 none. None: 1 where samples of the data shrink by a quarter, 0 elsewhere
        and for items.
    incremental : bool
        Each checkpoint writes only the chunks that the one before it has not, and shares that one's files for the others. Reverb does not
        read these: `export` makes one that it does. About 60 bytes of memory a chunk.
    required : bool
        A server never begins empty: where neither the root nor the fallback has a checkpoint (a volume that is not mounted, say), making
        it is a FailedPreconditionError, and nothing is made on the disk. False: a warning of the log says that it begins empty.

    Raises
    ------
    ValueError
        No path; a keep below 1; a level that is none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: str = "",
        fallback_checkpoint_path: str | os.PathLike[str] | None = None,
        *,
        keep: int = 1,
        level: int | None = None,
        incremental: bool = False,
        required: bool = False,
    ) -> None:
        self.path = _arguments.path("path", path)
        self.group = group
        self.fallback_checkpoint_path = (
            None if fallback_checkpoint_path is None else _arguments.path("fallback_checkpoint_path", fallback_checkpoint_path)
        )
        _arguments.text("group", group)
        if not self.path:
            raise ValueError("path must name a directory; it is empty")
        self.keep = _arguments.positive("keep", keep, _arguments.MAX_INT32)
        self.level = None if level is None else _arguments.not_negative("level", level, 9)
        self.incremental = bool(incremental)
        self.required = bool(required)
        self._fresh = False

    def internal_checkpointer(self) -> _core.Checkpointer | None:
        """See `CheckpointerBase`."""
        return _core.Checkpointer(
            self.path,
            self.group,
            self.fallback_checkpoint_path or "",
            self.keep,
            _raw_level(self.level),
            self.incremental,
            self.required,
            self._fresh,
        )

    def __repr__(self) -> str:
        fallback = (
            "" if self.fallback_checkpoint_path is None else f", fallback_checkpoint_path={self.fallback_checkpoint_path!r}"
        )
        return f"{type(self).__name__}(path={self.path!r}, group={self.group!r}{fallback})"


class TempDirCheckpointer(DefaultCheckpointer):
    """Checkpoints in a fresh temporary directory, which nobody removes."""

    def __init__(self) -> None:
        super().__init__(tempfile.mkdtemp(prefix="reverie-checkpoints-"))
        self._fresh = True


def default_checkpointer(group: str | None = None) -> CheckpointerBase:
    """A `TempDirCheckpointer`, whatever the group."""
    del group
    return TempDirCheckpointer()


def export(
    checkpoint: str | os.PathLike[str], path: str | os.PathLike[str], *, level: int | None = None, timeout: float | None = None
) -> str:
    """Makes a checkpoint of Reverb's format, which Reverb's servers read too, of one of either kind.

    Parameters
    ----------
    checkpoint : str or os.PathLike
        The directory of a whole checkpoint, as `reverie.Client.checkpoint` returned it.
    path : str or os.PathLike
        The root where the new one goes, under a name of its own; made where it is not there. Nothing in it is removed.
    level : int, optional
        As of `DefaultCheckpointer`.
    timeout : float, optional
        Seconds; None waits.

    Returns
    -------
    str
        The new checkpoint's directory.

    Raises
    ------
    NotFoundError
        No whole checkpoint is there.
    InvalidArgumentError
        `path` is the directory that the checkpoint is in, where the copy would be the newest.
    FailedPreconditionError
        A server's journal goes on from the newest checkpoint in `path`, whose place this one would take.
    DataLossError
        It is damaged.
    ResourceExhaustedError, PermissionDeniedError
        The disk is full, or may not be written to.
    DeadlineExceededError
        The timeout passed; nothing of it stays.
    """
    level = None if level is None else _arguments.not_negative("level", level, 9)
    return _core.Checkpointer(_arguments.path("path", path), level=_raw_level(level)).export(
        _arguments.path("checkpoint", checkpoint), timeout
    )


def _raw_level(level: int | None) -> int:
    """As the library has it: 0 where it pays, -1 none."""
    return 0 if level is None else level or -1
