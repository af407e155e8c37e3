"""The messages of checkpoints, and of the server program's configuration: Reverb's names, fields and wire form."""

from __future__ import annotations

from reverie._foreign_messages import StructuredValue
from reverie._messages import Field, Message, Repeated
from reverie.cc.schema_pb2 import KeyDistributionOptions, PrioritizedItem

__all__ = ["PriorityTableCheckpoint", "RateLimiterCheckpoint"]


class RateLimiterCheckpoint(Message, full_name="deepmind.reverb.RateLimiterCheckpoint"):
    """A rate limiter's parameters (see `reverie.rate_limiters.RateLimiter`) and counters."""

    FIELDS = (
        Field("samples_per_insert", 2, "double"),
        Field("min_diff", 3, "double"),
        Field("max_diff", 4, "double"),
        Field("min_size_to_sample", 5, "int64"),
        Field("sample_count", 6, "int64"),
        Field("insert_count", 7, "int64"),
        Field("delete_count", 8, "int64"),
    )
    samples_per_insert: float
    min_diff: float
    max_diff: float
    min_size_to_sample: int
    sample_count: int
    insert_count: int
    delete_count: int


class PriorityTableCheckpoint(Message, full_name="deepmind.reverb.PriorityTableCheckpoint"):
    """A table's settings and counters."""

    FIELDS = (
        Field("table_name", 1, "string"),
        Field("deprecated_items", 2, "message", None, PrioritizedItem, repeated=True),
        Field("rate_limiter", 3, "message", None, RateLimiterCheckpoint),
        Field("sampler", 4, "message", None, KeyDistributionOptions),
        Field("remover", 5, "message", None, KeyDistributionOptions),
        Field("max_size", 6, "int64"),
        Field("max_times_sampled", 7, "int32"),
        Field("num_deleted_episodes", 8, "int64"),
        Field("signature", 9, "message", None, StructuredValue),
        Field("num_unique_samples", 10, "int64"),
    )
    table_name: str
    deprecated_items: Repeated[PrioritizedItem]
    rate_limiter: RateLimiterCheckpoint
    sampler: KeyDistributionOptions
    remover: KeyDistributionOptions
    max_size: int
    max_times_sampled: int
    num_deleted_episodes: int
    signature: StructuredValue
    num_unique_samples: int
