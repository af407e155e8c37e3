"""Which cells the wire benchmark has: the issue's rows, fewer of them where only the direction is asked."""

from __future__ import annotations

import dataclasses

from .job import PAYLOADS
from .side import Pace, Work

STORES = ("reverie", "dm-reverb")
OPERATIONS = ("insert", "iterate", "batch", "dataset", "both")
MANY = 2000  # C clients, from four processes
FEW = 2  # clients with a tf.data dataset: more learners than that share no machine


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked for on the command line."""

    payloads: tuple[str, ...] = tuple(PAYLOADS)
    operations: tuple[str, ...] = OPERATIONS
    clients: tuple[int, ...] = (1, 2, 32, 200, MANY)
    languages: tuple[str, ...] = ("python", "c")
    stores: tuple[str, ...] = STORES
    variants: bool = True  # eight tables, prioritized, unix socket, memory a client
    items: int | None = None  # of a table; None: table_size
    rounds: int = 3
    pace: Pace = dataclasses.field(default_factory=lambda: Pace(2.0, 0.5, 10.0, 8, 8.0))


def quick() -> Options:
    return Options(
        payloads=("400B", "40kB"),
        operations=("insert", "iterate", "batch"),
        clients=(2,),
        rounds=1,
        variants=False,
        pace=Pace(0.4, 0.2, 2.0, 2, 4.0),
    )


def works(payload: str, options: Options) -> list[tuple[str, Work]]:
    """(store, work) in the order in which they take turns: the stores side by side."""
    small = payload in ("400B", "4kB")
    made: list[Work] = []
    for operation in options.operations:
        for clients in options.clients:
            if (operation == "both" and clients < 2) or (operation == "dataset" and clients > FEW):
                continue
            if "python" in options.languages and clients < MANY:
                made.append(Work(operation, clients))
            if "c" in options.languages and operation != "dataset" and (clients < MANY or (small and operation != "both")):
                made.append(Work(operation, clients, "c"))
    if options.variants:
        middle = [clients for clients in options.clients if clients in (2, 32)]
        wanted = [operation for operation in options.operations if operation not in ("both", "dataset")]
        if "python" in options.languages:
            if small:
                made += [Work(operation, clients, sampler="prioritized") for operation in wanted for clients in middle]
                made += [Work(operation, clients, tables=8) for operation in wanted for clients in middle]
            over_unix = [operation for operation in options.operations if operation != "both"]
            made += [Work(operation, clients, transport="socket") for operation in wanted for clients in middle]
            made += [Work(operation, clients, transport="unix") for operation in over_unix for clients in middle[:1]]
        if "c" in options.languages:
            made += [Work(operation, clients, "c", "socket") for operation in wanted for clients in middle[:1]]
            made += [Work(operation, clients, "c", "unix") for operation in wanted for clients in middle[:1]]
    pairs = []
    for work in made:
        for store in options.stores:
            if store == "dm-reverb" and (work.language != "python" or work.transport != "tcp"):
                continue  # it has no client in C, and its server listens on a port only
            pairs.append((store, work))
    return pairs


def tables(pairs: list[tuple[str, Work]]) -> list[str]:
    """The tables that these need."""
    names = []
    for _, work in pairs:
        for i in range(work.tables):
            name = work.sampler if work.tables == 1 else f"{work.sampler}{i}"
            if name not in names:
                names.append(name)
    return names
