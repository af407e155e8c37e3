"""Flashbax on the CPU: item buffers, jitted and with donated state, each call waited for."""

from __future__ import annotations

import functools
import importlib.metadata

import flashbax as library
import jax
import numpy as np

from bench.local.cases import ADD_BATCH, BATCH, POOL, Case


class Store:
    version = importlib.metadata.version("flashbax")

    def __init__(self, case: Case) -> None:
        pool = case.pool()
        self.rows = [{name: column[i] for name, column in pool.items()} for i in range(POOL)]
        self.batches = [{name: column[i : i + ADD_BATCH] for name, column in pool.items()} for i in range(0, POOL, ADD_BATCH)]
        one = library.make_item_buffer(case.capacity, BATCH, BATCH)
        many = library.make_item_buffer(case.capacity, BATCH, BATCH, add_batches=True)
        self.state = one.init(self.rows[0])
        self.many_add = jax.jit(many.add, donate_argnums=0)
        self.one_add = jax.jit(one.add, donate_argnums=0)
        self.one_sample = jax.jit(one.sample)
        for i in range(0, case.capacity, ADD_BATCH):
            self.state = self.many_add(self.state, self.batches[(i // ADD_BATCH) % len(self.batches)])
        self.key = jax.random.PRNGKey(0)
        self.split = jax.jit(functools.partial(jax.random.split, num=2))
        self.i = 0
        if case.name != "atari":
            prioritized = library.make_prioritised_item_buffer(
                case.capacity, BATCH, BATCH, add_batches=True, priority_exponent=0.6
            )
            self.pstate = prioritized.init(self.rows[0])
            add = jax.jit(prioritized.add, donate_argnums=0)
            for i in range(0, case.capacity, ADD_BATCH):
                self.pstate = add(self.pstate, self.batches[(i // ADD_BATCH) % len(self.batches)])
            self.psample = jax.jit(prioritized.sample)
            self.pset = jax.jit(prioritized.set_priorities, donate_argnums=0)
            self.drawn = self.psample(self.pstate, self.key)
            self.priorities = np.random.default_rng(0).random(BATCH).astype(np.float32)
            self.prioritized_sample = self._prioritized_sample
            self.update_priorities = self._update_priorities

    def add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.state = jax.block_until_ready(self.one_add(self.state, self.rows[self.i]))

    def add_batch(self) -> None:
        self.i = (self.i + 1) % len(self.batches)
        self.state = jax.block_until_ready(self.many_add(self.state, self.batches[self.i]))

    def sample(self) -> None:
        self.key, key = self.split(self.key)
        jax.block_until_ready(self.one_sample(self.state, key))

    def _prioritized_sample(self) -> None:
        self.key, key = self.split(self.key)
        self.drawn = jax.block_until_ready(self.psample(self.pstate, key))

    def _update_priorities(self) -> None:
        self.pstate = jax.block_until_ready(self.pset(self.pstate, self.drawn.indices, self.priorities))
