"""matplotlib without a screen; without matplotlib there is no plot, and that is said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def pyplot() -> Iterator[Any]:
    """matplotlib.pyplot; what was drawn is closed afterwards."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    try:
        yield plt
    finally:
        plt.close("all")
