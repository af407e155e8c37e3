"""What Reverie is to reach, and how each of it is read from a benchmark's results.

Every bound is one of figures of the same run: times another store's, or a part of what the machine moves, where a figure by itself
would say how fast the machine is. Those of small rows in one process are absolute, as a call costs little else.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable

from ..cells import Cell, Results
from ..checkpoint.disk import KEPT, PAST_CACHE
from .readme import base_row
from .wire import share

FEW, MANY, MOST = ("1", "2"), ("32", "200"), "2000"
COUNTS = (*FEW, *MANY)
LANGUAGES = {"python": "Python", "c": "C"}
WORDS = {"insert": "inserts", "iterate": "iterating", "batch": "batches"}


@dataclasses.dataclass(frozen=True)
class Goal:
    """One line of the table: figures by name ("200 clients"), which all are to be at least, or at most, the bound."""

    what: str
    bound: float
    figures: dict[str, float]
    at_least: bool = True

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


def _median(cells: Iterable[Cell]) -> float | None:
    """Of the one cell that there is, if it has a figure."""
    cell = next(iter(cells), None)
    return cell.median if cell is not None and cell.values else None


def _quotient(above: float | None, below: float | None, times: float = 1) -> float | None:
    return times * above / below if above is not None and below else None


def _known(figures: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if value is not None}


# ---- between processes ----


def _rate(
    results: Results, payload: str, operation: str, clients: str, language: str = "python", store: str = "reverie"
) -> float | None:
    return _median(results.find(**{**base_row(payload, operation, clients), "language": language}, store=store))


def _times(results: Results, payload: str, operation: str, counts: Iterable[str], bound: float) -> Goal:
    """Items a second of Python clients, times dm-reverb's."""
    figures = {
        count: _quotient(_rate(results, payload, operation, count), _rate(results, payload, operation, count, store="dm-reverb"))
        for count in counts
    }
    return Goal(
        f"{payload}, {WORDS.get(operation, operation)} by {', '.join(counts)} Python clients, times dm-reverb's",
        bound,
        _known(figures),
    )


def _of_the_loopback(results: Results, payload: str, operation: str, language: str) -> Goal:
    """Bytes a second in percent of plain send and recv of the same size."""
    figures = {}
    for count in COUNTS:
        cells = results.find(**{**base_row(payload, operation, count), "language": language}, store="reverie")
        figures[count] = share(results, next(iter(cells), None), "send/recv")
    return Goal(f"{payload}, {WORDS[operation]} by {LANGUAGES[language]} clients, % of plain send and recv", 85, _known(figures))


def _of_the_best(results: Results, payload: str, clients: str, bound: float, languages: Iterable[str]) -> Goal:
    """Items a second of that many clients in percent of the best count's."""
    figures = {}
    for language in languages:
        for operation, words in WORDS.items():
            rates = [_rate(results, payload, operation, count, language) for count in (*COUNTS, MOST)]
            best = max((rate for rate in rates if rate is not None), default=None)
            figures[f"{LANGUAGES[language]} {words}"] = _quotient(
                _rate(results, payload, operation, clients, language), best, 100
            )
    return Goal(f"{payload}, {clients} clients, % of the best count's", bound, _known(figures))


def _best_of_c(results: Results, payload: str, operation: str, bound: float) -> Goal:
    rates = {count: _rate(results, payload, operation, count, "c") for count in (*COUNTS, MOST)}
    known = _known(rates)
    best = {count: rate for count, rate in known.items() if rate == max(known.values())}
    return Goal(f"{payload}, {WORDS[operation]} by C clients, a second, the best count", bound, best)


def wire(results: Results) -> list[Goal]:
    goals = [
        _times(results, "400B", "insert", COUNTS, 6),
        _times(results, "400B", "iterate", FEW, 40),
        _times(results, "400B", "iterate", MANY, 25),
        _times(results, "400B", "batch", COUNTS, 8),
        _best_of_c(results, "400B", "insert", 600e3),
        _best_of_c(results, "400B", "iterate", 1.5e6),
        _times(results, "4kB", "insert", COUNTS, 6),
        _times(results, "4kB", "batch", COUNTS, 8),
    ]
    for payload in ("40kB", "400kB"):
        goals += [_of_the_loopback(results, payload, operation, language) for operation in WORDS for language in LANGUAGES]
    goals += [_times(results, payload, "dataset", FEW, 5) for payload in ("400B", "4kB", "40kB", "400kB")]
    goals += [_of_the_best(results, payload, "200", 95, LANGUAGES) for payload in ("400B", "4kB", "40kB", "400kB")]
    goals.append(_of_the_best(results, "400B", MOST, 90, ("c",)))
    memory = {cell.row["clients"]: cell.median for cell in results.find(operation="memory a client") if cell.values}
    goals.append(Goal("memory a client, KiB", 64, memory, at_least=False))
    return goals


# ---- round trips, locks, checkpoints ----


