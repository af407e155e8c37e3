"""Runs the demo: a server in this process or elsewhere, the actors' processes, and the learner here."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import signal
import sys
from collections.abc import Iterator

# One core each for the learner and the actors: the small matrices here gain nothing from threads.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import reverie  # noqa: E402

from . import actor  # noqa: E402
from .config import EPISODES, REPLAY, WEIGHTS, Config  # noqa: E402
from .learn import learn  # noqa: E402
from .plot import save_plot  # noqa: E402
from .progress import Progress  # noqa: E402
from .tables import check_tables, make_tables  # noqa: E402
from .view import make_view  # noqa: E402


def parse(arguments: list[str]) -> tuple[Config, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="./dev demo", description="DQN on CartPole through Reverie.")
    parser.add_argument(
        "--server", metavar="HOST:PORT", help="use a server elsewhere (unix:/path works too); default: one in this process"
    )
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--actors", type=int, default=Config.actors, help="actor processes (%(default)s)")
    parser.add_argument("--time-limit", type=float, default=Config.time_limit, metavar="SECONDS")
    parser.add_argument("--plot", type=pathlib.Path, default=pathlib.Path("demo.png"), metavar="PNG")
    parser.add_argument("--plain", action="store_true", help="log lines even in a terminal")
    options = parser.parse_args(arguments)
    if options.actors < 1:
        parser.error("--actors must be at least 1")
    if not options.plot.resolve().parent.is_dir():
        parser.error(f"--plot: there is no folder {options.plot.resolve().parent}; make it first")
    config = Config(seed=options.seed, actors=options.actors, server=options.server, time_limit=options.time_limit)
    return config, options


@contextlib.contextmanager
def running_actors(config: Config, address: str) -> Iterator[list[multiprocessing.process.BaseProcess]]:
    """The actors' processes, ended on the way out whatever happens."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=actor.main, args=(config, address, i), name=f"actor {i}") for i in range(config.actors)]
    try:
        for process in processes:
            process.start()
        yield list(processes)
    finally:
        for process in processes:
            if process.pid is not None:
                process.terminate()
        for process in processes:
            if process.pid is not None:
                process.join(5)
                if process.is_alive():
                    process.kill()
                    process.join()


def check_alive(processes: list[multiprocessing.process.BaseProcess]) -> None:
    """Ends the run when an actor has died, which its own traceback explains."""
    for process in processes:
        if process.exitcode is not None:
            raise SystemExit(f"{process.name} ended with exit status {process.exitcode}; its error is above")


def run(config: Config, options: argparse.Namespace) -> int:
    progress = Progress()
    with contextlib.ExitStack() as stack:
        if config.server is None:
            server = stack.enter_context(reverie.Server(make_tables(config), address="127.0.0.1:0"))
            address, client = f"127.0.0.1:{server.port}", reverie.Client(server)
        else:
            address, client = config.server, reverie.Client(config.server)
            check_tables(client, address)
            for table in (REPLAY, WEIGHTS, EPISODES):
                client.reset(table)
        view = stack.enter_context(
            make_view(f"Reverie demo: DQN on CartPole, seed {config.seed}, server {address}", options.plain)
        )
        processes = stack.enter_context(running_actors(config, address))
        result = learn(config, client, progress, view, lambda: check_alive(processes))
    mean = float(result.returns.mean())
    verdict = "solved" if result.solved else "not solved"
    print(
        f"{verdict}: mean return {mean:.1f} over {len(result.returns)} evaluation episodes with the greedy policy, "
        f"{progress.seconds:.0f} s, {result.updates} updates, {progress.steps} transitions"
    )
    try:
        save_plot(progress, options.plot, f"CartPole through Reverie, seed {config.seed}")
    except OSError as error:
        print(f"the plot could not be written to {options.plot} ({error.strerror}); say where with --plot", file=sys.stderr)
        return 1
    print(f"plot in {options.plot}")
    return 0 if result.solved else 1


def main() -> int:
    config, options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(config, options)
    except reverie.ReverieError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
