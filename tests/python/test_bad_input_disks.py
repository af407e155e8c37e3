"""Checkpoints on disks that are full, and of files that are absurdly long."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import reverie
from reverie.checkpointers import DefaultCheckpointer


def table():
    return reverie.Table("t", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 1000, reverie.rate_limiters.MinSize(1))


# ---- a disk of 2 MiB ----

ON_IT = """
import os, sys
import numpy as np, reverie
root = os.path.join(sys.argv[1], "root")

def serve():
    table = reverie.Table("t", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 1000, reverie.rate_limiters.MinSize(1))
    checkpointer = reverie.checkpointers.DefaultCheckpointer(root, keep=3, level=0)
    return reverie.Server([table], address="127.0.0.1:0", checkpointer=checkpointer)

def bytes_of(n):
    return np.frombuffer(os.urandom(n), np.uint8)

with serve() as server:
    here, there = reverie.Client(server), reverie.Client(server.address)
    here.add("t", bytes_of(400_000))
    first = there.checkpoint()
    here.add("t", bytes_of(3_000_000))
    for client in (here, there, here):
        try:
            client.checkpoint()
        except reverie.ResourceExhaustedError as error:
            assert "no checkpoint was saved: cannot write" in str(error) and root in str(error), error
        else:
            raise AssertionError("it was saved to a disk that has no room for it")
        assert os.listdir(root) == [os.path.basename(first)], "nothing of it stays, and the one before does"
    assert client.sample_batch("t", 1).data[0].nbytes == 400_000, "the server goes on"

with serve() as server:
    client = reverie.Client(server)
    assert client.server_info()["t"].current_size == 1, "what was saved before is whole"
    client.add("t", bytes_of(100_000))
    client.checkpoint()  # there is room for this one
    with open(os.path.join(sys.argv[1], "filler"), "wb") as filler:
        try:
            while True:
                filler.write(bytes(65536))
                filler.flush()
        except OSError:
            pass
    try:
        client.checkpoint()  # not even for a small one, nor for its directory
    except reverie.ResourceExhaustedError:
        pass
    else:
        raise AssertionError("it was saved to a full disk")
    assert len(os.listdir(root)) == 2
    os.remove(os.path.join(sys.argv[1], "filler"))
    client.checkpoint()
with serve() as server:
    assert reverie.Client(server).server_info()["t"].current_size == 2
print("fine")
"""


def small_disk(where):
    """The beginning of a command that runs with a disk of its own there; None where nothing may be mounted."""
    mount = ["sh", "-c", 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"', str(where)]
    for namespaces in (["unshare", "-Urm"], ["unshare", "-m"]):
        try:
            if subprocess.run([*namespaces, *mount, "true"], capture_output=True).returncode == 0:
                return [*namespaces, *mount]
        except FileNotFoundError:
            pass
    return None


def test_a_full_disk_costs_the_new_checkpoint_and_nothing_else(tmp_path):
    command = small_disk(tmp_path)
    if command is None:
        pytest.skip("no file system can be mounted here; checkpoint_damage_test fills one up by a limit on files")
    ran = subprocess.run([*command, sys.executable, "-c", ON_IT, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "fine\n", ran.stderr


# ---- a journal whose disk takes no more ----

UNWRITTEN = """
import os, resource, sys, threading
import numpy as np, reverie
from deadlines import says_at_its_deadline

table = reverie.Table("t", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 1000, reverie.rate_limiters.MinSize(1))
checkpointer = reverie.checkpointers.DefaultCheckpointer(sys.argv[1] + "/checkpoints")
journal = reverie.Journal(sys.argv[1] + "/journal")
server = reverie.Server([table, table.replace(name="other")], address="127.0.0.1:0", checkpointer=checkpointer, journal=journal)
client = reverie.Client(server.address)
client.add("t", np.zeros(3))
key = next(iter(client.items("t"))).key
size, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, most))
waits = threading.Thread(target=client.add, args=("t", np.random.default_rng(0).random(100_000)), kwargs={"timeout": None}, daemon=True)
waits.start()
while not (info := client.server_info()["t"]).waiting:
    pass
me = (f"unix:process {os.getpid()} of user {os.getuid()} to @reverie/ipv4:127.0.0.1:", "ipv4:127.0.0.1:")  # by memory, or else TCP
assert info.num_waiting_inserts == 1 and len(info.waiting) == 1, info
waiting = info.waiting[0]
assert (waiting.operation, waiting.reason) == ("insert", "journal") and waiting.peer.startswith(me), waiting

changes = {
    "update_priorities": lambda: client.update_priorities("t", [key], [3.0], timeout=None),
    "reset": lambda: client.reset("other", timeout=None),
    "set_bounds": lambda: client.set_bounds("t", max_size=900, timeout=None),
}
held = [threading.Thread(target=change, daemon=True) for change in changes.values()]
for thread in held:
    thread.start()
while len((info := client.server_info()["t"]).waiting) < 3:
    pass
assert sorted(caller.operation for caller in info.waiting) == ["change", "change", "insert"], info
assert all(caller.reason == "journal" and caller.peer.startswith(me) for caller in info.waiting), info
assert (info.num_waiting_inserts, info.num_waiting_samples) == (1, 0), info
while not (other := client.server_info()["other"]).waiting:
    pass
assert [(caller.operation, caller.wanted) for caller in other.waiting] == [("change", 1)], other

def by_writer(timeout):
    writer = client.trajectory_writer(1)
    writer.append(np.zeros(3))
    writer.create_item("t", 1.0, writer.history[-1:])
    unconfirmed.append(writer)
    writer.flush(timeout_ms=int(timeout * 1000))

unconfirmed = []
words = "journal: cannot write " + sys.argv[1] + ".*File too large"
for call in (
    lambda timeout: client.add("t", np.zeros(3), timeout=timeout),
    lambda timeout: client.update_priorities("t", [key], [2.0], timeout=timeout),
    by_writer,
):
    says_at_its_deadline(call, words, 0.3)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
waits.join()
for thread in held:
    thread.join()
for writer in unconfirmed:
    writer.flush()
while client.server_info()["t"].waiting:
    pass
assert client.server_info()["t"].num_waiting_inserts == 0
print("fine")
"""


def test_who_waits_for_a_journal_that_cannot_write_is_shown_and_told_why(tmp_path):
    command = [sys.executable, "-c", UNWRITTEN, str(tmp_path)]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert ran.stdout == "fine\n", ran.stderr


# ---- files of 3 GiB, most of which is a hole ----


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("name", ["tables.tfrecord", "items.tfrecord", "chunks.tfrecord"])
@pytest.mark.parametrize("keeps", ["its records", "nothing"])
def test_a_file_beyond_two_gibibytes_is_passed_over(tmp_path, caplog, name, keeps, level):
    with reverie.Server([table()], checkpointer=DefaultCheckpointer(tmp_path, keep=2, level=level), in_process=True) as server:
        client = reverie.Client(server)
        client.add("t", np.arange(3))
        client.checkpoint()
        client.add("t", np.arange(3))
        newer = pathlib.Path(client.checkpoint()) / name
    if keeps == "nothing":
        newer.write_bytes(b"")
    os.truncate(newer, 3 << 30)
    with reverie.Server([table()], checkpointer=DefaultCheckpointer(tmp_path), in_process=True) as server:
        assert reverie.Client(server).server_info()["t"].current_size == 1
    assert str(newer) in caplog.text
