"""What many clients do to a few: ``python -m bench.crowd``.

Reverie alone, over loopback. Load: the same operation as fast as it goes by so many clients that more of them move no more, then by four
times as many; what moves should not get less, and what is taken should not take longer than its turn among so many. Overload: calls that
arrive at a fixed rate, whatever becomes of those before (an open loop), at multiples of what the server can answer. Crowd: an active
client's round trips alone, beside idle connections, and beside readers that stopped reading; and the server's memory for each of them. In
turns; medians.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import resource
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from .processes import Process, ProcessError, ask
from .programs import BUILD, program

OPERATIONS = {"insert": "inserted", "sample": "uniform"}
TRIPS = ("p50_us", "p99_us", "max_us")
SPARE_FILES = 200
CLIENTS = 8  # at the peak
OVERLOADS = (1, 2, 4)
WORK_US = 200  # of each call of an open loop: more than it takes to make it, so that four times as many can be made


@dataclasses.dataclass(frozen=True)
class Options:
    idle: int = 10_000
    readers: int = 50
    seconds: float = 1.0
    rounds: int = 3
    times: int = 4  # as many clients


def quick() -> Options:
    return Options(idle=200, readers=5, seconds=0.2, rounds=1)


class Server:
    """reverie-server with two tables on a free port."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = [
            str(BUILD / "tools/reverie-server"),
            "--listen",
            self.address,
            "--set",
            "max_connections=100000",
            "--set",
            "log=error",
        ]
        for table in OPERATIONS.values():
            # that items may go when they are sampled keeps clients from drawing ahead: each sample is a round trip
            command += ["--table", f"name={table},max_size=20000,max_times_sampled=2000000000"]
        self.process = Process(*command)
        try:
            self.process.receive_word("listening", 20)
        except ProcessError:
            self.stop()
            raise

    def stop(self) -> None:
        self.process.process.terminate()
        self.process.stop(60)


class Caller:
    """bench-latency: clients that call on a schedule, which does not wait for answers."""

    def __init__(self, server: Server, folder: str) -> None:
        self.server, self.path = server, f"{folder}/trips"
        self.process = Process(program("latency"))

    def call(self, operation: str, clients: int, rate: float, seconds: float, elements: int = 100) -> tuple[float, np.ndarray]:
        """Operations a second, and microseconds of each from when it was begun to its answer."""
        table = OPERATIONS[operation]
        self.process.send(f"{self.server.address} {operation} {table} {elements} {clients} {rate} {seconds} {self.path}")
        answer = self.process.receive(120 + 3 * seconds)
        return answer["count"] / answer["seconds"], np.fromfile(self.path, np.int64).reshape(-1, 2)[:, 1] / 1e3


@contextlib.contextmanager
def crowd(server: Server, kind: str, clients: int) -> Iterator[tuple[int, float]]:
    """The clients that can be, and the server's bytes for each."""
    before = server.process.resident_bytes()
    process = Process(
        program("crowd"), kind, server.address, str(clients), *([OPERATIONS["sample"]] if kind == "readers" else [])
    )
    try:
        answer = process.receive(300)
        if kind == "readers":
            process.process.send_signal(signal.SIGSTOP)  # from here on they do not even read
        time.sleep(0.2)
        yield answer["clients"], (server.process.resident_bytes() - before) / answer["clients"]
    finally:
        process.stop(0)


def _load(server: Server, clients: int, table: str, operation: str, options: Options) -> dict:
    """What bench-crowd says, with the server's processor time added to its own."""
    before = server.process.cpu_seconds()
    answer = ask(program("crowd"), "load", server.address, str(clients), table, operation, str(options.seconds))
    answer["cpu_s"] += server.process.cpu_seconds() - before
    return answer


def measure_load(server: Server, options: Options) -> list[dict]:
    """Of each operation: what the few move and the many, percentiles of their round trips, and the ratio of turns side by side."""
    rows = []
    for operation, table in OPERATIONS.items():
        turns = []
        for _ in range(options.rounds):
            few, many = (_load(server, clients, table, operation, options) for clients in (CLIENTS, CLIENTS * options.times))
            turns.append(
                {
                    "few": few["count"] / few["seconds"],
                    "many": many["count"] / many["seconds"],
                    "ratio": many["count"] / few["count"],
                    "cpu_ratio": (many["cpu_s"] / many["count"]) / (few["cpu_s"] / few["count"]),
                    **{f"few_{name}": few[name] for name in TRIPS},
                    **{f"many_{name}": many[name] for name in TRIPS},
                }
            )
        rows.append({"operation": operation, **{name: statistics.median(turn[name] for turn in turns) for name in turns[0]}})
    return rows