def latency(results: Results) -> list[Goal]:
    hot = _median(results.find(what="machine", operation="send/recv, hot"))
    trips = {"what": "round trip", "payload": "400B", "operation": "sample", "store": "reverie", "load": "50 %"}
    p50, p99 = {}, {}
    for clients in ("1", "8"):  # of a C client's iterator most samples are there before they are asked for
        row = {**trips, "language": "python", "clients": clients}
        p50[f"{clients} Python"] = _quotient(_median(results.find(**row, percentile="p50")), hot)
        p99[f"{clients} Python"] = _median(results.find(**row, percentile="p99"))
    holds = {
        f"{cell.row['operation']} {cell.row['sampler']}": cell.median
        for cell in results.find(what="lock", percentile="p99.9")
        if cell.values
    }
    return [
        Goal("a sample's round trip at half load, p50, times the machine's own (hot)", 3, _known(p50), at_least=False),
        Goal("the same, p99, us", 500, _known(p99), at_least=False),
        Goal("a table's lock, p99.9 of a hold, us of processor time", 20, holds, at_least=False),
    ]


def checkpoint(results: Results) -> list[Goal]:
    waits = {
        cell.row["operation"]: statistics.median(cell.details["over_2_ms"])
        for cell in results.find(what="wait", meanwhile="checkpoint", since="call", percentile="p50", store="reverie")
        if cell.details.get("over_2_ms")
    }
    shares: dict[str, float | None] = {}
    for what, limit in (("save", PAST_CACHE), ("load", KEPT)):
        ours = _median(results.find(what=what, inserts="none", store="reverie"))
        shares[what] = _quotient(ours, _median(results.find(what=what, inserts="none", store=limit)), 100)
    return [
        Goal("calls that wait more than 2 ms while a checkpoint is saved", 0, waits, at_least=False),
        Goal("MB/s of a checkpoint, % of the disk's (saved past the cache; loaded into memory that is kept)", 80, _known(shares)),
    ]


# ---- in one process ----

ABSOLUTE = {
    "python": {"add 1": 0.3, "add 128": 1.2, "sample 256": 4, "PER sample 256": 12, "PER update 256": 5},
    "c": {"add 1": 0.06, "sample 256": 2.2},
}


def _first(results: Results) -> Goal:
    """The best other store's time by ours, in the cell where that is least."""
    least: dict[str, float] = {}
    for ours in results.find(store="reverie", language="python"):
        same = {name: ours.row[name] for name in ("rows", "operation", "language")}
        others = [cell.median for cell in results.find(**same) if not cell.is_ours and cell.better and cell.values]
        if ours.values and others:
            least[f"{ours.row['rows']} {ours.row['operation']}"] = min(others) / ours.median
    nearest = sorted(least.items(), key=lambda entry: entry[1])[:3]
    return Goal("every cell from Python: the best other's time by ours, in the nearest three", 1, dict(nearest))


def local(results: Results) -> list[Goal]:
    goals = [_first(results)]
    for language, bounds in ABSOLUTE.items():
        for operation, bound in bounds.items():
            value = _median(results.find(rows="small", operation=operation, language=language, store="reverie"))
            figures = _known({"": value})
            goals.append(Goal(f"small rows from {LANGUAGES[language]}, {operation}, us", bound, figures, at_least=False))
    copies: dict[str, float | None] = {}
    for rows in ("image", "atari", "next", "framestack"):
        bare = _median(results.find(rows=rows, operation="sample 256", store="machine"))
        copies[rows] = _quotient(
            _median(results.find(rows=rows, operation="sample 256", language="python", store="reverie")), bare
        )
    goals.append(Goal("images, sample 256, times bare copies of the same bytes on one core", 0.7, _known(copies), at_least=False))
    return goals


def growth(results: Results) -> list[Goal]:
    goals = []
    for rows, operation in (("transitions", "sample 256"), ("transitions", "PER sample 256"), ("sequences", "sample 32")):
        figures = {}
        for ours in results.find(what="time", rows=rows, operation=operation, store="reverie"):
            plain = {**ours.row, "operation": operation.removeprefix("PER "), "store": "gather"}
            size = f"10^{len(ours.row['items']) - 1}"
            figures[size] = _quotient(_median([ours]), _median(results.find(**plain)))
        goals.append(Goal(f"{operation} {rows}, times a bare gather", 2, _known(figures), at_least=False))
    memory = {
        f"{cell.row['rows']} 10^{len(cell.row['items']) - 1}": cell.median
        for cell in results.find(what="memory an item", where="local")
        if cell.values
    }
    creep = {cell.row["remover"]: cell.median for cell in results.find(what="creep") if cell.values}
    goals.append(Goal("bytes an item above its data, local rows", 120, memory, at_least=False))
    goals.append(Goal("resident memory from 10^7 to 10^8 inserts, % more", 3, creep, at_least=False))
    return goals


OF: dict[str, Callable[[Results], list[Goal]]] = {
    "wire": wire,
    "latency": latency,
    "local": local,
    "growth": growth,
    "checkpoint": checkpoint,
}
