"""dm-reverb's client speaks while our server stops: what was confirmed stays, what was not goes to the next server at the address."""

from __future__ import annotations

import threading

import numpy as np
import reverie
from peer import Peer

# Writers with items that wait, a sampler that waits, and one that asks on and on; told what to do next by lines.
_CLIENT = """
import threading
address = sys.argv[1]
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
            asked.append(True)
        except (RuntimeError, reverb.DeadlineExceededError) as error:
            asked.append(str(error))

ended, asked = threading.Event(), []
threads = [threading.Thread(target=sample), threading.Thread(target=ask)]
for thread in threads:
    thread.start()
while not asked:
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
answer([drawn, all(each is True or isinstance(each, str) for each in asked)])
"""


def serve(address, size):
    empty = reverie.Table("empty", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 10, reverie.rate_limiters.MinSize(1))
    return reverie.Server([reverie.Table.queue("queue", size), empty], address=address)


def values(client):
    return [int(np.ravel(each)[0]) for each in (client.get("queue", int(key)).data[0] for key in client.keys("queue"))]


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
            assert peer.receive() == [[5, 5], True]
            assert sorted(values(client)) == [2, 3, 9]


def test_their_items_in_progress_are_let_in_while_we_drain():
    server = serve("127.0.0.1:0", 2)
    with Peer(_CLIENT, server.address) as peer:
        assert peer.receive() == "waiting"
        here = reverie.Client(server)
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
            assert peer.receive() == [[5, 5], True]
