"""The messages of data and tables: Reverb's names, fields and wire form.

What Reverie says beyond them (docs/protocol.md) is kept and passed on with a message that has it, but has no attributes, except for
what `reverie.TableInfo` shows.
"""

from __future__ import annotations

from reverie._foreign_messages import StructuredValue, TensorProto, Timestamp
from reverie._messages import Field, Message, Numbers, Repeated

__all__ = [
    "ChunkData",
    "FlatTrajectory",
    "KeyDistributionOptions",
    "KeyWithPriority",
    "PrioritizedItem",
    "RateLimiterCallStats",
    "RateLimiterInfo",
    "SampleInfo",
    "SequenceRange",
    "SliceRange",
    "TableInfo",
    "TableWorkerTime",
    "Timeout",
    "Uint128",
]


# ---- data ----


class SequenceRange(Message, full_name="deepmind.reverb.SequenceRange"):
    """Which steps of an episode a chunk's rows are; `end` is the last one, and `sparse` says that some between have no row."""

    FIELDS = (
        Field("episode_id", 1, "uint64"),
        Field("start", 2, "int32"),
        Field("end", 3, "int32"),
        Field("sparse", 4, "bool"),
    )
    episode_id: int
    start: int
    end: int
    sparse: bool


class ChunkData(Message, full_name="deepmind.reverb.ChunkData"):
    """A run of rows of one or more columns."""

    class Data(Message, full_name="deepmind.reverb.ChunkData.Data"):
        """A chunk's columns."""

        FIELDS = (Field("tensors", 1, "message", None, TensorProto, repeated=True),)
        tensors: Repeated[TensorProto]

    FIELDS = (
        Field("chunk_key", 1, "uint64"),
        Field("sequence_range", 2, "message", None, SequenceRange),
        Field("deprecated_data", 3, "message", None, TensorProto, repeated=True),
        Field("delta_encoded", 4, "bool"),
        Field("data", 5, "message", None, Data),
        Field("data_tensors_len", 6, "int32"),
        Field("data_uncompressed_size", 7, "int64"),
    )
    chunk_key: int
    sequence_range: SequenceRange
    deprecated_data: Repeated[TensorProto]
    delta_encoded: bool
    data: Data
    data_tensors_len: int
    data_uncompressed_size: int


class SliceRange(Message, full_name="deepmind.reverb.SliceRange"):
    """Rows from `offset` on."""

    FIELDS = (Field("offset", 1, "int32"), Field("length", 2, "int32"))
    offset: int
    length: int


class ChunkSlice(Message, full_name="deepmind.reverb.FlatTrajectory.ChunkSlice"):
    """Rows of the chunk's column `index`."""

    FIELDS = (
        Field("chunk_key", 1, "uint64"),
        Field("offset", 2, "int32"),
        Field("length", 3, "int32"),
        Field("index", 4, "int32"),
    )
    chunk_key: int
    offset: int
    length: int
    index: int


class FlatTrajectory(Message, full_name="deepmind.reverb.FlatTrajectory"):
    """Where an item's columns are."""

    ChunkSlice = ChunkSlice

    class Column(Message, full_name="deepmind.reverb.FlatTrajectory.Column"):
        """An item's column: slices one behind another; `squeeze` for one row without a time dimension."""

        FIELDS = (Field("chunk_slices", 1, "message", None, ChunkSlice, repeated=True), Field("squeeze", 2, "bool"))
        chunk_slices: Repeated[ChunkSlice]
        squeeze: bool

    FIELDS = (Field("columns", 1, "message", None, Column, repeated=True),)
    columns: Repeated[Column]


class PrioritizedItem(Message, full_name="deepmind.reverb.PrioritizedItem"):
    """An item of a table."""

    FIELDS = (
        Field("key", 1, "uint64"),
        Field("table", 2, "string"),
        Field("deprecated_chunk_keys", 3, "uint64", repeated=True),
        Field("deprecated_sequence_range", 4, "message", None, SliceRange),
        Field("priority", 5, "double"),
        Field("times_sampled", 6, "int32"),
        Field("inserted_at", 7, "message", None, Timestamp),
        Field("flat_trajectory", 8, "message", None, FlatTrajectory),
    )
    key: int
    table: str
    deprecated_chunk_keys: Numbers
    deprecated_sequence_range: SliceRange
    priority: float
    times_sampled: int
    inserted_at: Timestamp
    flat_trajectory: FlatTrajectory


class KeyWithPriority(Message, full_name="deepmind.reverb.KeyWithPriority"):
    """A priority to be."""

    FIELDS = (Field("key", 1, "uint64"), Field("priority", 2, "double"))
    key: int
    priority: float


class SampleInfo(Message, full_name="deepmind.reverb.SampleInfo"):
    """What is known of a sampled item at its draw."""

    FIELDS = (
        Field("item", 1, "message", None, PrioritizedItem),
        Field("probability", 2, "double"),
        Field("table_size", 3, "int64"),
        Field("rate_limited", 4, "bool"),
    )
    item: PrioritizedItem
    probability: float
    table_size: int
    rate_limited: bool


