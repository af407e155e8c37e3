"""What an operator does: looks at the server, saves checkpoints, changes a limiter, resets a table."""

from __future__ import annotations

import time

import reverie

from .load import PATIENCE, Load

WIDTH = 16
UNSETTLED = 30.0  # seconds after a reset that failed in which it may still come


class Administrator(Load):
    tables = ("scratch",)

    unsettled_until = 0.0

    def step(self) -> None:
        self.random.choice((self.info, self.info, self.limiter, self.checkpoint, self.fill, self.fill, self.fill, self.reset))()
        self.rest(self.random.uniform(0.0, 0.1))

    def info(self) -> None:
        call = self.call("server_info", self.client.server_info, timeout=PATIENCE)
        if not call.succeeded:
            return
        ratio = call.result["ratio"].rate_limiter_info
        low = ratio.samples_per_insert * ratio.insert_stats.completed - ratio.sample_stats.completed
        if low < ratio.min_diff:
            self.wrong(f"ratio: more was sampled than its limiter allows: {low} < {ratio.min_diff}")

    def limiter(self) -> None:
        limiter = reverie.rate_limiters.RateLimiter(4.0, self.random.choice((1, 50, 100, 200)), -400.0, 1200.0)
        self.call("set_rate_limiter", self.client.set_rate_limiter, "ratio", limiter, timeout=PATIENCE)

    def checkpoint(self) -> None:
        if self.random.random() < 0.3:
            self.call("checkpoint", self.client.checkpoint, timeout=2 * PATIENCE, patience=2 * PATIENCE)

    def fill(self) -> None:
        ids = self.add_rows("add_batch", self.random.randint(1, 100), WIDTH)
        if time.monotonic() > self.unsettled_until:  # otherwise the reset of before may still come
            self.stream.confirm(ids)

    def reset(self) -> None:
        last = self.stream.next - 1
        if last == 0:
            return
        since = self.stream.ledger.deleting(1, last)
        if self.call("reset", self.client.reset, "scratch", timeout=PATIENCE).succeeded:
            self.stream.ledger.deleted(1, last, since)
        else:
            self.unsettled_until = time.monotonic() + UNSETTLED
