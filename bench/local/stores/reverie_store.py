"""Reverie, embedded."""

from __future__ import annotations

from typing import Any

import numpy as np
import reverie
from reverie import structured

from bench.local.cases import ADD_BATCH, EPISODE, POOL, Case
from bench.local.stores.reverb_like import IN_FLIGHT, num_items, table


def _items(case: Case, step: dict[str, Any]) -> Any:
    """Which rows make an item, and when: what `reverb_like.History` says at each step."""
    n = case.length

    def sequence(ref: dict[str, Any]) -> dict[str, Any]:
        return {name: ref[name][-n:] for name in ("obs", "action", "reward", "done")}

    def nstep(ref: dict[str, Any]) -> dict[str, Any]:
        return {
            "obs": ref["obs"][-n - 1],
            "action": ref["action"][-n - 1],
            "reward": ref["reward"][-n - 1 : -1],
            "next_obs": ref["obs"][-1],
            "done": ref["done"][-2],
        }

    if case.kind == "nstep":
        return structured.create_config(structured.pattern_from_transform(step, nstep), "items")
    due = structured.Condition.step_index() % case.period == (n - 1) % case.period
    conditions = [structured.Condition.step_index() >= n - 1, due]
    return structured.create_config(structured.pattern_from_transform(step, sequence), "items", conditions)


class Store:
    version = reverie.__version__

    def __init__(self, case: Case) -> None:
        self.batch = case.batch
        if case.kind == "transition":
            self._begin_transitions(case)
        elif case.kind in ("next", "framestack"):
            self._begin_shared(case)
        else:
            self._begin_history(case)

    def close(self) -> None:
        self.server.stop()

    # ---- transitions ----

    def _begin_transitions(self, case: Case) -> None:
        pool = case.pool()
        signature = {name: reverie.TensorSpec(column.shape[1:], column.dtype, name) for name, column in pool.items()}
        self.server = reverie.Server(
            [
                table(reverie, "uniform", reverie.selectors.Uniform(), case.capacity, signature),
                table(reverie, "prioritized", reverie.selectors.Prioritized(0.6), case.capacity, signature),
            ],
            in_process=True,
        )
        self.client = reverie.Client(self.server)
        self.rows = [{name: column[i] for name, column in pool.items()} for i in range(POOL)]
        self.batches = [{name: column[i : i + ADD_BATCH] for name, column in pool.items()} for i in range(0, POOL, ADD_BATCH)]
        self.i = 0
        for i in range(0, case.capacity, ADD_BATCH):
            batch = self.batches[(i // ADD_BATCH) % len(self.batches)]
            self.client.add_batch("uniform", batch)
            self.client.add_batch("prioritized", batch)
        self.keys = self.client.sample_batch("prioritized", self.batch).keys
        self.priorities = np.random.default_rng(0).random(self.batch)
        self.add, self.add_batch, self.sample = self._add, self._add_batch, self._sample
        self.prioritized_sample, self.update_priorities = self._prioritized_sample, self._update_priorities

    def _add(self) -> None:
        self.i = (self.i + 1) % POOL
        self.client.add("uniform", self.rows[self.i])

    def _add_batch(self) -> None:
        self.i = (self.i + 1) % len(self.batches)
        self.client.add_batch("uniform", self.batches[self.i])

    def _sample(self) -> None:
        self.client.sample_batch("uniform", self.batch)

    def _prioritized_sample(self) -> None:
        self.keys = self.client.sample_batch("prioritized", self.batch).keys

    def _update_priorities(self) -> None:
        self.client.update_priorities("prioritized", self.keys, self.priorities)

    # ---- transitions that share what repeats ----

    def _begin_shared(self, case: Case) -> None:
        tables = [table(reverie, name, reverie.selectors.Uniform(), case.capacity) for name in ("items", "many")]
        self.server = reverie.Server(tables, in_process=True)
        self.client = reverie.Client(self.server)
        stack = {"obs": case.length} if case.kind == "framestack" else None
        self.one = self.client.transitions("items", 1, next={"next_obs": "obs"}, stack=stack)
        self.many = self.client.transitions("many", ADD_BATCH, next={"next_obs": "obs"}, stack=stack)
        self.rows, self.batches = case.shared_steps(1), case.shared_steps(ADD_BATCH)
        self.i = self.k = 0
        self.add, self.add_batch, self.sample = self._add_shared, self._add_shared_batch, self._sample_items
        for _ in range(case.capacity):
            self.add()
        for _ in range(0, case.capacity, ADD_BATCH):
            self.add_batch()

    def _add_shared(self) -> None:
        self.one.add(self.rows[self.i])
        self.i = (self.i + 1) % POOL

    def _add_shared_batch(self) -> None:
        self.many.add(self.batches[self.k])
        self.k = (self.k + 1) % len(self.batches)

    # ---- items of several steps: their patterns are said once, to a structured writer ----

    def _begin_history(self, case: Case) -> None:
        self.server = reverie.Server([table(reverie, "items", reverie.selectors.Uniform(), num_items(case))], in_process=True)
        self.client = reverie.Client(self.server)
        self.discounts = case.discounts()
        steps = {name: column for name, column in case.steps().items() if name != "next_obs"}
        self.rows = [{name: column[i] for name, column in steps.items()} for i in range(POOL)]
        self.writer = self.client.structured_writer([_items(case, self.rows[0])])
        self.i = 0
        for _ in range(case.capacity):
            self._add_step()
        self.add = self._add_step
        self.sample = self._sample_nstep if case.kind == "nstep" else self._sample_items

    def _add_step(self) -> None:
        self.writer.append(self.rows[self.i % POOL])
        self.i += 1
        if self.i % EPISODE == 0:
            self.writer.end_episode()
        else:
            self.writer.flush(IN_FLIGHT)

    def _sample_items(self) -> None:
        self.client.sample_batch("items", self.batch)

    def _sample_nstep(self) -> None:
        data = self.client.sample_batch("items", self.batch).data
        rewards = data["reward"] if isinstance(data, dict) else data[2]
        rewards @ self.discounts
