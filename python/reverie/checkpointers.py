"""Where a server saves its tables, and begins with what was saved there (docs/checkpoints.md)."""

from __future__ import annotations

import abc
import os
import tempfile
from typing import Any

from reverie import _arguments, _core

__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer", "default_checkpointer"]


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
        The root; made when a checkpoint is first saved. A server that is given one begins with the newest whole checkpoint in it.
    group : str
        Reverb's; saving with one that is not empty is a ValueError.
    fallback_checkpoint_path : str or os.PathLike, optional
        One checkpoint's own directory, for servers that begin while the root has no checkpoint. One that cannot be used is passed over
        with a line in the log.
    keep : int
        So many of Reverie's newest checkpoints stay in the root. What others wrote always stays.
    level : int
        zlib's compression: 1 is fast, 9 is small, 0 none.

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
        level: int = 1,
    ) -> None:
        self.path = _path("path", path)
        self.group = group
        self.fallback_checkpoint_path = (
            None if fallback_checkpoint_path is None else _path("fallback_checkpoint_path", fallback_checkpoint_path)
        )
        if not isinstance(group, str):
            raise TypeError(f"group must be a str, got {group!r}")
        if not self.path:
            raise ValueError("path must name a directory; it is empty")
        self.keep = _arguments.positive("keep", keep, _arguments.MAX_INT32)
        self.level = _arguments.not_negative("level", level, 9)

    def internal_checkpointer(self) -> _core.Checkpointer | None:
        """See `CheckpointerBase`."""
        level = -1 if self.level == 0 else self.level
        return _core.Checkpointer(self.path, self.group, self.fallback_checkpoint_path or "", self.keep, level)

    def __repr__(self) -> str:
        fallback = (
            "" if self.fallback_checkpoint_path is None else f", fallback_checkpoint_path={self.fallback_checkpoint_path!r}"
        )
        return f"{type(self).__name__}(path={self.path!r}, group={self.group!r}{fallback})"


class TempDirCheckpointer(DefaultCheckpointer):
    """Checkpoints in a fresh temporary directory, which nobody removes."""

    def __init__(self) -> None:
        super().__init__(tempfile.mkdtemp(prefix="reverie-checkpoints-"))


def default_checkpointer(group: str | None = None) -> CheckpointerBase:
    """A `TempDirCheckpointer`, whatever the group."""
    del group
    return TempDirCheckpointer()


def _path(name: str, value: Any) -> str:
    try:
        path = os.fspath(value)
    except TypeError:
        raise TypeError(f"{name} must be a str or a path, got {value!r}") from None
    return os.fsdecode(path)
