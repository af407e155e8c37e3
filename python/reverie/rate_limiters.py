"""When inserts and samples may proceed.

With I inserts, S samples and D deletes since the last reset, a sample may proceed iff ``I - D >= min_size_to_sample`` and
``I * samples_per_insert - S - 1 >= min_diff``; an insert iff ``I + 1 - D <= min_size_to_sample`` or
``(I + 1) * samples_per_insert - S <= max_diff`` (Cassirer et al. 2021, section 3).
"""

from __future__ import annotations

import sys

from reverie import _arguments, _core

__all__ = ["MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack"]

_MAX = sys.float_info.max


class RateLimiter:
    """The general limiter, which all others are made of. A description: one may be given to many tables.

    Parameters
    ----------
    samples_per_insert : float
        Samples that each insert allows; above 0.
    min_size_to_sample : int
        Items that must be present before anything is sampled; at least 1.
    min_diff, max_diff : float
        Bounds of ``inserts * samples_per_insert - samples``. Not NaN.

    Raises
    ------
    ValueError
        Parameters out of range, or such that neither inserts nor samples could ever proceed.
    """

    def __init__(self, samples_per_insert: float, min_size_to_sample: int, min_diff: float, max_diff: float) -> None:
        self._samples_per_insert = _arguments.number("samples_per_insert", samples_per_insert)
        size = _arguments.integer("min_size_to_sample", min_size_to_sample)
        self._min_size_to_sample = max(-(2**63), min(size, 2**63 - 1))  # what is further off is refused below just the same
        self._min_diff = _arguments.number("min_diff", min_diff)
        self._max_diff = _arguments.number("max_diff", max_diff)
        _core.check_rate_limiter(self._samples_per_insert, self._min_size_to_sample, self._min_diff, self._max_diff)

    @property
    def samples_per_insert(self) -> float:
        """Samples that each insert allows."""
        return self._samples_per_insert

    @property
    def min_size_to_sample(self) -> int:
        """Items that must be present before anything is sampled."""
        return self._min_size_to_sample

    @property
    def min_diff(self) -> float:
        """Samples wait where ``inserts * samples_per_insert - samples`` would go below this."""
        return self._min_diff

    @property
    def max_diff(self) -> float:
        """Inserts wait where that would go above this, once `min_size_to_sample` items are there."""
        return self._max_diff

    def _key(self) -> tuple[float, int, float, float]:
        return (self._samples_per_insert, self._min_size_to_sample, self._min_diff, self._max_diff)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, RateLimiter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"RateLimiter(samples_per_insert={self._samples_per_insert:g}, min_diff_={self._min_diff:g}, "
            f"max_diff={self._max_diff:g}, min_size_to_sample={self._min_size_to_sample})"
        )


class MinSize(RateLimiter):
    """Samples wait until the table holds `min_size_to_sample` items; inserts never wait."""

    def __init__(self, min_size_to_sample: int) -> None:
        _arguments.positive("min_size_to_sample", min_size_to_sample)
        super().__init__(1.0, min_size_to_sample, -_MAX, _MAX)


class SampleToInsertRatio(RateLimiter):
    """Keeps the ratio of samples to inserts near a value.

    Parameters
    ----------
    samples_per_insert : float
        The ratio; above 0.
    min_size_to_sample : int
        Items before anything is sampled; at least 1.
    error_buffer : float or (float, float)
        How far ``inserts * samples_per_insert - samples`` may stray: a number is a distance either way from
        ``samples_per_insert * min_size_to_sample``, a pair gives the two bounds themselves. The width of the range must be at
        least ``2 * max(1, samples_per_insert)``, or everybody would come to wait for everybody.
    """

    def __init__(self, samples_per_insert: float, min_size_to_sample: int, error_buffer: float | tuple[float, float]) -> None:
        ratio = _arguments.number("samples_per_insert", samples_per_insert)
        size = _arguments.integer("min_size_to_sample", min_size_to_sample)
        centre = ratio * _arguments.number("min_size_to_sample", size)
        if isinstance(error_buffer, (float, int)):
            distance = _arguments.number("error_buffer", error_buffer)
            low, high = centre - distance, centre + distance
        else:
            bounds = _arguments.listed("error_buffer", error_buffer, "two numbers, or a number")
            if len(bounds) != 2:
                raise ValueError(f"error_buffer must be a number or a pair of bounds, got {error_buffer!r}")
            low, high = (_arguments.number("a bound of error_buffer", bound) for bound in bounds)
        if not ratio > 0:
            raise ValueError(f"samples_per_insert must be > 0, got {ratio}")
        if not high - low >= 2 * max(1.0, ratio):
            raise ValueError(
                f"the size of error_buffer must be at least 2 * max(1, samples_per_insert) = {2 * max(1.0, ratio)}, as that of the number "
                f"{max(1.0, ratio)} is; got {error_buffer}, a range of {high - low}: with less, inserts and samples block each other"
            )
        if low > centre:
            raise ValueError(
                f"the lower bound {low} of error_buffer is above samples_per_insert * min_size_to_sample = {centre}: "
                "nothing could be sampled at min_size_to_sample"
            )
        _arguments.positive("min_size_to_sample", size)
        super().__init__(ratio, size, low, high)


class Queue(RateLimiter):
    """Each item is sampled once; inserts wait while `size` items wait to be sampled. Use it with ``max_times_sampled=1``."""

    def __init__(self, size: int) -> None:
        super().__init__(1.0, 1, 0.0, _arguments.number("size", _arguments.positive("size", size)))


class Stack(RateLimiter):
    """As `Queue`; the table's sampler makes it a stack."""

    def __init__(self, size: int) -> None:
        super().__init__(1.0, 1, 0.0, _arguments.number("size", _arguments.positive("size", size)))
