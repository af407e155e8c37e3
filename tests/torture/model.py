"""What must be in a table, what may be, and what must not, by what the loads wrote down."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import time

import numpy as np
from numpy.typing import NDArray

from . import items, ledger
from .ranges import Ranges
from .tables import TABLES, TableRule

REMEMBERED = 120.0  # seconds for which it is known what was confirmed when


@dataclasses.dataclass
class Window:
    """A time in which what was confirmed may have been lost: of a journal that writes periodically, before a kill."""

    begin: float
    end: float

    def touches(self, entry: ledger.Entry) -> bool:
        return entry.since <= self.end and entry.at >= self.begin


@dataclasses.dataclass
class Update:
    low: int
    high: int
    version: int
    certain: bool = False
    tries: int = 1  # of more than one the first may come late, after updates that were made later


class StreamModel:
    """One stream's items."""

    def __init__(self, number: int, table: str) -> None:
        self.number, self.table = number, table
        self.sent = 0
        self.confirmed = Ranges()  # ever; only the count of it and what is not deleted matter
        self.certain = Ranges()  # confirmed, and nobody has tried to delete them
        self.gone = Ranges()  # whose deletion was confirmed
        self.updates: list[Update] = []
        self.recent: collections.deque[ledger.Entry] = collections.deque()

    def take(self, entry: ledger.Entry, windows: list[Window]) -> None:
        sure = not any(window.touches(entry) for window in windows)
        if entry.kind == ledger.SENT:
            self.sent = max(self.sent, entry.high)
        elif entry.kind == ledger.CONFIRMED:
            self.confirmed.add(entry.low, entry.high)
            if sure:
                self.certain.add(entry.low, entry.high)
        elif entry.kind == ledger.DELETING:
            self.certain.remove(entry.low, entry.high)
        elif entry.kind == ledger.DELETED:
            self.certain.remove(entry.low, entry.high)
            if sure:
                self._delete(entry.low, entry.high)
        elif entry.kind == ledger.UPDATING:
            if self.updates and self.updates[-1].version == entry.version:
                self.updates[-1].tries += 1
            else:
                self.updates.append(Update(entry.low, entry.high, entry.version))
        elif entry.kind == ledger.UPDATED and sure:
            self._settle(entry.version, certain=True)
        if entry.kind in (ledger.CONFIRMED, ledger.DELETED, ledger.UPDATED):
            self.recent.append(entry)
            while self.recent[0].at < entry.at - REMEMBERED:
                self.recent.popleft()

    def _delete(self, low: int, high: int) -> None:
        """Of what was never confirmed some may still be on its way."""
        deleted = Ranges([(low, high)]).both(self.confirmed)
        for first, last in deleted.runs:
            self.gone.add(first, last)

    def forget_updates(self) -> None:
        """Those of items that are gone for good, before one looks: a kill may still undo the newest deletions."""
        gone = self.gone.copy()
        for entry in self.recent:
            if entry.kind == ledger.DELETED:
                gone.remove(entry.low, entry.high)
        self.updates = [update for update in self.updates if Ranges([(update.low, update.high)]).minus(gone).runs]

    def _settle(self, version: int, certain: bool) -> None:
        for update in self.updates:
            if update.version == version:
                update.certain = certain

    def lose(self, window: Window) -> None:
        """What was confirmed in this time may be lost, and what was deleted may be back."""
        for entry in self.recent:
            if not window.touches(entry):
                continue
            if entry.kind == ledger.CONFIRMED:
                self.certain.remove(entry.low, entry.high)
            elif entry.kind == ledger.DELETED:
                self.gone.remove(entry.low, entry.high)
            else:
                self._settle(entry.version, certain=False)

    def certain_versions(self) -> set[int]:
        """Of updates that were confirmed."""
        return {update.version for update in self.updates if update.certain}

    def versions_fault(self, numbers: items.Ids, versions: items.Ids, certain: set[int]) -> str | None:
        """Each priority must be the last of those `certain` before one looked, or one that was tried and is none of these."""
        least = np.zeros(len(numbers), np.int64)
        right = np.zeros(len(numbers), bool)
        for update in self.updates:
            touched = (numbers >= update.low) & (numbers <= update.high)
            if update.version in certain:
                least[touched] = update.version
            if update.version not in certain or update.tries > 1:
                right |= touched & (versions == update.version)
        right |= versions == least
        if right.all():
            return None
        at = int(np.argmin(right))
        return f"item {numbers[at]} has version {versions[at]} of its priority; confirmed was {least[at]}"


