"""What can be read off a table: `TableInfo`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from reverie import _dtypes, _structured_value, selectors
from reverie.cc import schema_pb2
from reverie.cc.schema_pb2 import KeyDistributionOptions, RateLimiterInfo, TableWorkerTime
from reverie.specs import TensorSpec, shown

__all__ = ["MemoryInfo", "TableInfo", "WaitingCaller"]


def options_of(selector: selectors.Selector) -> KeyDistributionOptions:
    """The message that says which selector it is."""
    name = type(selector).__name__.lower()
    choice: Any = True
    if name in ("maxheap", "minheap"):
        name, choice = "heap", {"min_heap": name == "minheap"}
    elif name == "prioritized":
        choice = {"priority_exponent": selector.exponent}
    return KeyDistributionOptions(**{name: choice, "is_deterministic": selector.is_deterministic})


def options_of_kind(kind: int, exponent: float) -> KeyDistributionOptions:
    """Of a selector that was registered in C, no field is set. A plain Reverb server may have exponents that ours refuses."""
    if kind == selectors.Prioritized.kind:
        return KeyDistributionOptions(prioritized={"priority_exponent": exponent})
    try:
        return options_of(selectors.from_kind(kind, exponent))
    except ValueError:
        return KeyDistributionOptions()


def worker_time(nanoseconds: Sequence[int]) -> TableWorkerTime:
    """Of the six times in the order of the message's fields. Of a plain Reverb server only the milliseconds are known."""
    exact = [field.name for field in TableWorkerTime.FIELDS[6:]]
    rounded = [field.name for field in TableWorkerTime.FIELDS[:6]]
    return TableWorkerTime(
        **dict(zip(exact, nanoseconds, strict=True)),
        **{name: ns // 1_000_000 for name, ns in zip(rounded, nanoseconds, strict=True)},
    )


@dataclasses.dataclass(frozen=True)
class WaitingCaller:
    """Somebody who waits for the table: what for, since when, and for how long still. One call, or one writer's stream, is one caller,
    however many inserts of it wait: `waiting` is of the oldest.

    Attributes
    ----------
    peer : str
    operation : str
        ``"insert"``, ``"sample"``, or ``"change"``: a call that changed the table otherwise (priorities, deletions, a reset, its
        limits), whose answer waits for the journal.
    reason : str
        ``"min size"``, ``"too many samples"``, ``"too many inserts"``, ``"turn"`` (others came first), ``"empty"``,
        ``"journal"`` (too much waits for its disk, or a confirmation has for a second) or ``"memory"`` (the server's is near its
        limit).
    wanted : int
        Inserts or samples still wanted, as far as the server has them; of a change: 1.
    waiting, remaining : float
        Seconds; `remaining` until the deadline that the table was told: infinite without one, and for what only its caller
        bounds (a writer's items, a remote iterator).
    """

    peer: str
    operation: str
    reason: str
    wanted: int
    waiting: float
    remaining: float


@dataclasses.dataclass(frozen=True)
class MemoryInfo:
    """What a server's tables, streams and connections take, in bytes. All zero from a plain Reverb server.

    Attributes
    ----------
    used : int
        What `limit` bounds: of all tables, a chunk once whoever refers to it, with their books, and what streams have brought.
    limit : int
        The server's `memory_limit`; 0: none.
    streams : int
        Of `used`, about: what insert streams, and inserts under way, keep for items to come.
    connections : int
        Besides: messages that are half received, or that wait to be read by their clients.
    spilled : int
        Besides: in the server's spill file.
    spill_fault : str
        What keeps more rows from going there, while memory is short: a full disk, or that the rest cannot; empty: nothing.
    """

    used: int
    limit: int
    streams: int
    connections: int
    spilled: int
    spill_fault: str = ""


@dataclasses.dataclass
class TableInfo:
    """A table's options and what happened to it since it was made or last reset.

    The fields up to `table_worker_time` are Reverb's; those after it are zero when a plain Reverb server answered.
    Rates are per second over the last ten seconds or so; `memory_bytes` counts the chunks that the table's items hold and its
    own books, `item_bytes` those of them that go with the items, which is what `max_bytes` bounds (0: no bound).
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
    max_bytes: int = 0
    item_bytes: int = 0

    @classmethod
    def from_serialized_proto(cls, proto_string: bytes) -> TableInfo:
        """From a serialized ``deepmind.reverb.TableInfo``; ValueError for what is none."""
        message = schema_pb2.TableInfo.FromString(proto_string)
        times = message.table_worker_time
        return cls(
            name=message.name,
            sampler_options=message.sampler_options,
            remover_options=message.remover_options,
            max_size=message.max_size,
            max_times_sampled=message.max_times_sampled,
            rate_limiter_info=message.rate_limiter_info,
            signature=shown(message.signature.decode()) if message.HasField("signature") else None,
            current_size=message.current_size,
            num_episodes=message.num_episodes,
            num_deleted_episodes=message.num_deleted_episodes,
            num_unique_samples=message.num_unique_samples,
            table_worker_time=worker_time(
                [
                    getattr(times, exact.name) or getattr(times, rounded.name) * 1_000_000
                    for rounded, exact in zip(TableWorkerTime.FIELDS[:6], TableWorkerTime.FIELDS[6:], strict=True)
                ]
            ),
        )


_OPERATIONS = ("insert", "sample", "change")
_REASONS = ("", "min size", "too many samples", "too many inserts", "turn", "empty", "journal", "memory")


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
    limiter = RateLimiterInfo(
        samples_per_insert=ratio,
        min_diff=low,
        max_diff=high,
        min_size_to_sample=size,
        insert_stats={"completed": raw["inserts"]},
        sample_stats={"completed": raw["samples"]},
    )
    callers = tuple(
        WaitingCaller(peer, _OPERATIONS[operation], _REASONS[reason], wanted, waiting / 1e9, remaining)
        for peer, operation, reason, wanted, waiting, remaining in raw["waiting"]
    )
    return TableInfo(
        name=raw["name"],
        sampler_options=options_of_kind(*raw["sampler"]),
        remover_options=options_of_kind(*raw["remover"]),
        max_size=raw["max_size"],
        max_times_sampled=raw["max_times_sampled"],
        rate_limiter_info=limiter,
        signature=shown(decode_signature(raw["structure"], raw["specs"])),
        current_size=raw["current_size"],
        num_episodes=raw["num_episodes"],
        num_deleted_episodes=raw["num_deleted_episodes"],
        num_unique_samples=raw["num_unique_samples"],
        table_worker_time=worker_time(raw["times_ns"]),
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
        max_bytes=raw["max_bytes"],
        item_bytes=raw["item_bytes"],
    )
