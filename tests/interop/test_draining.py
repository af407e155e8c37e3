"""dm-reverb's client speaks while our server stops: what was confirmed stays, what was not goes to the next server at the address."""

from __future__ import annotations

import re
import threading
import time

import grpc
import numpy as np
import reverie
from peer import Peer

# Writers with items that wait, a sampler that waits, and one that asks on and on; told what to do next by lines.
_CLIENT = """
import threading
address = sys.argv[1]
died = []  # of what no thread expects
threading.excepthook = lambda ended: died.append(f"{ended.exc_type.__name__}: {ended.exc_value}")
client = reverb.Client(address)
writer = client.trajectory_writer(num_keep_alive_refs=1)
for value in range(4):
    writer.append([np.int64(value)])
    writer.create_item("queue", 1.0, [writer.history[0][-1:]])
writer.flush(block_until_num_items=2)  # the other two wait for room
drawn = []

def sample():
    for each in reverb.Client(address).sample("empty", 2, emit_timesteps=False):
        drawn.append(int(each.data[0][0]))

def ask():
    while not ended.is_set():
        try:
            client.server_info(1)
            client.mutate_priorities("empty", updates={1: 1.0})
            asked.add("answered")
        except (RuntimeError, reverb.DeadlineExceededError) as error:
            asked.add(str(error))

ended, asked = threading.Event(), set()
threads = [threading.Thread(target=sample), threading.Thread(target=ask)]
for thread in threads:
    thread.start()
while not asked and not died:
    pass
answer("waiting")
for line in sys.stdin:
    if line == "end\\n":
        break
    writer.flush()
    answer("flushed")
threads[0].join()
ended.set()
threads[1].join()
writer.append([np.int64(9)])
writer.create_item("queue", 1.0, [writer.history[0][-1:]])
writer.flush()
answer([drawn, sorted(asked), died])
"""


def serve(address, size):
    empty = reverie.Table("empty", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 10, reverie.rate_limiters.MinSize(1))
    return reverie.Server([reverie.Table.queue("queue", size), empty], address=address)


# What a call of theirs may say that came while a server stopped, or was not there: our words, a deadline's, or gRPC's of a connection
# that ended.
_GONE = "the server is shutting down|[Dd]eadline|[Tt]imeout|(Socket|Transport) closed|[Cc]onnection|failed to connect|Broken pipe|GOAWAY"


def expect_end(answer):
    """The end of _CLIENT is as it should be: no thread of it died, and whatever failed named the stop."""
    drawn, asked, died = answer
    assert died == []
    assert drawn == [5, 5]
    assert "answered" in asked
    assert [said for said in asked if said != "answered" and not re.search(_GONE, said)] == []


def values(client):
    return [int(np.ravel(each)[0]) for each in (client.get("queue", int(key)).data[0] for key in client.keys("queue"))]


def wait_for_waiting_items(client, count):
    """Until so many items of the client wait for room: one that is still on its way would not be in progress when the stop begins."""
    deadline = time.monotonic() + 60
    while client.server_info()["queue"].num_waiting_inserts < count:
        assert time.monotonic() < deadline, "they never came"
        time.sleep(0.001)


def test_their_unconfirmed_items_and_samplers_go_to_the_next_server():
    server = serve("127.0.0.1:0", 2)
    with Peer(_CLIENT, server.address) as peer:
        assert peer.receive() == "waiting"
        assert values(reverie.Client(server)) == [0, 1]
        server.stop()
        with serve(server.address, 10) as again:
            peer.tell("flush")
            assert peer.receive() == "flushed"
            client = reverie.Client(again)
            assert sorted(values(client)) == [2, 3], "they send again in any order"
            client.add("empty", [np.array([5])])
            peer.tell("end")
            expect_end(peer.receive())
            assert sorted(values(client)) == [2, 3, 9]


