"""The same pattern datasets by dm-reverb and by us, in dm-reverb's interpreter, which has TensorFlow."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest
from peer import run

HERE = str(pathlib.Path(__file__).parent)

_RUN = """
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import pattern_scenarios, reverie
answer([[pattern_scenarios.run_all(module), pattern_scenarios.errors(module)] for module in (reverb, reverie)])
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(theirs, ours), each (items, errors)."""
    package = tmp_path_factory.mktemp("package")
    (place,) = importlib.util.find_spec("reverie").submodule_search_locations
    (package / "reverie").symlink_to(place)
    return run(_RUN, HERE, str(package))


def test_our_pattern_datasets_give_the_items_of_theirs(both):
    theirs, ours = both[0][0], both[1][0]
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert ours[name] == theirs[name], name
    assert sum(len(items) for datasets in theirs.values() for _, _, items in datasets) > 1500


def test_our_pattern_datasets_refuse_what_theirs_refuse(both):
    assert both[1][1] == both[0][1]
