"""The servers of this process that can be found by name: what ``inproc://name`` stands for."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from reverie.errors import NotFoundError

if TYPE_CHECKING:
    from reverie.server import Server

PREFIX = "inproc://"

_lock = threading.RLock()  # the collector may stop a server, which unregisters it, at any time: also where this is held
_servers: weakref.WeakValueDictionary[str, Server] = weakref.WeakValueDictionary()


def register(name: str, server: Server) -> None:
    """ValueError if another server of this process has the name."""
    with _lock:
        if name in _servers:
            raise ValueError(f"another server of this process is called {name!r}; stop it first, or choose another name")
        _servers[name] = server


def unregister(name: str, server: Server) -> None:
    with _lock:
        if _servers.get(name) is server:
            del _servers[name]


def find(name: str) -> Server:
    with _lock:
        server = _servers.get(name)
        if server is None:
            known = ", ".join(sorted(_servers)) or "none"
            raise NotFoundError(
                f"no server of this process is called {name!r} (there are: {known}); "
                f"make one with reverie.Server(..., name={name!r}); a server of another process is found by its address only"
            )
        return server
