"""Flashbax on the CPU: item and trajectory buffers, jitted and with donated state, each call waited for."""

from __future__ import annotations

import functools
import importlib.metadata
from typing import Any

import flashbax as library
import jax
import numpy as np

from bench.local.cases import ADD_BATCH, POOL, Case
from bench.local.worker import NotSupported


class Store:
    version = importlib.metadata.version("flashbax")

    def __init__(self, case: Case) -> None:
        if case.kind == "next":
            raise NotSupported("it stores next observations beside the others")
        self.i = 0
        self.key = jax.random.PRNGKey(0)
        self.split = jax.jit(functools.partial(jax.random.split, num=2))
        if case.kind == "transition":
            self._begin_transitions(case)
        else:
            self._begin_history(case)

    def add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.state = jax.block_until_ready(self.one_add(self.state, self.rows[self.i]))

    def sample(self) -> None:
        self.key, key = self.split(self.key)
        jax.block_until_ready(self.one_sample(self.state, key))

    # ---- transitions ----

    def _begin_transitions(self, case: Case) -> None:
        pool = case.pool()
        self.rows = [{name: column[i] for name, column in pool.items()} for i in range(POOL)]
        self.batches = [{name: column[i : i + ADD_BATCH] for name, column in pool.items()} for i in range(0, POOL, ADD_BATCH)]
        one = library.make_item_buffer(case.capacity, case.batch, case.batch)
        many = library.make_item_buffer(case.capacity, case.batch, case.batch, add_batches=True)
        self.state = one.init(self.rows[0])
        self.many_add = jax.jit(many.add, donate_argnums=0)
        self.one_add = jax.jit(one.add, donate_argnums=0)
        self.one_sample = jax.jit(one.sample)
        for i in range(0, case.capacity, ADD_BATCH):
            self.state = self.many_add(self.state, self.batches[(i // ADD_BATCH) % len(self.batches)])
        prioritized = library.make_prioritised_item_buffer(
            case.capacity, case.batch, case.batch, add_batches=True, priority_exponent=0.6
        )
        self.pstate = prioritized.init(self.rows[0])
        add = jax.jit(prioritized.add, donate_argnums=0)
        for i in range(0, case.capacity, ADD_BATCH):
            self.pstate = add(self.pstate, self.batches[(i // ADD_BATCH) % len(self.batches)])
        self.psample = jax.jit(prioritized.sample)
        self.pset = jax.jit(prioritized.set_priorities, donate_argnums=0)
        self.drawn = self.psample(self.pstate, self.key)
        self.priorities = np.random.default_rng(0).random(case.batch).astype(np.float32)
        self.add_batch = self._add_batch
        self.prioritized_sample, self.update_priorities = self._prioritized_sample, self._update_priorities

    def _add_batch(self) -> None:
        self.i = (self.i + 1) % len(self.batches)
        self.state = jax.block_until_ready(self.many_add(self.state, self.batches[self.i]))

    def _prioritized_sample(self) -> None:
        self.key, key = self.split(self.key)
        self.drawn = jax.block_until_ready(self.psample(self.pstate, key))

    def _update_priorities(self) -> None:
        self.pstate = jax.block_until_ready(self.pset(self.pstate, self.drawn.indices, self.priorities))

    # ---- what several steps make: sequences of its trajectory buffer, cut as the learner needs them ----

    def _begin_history(self, case: Case) -> None:
        steps = case.steps()
        self.rows = [{name: column[None, None, i] for name, column in steps.items()} for i in range(POOL)]
        length = case.length if case.kind == "sequence" else case.length + 1
        buffer = library.make_trajectory_buffer(
            add_batch_size=1,
            sample_batch_size=case.batch,
            sample_sequence_length=length,
            period=case.period,
            min_length_time_axis=length,
            max_length_time_axis=case.capacity,
        )
        self.state = buffer.init({name: column[0] for name, column in steps.items()})
        self.one_add = jax.jit(buffer.add, donate_argnums=0)
        discounts = case.discounts()

        def cut(state: Any, key: Any) -> Any:
            seen = buffer.sample(state, key).experience
            if case.kind == "nstep":
                rewards = (seen["reward"][:, :-1] * discounts).sum(axis=1)
                return seen["obs"][:, 0], seen["action"][:, 0], rewards, seen["obs"][:, -1], seen["done"][:, -2]
            if case.kind == "framestack":
                return seen["obs"][:, :-1], seen["action"][:, -2], seen["reward"][:, -2], seen["obs"][:, 1:], seen["done"][:, -2]
            return seen

        self.one_sample = jax.jit(cut)
        columns = {
            name: np.tile(column, (-(-case.capacity // POOL), *([1] * (column.ndim - 1)))) for name, column in steps.items()
        }
        fill = jax.jit(buffer.add, donate_argnums=0)
        for i in range(0, case.capacity - POOL + 1, POOL):
            self.state = fill(self.state, {name: column[None, i : i + POOL] for name, column in columns.items()})
