"""An empty table of Reverie or dm-reverb: ``server.py MODULE ITEMS``. Prints the port; ends with standard input."""

from __future__ import annotations

import importlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.child import die_with_parent

die_with_parent()
store = importlib.import_module(sys.argv[1])
table = store.Table("t", store.selectors.Uniform(), store.selectors.Fifo(), int(sys.argv[2]), store.rate_limiters.MinSize(1))
# Reverie would warn that it listens where other machines can reach it, as dm-reverb does.
server = store.Server([table], **({"address": ["127.0.0.1:0"]} if sys.argv[1] == "reverie" else {}))
print(f"\nport {server.port}", flush=True)
sys.stdin.read()
server.stop()
