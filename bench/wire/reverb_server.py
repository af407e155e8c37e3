"""A dm-reverb server with one filled table. Prints its port; ends with standard input."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import reverb

from bench.wire.common import TABLE, in_flight, random_row, table_size

payload = sys.argv[1]
server = reverb.Server(
    [
        reverb.Table(
            TABLE, reverb.selectors.Uniform(), reverb.selectors.Fifo(), table_size(payload), reverb.rate_limiters.MinSize(1)
        )
    ]
)
writer = reverb.Client(f"localhost:{server.port}").trajectory_writer(1, validate_items=False)
rows = [random_row(payload, seed) for seed in range(32)]
for i in range(table_size(payload)):
    writer.append([rows[i % 32]])
    writer.create_item(TABLE, 1.0, [writer.history[0][-1:]])
    writer.flush(in_flight(payload, 1))
writer.flush()
print(f"\nport {server.port}", flush=True)
sys.stdin.read()
server.stop()
