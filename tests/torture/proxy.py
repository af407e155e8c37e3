"""A TCP relay that treats connections as networks do: whole or in pieces, late, cut, reset, or not at all."""

from __future__ import annotations

import collections
import contextlib
import heapq
import itertools
import random
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable

BUFFER = 256 * 1024
HELD_BUFFER = 128 * 1024 * 1024
HOLE = 30.0  # seconds until a connection through which nothing passes is reset
KINDS = ("plain", "split", "delay", "reset", "close", "stall", "hole")
WEIGHTS = (45, 10, 10, 10, 10, 10, 5)


class Side:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.data = bytearray()
        self.ended = False  # the source has
        self.shut = False  # the sink knows


class Connection:
    def __init__(self, client: socket.socket, server: socket.socket, kind: str, after: int, seconds: float) -> None:
        self.client, self.server = client, server
        self.sides = {client: Side(client, server), server: Side(server, client)}
        self.kind, self.after, self.seconds = kind, after, seconds
        self.passed, self.held_until, self.happened, self.open = 0, 0.0, False, True


class Proxy:
    """Runs in a thread of its own. `address` is where clients connect; what it did is in `counts`."""

    def __init__(self, server: tuple[str, int], seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.listener.setblocking(False)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.counts: collections.Counter[str] = collections.Counter()
        self.refusing = False
        self.gentle = True  # until the torture begins all connections are plain
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.connections: dict[socket.socket, Connection] = {}
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.wake, self.woken = socket.socketpair()
        self.wake.setblocking(False)
        self.woken.setblocking(False)
        self.selector.register(self.woken, selectors.EVENT_READ)
        self.asked: collections.deque[Callable[[], None]] = collections.deque()
        self.stopping = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    # ---- from other threads ----

    def _ask(self, what: Callable[[], None]) -> None:
        self.asked.append(what)
        with contextlib.suppress(BlockingIOError):
            self.wake.send(b"!")

    def reset_all(self) -> None:
        """Every connection ends with RST."""

        def act() -> None:
            for connection in {id(one): one for one in self.connections.values()}.values():
                self.counts["reset all"] += 1
                self._end(connection, reset=True)

        self._ask(act)

    def refuse(self, seconds: float) -> None:
        """New connections are closed as soon as they are there."""

        def stop() -> None:
            self.refusing = False

        def act() -> None:
            self.refusing = True
            self.counts["refuse"] += 1
            self._later(seconds, stop)

        self._ask(act)

    def stall_all(self, seconds: float) -> None:
        """Nothing passes for so long."""

        def act() -> None:
            self.counts["stall all"] += 1
            for connection in {id(one): one for one in self.connections.values()}.values():
                self._hold(connection, seconds)

        self._ask(act)

    def calm(self) -> None:
        """From now on all connections are plain; those that there are end, whatever holds them."""
        self.gentle = True
        self.reset_all()

    def stop(self) -> None:
        def act() -> None:
            self.stopping = True

        self._ask(act)
        self.thread.join()
        for each in (self.wake, self.woken):
            each.close()

    # ---- its thread ----

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.timers, (time.monotonic() + seconds, next(self.order), what))

    def _run(self) -> None:
        while not self.stopping:
            timeout = max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else 1.0
            for key, events in self.selector.select(min(timeout, 1.0)):
                if key.fileobj is self.listener:
                    self._accept()
                elif key.fileobj is self.woken:
                    with contextlib.suppress(BlockingIOError):
                        self.woken.recv(4096)
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self.connections:
                    self._serve(self.connections[key.fileobj], key.fileobj, events)
            while self.asked:
                self.asked.popleft()()
            while self.timers and self.timers[0][0] <= time.monotonic():
                heapq.heappop(self.timers)[2]()
        for connection in list(self.connections.values()):
            self._end(connection, reset=False)
        self.listener.close()
        self.selector.close()

    def _accept(self) -> None:
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        if self.refusing:
            client.close()
            return
        server = socket.socket()
        try:
            server.connect(self.server)  # loopback: it is there or it is not
        except OSError:
            server.close()
            client.close()
            return
        for one in (client, server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kind = "plain" if self.gentle else self.random.choices(KINDS, WEIGHTS)[0]
        after = int(10 ** self.random.uniform(2, 7))
        connection = Connection(client, server, kind, after, self.random.uniform(0.5, 15.0))
        if kind in ("split", "delay"):
            self.counts[kind] += 1
        for one in (client, server):
            self.connections[one] = connection
            self.selector.register(one, selectors.EVENT_READ)

    def _serve(self, connection: Connection, ready: socket.socket, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                self._read(connection, connection.sides[ready])
            if connection.open and time.monotonic() >= connection.held_until:
                self._flush(connection)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._end(connection, reset=True)
        self._watch(connection)

    def _read(self, connection: Connection, side: Side) -> None:
        data = side.source.recv(65536)
        if not data:
            side.ended = True
            if connection.held_until > time.monotonic():
                self._end(connection, reset=True)  # what was on its way is lost with it
            return
        side.data += data
        connection.passed += len(data)
        if connection.kind == "delay":
            self._hold(connection, self.random.uniform(0.0, 0.05))
        elif (
            connection.kind in ("reset", "close", "stall", "hole")
            and connection.passed >= connection.after
            and not connection.happened
        ):
            self._happen(connection, side)

    def _happen(self, connection: Connection, side: Side) -> None:
        connection.happened = True
        self.counts[connection.kind] += 1
        if connection.kind in ("reset", "close"):
            del side.data[self.random.randrange(len(side.data)) :]
            with contextlib.suppress(OSError):
                side.sink.send(side.data)
            self._end(connection, reset=connection.kind == "reset")
        elif connection.kind == "stall":
            self._hold(connection, connection.seconds)
        else:
            self._hold(connection, 2 * HOLE)
            self._later(HOLE, lambda: self._end(connection, reset=True))

    def _hold(self, connection: Connection, seconds: float) -> None:
        connection.held_until = max(connection.held_until, time.monotonic() + seconds)

        def go_on() -> None:
            if connection.open and time.monotonic() >= connection.held_until:
                try:
                    self._flush(connection)
                except (BlockingIOError, InterruptedError):
                    pass
                except OSError:
                    self._end(connection, reset=True)
                self._watch(connection)

        self._later(seconds + 0.001, go_on)

    def _flush(self, connection: Connection) -> None:
        for side in connection.sides.values():
            while side.data:
                n = self.random.randint(1, 1500) if connection.kind == "split" else BUFFER
                sent = side.sink.send(side.data[:n])
                del side.data[:sent]
                if connection.kind == "split":
                    break
            if side.ended and not side.data and not side.shut:
                side.shut = True
                with contextlib.suppress(OSError):
                    side.sink.shutdown(socket.SHUT_WR)
        if all(side.shut for side in connection.sides.values()):
            self._end(connection, reset=False)

    def _watch(self, connection: Connection) -> None:
        """Reads while there is room, writes while there is something to write and it is not held."""
        if not connection.open:
            return
        held = time.monotonic() < connection.held_until
        for side in connection.sides.values():
            other = connection.sides[side.sink]
            room = HELD_BUFFER if held else BUFFER  # while it is held one must see that the other end gives up
            events = selectors.EVENT_READ if len(side.data) < room and not side.ended else 0
            if other.data and not held:
                events |= selectors.EVENT_WRITE
            self._set_events(side.source, events)

    def _set_events(self, one: socket.socket, events: int) -> None:
        known = one in self.selector.get_map()
        if events == 0 and known:
            self.selector.unregister(one)
        elif events != 0 and known:
            self.selector.modify(one, events)
        elif events != 0:
            self.selector.register(one, events)

    def _end(self, connection: Connection, reset: bool) -> None:
        if not connection.open:
            return
        connection.open = False
        for one in (connection.client, connection.server):
            self._set_events(one, 0)
            self.connections.pop(one, None)
            if reset:
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
