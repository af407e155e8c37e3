"""Every public name of the published wheel is here, alike, or differs for a reason that is written down (docs/reverb-names.md)."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/dev"))
import names
import names_on_purpose


@pytest.fixture(scope="module")
def compared():
    return names.compared()


def test_no_name_is_missing_and_none_differs_but_on_purpose(compared):
    assert compared[1] == []


def test_the_page_of_names_is_up_to_date(compared):
    assert names.PAGE.read_text() == compared[0], "run tools/dev/names.py"


@pytest.mark.parametrize(
    ("theirs", "ours", "state"),
    [
        ([["a", "positional_or_keyword", None]], [["a", "positional_or_keyword", None]], "same"),
        ([["a", "positional_or_keyword", None]], [["b", "positional_or_keyword", None]], "differs"),
        ([["a", "positional_or_keyword", "1"]], [["a", "positional_or_keyword", "2"]], "differs"),
        ([["a", "positional_or_keyword", "1"]], [["a", "positional_or_keyword", None]], "differs"),
        ([["a", "positional_or_keyword", None]], [["a", "positional_or_keyword", "1"]], "more"),
        ([["a", "positional_or_keyword", None]], [["a", "keyword_only", None]], "differs"),
        ([["a", "positional_or_keyword", None]], [["a", "positional_only", None]], "differs"),
        ([["a", "keyword_only", "1"]], [["a", "positional_or_keyword", "1"]], "same"),
        ([], [["a", "keyword_only", "1"]], "more"),
        ([], [["a", "keyword_only", None]], "differs"),
        (
            [["a", "positional_or_keyword", None], ["b", "positional_or_keyword", None]],
            [["b", "positional_or_keyword", None], ["a", "positional_or_keyword", None]],
            "differs",
        ),
        (None, [["a", "keyword_only", None]], "same"),
    ],
)
def test_parameters_are_compared_by_name_place_and_default(theirs, ours, state):
    assert names.compare_parameters(theirs, ours)[0] == state


def test_a_missing_name_and_a_reason_that_nothing_needs_are_faults():
    found = [("reverb.a", "same", ""), ("reverb.b", "missing", ""), ("reverb.c", "differs", "x"), ("reverb.d", "missing", "")]
    judged, faults = names.judged(found, {"reverb.d": "why", "reverb.e": "why"})
    assert judged[3] == ("reverb.d", "absent on purpose", "why")
    assert faults == [
        "reverb.b: missing",
        "reverb.c: differs: x",
        "tools/dev/names_on_purpose.py: nothing needs the reason for reverb.e any more",
    ]
    assert all(reason for reason in names_on_purpose.REASONS.values())
