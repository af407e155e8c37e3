"""Acme 0.4.0 as PyPI has it, with Reverie as its reverb. Nothing here can import dm-reverb but what compares with it."""

from __future__ import annotations

import importlib.metadata
import re

import pytest
from programs import ROOT, assert_same, record_with_dm_reverb, record_with_reverie, recorded, their_own_test, with_reverie

# Not acme.utils.reverb_utils_test: it makes a SampleInfo of four fields, and is red under dm-reverb of today, too.
THEIR_TESTS = [
    "acme.adders.reverb.transition_test",
    "acme.adders.reverb.sequence_test",
    "acme.adders.reverb.episode_test",
    "acme.agents.tf.dqn.agent_test",
    "acme.agents.tf.d4pg.agent_test",
    "acme.agents.tf.r2d2.agent_test",
]


@pytest.fixture(scope="module")
def theirs():
    return record_with_dm_reverb("acme_scenarios.py", "--tolerant")


def test_dm_reverb_is_not_installed():
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution("dm-reverb")


def test_adders_ask_and_get_what_they_ask_and_get_under_dm_reverb(theirs):
    ours = record_with_reverie("acme_scenarios.py")
    assert_same(ours, theirs)
    assert sum(len(table["items"]) for scenario in ours.values() for table in scenario["tables"].values()) > 100


# To write it anew: PYTHONPATH=.venv-consumers/dm-reverb:tests/consumers/stand_ins .venv-consumers/bin/python
# tests/consumers/acme_scenarios.py --tolerant > tests/consumers/recorded/acme.json
def test_the_record_in_the_tree_is_what_dm_reverb_gives(theirs):
    assert_same(theirs, recorded("acme"))


@pytest.mark.parametrize("module", THEIR_TESTS)
def test_acmes_own_tests_pass(module):
    their_own_test(module)


def test_a_dqn_agent_learns():
    said = with_reverie(str(ROOT / "examples/acme_dqn.py"), "--episodes", "150").stdout
    (last,) = map(float, re.findall(r"mean return -?[\d.]+ at first, (-?[\d.]+) at last", said))
    assert last > 0.7, said  # 0.92 is the most; who turns by chance gets 0.3
