"""`reverie.checkpointers`, where Reverb's users find it."""

from reverie.checkpointers import CheckpointerBase, DefaultCheckpointer, TempDirCheckpointer, default_checkpointer

__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer", "default_checkpointer"]
