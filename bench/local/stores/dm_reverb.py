"""dm-reverb in the same process: a trajectory writer (flushed at 200 in flight), and both ways to sample."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import reverb

from bench.local.cases import BATCH, POOL, Case

IN_FLIGHT = 200


def table(name: str, sampler: object, capacity: int, signature: object) -> reverb.Table:
    return reverb.Table(
        name=name,
        sampler=sampler,
        remover=reverb.selectors.Fifo(),
        max_size=capacity,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
    )


class Store:
    version = importlib.metadata.version("dm-reverb")

    def __init__(self, case: Case) -> None:
        import tensorflow as tf

        pool = case.pool()
        signature = {name: tf.TensorSpec(column.shape[1:], column.dtype) for name, column in pool.items()}
        self.server = reverb.Server(
            [
                table("uniform", reverb.selectors.Uniform(), case.capacity, signature),
                table("prioritized", reverb.selectors.Prioritized(0.6), case.capacity, signature),
            ]
        )
        self.client = reverb.Client(f"localhost:{self.server.port}")
        self.rows = [{name: column[i] for name, column in pool.items()} for i in range(POOL)]
        self.writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        self.i = 0
        for i in range(case.capacity):
            self._write(self.rows[i % POOL], ("uniform", "prioritized"))
        self.writer.flush()
        self.datasets = {name: self._dataset(name) for name in ("uniform", "prioritized")}
        self.keys = np.asarray(next(self.datasets["prioritized"]).info.key)
        self.priorities = np.random.default_rng(0).random(BATCH)

    def _dataset(self, name: str) -> object:
        dataset = reverb.TrajectoryDataset.from_table_signature(
            server_address=f"localhost:{self.server.port}", table=name, max_in_flight_samples_per_worker=2 * BATCH
        )
        return iter(dataset.batch(BATCH).prefetch(1))

    def _write(self, row: dict[str, np.ndarray], tables: tuple[str, ...]) -> None:
        self.writer.append(row)
        trajectory = {name: column[-1] for name, column in self.writer.history.items()}
        for name in tables:
            self.writer.create_item(name, 1.0, trajectory)
        self.writer.flush(IN_FLIGHT)

    def add(self) -> None:
        self.i = (self.i + 1) % POOL
        self._write(self.rows[self.i], ("uniform",))

    def sample(self) -> None:
        next(self.datasets["uniform"])

    def prioritized_sample(self) -> None:
        self.keys = np.asarray(next(self.datasets["prioritized"]).info.key)

    def update_priorities(self) -> None:
        self.client.mutate_priorities("prioritized", dict(zip(self.keys.tolist(), self.priorities.tolist(), strict=True)))

    def close(self) -> None:
        self.server.stop()
