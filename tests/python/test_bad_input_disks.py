"""Checkpoints on disks that are full, and of files that are absurdly long."""

import functools
import operator
import os
import pathlib
import re
import struct
import subprocess
import sys
import zlib

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
words = ": cannot write " + sys.argv[1] + ".*File too large"
there = client.server_info()["t"].current_size
in_already = "inserting waits for the server's journal, and may be in the table already"
for call, waits_for in (
    (lambda timeout: client.add("t", np.zeros(3), timeout=timeout), in_already),
    (lambda timeout: client.update_priorities("t", [key], [2.0], timeout=timeout), "journal"),
    (by_writer, in_already),
):
    says_at_its_deadline(call, waits_for + words, 0.3)
assert client.server_info()["t"].current_size >= there + 2, "what was not confirmed is in: an add, and an item of a writer"
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


# ---- files of records of more than 2 GiB, whose compressed form is small ----

ZEROS = 4 << 20  # in each record
ITEMS = (2 << 30) // ZEROS + 1


def crc_of(data, register=0xFFFFFFFF):
    """CRC-32C's register behind the data."""
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register


def crc_behind_zeros(register, count):
    """The same behind so many zero bytes, without each of them: the register's bits are carried on independently of each other."""

    def carried(register):
        return functools.reduce(operator.xor, (image for bit, image in enumerate(images) if register >> bit & 1), 0)

    images = [crc_of(b"\0", 1 << bit) for bit in range(32)]  # of the bits behind 1 zero, 2, 4, ...
    while count:
        register = carried(register) if count & 1 else register
        images = [carried(image) for image in images]
        count >>= 1
    return register


def masked(register):
    crc = register ^ 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(number):
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def records_of(path):
    contents, at = zlib.decompress(path.read_bytes()), 0
    while at < len(contents):
        (size,) = struct.unpack_from("<Q", contents, at)
        yield contents[at + 12 : at + 12 + size]
        at += size + 16


def with_zeros(records):
    """A file of these records, each with a field that no reader knows, of zeros, before its own."""

    def deflated(data):
        """A part of a stream, which stands for the same behind any other."""
        stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        return stream.compress(data) + stream.flush(zlib.Z_FULL_FLUSH)

    zeros = deflated(bytes(1 << 20)) * (ZEROS >> 20)
    field = varint(1000 << 3 | 2) + varint(ZEROS)
    behind_field = crc_behind_zeros(crc_of(field), ZEROS)
    out, adler = [b"\x78\x01"], 1
    for record in records:
        size = struct.pack("<Q", len(field) + ZEROS + len(record))
        before, behind = size + masked(crc_of(size)) + field, record + masked(crc_of(record, behind_field))
        out += [deflated(before), zeros, deflated(behind)]
        low, high = (adler := zlib.adler32(before, adler)) & 0xFFFF, adler >> 16
        adler = zlib.adler32(behind, (high + ZEROS * low) % 65521 << 16 | low)
    return b"".join([*out, b"\x03\0", struct.pack(">I", adler)])


def test_items_of_more_than_two_gibibytes_are_read_to_their_end(tmp_path, caplog):
    with reverie.Server([table()], checkpointer=DefaultCheckpointer(tmp_path, keep=2), in_process=True) as server:
        client = reverie.Client(server)
        client.add("t", np.int64(-1))
        client.checkpoint()
        client.add_batch("t", np.arange(ITEMS))
        newer = pathlib.Path(client.checkpoint()) / "items.tfrecord"
    made = with_zeros(records_of(newer))
    newer.write_bytes(made)

    def values():
        with reverie.Server([table()], checkpointer=DefaultCheckpointer(tmp_path), in_process=True) as server:
            client = reverie.Client(server)
            return [int(client.get("t", key).data[0]) for key in client.keys("t")]

    assert values() == [-1, *range(ITEMS)]
    assert "items.tfrecord" not in caplog.text
    newer.write_bytes(made[:-20] + bytes([made[-20] ^ 1]) + made[-19:])
    assert values() == [-1], "the one before"
    place = re.search(re.escape(str(newer)) + rf": record {ITEMS + 1} \(at byte (\d+) of its contents\): ", caplog.text)
    assert place is not None, caplog.text
    assert int(place[1]) > 2**31