# ---- tables ----


class KeyDistributionOptions(Message, full_name="deepmind.reverb.KeyDistributionOptions"):
    """Which selector a table has: one of the group ``distribution``, or none where it was registered in C."""

    class Prioritized(Message, full_name="deepmind.reverb.KeyDistributionOptions.Prioritized"):
        """With a probability proportional to priority**priority_exponent."""

        FIELDS = (Field("priority_exponent", 1, "double"),)
        priority_exponent: float

    class Heap(Message, full_name="deepmind.reverb.KeyDistributionOptions.Heap"):
        """The lowest priority, or the highest."""

        FIELDS = (Field("min_heap", 1, "bool"),)
        min_heap: bool

    FIELDS = (
        Field("fifo", 1, "bool", "distribution"),
        Field("uniform", 2, "bool", "distribution"),
        Field("prioritized", 3, "message", "distribution", Prioritized),
        Field("heap", 4, "message", "distribution", Heap),
        Field("lifo", 6, "bool", "distribution"),
        Field("is_deterministic", 7, "bool"),
    )
    fifo: bool
    uniform: bool
    prioritized: Prioritized
    heap: Heap
    lifo: bool
    is_deterministic: bool


class RateLimiterCallStats(Message, full_name="deepmind.reverb.RateLimiterCallStats"):
    """completed: operations since the table was made or last reset."""

    FIELDS = (Field("completed", 2, "int64"),)
    completed: int


class RateLimiterInfo(Message, full_name="deepmind.reverb.RateLimiterInfo"):
    """A rate limiter's parameters and what went through it."""

    FIELDS = (
        Field("samples_per_insert", 1, "double"),
        Field("min_diff", 2, "double"),
        Field("max_diff", 3, "double"),
        Field("min_size_to_sample", 4, "int64"),
        Field("insert_stats", 5, "message", None, RateLimiterCallStats),
        Field("sample_stats", 6, "message", None, RateLimiterCallStats),
    )
    samples_per_insert: float
    min_diff: float
    max_diff: float
    min_size_to_sample: int
    insert_stats: RateLimiterCallStats
    sample_stats: RateLimiterCallStats


class TableWorkerTime(Message, full_name="deepmind.reverb.TableWorkerTime"):
    """How a table has spent its time, cumulative: whole milliseconds as in Reverb, and nanoseconds."""

    FIELDS = (
        Field("running_ms", 1, "int64"),
        Field("sampling_ms", 2, "int64"),
        Field("inserting_ms", 3, "int64"),
        Field("sleeping_ms", 4, "int64"),
        Field("waiting_for_sampling_ms", 5, "int64"),
        Field("waiting_for_inserts_ms", 6, "int64"),
        Field("running_ns", 1000, "int64"),
        Field("sampling_ns", 1001, "int64"),
        Field("inserting_ns", 1002, "int64"),
        Field("sleeping_ns", 1003, "int64"),
        Field("waiting_for_sampling_ns", 1004, "int64"),
        Field("waiting_for_inserts_ns", 1005, "int64"),
    )
    running_ms: int
    sampling_ms: int
    inserting_ms: int
    sleeping_ms: int
    waiting_for_sampling_ms: int
    waiting_for_inserts_ms: int
    running_ns: int
    sampling_ns: int
    inserting_ns: int
    sleeping_ns: int
    waiting_for_sampling_ns: int
    waiting_for_inserts_ns: int


class TableInfo(Message, full_name="deepmind.reverb.TableInfo"):
    """A table's options and what happened to it; `reverie.TableInfo` is what calls return."""

    FIELDS = (
        Field("sampler_options", 1, "message", None, KeyDistributionOptions),
        Field("remover_options", 2, "message", None, KeyDistributionOptions),
        Field("max_size", 3, "int64"),
        Field("max_times_sampled", 4, "int32"),
        Field("rate_limiter_info", 5, "message", None, RateLimiterInfo),
        Field("signature", 6, "message", None, StructuredValue),
        Field("current_size", 7, "int64"),
        Field("name", 8, "string"),
        Field("num_episodes", 9, "int64"),
        Field("num_deleted_episodes", 10, "int64"),
        Field("num_unique_samples", 11, "int64"),
        Field("table_worker_time", 12, "message", None, TableWorkerTime),
    )
    sampler_options: KeyDistributionOptions
    remover_options: KeyDistributionOptions
    max_size: int
    max_times_sampled: int
    rate_limiter_info: RateLimiterInfo
    signature: StructuredValue
    current_size: int
    name: str
    num_episodes: int
    num_deleted_episodes: int
    num_unique_samples: int
    table_worker_time: TableWorkerTime


class Uint128(Message, full_name="deepmind.reverb.Uint128"):
    """Which server it is."""

    FIELDS = (Field("high", 1, "uint64"), Field("low", 2, "uint64"))
    high: int
    low: int


class Timeout(Message, full_name="deepmind.reverb.Timeout"):
    """How long to wait."""

    FIELDS = (Field("milliseconds", 1, "int64"),)
    milliseconds: int
