"""One process of loads. It ends when its standard input does, or a line comes on it."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import sys
import threading

import reverie

from . import KINDS
from .load import Load, Place

END = 60.0  # seconds that the last calls get


def main() -> int:
    """Reads what to do from its one argument, as JSON: folder, and loads with name, kind, address, stream, seed and inherited."""
    job = json.loads(sys.argv[1])
    place = Place(pathlib.Path(job["folder"]))
    authority = job["authority"]

    def connect(address: str) -> reverie.Client:
        tls = reverie.TLS(authority=authority) if authority is not None and not address.startswith("unix:") else None
        return reverie.Client(address, tls=tls)

    loads: list[Load] = [
        KINDS[each["kind"]](
            place, each["name"], functools.partial(connect, each["address"]), each["stream"], each["seed"], each["inherited"]
        )
        for each in job["loads"]
    ]
    for load in loads:
        load.start()

    def watch() -> None:
        for line in sys.stdin:
            if line == "stop\n":
                break
        else:
            os._exit(0)  # the torture has gone
        place.stop.set()

    threading.Thread(target=watch, daemon=True).start()
    place.stop.wait()
    for load in loads:
        load.join(END)
        if load.is_alive():
            place.report("late", load.name, "ending", waited=END, limit=END)
    sys.stdout.flush()
    os._exit(0)


main()
