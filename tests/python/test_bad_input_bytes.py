"""Bytes that no client of ours sends, against a real server: the connection or the call ends with the right status, others go on."""

import random
import socket
import struct
import threading

import grpc
import numpy as np
import pytest
import reverie
import server_program
from reverie._protobuf import field_bytes, field_double, field_varint

LONG = 60.0
SERVICE = "/deepmind.reverb.ReverbService/"
UNARY = ["ServerInfo", "MutatePriorities", "Reset", "Checkpoint"]
STREAMS = ["InsertStream", "SampleStream", "InitializeConnection"]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 4, 6, 7, 8, 9
MEGABYTE = 1 << 20
SMALL = 4096  # what methods take that need no more than a table's name and some numbers


@pytest.fixture(scope="module")
def server():
    tables = ["--table", "name=t,sampler=fifo,remover=fifo", "--table", "name=q,preset=queue:1"]
    with server_program.Server("--port", "0", "--set", f"max_message_bytes={MEGABYTE}", *tables) as running:
        yield running


@pytest.fixture
def client(server):
    """What must still work at the end of each test."""
    client = reverie.Client(server.address)
    client.reset("t", timeout=LONG)
    yield client
    client.reset("t", timeout=LONG)
    client.add("t", 7, timeout=LONG)
    assert client.sample_batch("t", 1, timeout=LONG).data.tolist() == [7]
    assert server.process.poll() is None


@pytest.fixture
def channel(server):
    with server_program.channel(server.address) as made:
        yield made


# ---- frames ----


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header_block(*pairs):
    """Literals without indexing: what needs no state at either end."""
    out = b""
    for name, value in pairs:
        out += b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))
    return out


def request(method="ServerInfo"):
    pairs = [(":method", "POST"), (":scheme", "http"), (":path", SERVICE + method), (":authority", "x")]
    return header_block(*pairs, ("content-type", "application/grpc"), ("te", "trailers"))


HELLO = PREFACE + frame(SETTINGS, 0, 0, b"")


