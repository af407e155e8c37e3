"""What Acme imports of Launchpad, which has no wheel for this Python: who wants to know that a program is being stopped.

None of these programs is: they end by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_handlers: list[Callable[[], Any]] = []


def register_stop_handler(handler: Callable[[], Any]) -> None:
    _handlers.append(handler)


def unregister_stop_handler(handler: Callable[[], Any]) -> None:
    _handlers.remove(handler)
