"""A Reverie server with one filled table. Prints its port; ends with standard input."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import reverie

from bench.wire.common import TABLE, in_flight, random_row, table_size

payload = sys.argv[1]
server = reverie.Server(
    [
        reverie.Table(
            TABLE, reverie.selectors.Uniform(), reverie.selectors.Fifo(), table_size(payload), reverie.rate_limiters.MinSize(1)
        )
    ],
    address="127.0.0.1:0",
)
writer = reverie.Client(f"127.0.0.1:{server.port}").trajectory_writer(1, validate_items=False)
rows = [random_row(payload, seed) for seed in range(32)]
for i in range(table_size(payload)):
    writer.append([rows[i % 32]])
    writer.create_item(TABLE, 1.0, [writer.history[0][-1:]])
    writer.flush(in_flight(payload, 1))
writer.flush()
print(f"\nport {server.port}", flush=True)
sys.stdin.read()
server.stop()
