"""What can be read off a table: `TableInfo`."""

from __future__ import annotations

import dataclasses
from typing import Any

from reverie import _dtypes, _structured_value, rate_limiters, selectors
from reverie._protobuf import as_double, expect_bytes, expect_int, fields, signed
from reverie.specs import TensorSpec

__all__ = ["CallStats", "KeyDistributionOptions", "RateLimiterInfo", "TableInfo", "TableWorkerTime", "WaitingCaller"]


@dataclasses.dataclass
class HeapOptions:
    min_heap: bool = False


@dataclasses.dataclass
class PrioritizedOptions:
    priority_exponent: float = 0.0


@dataclasses.dataclass
class KeyDistributionOptions:
    """Which selector a table has; of the first five fields exactly one is set."""

    fifo: bool = False
    uniform: bool = False
    prioritized: PrioritizedOptions = dataclasses.field(default_factory=PrioritizedOptions)
    heap: HeapOptions = dataclasses.field(default_factory=HeapOptions)
    lifo: bool = False
    is_deterministic: bool = False
    distribution: str | None = None

    def WhichOneof(self, group: str) -> str | None:
        """The name of the field that is set, as protocol buffers spell the question."""
        if group != "distribution":
            raise ValueError(f'there is no oneof "{group}"')
        return self.distribution

    def HasField(self, name: str) -> bool:
        return name == self.distribution

    @classmethod
    def from_selector(cls, selector: selectors.Selector) -> KeyDistributionOptions:
        name = type(selector).__name__.lower()
        out = cls(is_deterministic=selector.is_deterministic)
        if name in ("maxheap", "minheap"):
            out.heap.min_heap, name = name == "minheap", "heap"
        elif name == "prioritized":
            out.prioritized.priority_exponent = selector.exponent
        else:
            setattr(out, name, True)
        out.distribution = name
        return out

    @classmethod
    def from_kind(cls, kind: int, exponent: float) -> KeyDistributionOptions:
        """Of a selector that was registered in C, no field is set. A plain Reverb server may have exponents that ours refuses."""
        if kind == selectors.Prioritized.kind:
            out = cls(distribution="prioritized")
            out.prioritized.priority_exponent = exponent
            return out
        try:
            return cls.from_selector(selectors.from_kind(kind, exponent))
        except ValueError:
            return cls()

    def to_selector(self) -> selectors.Selector:
        match self.distribution:
            case "fifo":
                return selectors.Fifo()
            case "lifo":
                return selectors.Lifo()
            case "uniform":
                return selectors.Uniform()
            case "heap":
                return selectors.MinHeap() if self.heap.min_heap else selectors.MaxHeap()
            case "prioritized":
                return selectors.Prioritized(self.prioritized.priority_exponent)
        raise ValueError("no selector is set")

    @classmethod
    def from_proto(cls, data: bytes) -> KeyDistributionOptions:
        out = cls()
        for number, value in fields(data):
            if number in (1, 2, 6):
                out.distribution = {1: "fifo", 2: "uniform", 6: "lifo"}[number]
                setattr(out, out.distribution, bool(value))
            elif number == 3:
                out.distribution = "prioritized"
                inner = dict(fields(expect_bytes(value)))
                out.prioritized.priority_exponent = as_double(inner[1]) if 1 in inner else 0.0
            elif number == 4:
                out.distribution = "heap"
                out.heap.min_heap = bool(dict(fields(expect_bytes(value))).get(1, 0))
            elif number == 7:
                out.is_deterministic = bool(value)
        return out


@dataclasses.dataclass
class CallStats:
    """completed: operations since the table was made or last reset."""

    completed: int = 0


@dataclasses.dataclass
class RateLimiterInfo:
    samples_per_insert: float = 0.0
    min_diff: float = 0.0
    max_diff: float = 0.0
    min_size_to_sample: int = 0
    insert_stats: CallStats = dataclasses.field(default_factory=CallStats)
    sample_stats: CallStats = dataclasses.field(default_factory=CallStats)

    def to_limiter(self) -> rate_limiters.RateLimiter:
        return rate_limiters.RateLimiter(self.samples_per_insert, self.min_size_to_sample, self.min_diff, self.max_diff)

    @classmethod
    def from_proto(cls, data: bytes) -> RateLimiterInfo:
        out = cls()
        for number, value in fields(data):
            if number in (1, 2, 3):
                setattr(out, ("samples_per_insert", "min_diff", "max_diff")[number - 1], as_double(value))
            elif number == 4:
                out.min_size_to_sample = signed(expect_int(value))
            elif number in (5, 6):
                stats = CallStats(signed(expect_int(dict(fields(expect_bytes(value))).get(2, 0))))
                setattr(out, "insert_stats" if number == 5 else "sample_stats", stats)
        return out


@dataclasses.dataclass
class TableWorkerTime:
    """How a table has spent its time, cumulative: nanoseconds, and as in Reverb whole milliseconds (`running_ms` ...).

    Of a plain Reverb server only the milliseconds are known.
    """

    running_ns: int = 0
    sampling_ns: int = 0
    inserting_ns: int = 0
    sleeping_ns: int = 0
    waiting_for_sampling_ns: int = 0
    waiting_for_inserts_ns: int = 0

    @property
    def running_ms(self) -> int:
        return self.running_ns // 1_000_000

    @property
    def sampling_ms(self) -> int:
        return self.sampling_ns // 1_000_000

    @property
    def inserting_ms(self) -> int:
        return self.inserting_ns // 1_000_000

    @property
    def sleeping_ms(self) -> int:
        return self.sleeping_ns // 1_000_000

    @property
    def waiting_for_sampling_ms(self) -> int:
        return self.waiting_for_sampling_ns // 1_000_000

    @property
    def waiting_for_inserts_ms(self) -> int:
        return self.waiting_for_inserts_ns // 1_000_000

    @classmethod
    def from_proto(cls, data: bytes) -> TableWorkerTime:
        known = (*range(1, 7), *range(1000, 1006))
        values = {number: signed(expect_int(value)) for number, value in fields(data) if number in known}
        return cls(*(values.get(999 + number, values.get(number, 0) * 1_000_000) for number in range(1, 7)))


