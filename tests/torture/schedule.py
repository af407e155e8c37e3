"""Which fault comes when: all of it follows from the seed."""

from __future__ import annotations

import dataclasses
import random
from typing import Literal

Ending = Literal["", "kill", "terminate"]

# What may befall the server, how often beside the others, and for how many seconds.
KINDS: dict[str, tuple[int, float, float]] = {
    "kill": (8, 0.0, 0.0),
    "terminate": (2, 0.0, 0.0),
    "stop": (3, 0.5, 12.0),  # SIGSTOP, and SIGCONT after that
    "disk full": (3, 1.0, 10.0),
    "slow disk": (3, 1.0, 10.0),
    "failing writes": (2, 0.5, 5.0),
    "failing fsync": (2, 0.5, 5.0),
    "clock": (3, 0.0, 0.0),
    "cut connections": (3, 0.0, 0.0),
    "refuse connections": (2, 0.5, 5.0),
    "stall connections": (2, 0.5, 11.0),
    "client killed": (2, 0.0, 0.0),
    "client stopped": (2, 0.5, 10.0),
    "certificate": (2, 0.0, 0.0),  # where there is TLS
    "memory": (1, 1.0, 4.0),
}
ENDS_EARLY = ("stop", "disk full", "slow disk", "failing writes", "failing fsync", "clock", "stall connections")


@dataclasses.dataclass(frozen=True)
class Fault:
    """`after` seconds of peace; then `kind` for so many `seconds`; the server is killed or terminated at its end, while it lasts."""

    after: float
    kind: str
    seconds: float
    ending: Ending


def faults(seed: int, tls: bool, longest: float) -> list[Fault]:
    """More than any run needs. Each kind comes once before any comes at random; none takes longer than `longest`."""
    source = random.Random(seed)
    kinds = [kind for kind in KINDS if tls or kind != "certificate"]
    order = list(kinds)
    source.shuffle(order)
    order.insert(0, "kill")
    order += source.choices(kinds, [KINDS[kind][0] for kind in kinds], k=20_000)
    made = []
    for kind in order:
        _, least, most = KINDS[kind]
        ending: Ending = ""
        if kind in ENDS_EARLY:
            ending = source.choices(("", "kill", "terminate"), (60, 30, 10))[0]
        made.append(Fault(source.uniform(0.2, 2.5), kind, min(source.uniform(least, most), longest), ending))
    return made
