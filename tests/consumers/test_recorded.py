"""What Acme's adders and TF-Agents' observers ask, asked again without them: the answers and the items are those that dm-reverb gave.

The records were made under dm-reverb 0.14.0 (test_acme.py and test_tf_agents.py say how, and whether they are still true).
"""

from __future__ import annotations

import json
import pathlib

import pytest
import recording
import reverie
from programs import all_passed

RECORDED = pathlib.Path(__file__).parent / "recorded"
SCENARIOS = {
    f"{path.stem}-{name}": scenario
    for path in sorted(RECORDED.glob("*.json"))
    for name, scenario in json.loads(path.read_text()).items()
}
assert SCENARIOS


def table(name, signature):
    specs = recording.decode(signature, None, lambda dtype, shape, name: reverie.TensorSpec(shape, dtype, name))
    return reverie.Table.queue(name, 1000, signature=specs)


@pytest.mark.parametrize("where", ["in process", "tcp"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_what_adders_and_observers_did_under_dm_reverb_they_would_do_here(name, where):
    scenario = SCENARIOS[name]
    options = {"in_process": True} if where == "in process" else {"address": "127.0.0.1:0"}
    with reverie.Server([table(each, scenario["signature"]) for each in scenario["tables"]], **options) as server:
        client = reverie.Client(server if where == "in process" else server.address)
        for asked, then, now in recording.replay(scenario["calls"], client, reverie.structured.Config.FromString):
            assert now == then, asked
        assert recording.items(client, list(scenario["tables"])) == scenario["tables"]


@pytest.mark.parametrize(
    ("end", "passed"),
    [
        ("Ran 17 tests in 3.219s\n\nOK", True),
        ("Ran 1 test in 41.9s\n\nOK", True),
        ("Ran 17 tests in 3.219s\n\nOK (skipped=1)", True),
        ("Ran 17 tests in 3.219s\n\nOK (skipped=8, expected failures=1)", True),
        ("Ran 17 tests in 3.219s\n\nOK (expected failures=1, skipped=9)", False),
        ("Ran 2 tests in 0.001s\n\nOK (skipped=1)", False),
        ("Ran 17 tests in 0.001s\n\nOK (skipped=17)", False),
        ("Ran 0 tests in 0.000s\n\nOK", False),
        ("Ran 17 tests in 3.219s\n\nFAILED (failures=1)", False),
        ("", False),
    ],
)
def test_tests_of_others_have_passed_where_fewer_were_skipped_than_run(end, passed):
    assert all_passed(f"[ RUN      ] Test.test_it\n----\n{end}\n") == passed
