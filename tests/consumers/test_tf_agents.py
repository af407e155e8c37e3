"""TF-Agents 0.19.0 as PyPI has it, with Reverie as its reverb. Nothing here can import dm-reverb but what compares with it."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from programs import ROOT, assert_same, record_with_dm_reverb, record_with_reverie, recorded, their_own_test, with_reverie

THEIR_TESTS = [
    "tf_agents.replay_buffers.reverb_replay_buffer_test",
    "tf_agents.replay_buffers.reverb_utils_test",
    "tf_agents.experimental.distributed.reverb_variable_container_test",
]


@pytest.fixture(scope="module")
def theirs():
    return record_with_dm_reverb("tf_agents_scenarios.py")


def test_reverie_may_be_installed_beside_tensorflow_2_15():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in map(Requirement, project["dependencies"]):
        assert importlib.metadata.version(requirement.name) in requirement.specifier


def test_observers_ask_and_get_what_they_ask_and_get_under_dm_reverb(theirs):
    ours = record_with_reverie("tf_agents_scenarios.py")
    assert_same(ours, theirs)
    assert sum(len(table["items"]) for scenario in ours.values() for table in scenario["tables"].values()) > 30


# To write it anew: PYTHONPATH=.venv-consumers/dm-reverb .venv-consumers/bin/python tests/consumers/tf_agents_scenarios.py
# > tests/consumers/recorded/tf_agents.json
def test_the_record_in_the_tree_is_what_dm_reverb_gives(theirs):
    assert_same(theirs, recorded("tf_agents"))


@pytest.mark.parametrize("module", THEIR_TESTS)
def test_tf_agents_own_tests_pass(module):
    their_own_test(module)


def test_a_dqn_agent_steps_and_updates():
    said = with_reverie(str(ROOT / "examples/tf_agents_dqn.py"), "--iterations", "300").stdout
    assert re.search(r"after 300 iterations: mean return [\d.]+, loss [\d.]+", said), said
