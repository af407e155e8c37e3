"""Tables: what a server is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reverie import _arguments, _dtypes, _structured_value, extensions, nest, selectors, specs, table_info
from reverie import rate_limiters as limiters
from reverie._unmade import set_by_init
from reverie.cc.schema_pb2 import RateLimiterInfo, TableWorkerTime
from reverie.table_info import TableInfo, options_of

if TYPE_CHECKING:
    from reverie import _core
    from reverie._latch import Latch

__all__ = ["Table"]


def _integer(name: str, value: Any) -> int:
    number = _arguments.integer(name, value)
    if abs(number) > _arguments.MAX_INT32:
        raise TypeError(f"{name} must be below 2**31, got {value!r}")
    return number


class Table:
    """A table: a description until a `Server` is made of it, and a window into the server's memory from then on.

    Parameters
    ----------
    name : str
        Not empty.
    sampler, remover : reverie.selectors.Selector
        How items are chosen to be sampled, and to go when the table is full.
    max_size : int
        Items; at least 1.
    rate_limiter : reverie.rate_limiters.RateLimiter
        When inserts and samples may proceed.
    max_times_sampled : int
        An item goes when it was sampled so often; below 1: no bound.
    extensions : sequence of str, reverie.extensions.Extension or reverie.extensions.TableExtensionBase
        What the table does besides; a string may carry options: ``"diffusion:steps=5,decay=0.7"``.
    signature : nest of reverie.TensorSpec, optional
        What the items' columns must be: one spec for each column, with the time dimension where the column has one. Anything
        with a shape and a dtype will do for a spec. Without a signature anything goes. What does not fit is refused at the insert,
        with one exception: items of `Client.insert` and `Client.writer` always have a time dimension, and a signature of rows
        takes them, too, as Reverb's does.
    max_bytes : int
        Bytes that items may take, with their chunks and what is written down of both (`TableInfo.item_bytes`). Where one more would
        take it beyond that, the remover takes items away first, as at `max_size`. 0: no bound.

    Raises
    ------
    ValueError
        An empty name, a max_size below 1, a signature with a leaf that is no spec.
    TypeError
        A selector, a limiter or a number of the wrong kind.
    """

    _name: str = set_by_init()
    _extensions: Any = set_by_init()
    _store: _core.Store | None = set_by_init()

    def __init__(
        self,
        name: str,
        sampler: selectors.Selector,
        remover: selectors.Selector,
        max_size: int,
        rate_limiter: limiters.RateLimiter,
        max_times_sampled: int = 0,
        extensions: Sequence[Any] = (),
        signature: Any | None = None,
        *,
        max_bytes: int = 0,
    ) -> None:
        name = _arguments.name("a table's name", name)
        if not name:
            raise ValueError("a table's name must be nonempty")
        for role, selector in (("sampler", sampler), ("remover", remover)):
            if not isinstance(selector, selectors.Selector):
                raise TypeError(f"{role} must be an instance of a selector such as reverie.selectors.Fifo(), got {selector!r}")
        if not isinstance(rate_limiter, limiters.RateLimiter):
            raise TypeError(f"rate_limiter must be a reverie.rate_limiters.RateLimiter, got {rate_limiter!r}")
        self._name = name
        self._sampler = sampler
        self._remover = remover
        self._max_size = _integer("max_size", max_size)
        if self._max_size < 1:
            raise ValueError(f"max_size must be a positive integer, got {max_size}")
        self._rate_limiter = rate_limiter
        self._max_times_sampled = _integer("max_times_sampled", max_times_sampled)
        self._max_bytes = _arguments.not_negative("max_bytes", max_bytes)
        self._extensions = _as_extensions(extensions, name)
        self._signature = specs.canonical_signature(signature)
        self._encoded = None if self._signature is None else _encode_signature(self._signature)
        self._store = None
        self._server_stopped: Latch | None = None

    @classmethod
    def queue(cls, name: str, max_size: int, extensions: Sequence[Any] = (), signature: Any | None = None) -> Table:
        """Items are sampled once each, the oldest first; inserts wait while `max_size` items wait to be sampled."""
        return cls(name, selectors.Fifo(), selectors.Fifo(), max_size, limiters.Queue(max_size), 1, extensions, signature)

    @classmethod
    def stack(cls, name: str, max_size: int, extensions: Sequence[Any] = (), signature: Any | None = None) -> Table:
        """Items are sampled once each, the newest first; inserts wait while `max_size` items wait to be sampled."""
        return cls(name, selectors.Lifo(), selectors.Lifo(), max_size, limiters.Stack(max_size), 1, extensions, signature)

    @property
    def name(self) -> str:
        """What clients call it."""
        return self._name

    @property
    def info(self) -> TableInfo:
        """The table as it is now: before, while and after it is served."""
        if self._store is not None:
            return table_info.from_raw(self._store.info(self._name))
        limiter = self._rate_limiter
        return TableInfo(
            name=self._name,
            sampler_options=options_of(self._sampler),
            remover_options=options_of(self._remover),
            max_size=self._max_size,
            max_times_sampled=self._max_times_sampled,
            rate_limiter_info=RateLimiterInfo(
                samples_per_insert=limiter.samples_per_insert,
                min_diff=limiter.min_diff,
                max_diff=limiter.max_diff,
                min_size_to_sample=limiter.min_size_to_sample,
                insert_stats={},
                sample_stats={},
            ),
            signature=None if self._encoded is None else specs.shown(table_info.decode_signature(*self._encoded)),
            current_size=0,
            num_episodes=0,
            num_deleted_episodes=0,
            num_unique_samples=0,
            table_worker_time=TableWorkerTime(),
            max_bytes=self._max_bytes,
        )

    def can_sample(self, num_samples: int) -> bool:
        """Would the rate limiter let so many samples through now? (Sizes are not looked at.)"""
        number = _positive("num_samples", num_samples)
        if self._store is not None:
            return self._store.can_sample(self._name, number)
        return False  # nothing was inserted, and a limiter wants at least one item

    def can_insert(self, num_inserts: int) -> bool:
        """Would the rate limiter let so many inserts through now? (Sizes are not looked at.)"""
        number = _positive("num_inserts", num_inserts)
        if self._store is not None:
            return self._store.can_insert(self._name, number)
        limiter = self._rate_limiter
        return number <= limiter.min_size_to_sample or number * limiter.samples_per_insert <= limiter.max_diff

    def replace(
        self,
        name: str | None = None,
        sampler: selectors.Selector | None = None,
        remover: selectors.Selector | None = None,
        max_size: int | None = None,
        rate_limiter: limiters.RateLimiter | None = None,
        max_times_sampled: int | None = None,
        extensions: Sequence[Any] | None = None,
        signature: Any | None = None,
        *,
        max_bytes: int | None = None,
    ) -> Table:
        """A new, empty table like this one but for what is given."""
        return Table(
            name=self._name if name is None else name,
            sampler=sampler or self._sampler,
            remover=remover or self._remover,
            max_size=self._max_size if max_size is None else max_size,
            rate_limiter=rate_limiter or self._rate_limiter,
            max_times_sampled=self._max_times_sampled if max_times_sampled is None else max_times_sampled,
            extensions=self._extensions if extensions is None else extensions,
            signature=self._signature if signature is None else signature,
            max_bytes=self._max_bytes if max_bytes is None else max_bytes,
        )

    def _configuration(self) -> tuple[Any, ...]:
        """What the C extension makes the table from."""
        limiter = self._rate_limiter
        return (
            self._name,
            (self._sampler.kind, self._sampler.exponent),
            (self._remover.kind, self._remover.exponent),
            self._max_size,
            self._max_times_sampled,
            (limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff),
            self._encoded,
            [(each.name, each.options) for each in self._extensions],
            self._max_bytes,
        )

    def __repr__(self) -> str:
        extra = f", extensions={list(self._extensions)}" if self._extensions else ""
        extra += f", max_bytes={self._max_bytes}" if self._max_bytes else ""
        return (
            f"Table(sampler={self._sampler}, remover={self._remover}, max_size={self._max_size}, "
            f"max_times_sampled={self._max_times_sampled}, name={self._name}, rate_limiter={self._rate_limiter}, "
            f"signature={'nullptr' if self._signature is None else self._signature}{extra})"
        )

    def __reduce__(self) -> Any:
        raise TypeError("a Table cannot be pickled: it stands for memory of this process")


def _as_extensions(given: Sequence[Any], table_name: str) -> tuple[extensions.Extension, ...]:
    return extensions.as_extensions(given, table_name)


def _positive(name: str, value: Any) -> int:
    number = _integer(name, value)
    if number < 1:
        raise ValueError(f"{name} must be a positive integer, got {value}")
    return number


def _place(path: tuple[Any, ...]) -> str:
    """What errors call a column whose spec has no name: "obs/pixels"."""
    return _arguments.as_text("/".join(str(part) for part in path))


def _encode_signature(signature: Any) -> tuple[bytes, list[tuple[str, int, tuple[int, ...] | None]]]:
    flat: list[specs.TensorSpec] = nest.flatten(signature)
    columns = [
        (
            spec.name or _place(path),
            _dtypes.number_of(spec.dtype),
            None if spec.shape is None else tuple(-1 if size is None else size for size in spec.shape),
        )
        for path, spec in zip(nest.paths(signature), flat, strict=True)
    ]
    return _structured_value.encode(signature), columns
