"""A server of Reverie or dm-reverb with filled tables: ``server.py MODULE ELEMENTS ITEMS SOCKET TABLE...``.

A table whose name begins with "prioritized" samples by priority, others uniformly; a digit at the end of the name makes it one of eight
that share the items. SOCKET is a path that Reverie listens on besides its port, or "-". Prints the port; ends with standard input.
"""

from __future__ import annotations

import importlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.child import die_with_parent
from bench.wire.job import in_flight, random_row

die_with_parent()
module, elements, items, socket, *names = sys.argv[1:]
store, row_elements, size = importlib.import_module(module), int(elements), int(items)
PARTS = 8


def is_part(name: str) -> bool:
    return name[-1].isdigit()


tables = [
    store.Table(
        name,
        store.selectors.Prioritized(0.6) if name.startswith("prioritized") else store.selectors.Uniform(),
        store.selectors.Fifo(),
        max(1, size // PARTS) if is_part(name) else size,
        store.rate_limiters.MinSize(1),
    )
    for name in names
]
# Both listen on a free port; Reverie would warn that it listens where other machines can reach it, as dm-reverb does.
options = {"address": ["127.0.0.1:0"] + ([f"unix:{socket}"] if socket != "-" else [])} if module == "reverie" else {}
server = store.Server(tables, **options)
writer = store.Client(f"localhost:{server.port}").trajectory_writer(1, validate_items=False)
rows = [random_row(row_elements, seed) for seed in range(32)]
whole, parts = [name for name in names if not is_part(name)], [name for name in names if is_part(name)]
for i in range(size):
    # Every table gets rows of its own: the first inserts of a cell then take the place of rows that are freed, as all later ones do.
    for name in whole + [name for name in parts if int(name[-1]) == i % PARTS]:
        writer.append([rows[i % 32]])
        writer.create_item(name, 1.0 + i % 64, [writer.history[0][-1:]])
    writer.flush(in_flight(row_elements, 1))
writer.flush()
print(f"\nport {server.port}", flush=True)
sys.stdin.read()
server.stop()
