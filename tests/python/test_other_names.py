"""A server goes, and one comes whose table calls its columns otherwise: clients that were there before go by its names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie.errors import DeadlineExceededError, InvalidArgumentError
from waiting import Call, until

LONG = 30
FLOAT = reverie.TensorSpec((), np.float32)

Restart = Callable[..., reverie.Client]


@pytest.fixture
def restart(tmp_path: Any) -> Iterator[Restart]:
    """restart(signature, **options): a server with table "t" in the place of the one before, and a new client of it."""
    servers: list[reverie.Server] = []

    def call(signature: dict[str, reverie.TensorSpec], **options: Any) -> reverie.Client:
        if servers:
            servers.pop().stop()
        servers.append(reverie.Server([make_table(signature=signature, **options)], address=f"unix:{tmp_path}/socket"))
        return reverie.Client(servers[-1].address)

    yield call
    for server in servers:
        server.stop()


def test_batches_and_samples_are_called_as_the_next_server_calls_them(restart):
    client = restart({"action": FLOAT, "reward": FLOAT})
    client.add("t", {"action": 1.0, "reward": 2.0}, timeout=LONG)
    for _ in range(40):  # a habit, for which batches are drawn ahead
        assert client.sample_batch("t", 1, timeout=LONG).data == {"action": [1], "reward": [2]}
    samples = client.sample("t", 10**6, emit_timesteps=False, unpack_as_table_signature=True, timeout=LONG)
    assert next(samples).data == {"action": 1, "reward": 2}
    restart({"reward": FLOAT, "value": FLOAT}).add("t", {"reward": 7.0, "value": 8.0}, timeout=LONG)
    assert client.sample_batch("t", 1, timeout=LONG).data == {"reward": [7], "value": [8]}
    data = {"action": 1}
    while "action" in data:  # what had come before the old server went is called as it was there
        data = next(samples).data
    assert data == {"reward": 7, "value": 8}


def test_the_time_in_which_the_first_server_comes_counts_once(restart, tmp_path):
    client = reverie.Client(f"unix:{tmp_path}/socket")
    begun, timeout = time.monotonic(), 4.0
    call = Call(client.sample_batch, "t", 1, timeout=timeout)
    time.sleep(timeout / 3)
    first = restart({"a": FLOAT, "b": FLOAT}, max_times_sampled=1)
    until(lambda: first.server_info(LONG)["t"].num_waiting_samples == 1 or not call.is_alive())
    restart({"c": FLOAT, "d": FLOAT}, max_times_sampled=1).add("t", {"c": 1.0, "d": 2.0}, timeout=LONG)
    assert isinstance(call.join(), DeadlineExceededError)  # what was drawn by the old names has gone, and nothing else comes
    assert time.monotonic() - begun > timeout - 0.2


def test_samples_have_the_columns_of_the_next_server(restart):
    client = restart({"a": FLOAT, "b": FLOAT})
    client.add("t", {"a": 1.0, "b": 2.0}, timeout=LONG)
    samples = client.sample("t", 10**6, emit_timesteps=False, unpack_as_table_signature=True, timeout=LONG)
    assert len(next(samples).data) == 2
    restart({"a": FLOAT, "b": FLOAT, "c": FLOAT}).add("t", {"a": 1.0, "b": 2.0, "c": 3.0}, timeout=LONG)
    assert client.sample_batch("t", 1, timeout=LONG).data == {"a": [1], "b": [2], "c": [3]}
    data: dict[str, Any] = {}
    while len(data) < 3:
        data = next(samples).data
    assert data == {"a": 1, "b": 2, "c": 3}


def test_rows_called_otherwise_than_at_the_next_server_are_refused(restart):
    client = restart({"action": FLOAT, "reward": FLOAT})
    row = {"action": np.float32(1), "reward": np.float32(2)}
    client.add("t", row, timeout=LONG)
    new = restart({"reward": FLOAT, "value": FLOAT})
    client.reset("t")  # the new connection is there
    with pytest.raises(InvalidArgumentError, match='is called "action"'):
        client.add("t", row, timeout=LONG)
    with pytest.raises(InvalidArgumentError, match='is called "action"'):
        client.add_batch("t", {"action": np.ones(2, np.float32), "reward": np.ones(2, np.float32)}, timeout=LONG)
    assert new.server_info()["t"].current_size == 0


@pytest.mark.parametrize(
    ("old", "new", "value"), [(np.int8, np.int64, 300), (np.int32, np.int64, 5), (np.int32, np.float32, 1.5)]
)
def test_rows_are_converted_to_the_dtype_of_the_next_server(restart, old, new, value):
    client = restart({"a": reverie.TensorSpec((), old)})
    client.add("t", {"a": 1}, timeout=LONG)
    restart({"a": reverie.TensorSpec((), new)})
    client.reset("t")  # the new connection is there
    client.add("t", {"a": value}, timeout=LONG)
    assert client.sample_batch("t", 1, timeout=LONG).data == {"a": [value]}
