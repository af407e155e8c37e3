"""The message that configures the server program: Reverb's name, fields and wire form."""

from __future__ import annotations

from reverie._messages import Field, Message, Repeated
from reverie.cc.checkpointing.checkpoint_pb2 import PriorityTableCheckpoint

__all__ = ["ReverbServerConfig"]


class ReverbServerConfig(Message, full_name="deepmind.reverb.ReverbServerConfig"):
    """Tables, and the port to listen on; 0: any free one."""

    FIELDS = (Field("tables", 1, "message", None, PriorityTableCheckpoint, repeated=True), Field("port", 2, "int32"))
    tables: Repeated[PriorityTableCheckpoint]
    port: int
