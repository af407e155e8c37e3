"""``./dev bench``: Reverie beside other stores, in turns in one run."""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from . import machine, names, subjects  # noqa: E402
from .cells import Results  # noqa: E402
from .programs import ROOT  # noqa: E402
from .report import against, readme, save, targets  # noqa: E402

FOLDER = ROOT / "bench/results"
QUICK_FOLDER = ROOT / "build/bench/quick"  # what is not to be quoted does not take the place of what was
WRITERS = {"table": readme.write, "targets": targets.write}  # pages, from saved results


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        default="all",
        choices=(*subjects.SUBJECTS, "all", *WRITERS),
        help="wire: between processes. items: of several columns, and what they take there. latency: round trips, and how long a "
        "table's lock is held. single: round trips of "
        "one caller's single calls, with a pause between them and without. local: in one process. growth: from 10^4 to 10^7 "
        "items, and memory. checkpoint: what others wait, memory and speed while one is saved, loading, and what a journal costs. "
        "all: these seven. table: write the README's table and plot from saved results. targets: write what was to be reached, and what "
        "was, into docs/performance.md from saved results",
    )
    parser.add_argument("--quick", action="store_true", help="few and short cells, once: to see that it runs, not to quote")
    parser.add_argument("--rounds", type=int, help="turns of every cell (3; local 9; checkpoint 1)")
    parser.add_argument(
        "--seconds",
        type=float,
        help="of each measurement at least (wire 2, items 2, latency 3, single 2, local 0.1, growth 0.3, checkpoint 10)",
    )
    parser.add_argument("--stores", help="comma-separated: only these (reverie, dm-reverb, rlox, cpprb, sb3, flashbax)")
    parser.add_argument(
        "--cases",
        help="wire, latency: payloads (400B,4kB,40kB,400kB); single: one of them; items: transition,two steps,sequence; "
        "local: rows (small,image,atari,...)",
    )
    parser.add_argument("--clients", help="client counts: wire (1,2,32,200,2000), latency (1,8)")
    parser.add_argument(
        "--operations",
        help="wire: insert,iterate,batch,both; latency: insert,sample,batch,lock; single: sample_batch,sample,update_priorities,"
        "insert,add,writer,server_info and sample_batch_ahead; local: add,add_batch,sample,prioritized_sample,update_priorities (of "
        "sequence and nstep add,sample; of next and framestack add_batch, too); checkpoint: waits,memory,speed,journal",
    )
    parser.add_argument(
        "--warm",
        type=float,
        help="wire: seconds of each measurement before its clock starts, at least (0.5): later than their beginning",
    )
    parser.add_argument(
        "--items",
        type=int,
        help="of a table: wire 400 MB of rows, at most 100,000; items 100,000, of sequences a tenth; checkpoint 1,000,000 of Reverie's",
    )
    parser.add_argument("--languages", help="wire, latency, single: python,c")
    parser.add_argument(
        "--output", type=pathlib.Path, help="folder of the results (bench/results; with --quick build/bench/quick)"
    )
    parser.add_argument(
        "--against",
        type=pathlib.Path,
        help="older results, a file or a folder: prints the ratio cell by cell; fails when one of ours got slower beyond the spread. "
        "A time or rate of one turn tells no spread, and is not judged: --rounds 2 or more in both runs",
    )
    options = parser.parse_args(arguments)
    if options.output is None:
        options.output = QUICK_FOLDER if options.quick else FOLDER
    options.subjects = list(subjects.SUBJECTS) if options.what == "all" else [options.what]
    options.older = {}
    if options.what in WRITERS:
        return options
    for name in ("rounds", "seconds", "items"):
        if getattr(options, name) is not None and not getattr(options, name) > 0:
            parser.error(f"--{name} must be more than 0, got {getattr(options, name)}")
    known = {what: subjects.SUBJECTS[what].names() for what in options.subjects}
    try:
        names.check(options, known)
        options.named = {what: names.of_one(options, known[what], subjects.SUBJECTS[what].one) for what in options.subjects}
        for what in options.subjects:
            subjects.SUBJECTS[what].check(options.named[what])
        if options.against:
            options.older = against.load(options.against, options.subjects)
    except ValueError as error:
        parser.error(str(error))
    return options


def without_paths(arguments: list[str]) -> list[str]:
    """What one has to type for the same figures: not where they went."""
    kept, skip = [], False
    for word in arguments:
        is_path = word.partition("=")[0] in ("--output", "--against")
        if not is_path and not skip:
            kept.append(word)
        skip = is_path and "=" not in word
    return kept


def make_peers(needed: list[str]) -> None:
    """The peers' virtual environments, unless the environment names others."""
    for script, variable in (("peer.sh", "RV_PEER_PYTHON"), ("peers.sh", "RV_PEERS_PYTHON")):
        if script in needed and variable not in os.environ:
            subprocess.run([str(ROOT / "tools/dev" / script)], check=True)


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S ", time.gmtime()) + text, file=sys.stderr, flush=True)


def run(what: str, options: argparse.Namespace, command: str) -> tuple[Results, bool]:
    """One benchmark, saved whatever happens to it, if anything was measured; false when it was interrupted."""
    subject = subjects.SUBJECTS[what]
    results = Results(what, command, machine.describe())
    interrupted = False
    begin = time.monotonic()
    try:
        subject.run(results, options, say)
        results.complete = True
    except KeyboardInterrupt:
        interrupted = True
        say("interrupted: saving what was measured")
    results.notes.append(f"took {time.monotonic() - begin:.0f} s" + ("" if results.complete else ", was interrupted"))
    if results.has_figures:
        print(save(results, options.output))
    else:
        print(f"FAILED: {what}: nothing was measured, and nothing is saved", file=sys.stderr)
    return results, not interrupted


def _raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.what in WRITERS:
        return WRITERS[options.what](ROOT, options.output)
    command = " ".join(["./dev bench", *without_paths(arguments)])
    signal.signal(signal.SIGTERM, _raise_interrupt)
    chosen = options.subjects
    stores = options.stores.split(",") if options.stores else None
    make_peers([script for what in chosen for script in subjects.SUBJECTS[what].peers(stores)])
    status = 0
    for what in chosen:
        results, whole = run(what, options.named[what], command)
        if not results.has_figures or any(cell.failure and cell.is_ours for cell in results.cells):
            status = 1
        for cell in results.cells:
            if cell.failure:
                print(f"FAILED: {cell.name}: {cell.failure}", file=sys.stderr)
        if what in options.older:
            text, slower = against.compare(options.older[what], results)
            print(text)
            status = max(status, 1 if slower else 0)
        elif options.older:
            print(f"{options.against} has no results of {what} to be compared with", file=sys.stderr)
        if not whole:
            return 130
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
