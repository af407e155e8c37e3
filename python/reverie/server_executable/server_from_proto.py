"""Tables from the messages that configure the server program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from reverie import rate_limiters, selectors
from reverie._messages import convert
from reverie.cc.checkpointing.checkpoint_pb2 import PriorityTableCheckpoint, RateLimiterCheckpoint
from reverie.cc.schema_pb2 import KeyDistributionOptions
from reverie.table import Table

__all__ = ["rate_limiter_from_proto", "selector_from_proto", "tables_from_proto"]

T = TypeVar("T")


def selector_from_proto(s: KeyDistributionOptions) -> selectors.Selector:
    """The selector that the message asks for.

    Raises
    ------
    ValueError
        ``fifo: false`` and the like; an exponent that is no finite number.
    NotImplementedError
        It asks for none.
    """
    options = convert(KeyDistributionOptions, s)
    which = options.WhichOneof("distribution")
    if which is None:
        raise NotImplementedError(
            "no selector is asked for; it takes one of fifo: true, lifo: true, uniform: true, heap {min_heap: true} and "
            "prioritized {priority_exponent: 0.6}"
        )
    if which == "heap":
        return selectors.MinHeap() if options.heap.min_heap else selectors.MaxHeap()
    if which == "prioritized":
        return selectors.Prioritized(options.prioritized.priority_exponent)
    if not getattr(options, which):
        raise ValueError(f"{which}: the boolean value is false, which asks for nothing; {which}: true asks for that selector")
    return {"fifo": selectors.Fifo, "lifo": selectors.Lifo, "uniform": selectors.Uniform}[which]()


def rate_limiter_from_proto(proto: RateLimiterCheckpoint) -> rate_limiters.RateLimiter:
    """The limiter with these parameters; the counters are not looked at.

    Raises
    ------
    ValueError
        Parameters out of range. What the message leaves out is 0, which is none for samples_per_insert and min_size_to_sample.
    """
    given = convert(RateLimiterCheckpoint, proto)
    return rate_limiters.RateLimiter(given.samples_per_insert, given.min_size_to_sample, given.min_diff, given.max_diff)


def tables_from_proto(configs: Sequence[PriorityTableCheckpoint]) -> Sequence[Table]:
    """The tables, empty. Items, counters and signatures of the messages are not looked at.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        As those of `selector_from_proto`, `rate_limiter_from_proto` and `reverie.Table`; the text says which table and field.
    """
    return [
        table_from_proto(convert(PriorityTableCheckpoint, config), lambda field, i=i: f"tables[{i}].{field}")  # type: ignore[misc]
        for i, config in enumerate(configs)
    ]


def table_from_proto(config: PriorityTableCheckpoint, place: Callable[[str], str]) -> Table:
    """One table. `place` says where a field stands, for errors."""

    def made(field: str, make: Callable[[Any], T]) -> T:
        try:
            return make(getattr(config, field))
        except (ValueError, TypeError, NotImplementedError) as error:
            raise type(error)(f"{place(field)}: {error}") from None

    sampler = made("sampler", selector_from_proto)
    remover = made("remover", selector_from_proto)
    limiter = made("rate_limiter", rate_limiter_from_proto)
    made("table_name", lambda name: Table(name, sampler, remover, 1, limiter))
    return made(
        "max_size", lambda size: Table(config.table_name, sampler, remover, size, limiter, max(config.max_times_sampled, 0))
    )
