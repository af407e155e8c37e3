"""Modules that Reverb keeps here, under the names that its users know."""

from reverie.platform import checkpointers_lib, default

__all__ = ["checkpointers_lib", "default"]
