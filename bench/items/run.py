"""Runs the benchmark of items of several columns: what they take at the server, how quickly they come and go; stores in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator

from ..cells import Results
from ..processes import Process, ProcessError
from ..wire.run import note_versions
from ..wire.side import MODULE, PYTHON
from .cases import CASES

HERE = pathlib.Path(__file__).parent
STARTING = 60.0  # seconds
FILLING = 300.0
BATCH = 256


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked for on the command line."""

    cases: tuple[str, ...] = tuple(CASES)
    stores: tuple[str, ...] = ("reverie", "dm-reverb")
    seconds: float = 2.0
    rounds: int = 3
    items: int = 100_000


def quick() -> Options:
    return Options(cases=("transition",), seconds=0.2, rounds=1, items=2000)


@contextlib.contextmanager
def _side(store: str, case: str, items: int) -> Iterator[tuple[Process, Process]]:
    """A server with an empty table, and a client of it."""
    with contextlib.ExitStack() as stack:
        server = Process(PYTHON[store], str(HERE / "server.py"), MODULE[store], str(items), *case.split())
        stack.callback(server.stop, 0)
        port = server.receive_word("port", STARTING)
        client = Process(PYTHON[store], str(HERE / "client.py"), MODULE[store], port, *case.split())
        stack.callback(client.stop, 0)
        yield server, client


def _move(server: Process, client: Process, order: str, timeout: float) -> tuple[float, dict[str, float]]:
    """Items a second, and microseconds of either's processor time for one."""
    before = server.cpu_seconds()
    client.send(order)
    answer = client.receive(timeout)
    server_us = 1e6 * (server.cpu_seconds() - before) / answer["items"]
    return answer["items"] / answer["seconds"], {"client_cpu_us": answer["cpu_us"], "server_cpu_us": server_us}


def _turn(store: str, case: str, options: Options, results: Results) -> list[str]:
    """Fills the case's cells once; what was found, for whoever watches."""
    row = {"what": "items", "case": case, "store": store}
    items = max(1, int(options.items * CASES[case].share))
    with _side(store, case, items) as (server, client):
        before = server.resident_bytes()
        _move(server, client, f"insert {items} {FILLING}", FILLING + STARTING)
        memory = (server.resident_bytes() - before) / items
        results.cell({**row, "operation": "memory"}, "bytes an item", "lower").add(memory)
        found = [f"{memory:.0f} bytes an item"]
        for operation, order in (("insert", f"insert {10**12} {options.seconds}"), ("iterate", f"iterate {options.seconds}")):
            rate, details = _move(server, client, order, options.seconds + STARTING)
            results.cell({**row, "operation": operation}, "items/s", "higher").add(rate, details)
            found.append(f"{operation} {rate:.0f}/s")
        server.send(f"batch {BATCH} {options.seconds}")
        answer = server.receive(options.seconds + STARTING)
        results.cell({**row, "operation": "batch"}, "us", "lower").add(answer["us"], {"cpu_us": answer["cpu_us"]})
        found.append(f"a batch there {answer['us']:.1f} us")
    return found


def run(results: Results, options: Options, say: Callable[[str], None]) -> None:
    """Adds the cells to `results` as they are measured."""
    note_versions(results, options.stores)
    failed: set[tuple[str, str]] = set()
    for turn in range(options.rounds):
        for case in options.cases:
            for store in options.stores:
                if (store, case) in failed:
                    continue
                try:
                    found = _turn(store, case, options, results)
                except ProcessError as error:
                    failed.add((store, case))
                    results.cell(
                        {"what": "items", "case": case, "store": store, "operation": "insert"}, "items/s", "higher"
                    ).failure = str(error)
                    say(f"FAILED: {store}, {case}: {error}")
                    continue
                say(f"turn {turn + 1} of {options.rounds}: {store}, {case}: " + ", ".join(found))
