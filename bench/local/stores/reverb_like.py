"""What Reverie and dm-reverb have in common: tables; and the trajectory writer through which dm-reverb makes items of several steps."""

from __future__ import annotations

from typing import Any

from bench.local.cases import EPISODE, POOL, Case

IN_FLIGHT = 200


def table(store: Any, name: str, sampler: Any, capacity: int, signature: Any = None) -> Any:
    return store.Table(
        name=name,
        sampler=sampler,
        remover=store.selectors.Fifo(),
        max_size=capacity,
        rate_limiter=store.rate_limiters.MinSize(1),
        signature=signature,
    )


def num_items(case: Case) -> int:
    """Items that the table of a kind with history holds."""
    return case.capacity // case.period


class History:
    """Writes steps, and an item whenever one is due."""

    def __init__(self, writer: Any, case: Case) -> None:
        self.writer = writer
        self.case = case
        steps = case.steps()
        self.rows = [{name: column[i] for name, column in steps.items() if name != "next_obs"} for i in range(POOL)]
        self.i = 0

    def _trajectory(self) -> dict[str, Any] | None:
        case, history, step = (
            self.case,
            self.writer.history,
            self.i % EPISODE + 1,
        )  # of this episode, the one just written included
        n = case.length
        if case.kind == "sequence":
            if step < n or (step - n) % case.period:
                return None
            return {name: history[name][-n:] for name in ("obs", "action", "reward", "done")}
        if step < n + 1:
            return None
        if case.kind == "nstep":
            return {
                "obs": history["obs"][-n - 1],
                "action": history["action"][-n - 1],
                "reward": history["reward"][-n - 1 : -1],
                "next_obs": history["obs"][-1],
                "done": history["done"][-2],
            }
        return {
            "obs": history["obs"][-n - 1 : -1],
            "action": history["action"][-2],
            "reward": history["reward"][-2],
            "next_obs": history["obs"][-n:],
            "done": history["done"][-2],
        }

    def add(self) -> None:
        self.writer.append(self.rows[self.i % POOL])
        trajectory = self._trajectory()
        if trajectory is not None:
            self.writer.create_item("items", 1.0, trajectory)
        self.i += 1
        if self.i % EPISODE == 0:
            self.writer.end_episode()
        else:
            self.writer.flush(IN_FLIGHT)