class Received:
    """What was handed out by a queue: each item once, but that a kill may undo it."""

    REMEMBERED = 50_000

    def __init__(self) -> None:
        self.ids: dict[int, Ranges] = collections.defaultdict(Ranges)  # numbers, by stream
        self.lost = 0  # items that calls which failed may have been answered with
        self.asked: dict[int, ledger.Entry] = {}  # by reader: the call that is under way, and how many it may be answered with
        self.twice: list[int] = []  # without a kill in between
        self.kills: list[float] = []
        # Of the newest: when they were asked for, and when they came.
        self.at: collections.OrderedDict[int, tuple[float, float]] = collections.OrderedDict()

    @property
    def maybe(self) -> int:
        """How many items may have been handed out that nobody wrote down."""
        return self.lost + sum(asked.high for asked in self.asked.values())

    def take(self, reader: int, entry: ledger.Entry) -> None:
        if entry.kind == ledger.ASKING:
            self.asked[reader] = entry
        elif entry.kind == ledger.MAYBE_RECEIVED:
            self.lost += entry.high
        asked = self.asked.pop(reader, entry) if entry.kind == ledger.RECEIVED else entry
        # A call that a kill interrupts asks the next life again: what it was being answered with is gone.
        self.lost += asked.high * sum(asked.at <= kill <= entry.at for kill in self.kills)
        for one in entry.ids:
            stream, number = one >> items.SEQUENCE_BITS, one & ((1 << items.SEQUENCE_BITS) - 1)
            if number in self.ids[stream] and not self.undone(one, entry.at):
                self.twice.append(one)
            self.ids[stream].add(number, number)
            self.at[one] = asked.at, entry.at
        while len(self.at) > self.REMEMBERED:
            self.at.popitem(last=False)

    def undone(self, one: int, now: float) -> bool:
        """A kill may have undone that it was handed out, so that it is there again at this time; or it came again since."""
        asked, came = self.at.get(one, (0.0, 0.0))
        return came > now or any(asked <= kill <= now for kill in self.kills)


class TableModel:
    """All streams of a table."""

    def __init__(self, name: str, rule: TableRule) -> None:
        self.name, self.rule = name, rule
        self.streams: dict[int, StreamModel] = {}
        self.received = Received()
        self.best = np.zeros(0)  # the highest priorities that were ever sent, in order
        self.best_seen: dict[int, int] = {}

    def stream(self, number: int) -> StreamModel:
        return self.streams.setdefault(number, StreamModel(number, self.name))

    def take(self, number: int, entry: ledger.Entry, windows: list[Window]) -> None:
        if entry.kind in (ledger.ASKING, ledger.RECEIVED, ledger.MAYBE_RECEIVED):
            self.received.take(number, entry)
            return
        self.stream(number).take(entry, windows)
        if self.rule.reset and entry.kind in (ledger.DELETING, ledger.DELETED):
            for other in self.streams.values():
                if other.number < number and other.sent > 0:
                    whole = dataclasses.replace(entry, low=1, high=other.sent)
                    other.take(whole, windows)

    def highest_sent(self) -> NDArray[np.float64]:
        """The `size` - 1 highest priorities that were ever sent: what stands above all others stays."""
        for stream in self.streams.values():
            seen = self.best_seen.get(stream.number, 0)
            if stream.sent > seen:
                new = items.scrambled(items.ids_of(stream.number, seen + 1, stream.sent))
                self.best = np.sort(np.concatenate([self.best, new]))[-(self.rule.size - 1) :]
                self.best_seen[stream.number] = stream.sent
        return self.best


class Model:
    """All tables, kept up with the ledgers of a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.tables = {name: TableModel(name, rule) for name, rule in TABLES.items()}
        self.windows: list[Window] = []
        self.read_at = 0.0  # what was written before this is known
        self._tails: dict[pathlib.Path, ledger.Tail] = {}

    def read(self) -> None:
        """Takes in what was written since."""
        self.read_at = time.monotonic()
        for path in sorted(self.folder.iterdir(), key=lambda path: int(path.name.split(".")[0])):
            tail = self._tails.setdefault(path, ledger.Tail(path))
            table = self.tables[tail.table]
            for entry in tail.entries():
                table.take(tail.stream, entry, self.windows)

    def lose(self, begin: float, end: float) -> None:
        """The journal may have lost what was confirmed between these times."""
        self.read()
        window = Window(begin, end)
        self.windows.append(window)
        for table in self.tables.values():
            for stream in table.streams.values():
                stream.lose(window)

    def killed(self, at: float) -> None:
        """What was handed out before may be handed out again."""
        for table in self.tables.values():
            table.received.kills.append(at)

    def confirmed(self) -> int:
        """Items so far."""
        return sum(len(stream.confirmed) for table in self.tables.values() for stream in table.streams.values())
