"""dm-reverb in the same process: a trajectory writer (flushed at 200 in flight), and the dataset to sample with."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import reverb

from bench.local.cases import POOL, Case
from bench.local.stores.reverb_like import IN_FLIGHT, History, num_items, table
from bench.local.worker import NotSupported


class Store:
    version = importlib.metadata.version("dm-reverb")

    def __init__(self, case: Case) -> None:
        if case.kind == "next":
            raise NotSupported("it stores next observations beside the others")
        self.batch = case.batch
        if case.kind == "transition":
            self._begin_transitions(case)
        else:
            self._begin_history(case)

    def close(self) -> None:
        self.server.stop()

    def _serve(self, tables: list) -> None:
        self.server = reverb.Server(tables)
        self.address = f"localhost:{self.server.port}"
        self.client = reverb.Client(self.address)

    def _batches(self, dataset: object) -> object:
        return iter(dataset.batch(self.batch).prefetch(1))

    # ---- transitions ----

    def _begin_transitions(self, case: Case) -> None:
        import tensorflow as tf

        pool = case.pool()
        signature = {name: tf.TensorSpec(column.shape[1:], column.dtype) for name, column in pool.items()}
        self._serve(
            [
                table(reverb, "uniform", reverb.selectors.Uniform(), case.capacity, signature),
                table(reverb, "prioritized", reverb.selectors.Prioritized(0.6), case.capacity, signature),
            ]
        )
        self.rows = [{name: column[i] for name, column in pool.items()} for i in range(POOL)]
        self.writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        self.i = 0
        for i in range(case.capacity):
            self._write(self.rows[i % POOL], ("uniform", "prioritized"))
        self.writer.flush()
        self.datasets = {}
        for name in ("uniform", "prioritized"):
            self.datasets[name] = self._batches(
                reverb.TrajectoryDataset.from_table_signature(
                    server_address=self.address, table=name, max_in_flight_samples_per_worker=2 * self.batch
                )
            )
        self.keys = np.asarray(next(self.datasets["prioritized"]).info.key)
        self.priorities = np.random.default_rng(0).random(self.batch)
        self.add, self.sample = self._add, self._sample
        self.prioritized_sample, self.update_priorities = self._prioritized_sample, self._update_priorities

    def _write(self, row: dict[str, np.ndarray], tables: tuple[str, ...]) -> None:
        self.writer.append(row)
        trajectory = {name: column[-1] for name, column in self.writer.history.items()}
        for name in tables:
            self.writer.create_item(name, 1.0, trajectory)
        self.writer.flush(IN_FLIGHT)

    def _add(self) -> None:
        self.i = (self.i + 1) % POOL
        self._write(self.rows[self.i], ("uniform",))

    def _sample(self) -> None:
        next(self.datasets["uniform"])

    def _prioritized_sample(self) -> None:
        self.keys = np.asarray(next(self.datasets["prioritized"]).info.key)

    def _update_priorities(self) -> None:
        self.client.mutate_priorities("prioritized", dict(zip(self.keys.tolist(), self.priorities.tolist(), strict=True)))

    # ---- items of several steps ----

    def _begin_history(self, case: Case) -> None:
        import tensorflow as tf

        self._serve([table(reverb, "items", reverb.selectors.Uniform(), num_items(case))])
        self.discounts = case.discounts()
        history = History(self.client.trajectory_writer(num_keep_alive_refs=case.length + 1), case)
        for _ in range(case.capacity):
            history.add()
        history.writer.flush()
        leading = {"sequence": dict.fromkeys(("obs", "action", "reward", "done"), (case.length,))}
        leading["nstep"] = {"obs": (), "action": (), "reward": (case.length,), "next_obs": (), "done": ()}
        leading["framestack"] = {"obs": (case.length,), "action": (), "reward": (), "next_obs": (case.length,), "done": ()}
        dtypes = {"obs": case.dtype, "next_obs": case.dtype, "action": "int64", "reward": "float32", "done": "bool"}
        names = leading[case.kind]
        rows = {name: case.shape if name in ("obs", "next_obs") else () for name in names}
        dataset = reverb.TrajectoryDataset(
            server_address=self.address,
            table="items",
            dtypes={name: np.dtype(dtypes[name]) for name in names},
            shapes={name: tf.TensorShape([*lead, *rows[name]]) for name, lead in names.items()},
            max_in_flight_samples_per_worker=2 * self.batch,
        )
        self.items = self._batches(dataset)
        self.add = history.add
        self.sample = self._sample_nstep if case.kind == "nstep" else self._sample_items

    def _sample_items(self) -> None:
        next(self.items)

    def _sample_nstep(self) -> None:
        np.asarray(next(self.items).data["reward"]) @ self.discounts
