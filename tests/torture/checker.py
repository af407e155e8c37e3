"""Compares a table's items with what the model says of them, while the loads go on or after."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from . import items
from .model import Model, StreamModel, TableModel
from .ranges import Ranges

SHOWN = 5


@dataclasses.dataclass
class Found:
    """What one comparison found wrong, in sentences, and how many items it concerns."""

    lost: int = 0
    doubled: int = 0
    sentences: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Found) -> None:
        self.lost += other.lost
        self.doubled += other.doubled
        self.sentences += other.sentences


@dataclasses.dataclass
class Before:
    """What must be there, and must not, before one looks: what happens meanwhile can only change it as the ledgers then say."""

    certain: dict[int, Ranges]
    gone: dict[int, Ranges]
    received: dict[int, Ranges]
    versions: dict[int, set[int]]
    at: float

    @classmethod
    def of(cls, table: TableModel, at: float) -> Before:
        """As of this time (`Model.read_at`)."""
        for stream in table.streams.values():
            stream.forget_updates()
        return cls(
            {number: stream.certain.copy() for number, stream in table.streams.items()},
            {number: stream.gone.copy() for number, stream in table.streams.items()},
            {number: each.copy() for number, each in table.received.ids.items()},
            {number: stream.certain_versions() for number, stream in table.streams.items()},
            at,
        )


def compare(table: TableModel, before: Before, priorities: NDArray[np.float64]) -> Found:
    """`table` is as the ledgers say after the priorities of all items were listed, `before` as they said before that."""
    found = Found()
    if table.rule.scrambled:
        ids, versions = items.from_scrambled(priorities), np.zeros(len(priorities), np.int64)
    else:
        ids, versions = items.from_priorities(priorities)
    there, counts = np.unique(ids, return_counts=True)
    twice = there[counts > 1]
    if len(twice):
        found.doubled += len(twice)
        found.sentences.append(f"{table.name}: {len(twice)} items are there twice, such as {some(twice)}")
    streams = ids >> items.SEQUENCE_BITS
    for number in np.unique(streams):
        if int(number) not in table.streams:
            found.sentences.append(f"{table.name}: items of stream {number}, which sent none")
    for number, stream in table.streams.items():
        mine = streams == number
        found.add(compare_stream(table, before, stream, ids[mine] - items.first_id(number), versions[mine]))
    if table.rule.rule == "newest" and len(priorities) > table.rule.max_size:
        found.sentences.append(
            f"{table.name}: {len(priorities)} items are there, more than its max_size of {table.rule.max_size}"
        )
    return found


def compare_stream(table: TableModel, before: Before, stream: StreamModel, there: items.Ids, versions: items.Ids) -> Found:
    found, name = Found(), f"{table.name}, stream {stream.number}"
    unsent = there[(there > stream.sent) | (there < 1)]
    if len(unsent):
        found.sentences.append(f"{name}: items that were never sent, such as {some(unsent)}")
    for low, high in before.gone.get(stream.number, Ranges()).runs:
        back = there[(there >= low) & (there <= high)]
        if len(back):
            found.doubled += len(back)
            found.sentences.append(f"{name}: {len(back)} items are there although their deletion was confirmed: {some(back)}")
    must = musts(table, before, stream)
    lost = np.setdiff1d(must, there)
    if table.rule.rule == "queue":
        found.add(check_queue(table, before, stream, there, lost))
    elif len(lost):
        found.lost += len(lost)
        found.sentences.append(f"{name}: {len(lost)} of {len(must)} confirmed items are lost, such as {some(lost)}")
    fault = stream.versions_fault(there, versions, before.versions.get(stream.number, set()))
    if fault is not None:
        found.sentences.append(f"{name}: {fault}")
    return found


def musts(table: TableModel, before: Before, stream: StreamModel) -> items.Ids:
    """The numbers of those that must be there."""
    must = before.certain.get(stream.number, Ranges()).both(stream.certain)  # what is being deleted meanwhile may be gone
    if table.rule.rule == "newest":
        later = sum(other.sent for other in table.streams.values() if other.number > stream.number)
        late = sum(other.sent - len(other.confirmed) for other in table.streams.values() if other.number <= stream.number)
        # Later ones, and any that were not confirmed, may have come after an item.
        must.remove(1, stream.sent + later + late - table.rule.size)
    elif table.rule.rule == "highest":
        best = items.from_scrambled(table.highest_sent())
        mine = best[best >> items.SEQUENCE_BITS == stream.number] - items.first_id(stream.number)
        return np.array(sorted(n for n in mine.tolist() if n in must), np.int64)
    elif table.rule.rule == "queue":
        must = must.minus(table.received.ids.get(stream.number, Ranges()))
    return must.numbers()


def check_queue(table: TableModel, before: Before, stream: StreamModel, there: items.Ids, missing: items.Ids) -> Found:
    """What is neither there nor handed out must have been on its way to a caller who did not get it; what was, must be gone."""
    found, name = Found(), f"{table.name}, stream {stream.number}"
    if len(missing) > table.received.maybe:
        found.lost += len(missing) - table.received.maybe
        found.sentences.append(
            f"{name}: {len(missing)} items were neither handed out nor are they there, such as {some(missing)}; "
            f"calls that failed account for {table.received.maybe}"
        )
    first, handed = items.first_id(stream.number), before.received.get(stream.number, Ranges())
    back = [n for n in there.tolist() if n in handed and not table.received.undone(first + n, before.at)]
    if back:
        found.doubled += len(back)
        found.sentences.append(f"{name}: {len(back)} items are there although they were handed out: {back[:SHOWN]}")
    return found


def check_handed_out(model: Model) -> Found:
    """Nothing was handed out twice by a queue."""
    twice = model.tables["queue"].received.twice
    if not twice:
        return Found()
    return Found(doubled=len(twice), sentences=[f"queue: {len(twice)} items were handed out twice, such as {twice[:SHOWN]}"])


def some(numbers: items.Ids) -> str:
    return ", ".join(str(int(number)) for number in numbers[:SHOWN]) + (" ..." if len(numbers) > SHOWN else "")
