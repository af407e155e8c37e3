"""A server of Reverie or dm-reverb with a checkpointer: ``server.py MODULE ELEMENTS ITEMS FILL ROOT JOURNAL REMOVER``.

Its table "uniform" begins with the newest checkpoint in ROOT, and is then filled with FILL items of one row. JOURNAL is off, periodic or
always; its directory stands beside ROOT. Prints ``made SECONDS``, the time that making the server took, and ``port PORT``, and saves a
checkpoint for each line: ``{"seconds": ..., "removing": ..., "path": ...}``, until it was answered, and how much longer the one before
stayed. Ends with standard input.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.checkpoint.inserts import ROWS, random_priorities
from bench.child import die_with_parent
from bench.wire.job import in_flight, random_row


def wait_for_removal(path: str) -> None:
    """Until the checkpoint is alone."""
    deadline = time.monotonic() + 60
    others = [other for other in pathlib.Path(path).parent.iterdir() if other.name != pathlib.Path(path).name]
    while any(other.exists() for other in others):
        if time.monotonic() > deadline:
            raise TimeoutError(f"older checkpoints than {path} stay")
        time.sleep(0.001)


die_with_parent()
module, elements, items, fill, root, journal, remover = sys.argv[1:]
store, row_elements = importlib.import_module(module), int(elements)
table = store.Table(
    "uniform", store.selectors.Uniform(), getattr(store.selectors, remover)(), int(items), store.rate_limiters.MinSize(1)
)
# Both listen on a free port; Reverie would warn that it listens where other machines can reach it, as dm-reverb does.
options: dict = {"address": "127.0.0.1:0"} if module == "reverie" else {}
if journal != "off":
    options["journal"] = store.Journal(pathlib.Path(root).with_name("journal"), mode=journal)
begin = time.monotonic()
server = store.Server([table], checkpointer=store.checkpointers.DefaultCheckpointer(root), **options)
made = time.monotonic() - begin
client = store.Client(f"localhost:{server.port}")
if int(fill):
    writer = client.trajectory_writer(1, validate_items=False)
    priorities = random_priorities(0)
    rows = [random_row(row_elements, seed) for seed in range(ROWS)]
    for i in range(int(fill)):
        writer.append([rows[i % ROWS]])
        writer.create_item("uniform", priorities[i % len(priorities)], [writer.history[0][-1]])
        writer.flush(in_flight(row_elements, 1))
    writer.flush()
print(f"\nmade {made}\nport {server.port}", flush=True)
for _ in sys.stdin:
    begin = time.monotonic()
    path = client.checkpoint()
    saved = time.monotonic()
    if module == "reverie":  # which answers first; what is measured next would share the disk with it
        wait_for_removal(path)
    times = {"seconds": saved - begin, "removing": time.monotonic() - saved}
    print(json.dumps({**times, "path": path}), flush=True)
server.stop()
