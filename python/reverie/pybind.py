"""The names of Reverb's compiled layer that its users touch: the selectors' types, rows of a history, and what they are made from.

The writers, samplers, clients and servers of that layer have other constructors here; those who use them go through
`reverie.Client` and `reverie.Server`.
"""

from reverie._core import Checkpointer
from reverie._core import RowReference as WeakCellRef
from reverie.cc.schema_pb2 import KeyDistributionOptions
from reverie.extensions import Extension as TableExtension
from reverie.rate_limiters import RateLimiter
from reverie.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Selector, Uniform
from reverie.server_executable import server_from_proto

__all__ = [
    "Checkpointer",
    "FifoSelector",
    "HeapSelector",
    "ItemSelector",
    "LifoSelector",
    "PrioritizedSelector",
    "RateLimiter",
    "TableExtension",
    "UniformSelector",
    "WeakCellRef",
    "create_default_checkpointer",
    "selector_from_proto",
]

ItemSelector = Selector
FifoSelector = Fifo
LifoSelector = Lifo
UniformSelector = Uniform
PrioritizedSelector = Prioritized


def HeapSelector(min_heap: bool) -> MinHeap | MaxHeap:
    """A heap of the lowest, or of the highest, priority."""
    return MinHeap() if min_heap else MaxHeap()


def selector_from_proto(serialized: bytes) -> Selector:
    """The selector that a serialized `KeyDistributionOptions` describes.

    Raises
    ------
    ValueError, NotImplementedError
        It describes none.
    """
    return server_from_proto.selector_from_proto(KeyDistributionOptions.FromString(serialized))


def create_default_checkpointer(name: str, group: str = "", fallback_checkpoint_path: str | None = None) -> Checkpointer:
    """What `reverie.checkpointers.DefaultCheckpointer` gives a server: `name` is the root directory."""
    return Checkpointer(name, group, fallback_checkpoint_path or "")
