"""The same calls return and raise the same in both packages, but for those that differ for a reason that is written beside them."""

from __future__ import annotations

import json
import pathlib
import warnings

import calls
import calls_clients
import calls_structured
import calls_tables
import calls_tensorflow
import calls_values
import calls_writers
import pytest
import reverie
from calls import SETUP, TENSORFLOW_SETUP
from peer import Peer

# calls.CALLS ends with the server's stop.
CALLS = [
    *calls_values.CALLS,
    *calls_tables.CALLS,
    *calls_clients.CALLS,
    *calls_writers.CALLS,
    *calls_structured.CALLS,
    *calls.CALLS,
]
TENSORFLOW_CALLS = [*calls_tensorflow.CALLS, *calls.TENSORFLOW_CALLS]

RUN = """
import json

def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else f"a {type(value).__name__}"

def outcome(code, names):
    names = dict(names, result=None)
    try:
        exec(code, names)
    except BaseException as error:
        return ["raised", [each.__name__ for each in type(error).__mro__], str(error)]
    return ["returned", plain(names["result"]), ""]
"""


TENSORFLOW = "import tensorflow as tf\nspec = lambda shape, dtype: tf.TensorSpec(shape, dtype)\n"


def in_peer(setup, calls, *arguments):
    """The outcomes of the calls in the interpreter that has dm-reverb and TensorFlow."""
    loop = "for code in json.loads(sys.stdin.readline()):\n    answer(outcome(code, globals()))\n"
    with Peer(setup + RUN + loop, *arguments) as peer:
        peer.process.stdin.write(json.dumps([code for code, _, _ in calls]) + "\n")
        peer.process.stdin.flush()
        return {code: peer.receive() for code, _, _ in calls}


@pytest.fixture(scope="module")
def theirs():
    return in_peer(TENSORFLOW + SETUP, CALLS)


@pytest.fixture(scope="module")
def theirs_in_tensorflow():
    return in_peer(TENSORFLOW + TENSORFLOW_SETUP, TENSORFLOW_CALLS)


@pytest.fixture(scope="module")
def ours_in_tensorflow(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    (folder / "reverie").symlink_to(pathlib.Path(reverie.__file__).parent)
    ours = "sys.path.insert(0, sys.argv[1])\nimport reverie\nreverb = reverie\n"
    return in_peer(ours + TENSORFLOW + TENSORFLOW_SETUP, TENSORFLOW_CALLS, str(folder))


@pytest.fixture(scope="module")
def ours():
    names = {"reverb": reverie, "spec": reverie.TensorSpec, "__name__": "calls"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(SETUP + RUN, names)
        yield {code: json.loads(json.dumps(names["outcome"](code, names))) for code, _, _ in CALLS}
    names["server"].stop()


def end(outcome):
    """What it returned, or the class of what it raised."""
    how, what, _ = outcome
    return how, what if how == "returned" else what[0]


def check(theirs, ours, code, words, purpose):
    how, what, text = theirs[code]
    our_how, our_what, our_text = ours[code]
    if purpose is not None:
        assert end(theirs[code]) != end(ours[code]), "they do not differ any more"
        return
    assert how == our_how, f"theirs {how} {what} {text}; ours {our_how} {our_what} {our_text}"
    if how == "returned":
        assert our_what == what
        return
    assert what[0] in our_what, f"theirs is {what[0]}: {text}; ours {our_what}: {our_text}"
    assert words is None or words in text, f"{words!r} is not in theirs: {text}"
    assert words is None or words in our_text, f"{words!r} is not in ours: {our_text}"


@pytest.mark.parametrize(("code", "words", "purpose"), CALLS, ids=[code for code, _, _ in CALLS])
def test_a_call_ends_alike(theirs, ours, code, words, purpose):
    check(theirs, ours, code, words, purpose)


@pytest.mark.parametrize(("code", "words", "purpose"), TENSORFLOW_CALLS, ids=[code for code, _, _ in TENSORFLOW_CALLS])
def test_a_call_of_tensorflow_ends_alike(theirs_in_tensorflow, ours_in_tensorflow, code, words, purpose):
    check(theirs_in_tensorflow, ours_in_tensorflow, code, words, purpose)
