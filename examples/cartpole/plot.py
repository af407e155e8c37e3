"""The picture at the end: the learning curve above, the replay table's rates below."""

from __future__ import annotations

import pathlib

from .config import SOLVED_RETURN
from .progress import Progress


def save_plot(progress: Progress, path: pathlib.Path, title: str) -> None:
    """Writes a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (returns, rates, size) = pyplot.subplots(3, 1, figsize=(9, 8), sharex=True, height_ratios=(3, 2, 1.4))
    if progress.episodes:
        returns.scatter(*zip(*progress.episodes, strict=True), s=5, color="tab:gray", alpha=0.5, label="actors' episodes")
    if progress.evaluations:
        returns.plot(*zip(*progress.evaluations, strict=True), color="tab:green", marker="o", ms=3, label="greedy, mean of 20")
    returns.axhline(SOLVED_RETURN, color="tab:red", lw=0.8, ls="--", label=f"solved: {SOLVED_RETURN:g}")
    returns.set_ylabel("return")
    returns.set_ylim(0, 520)
    returns.legend(loc="lower right")
    returns.set_title(title)
    seconds = [point.seconds for point in progress.points]
    rates.plot(seconds, [point.inserts_per_second for point in progress.points], label="inserts")
    rates.plot(seconds, [point.samples_per_second for point in progress.points], label="samples")
    rates.set_yscale("symlog", linthresh=100)
    rates.set_ylim(bottom=0)
    rates.set_ylabel("items/s, replay")
    rates.legend(loc="lower right")
    size.plot(seconds, [point.size / 1000 for point in progress.points], color="tab:purple")
    size.set_ylabel("thousand items")
    memory = size.twinx()
    memory.plot(seconds, [point.memory_bytes / 2**20 for point in progress.points], color="tab:orange")
    memory.set_ylabel("MiB", color="tab:orange")
    size.set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path, dpi=110, format="png")
    pyplot.close(figure)
