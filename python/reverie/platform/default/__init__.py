"""See `reverie.platform`."""

from reverie.platform.default import checkpointers

__all__ = ["checkpointers"]
