"""``./dev bench``: Reverie beside other stores, in turns in one run."""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import subprocess
import sys

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from . import limits, report  # noqa: E402
from .peers import ROOT  # noqa: E402


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("what", choices=("wire", "local"), help="between processes, or in one")
    parser.add_argument("--quick", action="store_true", help="one short round of fewer cells: to see that it runs, not to quote")
    parser.add_argument("--rounds", type=int, default=None, help="turns of every cell (3)")
    parser.add_argument("--seconds", type=float, default=None, help="of each measurement (wire 2, local 0.3)")
    parser.add_argument(
        "--cases", default=None, help="comma-separated: payloads (400B,4kB,40kB,400kB) or rows (small,image,atari)"
    )
    parser.add_argument("--clients", default="1,2,32,200", help="client counts for wire (%(default)s)")
    parser.add_argument("--operations", default="insert,iterate,batch", help="for wire (%(default)s)")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench/results")
    return parser.parse_args()


def main() -> int:
    options = parse()
    for script in ["peer.sh"] + (["peers.sh"] if options.what == "local" else []):
        variable = {"peer.sh": "RV_PEER_PYTHON", "peers.sh": "RV_PEERS_PYTHON"}[script]
        if variable not in os.environ:
            subprocess.run([str(ROOT / "tools/dev" / script)], check=True)
    rounds = options.rounds or (1 if options.quick else 3)
    machine = {"machine": platform.platform(), "cores": os.cpu_count(), "memcpy_MBps": limits.memcpy_megabytes(0.5)}

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if options.what == "local":
        from .local.cases import CASES
        from .local.run import run as run_local

        cases = options.cases.split(",") if options.cases else (["small"] if options.quick else list(CASES))
        results = run_local(cases, rounds, options.seconds or (0.1 if options.quick else 0.3), say)
    else:
        from .wire.run import PAYLOADS
        from .wire.run import run as run_wire

        cases = options.cases.split(",") if options.cases else (["400B"] if options.quick else list(PAYLOADS))
        counts = [1, 32] if options.quick else [int(n) for n in options.clients.split(",")]
        results = run_wire(
            cases, options.operations.split(","), counts, rounds, options.seconds or (1.0 if options.quick else 2.0), say
        )
    results.update(machine)
    paths = report.save(results, options.output)
    print(paths[1].read_text())
    print(
        f"memcpy {machine['memcpy_MBps']:.0f} MB/s on one of {machine['cores']} cores; saved {', '.join(str(path) for path in paths)}"
    )
    for failure in results.get("failures", []):
        print("FAILED: " + failure, file=sys.stderr)
    return 1 if results.get("failures") else 0


if __name__ == "__main__":
    sys.exit(main())
