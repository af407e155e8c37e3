"""Servers and clients for the tests: every promise of a client is kept in process, over TCP and over a unix socket."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import reverie

TRANSPORTS = ("store", "inproc", "tcp", "unix")


def make_table(name: str = "t", **options: Any) -> reverie.Table:
    """A FIFO table of 1000 items that waits for one item; options as for reverie.Table."""
    given: dict[str, Any] = {
        "sampler": reverie.selectors.Fifo(),
        "remover": reverie.selectors.Fifo(),
        "max_size": 1000,
        "rate_limiter": reverie.rate_limiters.MinSize(1),
    }
    given.update(options)
    return reverie.Table(name=name, **given)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Without the last words of what earlier tests left behind, in cycles, to be collected some time."""
    gc.collect()
    caplog.clear()
    return caplog


Connect = Callable[..., reverie.Client]
Team = Callable[..., list[reverie.Client]]


@pytest.fixture(params=TRANSPORTS)
def team(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Team]:
    """team(n, *tables): n clients of one new server with these tables, over one of the transports."""
    servers: list[reverie.Server] = []

    def call(n: int, *tables: reverie.Table) -> list[reverie.Client]:
        made = tables or (make_table(),)
        number = len(servers)
        address: Any
        if request.param == "store":
            servers.append(reverie.Server(made, in_process=True))
            address = servers[-1]
        elif request.param == "inproc":
            name = f"{request.node.name}-{number}"
            servers.append(reverie.Server(made, in_process=True, name=name))
            address = f"inproc://{name}"
        else:
            place = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/{number}"
            servers.append(reverie.Server(made, address=place, shared_memory=False))
            address = servers[-1].address
        return [reverie.Client(address) for _ in range(n)]

    yield call
    for server in servers:
        server.stop()


@pytest.fixture
def connect(team: Team) -> Connect:
    """connect(*tables): a client of a new server with these tables, over one of the transports."""
    return lambda *tables: team(1, *tables)[0]


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[reverie.Server, reverie.Client]]]:
    """serve(*tables): a server of this process and a client of its store."""
    servers: list[reverie.Server] = []

    def call(*tables: reverie.Table, **options: Any) -> tuple[reverie.Server, reverie.Client]:
        options = options or {"in_process": True}
        servers.append(reverie.Server(tables or (make_table(),), **options))
        return servers[-1], reverie.Client(servers[-1])

    yield call
    for server in servers:
        server.stop()


def flat(samples: Sequence[reverie.ReplaySample]) -> list[Any]:
    """The first column of each sample, as Python values."""
    return [sample.data[0].tolist() for sample in samples]
