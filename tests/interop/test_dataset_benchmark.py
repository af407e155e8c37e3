"""The benchmark's operation that needs TensorFlow, for both stores: that it works, not how fast."""

from __future__ import annotations

import peer
import pytest

from bench import programs
from bench.cells import Results
from bench.wire import plan, run, side
from bench.wire.side import Pace


@pytest.mark.parametrize("store", plan.STORES)
def test_datasets_of_both_stores_are_measured(store, monkeypatch):
    for module in (programs, side, run):
        monkeypatch.setattr(module, "REVERB_PYTHON", peer.PYTHON)
    monkeypatch.setitem(side.PYTHON, "dm-reverb", peer.PYTHON)
    found = Results("wire", "./dev bench", {})
    pace = Pace(seconds=0.02, warm=0.01, at_most=2.0, units=1, no_answer=30.0)
    options = plan.Options(
        payloads=("400B",), operations=("dataset",), clients=(2,), stores=(store,), variants=False, rounds=1, pace=pace
    )
    run.run(found, options, lambda _: None)
    (cell,) = found.find(operation="dataset")
    assert cell.failure == ""
    assert cell.row["store"] == store
    assert cell.median > 0