def test_their_items_in_progress_are_let_in_while_we_drain():
    server = serve("127.0.0.1:0", 2)
    with Peer(_CLIENT, server.address) as peer:
        assert peer.receive() == "waiting"
        here = reverie.Client(server)
        wait_for_waiting_items(here, 2)
        here.add("empty", [np.array([5])])
        stopping = threading.Thread(target=server.stop, args=(60.0,))
        stopping.start()
        taken = [int(sample.data[0][0]) for sample in here.sample("queue", 4, emit_timesteps=False)]  # makes room
        assert taken == [0, 1, 2, 3]
        stopping.join()  # long before a minute has passed: nothing is in progress any more
        with serve(server.address, 10) as again:
            reverie.Client(again).add("empty", [np.array([5])])
            peer.tell("flush")
            assert peer.receive() == "flushed"
            assert values(reverie.Client(again)) == [], "they were confirmed, and do not come again"
            peer.tell("end")
            expect_end(peer.receive())


# Calls of every kind that begin when it is told: those that a server answers at once, and those that go on until one does.
_BEGINNER = """
import threading
address = sys.argv[1]
died = []
threading.excepthook = lambda ended: died.append(f"{ended.exc_type.__name__}: {ended.exc_value}")
client = reverb.Client(address)
holding = client.trajectory_writer(num_keep_alive_refs=1)
for value in range(2):
    holding.append([np.int64(value)])
    holding.create_item("queue", 1.0, [holding.history[0][-1:]])
holding.flush(block_until_num_items=1)  # the other waits for room: the stop, for it
writer = client.trajectory_writer(num_keep_alive_refs=1)
answer("waiting")

def outcome(call):
    try:
        return f"returned {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"

sys.stdin.readline()
said = {}
for whose, of in {"known": client, "new": reverb.Client(address)}.items():
    said[whose + " server_info"] = outcome(lambda: of.server_info(60))
    said[whose + " mutate_priorities"] = outcome(lambda: of.mutate_priorities("empty", updates={1: 1.0}))
    said[whose + " reset"] = outcome(lambda: of.reset("empty"))
    said[whose + " checkpoint"] = outcome(of.checkpoint)
said["new trajectory_writer"] = outcome(lambda: reverb.Client(address).trajectory_writer(1))
writer.append([np.int64(8)])
writer.create_item("empty", 1.0, [writer.history[0][-1:]])
said["flush"] = outcome(lambda: writer.flush(timeout_ms=100))
answer(said)

drawn = []
def sample():
    for each in reverb.Client(address).sample("empty", 2, emit_timesteps=False):
        drawn.append(int(each.data[0][0]))

flushing, sampling = threading.Thread(target=writer.flush), threading.Thread(target=sample)
flushing.start()
sampling.start()
answer("begun")
flushing.join()
sampling.join()
holding.flush()
answer([drawn, died])
"""


def test_what_they_begin_while_we_drain_names_the_stop_or_goes_to_the_next_server():
    server = serve("127.0.0.1:0", 1)
    with Peer(_BEGINNER, server.address) as peer, grpc.insecure_channel(server.address) as channel:
        assert peer.receive() == "waiting"
        health = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=60)
        assert next(health) == b"\x08\x01"
        here = reverie.Client(server)
        wait_for_waiting_items(here, 1)
        stopping = threading.Thread(target=server.stop, args=(60.0,))
        stopping.start()
        assert next(health) == b"\x08\x02", "it drains from here on"
        peer.tell("begin")
        said = peer.receive()
        assert said.pop("flush").startswith("DeadlineExceededError: ")
        assert len(said) == 9
        assert {each: words for each, words in said.items() if "the server is shutting down" not in words} == {}
        assert peer.receive() == "begun"
        assert stopping.is_alive(), "all that was while it drained"
        taken = [int(sample.data[0][0]) for sample in here.sample("queue", 2, emit_timesteps=False)]  # makes room
        assert taken == [0, 1]
        stopping.join()
        assert here.server_info()["empty"].current_size == 0, "nothing that came while it drained was let in"
        with serve(server.address, 1) as again:
            assert peer.receive() == [[8, 8], []]
            client = reverie.Client(again)
            assert [int(np.ravel(client.get("empty", int(key)).data[0])[0]) for key in client.keys("empty")] == [8], "once"
            assert values(client) == []