def measure_overload(options: Options) -> list[dict]:
    """Of an open loop, first at the peak (closed), then at multiples of it: what became of the calls.

    `useful` is how many were answered in a second of the server's processor time, as a part of what it is at the peak: what other programs
    take of the machine is not in it.
    """
    command = [program("overload"), str(CLIENTS), str(WORK_US), str(options.seconds), "1000", *map(str, OVERLOADS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=300)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    for row in rows:
        row["useful"] = row["ok"] / row["server_cpu_s"] / (rows[0]["ok"] / rows[0]["server_cpu_s"])
    return rows


def measure_crowd(server: Server, caller: Caller, options: Options) -> list[dict]:
    """Round trips of one active client at a moderate rate, alone and beside each crowd, in turns."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # for the processes that are started
    idle = min(options.idle, hard - SPARE_FILES)
    found: dict[str, list[tuple[float, ...]]] = {"alone": [], "idle": [], "readers": []}
    numbers = {"alone": 0, "idle": idle, "readers": options.readers}

    def turn(name: str, each: float) -> None:
        _, insert = caller.call("insert", 1, 1000, options.seconds)
        _, sample = caller.call("sample", 1, 1000, options.seconds)
        found[name].append((each, *np.percentile(insert, [50, 99]), *np.percentile(sample, [50, 99])))

    try:
        for _ in range(options.rounds):
            turn("alone", 0)
            for kind in ("idle", "readers"):
                if numbers[kind] == 0:
                    continue
                with crowd(server, kind, numbers[kind]) as (_, each):
                    turn(kind, each)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    rows = []
    for name, turns in found.items():
        if not turns:
            continue
        each, *trips = (statistics.median(values) for values in zip(*turns, strict=True))
        rows.append({"beside": name, "clients": numbers[name], "bytes_each": each, "trips": trips})
    return rows


def show(load: list[dict], overload: list[dict], beside: list[dict], options: Options) -> str:
    many = CLIENTS * options.times
    lines = [
        f"| operation | {CLIENTS} clients | {many} clients | ratio | processor time each, ratio | p50, p99, max us | of the many |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for row in load:
        rates = f"{row['few']:,.0f}/s | {row['many']:,.0f}/s | {row['ratio']:.2f} | {row['cpu_ratio']:.2f}"
        trips = [", ".join(f"{row[f'{who}_{name}']:,.0f}" for name in TRIPS) for who in ("few", "many")]
        lines.append(f"| {row['operation']} | {rates} | {trips[0]} | {trips[1]} |")
    lines += ["", "| open loop | answered | put off | too late | answers a processor second, of the peak's | p50, p99, max ms |"]
    lines.append("|---|---|---|---|---|---|")
    for row in overload:
        parts = " | ".join(f"{row[name] / row['offered']:.0%}" for name in ("ok", "exhausted", "late"))
        trips = ", ".join(f"{row[name] / 1e3:,.0f}" for name in TRIPS)
        lines.append(f"| {row['times']:g} times the peak | {parts} | {row['useful']:.0%} | {trips} |")
    lines += ["", "| beside | clients | server's bytes each | insert p50, p99 us | sample p50, p99 us |", "|---|---|---|---|---|"]
    for row in beside:
        a, b, c, d = row["trips"]
        lines.append(
            f"| {row['beside']} | {row['clients']:,} | {row['bytes_each']:,.0f} | {a:,.0f}, {b:,.0f} | {c:,.0f}, {d:,.0f} |"
        )
    return "\n".join(lines)


def run(options: Options) -> tuple[list[dict], list[dict], list[dict]]:
    server = Server()
    try:
        with tempfile.TemporaryDirectory(prefix="reverie-bench-") as folder:
            caller = Caller(server, folder)
            try:
                for operation in OPERATIONS.values():  # something to sample
                    caller.process.send(f"{server.address} insert {operation} 100 1 0 0.2 {caller.path}")
                    caller.process.receive(60)
                return measure_load(server, options), measure_overload(options), measure_crowd(server, caller, options)
            finally:
                caller.process.stop(2)
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.crowd", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short: to see that it runs")
    for field in dataclasses.fields(Options):
        parser.add_argument(f"--{field.name}", type=type(field.default), help=f"{field.default}")
    given = parser.parse_args()
    options = quick() if given.quick else Options()
    changes = {name: value for name, value in vars(given).items() if name != "quick" and value is not None}
    options = dataclasses.replace(options, **changes)
    print(show(*run(options), options))


if __name__ == "__main__":
    main()
