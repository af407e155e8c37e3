"""Reverie: an experience replay store for machine learning.

A `Server` holds tables; actors write to them and learners sample from them through a `Client`, in the same process, on the
same machine or across machines::

    import numpy as np
    import reverie

    table = reverie.Table(
        name="replay",
        sampler=reverie.selectors.Prioritized(0.6),
        remover=reverie.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    server = reverie.Server([table], in_process=True)
    client = reverie.Client(server)
    client.add("replay", {"obs": np.zeros(4, np.float32), "reward": 1.0}, priority=2.0)
    batch = client.sample_batch("replay", 32)
    client.update_priorities("replay", batch.keys, np.ones(len(batch)))
"""

import importlib
import importlib.util
import sys
from typing import Any

from reverie import (
    cc,
    checkpointers,
    client,
    errors,
    extensions,
    nest,
    platform,
    rate_limiters,
    selectors,
    server,
    structured_writer,
)
from reverie import structured_writer as structured
from reverie._core import Cancel, ReplayBatch
from reverie._core import version as __version__
from reverie.batches import BatchIterator
from reverie.client import Client
from reverie.errors import (
    AbortedError,
    AddressInUseError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OpenPortWarning,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    ReverbError,
    ReverieError,
    StructureError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from reverie.journal import Journal, JournalInfo, JournalStats
from reverie.samples import ItemInfo, ReplaySample, SampleInfo
from reverie.security import TLS, Identity
from reverie.server import Server
from reverie.specs import BoundedTensorSpec, TensorSpec
from reverie.table import Table
from reverie.table_info import MemoryInfo, TableInfo
from reverie.trajectory_writer import TrajectoryColumn, TrajectoryWriter, WriterStatus
from reverie.transitions import Transitions
from reverie.writer import Writer

# What needs TensorFlow, and what few programs need, with where it is: imported when it is first asked for.
_LAZY = {
    "PatternDataset": "reverie.pattern_dataset",
    "TFClient": "reverie.tf_client",
    "TimestepDataset": "reverie.timestep_dataset",
    "TrajectoryDataset": "reverie.trajectory_dataset",
    "install_as_reverb": "reverie.as_reverb",
}
_LAZY_MODULES = (
    "item_selectors",
    "jax",
    "pattern_dataset",
    "pybind",
    "replay_sample",
    "reverb_types",
    "tf_client",
    "timestep_dataset",
    "torch",
    "trajectory_dataset",
)
_NEEDED = {  # by those of them that need a package which may not be there
    "PatternDataset": "tensorflow",
    "TFClient": "tensorflow",
    "TimestepDataset": "tensorflow",
    "TrajectoryDataset": "tensorflow",
    "jax": "jax",
    "pattern_dataset": "tensorflow",
    "tf_client": "tensorflow",
    "timestep_dataset": "tensorflow",
    "torch": "torch",
    "trajectory_dataset": "tensorflow",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return getattr(importlib.import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            if error.name == "tensorflow":
                error.msg += f"; reverie.{name} needs it: pip install tensorflow"
            raise
    if name in _LAZY_MODULES:
        return importlib.import_module(f"reverie.{name}")
    raise AttributeError(f"module 'reverie' has no attribute {name!r}")


def _can_be_had(name: str) -> bool:
    needed = _NEEDED.get(name)
    return needed is None or needed in sys.modules or importlib.util.find_spec(needed) is not None


def __dir__() -> list[str]:
    return sorted({*globals(), *filter(_can_be_had, (*_LAZY, *_LAZY_MODULES))})


__all__ = [
    "TLS",
    "AbortedError",
    "AddressInUseError",
    "AlreadyExistsError",
    "BatchIterator",
    "BoundedTensorSpec",
    "Cancel",
    "CancelledError",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "Identity",
    "InternalError",
    "InvalidArgumentError",
    "ItemInfo",
    "Journal",
    "JournalInfo",
    "JournalStats",
    "MemoryInfo",
    "NotFoundError",
    "OpenPortWarning",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ReplayBatch",
    "ReplaySample",
    "ResourceExhaustedError",
    "ReverbError",
    "ReverieError",
    "SampleInfo",
    "Server",
    "StructureError",
    "Table",
    "TableInfo",
    "TensorSpec",
    "TrajectoryColumn",
    "TrajectoryWriter",
    "Transitions",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "Writer",
    "WriterStatus",
    "__version__",
    "cc",
    "checkpointers",
    "client",
    "errors",
    "extensions",
    "item_selectors",
    "nest",
    "platform",
    "rate_limiters",
    "selectors",
    "server",
    "structured",
    "structured_writer",
]
