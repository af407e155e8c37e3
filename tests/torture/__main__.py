"""./dev torture: a server with a journal under load and faults, and a checker that follows every confirmed item."""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import sys

from .interrupts import Interrupts
from .run import Options, Run

ROOT = pathlib.Path(__file__).resolve().parents[2]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev torture", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, help="how long faults go on (default: 1)")
    length.add_argument("--seconds", type=float, help="the same in seconds")
    parser.add_argument("--seed", type=int, help="repeats the faults of another run; default: a random one, which is printed")
    parser.add_argument(
        "--build", default="release", choices=("release", "asan", "tsan"), help="which reverie-server (default: release)"
    )
    parser.add_argument(
        "--journal", choices=("always", "periodic", "both"), help="both: each life of the server has one; default: by the seed"
    )
    parser.add_argument(
        "--tls", choices=("yes", "no"), help="TLS on the connections that go through the proxy; default: by the seed"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes the result there, too")
    parser.add_argument(
        "--output", type=pathlib.Path, metavar="DIR", help="for journal, logs and ledgers (default: a temporary one)"
    )
    parser.add_argument("--keep", action="store_true", help="keeps that directory although all was right")
    return parser.parse_args()


def main() -> int:
    """Exit status: 0; 1 when something was wrong, or the run could not be made; 130 after Ctrl-C."""
    given = arguments()
    seed = random.SystemRandom().randrange(2**31) if given.seed is None else given.seed
    by_seed = random.Random(f"options {seed}")
    journal, tls = by_seed.choice(("always", "always", "both", "periodic")), by_seed.choice((True, False))
    seconds = given.seconds if given.seconds is not None else 60 * (1.0 if given.minutes is None else given.minutes)
    options = Options(
        seconds=seconds,
        seed=seed,
        build=given.build,
        journal=given.journal or journal,
        tls=tls if given.tls is None else given.tls == "yes",
        output=given.output,
        keep=given.keep,
    )

    interrupts = Interrupts()
    interrupts.install()
    print(
        f"torture: seed {seed}, {seconds:g} s, {options.build}, journal {options.journal}, TLS {'yes' if options.tls else 'no'}",
        flush=True,
    )
    run = Run(options, ROOT / "build" / options.build, interrupts)
    try:
        report = run.go()
    except KeyboardInterrupt:
        print("\ntorture: interrupted; all of its processes are ended", file=sys.stderr)
        return 130
    if given.json is not None:
        given.json.write_text(json.dumps(report.as_dict(), indent=1) + "\n")
    print(report.table())
    print(f"\n{report.table_of_lives()}\n")
    for sentence in report.violations[:30]:
        print(f"VIOLATION: {sentence}")
    if report.violations:
        print(f"the evidence is in {run.folder}; the same faults again: ./dev torture --seconds {seconds:g} --seed {seed}")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
