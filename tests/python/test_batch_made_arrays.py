"""sample_batch(out=function): arrays of the caller's making."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import reverie
from waiting import TooSlowError, with_a_deadline


def fill(client, n=20):
    for i in range(n):
        client.add("t", {"a": np.full(3, i, np.float32), "b": np.int64(i), "s": str(i)})


def mapped(shape, dtype):
    return np.frombuffer(mmap.mmap(-1, max(1, int(np.prod(shape)) * dtype.itemsize)), dtype).reshape(shape)


def test_a_batch_lies_in_arrays_that_the_function_made(connect):
    client = connect()
    fill(client)
    made = []

    def make(shape, dtype):
        made.append(mapped(shape, dtype))
        return made[-1]

    for _ in range(3):
        made.clear()
        batch = client.sample_batch("t", 8, out=make)
        assert batch.data["a"] is made[0]
        assert batch.data["b"] is made[1]
        assert [array.dtype for array in made] == [np.float32, np.int64]  # strings have no memory of their own
        assert batch.data["a"][:, 1].tolist() == batch.data["b"].tolist()
        assert batch.data["s"].tolist() == [str(b).encode() for b in batch.data["b"]]


def test_a_batch_that_comes_short_is_a_view_of_them(team):
    client = team(1, reverie.Table.queue("t", 10))[0]
    made = []

    def make(shape, dtype):
        made.append(np.empty(shape, dtype))
        return made[-1]

    def draw(there, timeout):
        client.reset("t")
        for i in range(there):
            client.add("t", np.int64(i))
        try:
            return client.sample_batch("t", 8, timeout=timeout, out=make)
        except reverie.DeadlineExceededError as error:
            raise TooSlowError from error

    for there in (4, 3):
        batch = with_a_deadline(lambda timeout, there=there: draw(there, timeout), 0.3)
        assert batch.data.tolist() == list(range(there))
        assert np.shares_memory(batch.data, made[-1])


def test_the_function_is_asked_again_when_the_items_look_otherwise(connect):
    client = connect()
    for rows in (np.zeros(2, np.float32), np.zeros((4, 1), np.int8)):
        client.reset("t")
        for _ in range(3):
            client.add("t", rows)
        assert client.sample_batch("t", 5, out=np.empty).data.shape == (5, *rows.shape)


@pytest.mark.parametrize(
    "make",
    [
        lambda shape, dtype: None,
        lambda shape, dtype: np.empty(shape, np.int16),
        lambda shape, dtype: np.empty((1, *shape), dtype),
        lambda shape, dtype: np.empty((2 * shape[0], *shape[1:]), dtype)[::2],
        lambda shape, dtype: np.broadcast_to(np.zeros((), dtype), shape),
    ],
)
def test_an_array_that_does_not_fit_is_refused(connect, make):
    client = connect()
    client.add("t", np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="out: the function must return"):
        client.sample_batch("t", 4, out=make)


def test_what_the_function_raises_comes_through(connect):
    client = connect()
    client.add("t", np.zeros(3, np.float32))

    def make(shape, dtype):
        raise MemoryError("no more pages")

    for _ in range(2):
        with pytest.raises(MemoryError, match="no more pages"):
            client.sample_batch("t", 4, out=make)


def test_the_function_may_use_the_client(connect):
    client = connect()
    client.add("t", np.zeros(3, np.float32))
    others = []

    def make(shape, dtype):
        if len(others) < 3:
            client.reset("t")
            client.add("t", np.ones(len(others) + 1, np.int32))
            others.append(client.sample_batch("t", 2).data.shape)
        return np.empty(shape, dtype)

    batch = client.sample_batch("t", 4, out=make)
    assert batch.data.shape[0] == 4
    assert others
