"""Percentiles by HdrHistogram."""

from __future__ import annotations

from collections.abc import Iterable

from hdrh.histogram import HdrHistogram

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


def percentiles(nanoseconds: Iterable[tuple[int, int]]) -> dict[str, float]:
    """Microseconds at each percentile, within a thousandth; the input is pairs of nanoseconds and how often they came."""
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for value, count in nanoseconds:
        histogram.record_value(max(1, value), count)
    return {name: histogram.get_value_at_percentile(percent) / 1e3 for name, percent in PERCENTILES.items()}
