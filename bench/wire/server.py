"""A server of Reverie or dm-reverb with one filled table: ``server.py MODULE PAYLOAD``. Prints its port; ends with standard input."""

from __future__ import annotations

import importlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.wire.common import TABLE, in_flight, random_row, table_size

store, payload = importlib.import_module(sys.argv[1]), sys.argv[2]
# Both listen on a free port; Reverie would warn that it listens where other machines can reach it, as dm-reverb does.
options = {"address": "127.0.0.1:0"} if sys.argv[1] == "reverie" else {}
server = store.Server(
    [store.Table(TABLE, store.selectors.Uniform(), store.selectors.Fifo(), table_size(payload), store.rate_limiters.MinSize(1))],
    **options,
)
writer = store.Client(f"localhost:{server.port}").trajectory_writer(1, validate_items=False)
rows = [random_row(payload, seed) for seed in range(32)]
for i in range(table_size(payload)):
    writer.append([rows[i % 32]])
    writer.create_item(TABLE, 1.0, [writer.history[0][-1:]])
    writer.flush(in_flight(payload, 1))
writer.flush()
print(f"\nport {server.port}", flush=True)
sys.stdin.read()
server.stop()
