"""Two ways to show progress: a live panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from .config import SOLVED_RETURN
from .progress import Point, Progress


def _bars(values: list[float], width: int, top: float) -> str:
    """The last ``width`` values as one line of block characters."""
    blocks = " ▁▂▃▄▅▆▇█"
    return "".join(blocks[min(8, max(0, round(8 * value / top)))] for value in values[-width:])


class LineView:
    """A line every few seconds, for logs and pipes."""

    def __init__(self, title: str, period: float = 5.0) -> None:
        self.title = title
        self.period = period
        self.last = -period

    def __enter__(self) -> Self:
        print(self.title, flush=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, progress: Progress, point: Point) -> None:
        if progress.seconds - self.last < self.period:
            return
        self.last = progress.seconds
        evaluation = f"{progress.evaluations[-1][1]:.0f}" if progress.evaluations else "-"
        print(
            f"{progress.seconds:6.1f} s  updates {progress.updates:6d}  return {progress.recent_return():5.0f}  "
            f"evaluation {evaluation:>4}  inserts {point.inserts_per_second:6.0f}/s  samples {point.samples_per_second:7.0f}/s  "
            f"items {point.size:6d}  memory {point.memory_bytes / 2**20:5.1f} MiB  {point.waiting}",
            flush=True,
        )


class PanelView:
    """A live panel, drawn by rich."""

    def __init__(self, title: str) -> None:
        from rich.live import Live

        self.title = title
        self.live = Live(refresh_per_second=4, transient=False)
        self.last = 0.0

    def __enter__(self) -> Self:
        self.live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.live.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        self.live.console.print(text)

    def show(self, progress: Progress, point: Point) -> None:
        from rich import box
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        if time.monotonic() - self.last < 0.2:
            return
        self.last = time.monotonic()
        width = max(20, self.live.console.width - 30)
        grid = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
        grid.add_column(style="bold", width=14)
        grid.add_column()
        evaluation = f"{progress.evaluations[-1][1]:.0f}" if progress.evaluations else "none yet"
        grid.add_row("time", f"{progress.seconds:.0f} s")
        grid.add_row("learner", f"{progress.updates:,} updates, evaluation {evaluation} (solved at {SOLVED_RETURN:g})")
        grid.add_row("actors", f"{len(progress.episodes):,} episodes, mean return of the last 20: {progress.recent_return():.0f}")
        grid.add_row("returns", Text(_bars([value for _, value in progress.episodes], width, 500.0), style="green"))
        grid.add_row("inserts", f"{point.inserts_per_second:,.0f} items/s")
        grid.add_row("samples", f"{point.samples_per_second:,.0f} items/s")
        grid.add_row("replay", f"{point.size:,} items, {point.memory_bytes / 2**20:.1f} MiB")
        grid.add_row("limiter", point.waiting)
        self.live.update(Panel(Group(grid), title=self.title, border_style="cyan"))


def make_view(title: str, plain: bool) -> LineView | PanelView:
    """The panel where there is a terminal, lines elsewhere."""
    return LineView(title) if plain or not sys.stdout.isatty() else PanelView(title)