def exchange(server, data):
    """Sends the bytes and reads until the server closes; the kinds of the frames that came back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=LONG) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        got = b""
        try:
            while part := peer.recv(65536):
                got += part
        except ConnectionError:
            pass
    kinds = []
    while len(got) >= 9:
        size = int.from_bytes(got[:3], "big")
        kinds.append(got[3])
        got = got[9 + size :]
    return kinds


BROKEN_FRAMES = {
    "no preface": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "garbage": bytes(range(256)) * 40,
    "a frame longer than allowed": HELLO + frame(DATA, 0, 1, b"x" * 20_000),
    "an announced frame of 16 MiB": HELLO + b"\xff\xff\xff\0\0\0\0\0\1" + b"x" * 100_000,
    "data on a stream that is not open": HELLO + frame(DATA, 0, 1, b"x"),
    "a stream of the server's": HELLO + frame(HEADERS, 4, 2, request()),
    "settings of a wrong size": PREFACE + frame(SETTINGS, 0, 0, b"abc"),
    "settings on a stream": HELLO + frame(SETTINGS, 0, 3, b""),
    "a ping of a wrong size": HELLO + frame(PING, 0, 0, b"x"),
    "a window beyond 2^31": HELLO + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2,
    "a window update of 0": HELLO + frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
    "a continuation of nothing": HELLO + frame(CONTINUATION, 4, 1, request()),
    "headers that do not decompress": HELLO + frame(HEADERS, 4, 1, b"\xff" * 50),
    "headers that go on without end": HELLO
    + frame(HEADERS, 0, 1, request())
    + frame(CONTINUATION, 0, 1, b"\0\1a\1b" * 4000) * 500,
}


@pytest.mark.parametrize("data", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES)
def test_broken_frames_end_their_connection(server, client, data):
    kinds = exchange(server, data)
    assert HEADERS not in kinds, "nothing of it is answered as if it were right"
    if data.startswith(PREFACE):
        assert GOAWAY in kinds or kinds in ([], [SETTINGS], [SETTINGS, SETTINGS])


def test_frames_of_noise_end_their_connections(server, client):
    seed = random.randrange(2**32)
    print("seed", seed)
    noise = random.Random(seed)
    for _ in range(100):
        frames = b"".join(
            frame(noise.randrange(12), noise.randrange(256), noise.randrange(5), noise.randbytes(noise.randrange(40)))
            for _ in range(20)
        )
        exchange(server, HELLO + frames)


def test_a_request_that_is_cut_anywhere_ends_with_its_connection(server, client):
    whole = HELLO + frame(HEADERS, 4, 1, request()) + frame(DATA, 1, 1, b"\0\0\0\0\0")
    assert HEADERS in exchange(server, whole)
    for cut in range(0, len(whole), 7):
        exchange(server, whole[:cut])


# ---- messages ----


def status(call):
    """The status and the sentence that the call ends with."""
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value.code(), raised.value.details()


def unary(channel, method, data):
    return channel.unary_unary(SERVICE + method)(data, timeout=LONG)


def stream(channel, method, *messages):
    return list(channel.stream_stream(SERVICE + method)(iter(messages), timeout=LONG))


@pytest.mark.parametrize("method", ["MutatePriorities", "Reset", "InsertStream", "SampleStream", "InitializeConnection"])
@pytest.mark.parametrize("data", [b"\xff" * 11, b"\x0a\x7fshort", b"\x08" + b"\x80" * 20, b"\x0b\x0c\x0b", b"\x00\x00"])
def test_what_is_no_protobuf_ends_the_call_with_a_status(channel, client, method, data):
    call = unary if method in UNARY else stream
    code, details = status(lambda: call(channel, method, data))
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL, grpc.StatusCode.NOT_FOUND)
    assert details


@pytest.mark.parametrize("method", UNARY + STREAMS)
def test_a_message_over_the_bound_is_resource_exhausted(channel, client, method):
    call = unary if method in UNARY else stream
    bound = MEGABYTE if method in ("InsertStream", "MutatePriorities") else SMALL
    for size in (bound + 1, MEGABYTE + 1):
        code, details = status(lambda size=size: call(channel, method, field_bytes(999, bytes(size))))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(bound) in details


def test_an_insert_over_the_servers_bound_says_so_to_its_client(client):
    with pytest.raises(reverie.errors.ResourceExhaustedError, match=str(MEGABYTE)):
        client.add("t", np.frombuffer(random.Random(1).randbytes(2 * MEGABYTE), np.uint8), timeout=LONG)


def test_a_length_that_lies_ends_the_call(server, client):
    for length in (1, 5, 0x7FFFFFFF, 0xFFFFFFFF):
        prefix = b"\0" + struct.pack(">I", length)
        exchange(server, HELLO + frame(HEADERS, 4, 1, request("Reset")) + frame(DATA, 1, 1, prefix))


def item_of_chunk(key):
    """An InsertStreamRequest of one item, whose one column is the first row of a chunk."""
    chunk_slice = field_varint(1, key) + field_varint(3, 1)
    column = field_bytes(1, field_bytes(1, chunk_slice))
    return field_bytes(2, field_varint(1, 4711) + field_bytes(2, b"t") + field_double(5, 1.0) + field_bytes(8, column))


def test_an_item_over_a_chunk_that_nobody_sent_is_told_which(channel, client):
    code, details = status(lambda: stream(channel, "InsertStream", item_of_chunk(123456789)))
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)
    assert "chunk" in details
    assert "123456789" in details
    assert client.server_info(LONG)["t"].current_size == 0


# ---- one connection, many calls ----


def test_a_blocked_insert_and_samples_larger_than_any_window_share_a_connection(server):
    """The queue's second item waits with all its bytes on the way; samples must pass it."""
    with reverie.Server(
        [
            reverie.Table.queue("q", 1),
            reverie.Table("t", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 10, reverie.rate_limiters.MinSize(1)),
        ],
        address="127.0.0.1:0",
    ) as big:
        client = reverie.Client(big.address)
        large = np.arange(6 << 20, dtype=np.int64)  # 48 MiB
        client.add("t", large, timeout=LONG)
        client.add("q", large, timeout=LONG)
        blocked = [
            threading.Thread(target=client.add, args=("q", large), kwargs={"timeout": LONG}, daemon=True) for _ in range(2)
        ]
        writer = client.trajectory_writer(1)
        writer.append([large])
        writer.create_item("q", 1.0, [writer.history[0][-1:]])
        for thread in blocked:
            thread.start()
        for _ in range(3):
            assert np.array_equal(client.sample_batch("t", 1, timeout=LONG).data[0], large)
            assert np.array_equal(next(client.sample("t", emit_timesteps=False)).data[0], large)
        for _ in range(4):
            found = next(client.sample("q", emit_timesteps=False)).data[0]
            assert found.size == large.size
        writer.flush(timeout_ms=int(LONG * 1000))
        for thread in blocked:
            thread.join(LONG)
            assert not thread.is_alive()


def test_five_thousand_samplers_are_opened_and_reset_on_one_connection(client):
    client.add("t", 1, timeout=LONG)
    for number in range(5000):
        samples = client.sample("t", 10, emit_timesteps=False)
        if number % 2 == 0:
            next(samples)
        else:
            samples.close()
        del samples
    assert client.server_info(LONG)["t"].num_waiting_samples == 0


def test_five_thousand_calls_that_wait_are_cancelled_on_one_connection(server, channel, client):
    call = channel.stream_stream(SERVICE + "SampleStream")
    asked = field_bytes(1, b"t") + field_varint(2, 1) + field_varint(3, 1)
    for _ in range(5000):
        call(iter([asked])).cancel()
    client.add("t", 1, timeout=LONG)
    assert client.sample_batch("t", 1, timeout=LONG).data.tolist() == [1]
