"""What tests of deadlines share: on a busy machine a short one may be over before anything was said."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import reverie

ATTEMPTS = 10


def says_at_its_deadline(
    call: Callable[[float], object], words: str, first: float = 0.1, error: type[Exception] = reverie.DeadlineExceededError
) -> None:
    """The call ends with these words at its deadline. A server has a moment to say what it waits for; on a busy machine that may be too
    short: then it is called again, with a longer deadline."""
    for attempt in range(ATTEMPTS):
        with pytest.raises(error) as caught:
            call(first * 1.5**attempt)
        if re.search(words, str(caught.value)):
            return
    raise AssertionError(f"{str(caught.value)!r} does not say {words!r}")
