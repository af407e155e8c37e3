"""reverie.jax: batches on a device, put there ahead."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reverie
import reverie.jax
from waiting import SAMPLING, SOON, interrupted, says_at_its_deadline


def test_batches_are_arrays_on_the_device(source):
    device = jax.devices()[0]
    with reverie.jax.batches(source, "replay", 16, device=device) as batches:
        for _, batch in zip(range(5), batches, strict=False):
            assert isinstance(batch.data["obs"], jax.Array)
            assert batch.data["obs"].devices() == {device}
            assert batch.data["obs"].shape == (16, 3, 2)
            assert jnp.array_equal(batch.data["obs"][:, 0, 0].astype(int), batch.data["action"])
            assert batch.data["name"].dtype == object
            assert batch.keys.dtype == np.uint64
            assert batch.table_size == 100


def test_a_batch_stays_as_it_was_drawn(source):
    with reverie.jax.batches(source, "replay", 64, prefetch=3) as batches:
        first = next(batches)
        before = np.array(first.data["obs"])
        for _ in range(20):
            next(batches)
        assert np.array_equal(np.array(first.data["obs"]), before)


def test_keys_of_a_batch_update_priorities(source):
    with reverie.jax.batches(source, "replay", 8) as batches:
        batch = next(batches)
    client = reverie.Client(source)
    client.update_priorities("replay", batch.keys, jnp.full(8, 500.0))
    assert {item.key for item in client.items("replay") if item.priority == 500.0} == set(batch.keys.tolist())


def test_a_batch_goes_into_a_compiled_function(source):
    @jax.jit
    def total(data):
        return data["obs"].sum()

    with reverie.jax.batches(source, "replay", 8) as batches:
        batch = next(batches)
    del batch.data["name"]
    assert float(total(batch.data)) == pytest.approx(6.0 * float(batch.data["action"].sum()))


def test_a_batch_waits_no_longer_than_told(source):
    reverie.Client(source).reset("replay")
    with reverie.jax.batches(source, "replay", 4, timeout=0.05) as batches, pytest.raises(reverie.errors.DeadlineExceededError):
        next(batches)


@pytest.mark.parametrize(("name", "value"), [("batch_size", 0), ("prefetch", 0), ("timeout", -1.0), ("unequal", "list")])
def test_a_wrong_argument_is_named_at_once(name, value):
    with pytest.raises(ValueError, match=name):
        reverie.jax.batches(**{"server": "localhost:1", "table": "replay", "batch_size": 4, name: value})


def test_what_the_table_holds_says_at_its_timeout_what_it_waits_for(holding):
    def wait(timeout):
        with reverie.jax.batches(holding.address, "few", 2, timeout=timeout) as batches:
            next(batches)

    says_at_its_deadline(wait, SAMPLING, SOON)


def test_a_server_that_went_is_named_at_the_timeout(holding):
    holding.stop()
    with (
        reverie.jax.batches(holding.address, "few", 2, timeout=SOON) as batches,
        pytest.raises(reverie.DeadlineExceededError, match=holding.address),
    ):
        next(batches)


def test_a_wait_ends_by_ctrl_c(holding):
    with reverie.jax.batches(holding.address, "few", 2, timeout=None) as batches:
        interrupted(lambda: next(batches))


def test_a_wait_ends_when_another_thread_closes_the_iterator(holding):
    batches = reverie.jax.batches(holding.address, "few", 2, timeout=None)
    closing = threading.Timer(SOON, batches.close)
    closing.start()
    assert list(batches) == []
    closing.join()
