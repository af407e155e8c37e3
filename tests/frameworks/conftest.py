"""Servers for what feeds learning frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import reverie
from waiting import holding_server

ROWS = 100


@pytest.fixture
def serve() -> Iterator[Callable[..., reverie.Server]]:
    """serve(address=..., **table options): a server with one table, "replay"."""
    servers: list[reverie.Server] = []

    def call(address: str | None = None, **options: Any) -> reverie.Server:
        given: dict[str, Any] = {
            "name": "replay",
            "sampler": reverie.selectors.Uniform(),
            "remover": reverie.selectors.Fifo(),
            "max_size": 1000,
            "rate_limiter": reverie.rate_limiters.MinSize(1),
        }
        where: dict[str, Any] = {"in_process": True} if address is None else {"address": address}
        servers.append(reverie.Server([reverie.Table(**{**given, **options})], **where))
        return servers[-1]

    yield call
    for server in servers:
        server.stop()


def fill(server: reverie.Server) -> reverie.Server:
    client = reverie.Client(server)
    for i in range(ROWS):
        row = {"obs": np.full((3, 2), i, np.float32), "action": np.int64(i), "name": f"row {i}"}
        client.add("replay", row, priority=i + 1.0)
    return server


SIGNATURE = {
    "obs": reverie.TensorSpec((3, 2), np.float32),
    "action": reverie.TensorSpec((), np.int64),
    "name": reverie.TensorSpec((), str),
}


@pytest.fixture(params=("in process", "tcp"))
def source(request: pytest.FixtureRequest, serve: Callable[..., reverie.Server]) -> reverie.Server | str:
    """A server of a hundred rows, or its address."""
    if request.param == "tcp":
        return fill(serve("127.0.0.1:0", signature=SIGNATURE)).address
    return fill(serve(signature=SIGNATURE))


@pytest.fixture
def address(serve: Callable[..., reverie.Server]) -> str:
    """Where a server of a hundred rows listens."""
    return fill(serve("127.0.0.1:0", signature=SIGNATURE)).address


@pytest.fixture
def holding() -> Iterator[reverie.Server]:
    """A server at which everybody waits (waiting.py)."""
    yield from holding_server()
