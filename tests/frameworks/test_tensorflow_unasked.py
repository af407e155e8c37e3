"""TensorFlow is there and is not imported before a program asks for what needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What needs TensorFlow, or another framework, says so in its documentation; everything else is imported and used.
PROGRAM = """
import importlib, importlib.util, os, pkgutil, sys, tempfile
import numpy as np
import reverie

def unasked(what):
    assert "tensorflow" not in sys.modules, f"{what} imported TensorFlow"

assert importlib.util.find_spec("tensorflow") is not None
unasked("import reverie")
needs = {"pattern_dataset", "tf_client", "timestep_dataset", "trajectory_dataset", "jax", "torch"}
public = [
    module.name for module in pkgutil.walk_packages(reverie.__path__, "reverie.")
    if not any(part.startswith("_") for part in module.name.split(".")) and module.name.removeprefix("reverie.") not in needs
]
assert {"reverie.client", "reverie.server_executable.server_main", "reverie.platform.default.checkpointers"} <= set(public)
for name in public:
    importlib.import_module(name)
    unasked(f"import {name}")
lazy = {"PatternDataset", "TFClient", "TimestepDataset", "TrajectoryDataset", *needs}
for name in set(dir(reverie)) | set(reverie.__all__):
    if name not in lazy:
        getattr(reverie, name)
unasked("a name of reverie's")

signature = {"x": reverie.TensorSpec([None, 2], np.float32), "y": reverie.TensorSpec([None], np.int64)}
def table(name, **options):
    return reverie.Table(
        name, reverie.selectors.Prioritized(0.6), reverie.selectors.Fifo(), 100, reverie.rate_limiters.MinSize(1), **options
    )

step = {"x": np.ones(2, np.float32), "y": np.int64(3)}
rows = {"x": np.ones((4, 3, 2), np.float32), "y": np.zeros((4, 3), np.int64)}
directory = tempfile.mkdtemp()
checkpointer = reverie.checkpointers.DefaultCheckpointer(directory)
tables = [table("plain"), table("inserted"), table("signed", signature=signature)]
with reverie.Server(tables, address="127.0.0.1:0", checkpointer=checkpointer) as server:
    for client in (reverie.Client(server.address), reverie.Client(server)):
        client.add("plain", step)
        client.insert(step, {"inserted": 2.0})
        client.add_batch("signed", rows)
        with client.writer(2) as writer:
            writer.append(step)
            writer.append(step)
            writer.create_item("signed", 2, 1.0)
        with client.trajectory_writer(2) as writer:
            writer.append(step)
            writer.append(step)
            writer.create_item("signed", 1.0, {key: column[-2:] for key, column in writer.history.items()})
        pattern = reverie.structured.pattern_from_transform(step, lambda row: {"x": row["x"][-2:], "y": row["y"][-2:]})
        config = reverie.structured.create_config(pattern, "signed")
        assert reverie.structured.infer_signature([config], signature) is not None
        with client.structured_writer([config]) as writer:
            writer.append(step)
            writer.append(step)
        batch = client.sample_batch("plain", 8)
        client.update_priorities("plain", batch.keys, np.ones(8))
        client.mutate_priorities("plain", updates={int(batch.keys[0]): 3.0}, deletes=[])
        assert len(list(client.sample("signed", 3))) == 3
        assert len(list(client.sample("plain", 3, emit_timesteps=False))) == 3
        batches = client.batches("signed", 1)
        assert next(batches).data["x"].shape[-1] == 2
        batches.close()
        assert client.server_info()["signed"].signature is not None
        client.checkpoint()
        client.reset("plain")
with reverie.Server(tables, address="127.0.0.1:0", checkpointer=checkpointer) as server:
    assert reverie.Client(server).server_info()["signed"].current_size == 14
unasked("using reverie")

assert getattr(reverie, sys.argv[1]).__name__ == sys.argv[1]
print("tensorflow" in sys.modules)
"""


@pytest.mark.parametrize("name", ["TFClient", "TrajectoryDataset"])
def test_tensorflow_is_imported_when_it_is_asked_for_and_not_before(name):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM, name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "True\n"
