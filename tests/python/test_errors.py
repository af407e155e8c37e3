"""Exceptions: what they derive from, and what they say."""

import pickle

import pytest
import reverie
from reverie import errors


@pytest.mark.parametrize("error", errors._BY_CODE)
def test_every_error_is_reveries_and_reverbs_and_a_builtin(error):
    assert issubclass(error, errors.ReverieError)
    assert issubclass(error, errors.ReverbError)
    assert any(base.__module__ == "builtins" for base in error.__mro__ if base not in (Exception, BaseException, object))
    raised = error("a sentence")
    assert str(raised) == "a sentence"
    again = pickle.loads(pickle.dumps(raised))
    assert type(again) is error
    assert str(again) == "a sentence"


def test_every_error_is_at_the_top_of_the_package_too():
    for name in errors.__all__:
        assert getattr(reverie, name) is getattr(errors, name)
        assert name in reverie.__all__


def test_codes_are_grpcs():
    assert [error.code for error in errors._BY_CODE[1:]] == list(range(1, 17))


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.InvalidArgumentError, ValueError),
        (errors.ResourceExhaustedError, IndexError),
        (errors.UnimplementedError, NotImplementedError),
        (errors.DeadlineExceededError, TimeoutError),
        (errors.NotFoundError, RuntimeError),
        (errors.NotFoundError, ValueError),
        (errors.UnavailableError, ConnectionError),
        (errors.CancelledError, RuntimeError),
        (errors.InternalError, RuntimeError),
        (errors.StructureError, KeyError),
    ],
)
def test_errors_are_the_builtins_that_reverbs_users_catch(error, builtin):
    assert issubclass(error, builtin)


def test_a_structure_error_reads_like_a_sentence():
    assert str(errors.StructureError("a sentence")) == "a sentence"


def test_every_public_class_is_listed():
    public = {name for name, value in vars(errors).items() if isinstance(value, type) and not name.startswith("_")}
    assert public == set(errors.__all__)