@dataclasses.dataclass(frozen=True)
class WaitingCaller:
    """Somebody who waits for the table: what for, since when, and for how long still.

    Attributes
    ----------
    peer : str
    operation : str
        ``"insert"`` or ``"sample"``.
    reason : str
        ``"min size"``, ``"too many samples"``, ``"too many inserts"``, ``"turn"`` (others came first) or ``"empty"``.
    wanted : int
        Inserts or samples still wanted.
    waiting, remaining : float
        Seconds; `remaining` is infinite without a deadline.
    """

    peer: str
    operation: str
    reason: str
    wanted: int
    waiting: float
    remaining: float


@dataclasses.dataclass
class TableInfo:
    """A table's options and what happened to it since it was made or last reset.

    The fields up to `table_worker_time` are Reverb's; those after it are zero when a plain Reverb server answered.
    Rates are per second over the last ten seconds or so; `memory_bytes` counts the chunks that the table's items hold and its
    own books.
    """

    name: str
    sampler_options: KeyDistributionOptions
    remover_options: KeyDistributionOptions
    max_size: int
    max_times_sampled: int
    rate_limiter_info: RateLimiterInfo
    signature: Any
    current_size: int
    num_episodes: int
    num_deleted_episodes: int
    num_unique_samples: int
    table_worker_time: TableWorkerTime
    num_deletes: int = 0
    num_updates: int = 0
    inserts_per_second: float = 0.0
    samples_per_second: float = 0.0
    memory_bytes: int = 0
    min_priority: float = float("nan")
    max_priority: float = float("nan")
    num_waiting_inserts: int = 0
    num_waiting_samples: int = 0
    waiting: tuple[WaitingCaller, ...] = ()
    extensions: str = ""

    @classmethod
    def from_serialized_proto(cls, data: bytes) -> TableInfo:
        """From a serialized ``deepmind.reverb.TableInfo``; ValueError for what is none."""
        texts: dict[int, bytes] = {}
        numbers: dict[int, int] = {}
        for number, value in fields(data):
            if isinstance(value, bytes):
                texts[number] = value
            else:
                numbers[number] = signed(value)
        return cls(
            name=texts.get(8, b"").decode(),
            sampler_options=KeyDistributionOptions.from_proto(texts.get(1, b"")),
            remover_options=KeyDistributionOptions.from_proto(texts.get(2, b"")),
            max_size=numbers.get(3, 0),
            max_times_sampled=numbers.get(4, 0),
            rate_limiter_info=RateLimiterInfo.from_proto(texts.get(5, b"")),
            signature=_structured_value.decode(texts[6]) if 6 in texts else None,
            current_size=numbers.get(7, 0),
            num_episodes=numbers.get(9, 0),
            num_deleted_episodes=numbers.get(10, 0),
            num_unique_samples=numbers.get(11, 0),
            table_worker_time=TableWorkerTime.from_proto(texts.get(12, b"")),
        )


_REASONS = ("", "min size", "too many samples", "too many inserts", "turn", "empty")


def decode_signature(structure: bytes, specs: list[tuple[str, int, tuple[int, ...] | None]]) -> Any:
    """The signature's nest; where its encoding says nothing that we understand, the flat list of its specs; None for none."""
    if structure:
        try:
            return _structured_value.decode(structure)
        except ValueError:
            pass
    if not specs:
        return None
    return [
        TensorSpec(
            None if shape is None else tuple(None if size < 0 else size for size in shape), _dtypes.from_number(dtype), name
        )
        for name, dtype, shape in specs
    ]


def from_raw(raw: dict[str, Any]) -> TableInfo:
    """From what the C extension gives."""
    ratio, low, high, size = raw["rate_limiter"]
    limiter = RateLimiterInfo(ratio, low, high, size, CallStats(raw["inserts"]), CallStats(raw["samples"]))
    callers = tuple(
        WaitingCaller(peer, "insert" if is_insert else "sample", _REASONS[reason], wanted, waiting / 1e9, remaining)
        for peer, is_insert, reason, wanted, waiting, remaining in raw["waiting"]
    )
    return TableInfo(
        name=raw["name"],
        sampler_options=KeyDistributionOptions.from_kind(*raw["sampler"]),
        remover_options=KeyDistributionOptions.from_kind(*raw["remover"]),
        max_size=raw["max_size"],
        max_times_sampled=raw["max_times_sampled"],
        rate_limiter_info=limiter,
        signature=decode_signature(raw["structure"], raw["specs"]),
        current_size=raw["current_size"],
        num_episodes=raw["num_episodes"],
        num_deleted_episodes=raw["num_deleted_episodes"],
        num_unique_samples=raw["num_unique_samples"],
        table_worker_time=TableWorkerTime(*raw["times_ns"]),
        num_deletes=raw["deletes"],
        num_updates=raw["updates"],
        inserts_per_second=raw["inserts_per_second"],
        samples_per_second=raw["samples_per_second"],
        memory_bytes=raw["memory_bytes"],
        min_priority=raw["min_priority"],
        max_priority=raw["max_priority"],
        num_waiting_inserts=raw["num_waiting_inserts"],
        num_waiting_samples=raw["num_waiting_samples"],
        waiting=callers,
        extensions=raw["extensions"],
    )
