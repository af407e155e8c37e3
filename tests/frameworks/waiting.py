"""What the tests of waits share: tables that hold everybody, servers that went, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import reverie
from deadlines import says_at_its_deadline as says_at_its_deadline

SOON = 0.15
AT_MOST = 30.0  # where something else should end the wait
SAMPLING = 'table "few": sampling waits for 1,005 items, has 3'
INSERTING = 'table "full": inserting waits for 1 more sample'


def holding_server() -> Iterator[reverie.Server]:
    """Of a table "few" that lets nothing be sampled, and a queue "full" that lets nothing in."""
    fifo = reverie.selectors.Fifo()
    signature = reverie.TensorSpec((), np.int64)
    few = reverie.Table("few", fifo, fifo, 2000, reverie.rate_limiters.MinSize(1005), signature=signature)
    with reverie.Server([few, reverie.Table.queue("full", 1)], address="127.0.0.1:0") as server:
        client = reverie.Client(server)
        client.add_batch("few", np.arange(3))
        client.add("full", np.float32(0))
        yield server


def interrupted(call: Callable[[], Any], *, in_a_graph: bool = False) -> None:
    """The call ends by Ctrl-C. `in_a_graph`: where TensorFlow may make a RuntimeError of KeyboardInterrupt, and names it."""
    timer = threading.Timer(SOON, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with pytest.raises((KeyboardInterrupt, RuntimeError) if in_a_graph else KeyboardInterrupt, match="^$|KeyboardInterrupt"):
            timer.start()  # here: it may come before the call
            call()
    finally:
        timer.cancel()
        timer.join()
