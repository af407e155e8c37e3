"""Every method of the server, called by grpcio from stubs that are generated from proto/."""

import queue
import struct
import threading

import grpc
import numpy as np
import pytest
import reverie
import server_program


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    server_program.generate_stubs(tmp_path_factory.mktemp("stubs"))
    from deepmind.reverb import reverb_service_pb2, reverb_service_pb2_grpc, schema_pb2
    from reverie_protocol import reverie_pb2, reverie_pb2_grpc

    class Stubs:
        service = reverb_service_pb2
        schema = schema_pb2
        Reverb = reverb_service_pb2_grpc.ReverbServiceStub
        reverie = reverie_pb2
        Reverie = reverie_pb2_grpc.ReverieStub

    return Stubs


@pytest.fixture
def server():
    with server_program.Server(
        "--port",
        "0",
        "--drain",
        "1",
        "--table",
        "name=t,sampler=fifo",
        "--table",
        "name=q,preset=queue:2",
        "--table",
        "name=p,sampler=prioritized:1",
    ) as running:
        yield running


@pytest.fixture
def channel(server):
    with server_program.channel(server.address) as opened:
        yield opened


def chunk(stubs, key, values):
    data = stubs.schema.ChunkData(chunk_key=key, data_tensors_len=1)
    data.sequence_range.episode_id = 7
    data.sequence_range.end = len(values) - 1
    tensor = data.data.tensors.add(dtype=1)  # float32
    tensor.tensor_shape.dim.add(size=len(values))
    tensor.tensor_content = server_program.snappy_literal(struct.pack(f"<{len(values)}f", *values))
    return data


def item(stubs, key, table, chunk_key, priority=1.0, length=1):
    made = stubs.schema.PrioritizedItem(key=key, table=table, priority=priority)
    made.flat_trajectory.columns.add().chunk_slices.add(chunk_key=chunk_key, length=length)
    return made


class Writer:
    """An InsertStream that is fed from a queue."""

    def __init__(self, stubs, stub):
        self.stubs = stubs
        self.requests = queue.Queue()
        self.call = stub.InsertStream(iter(self.requests.get, None), timeout=60)

    def insert(self, key, table, priority=1.0):
        request = self.stubs.service.InsertStreamRequest(
            chunks=[chunk(self.stubs, key, [float(key)])], items=[item(self.stubs, key, table, key, priority)]
        )
        self.requests.put(request)

    def confirmed(self, n):
        keys = []
        while len(keys) < n:
            keys += next(self.call).keys
        return sorted(keys)

    def close(self):
        self.requests.put(None)
        rest = [key for response in self.call for key in response.keys]
        return self.call.code(), sorted(rest)


def fill(stubs, stub, table, n):
    writer = Writer(stubs, stub)
    for key in range(1, n + 1):
        writer.insert(key, table, float(key))
    assert writer.confirmed(n) == list(range(1, n + 1))
    assert writer.close() == (grpc.StatusCode.OK, [])


def test_items_go_in_and_come_out(stubs, channel):
    stub = stubs.Reverb(channel)
    fill(stubs, stub, "t", 3)
    request = stubs.service.SampleStreamRequest(table="t", num_samples=2)
    entries = [entry for response in stub.SampleStream(iter([request]), timeout=60) for entry in response.entries]
    assert [entry.info.item.key for entry in entries] == [1, 1]
    assert all(entry.end_of_sequence for entry in entries)
    assert [entry.info.item.times_sampled for entry in entries] == [1, 2]
    first = entries[0]
    assert first.info.probability == 1
    assert first.info.table_size == 3
    assert first.data[0].data.tensors[0].tensor_content.endswith(struct.pack("<f", 1.0))
    slices = first.info.item.flat_trajectory.columns[0].chunk_slices
    assert [s.chunk_key for s in slices] == [first.data[0].chunk_key]


def test_a_half_close_confirms_what_was_blocked(stubs, channel):
    stub = stubs.Reverb(channel)
    writer = Writer(stubs, stub)
    for key in range(1, 6):
        writer.insert(key, "q")
    assert writer.confirmed(2) == [1, 2]
    ended = []
    thread = threading.Thread(target=lambda: ended.append(writer.close()))
    thread.start()
    request = stubs.service.SampleStreamRequest(table="q", num_samples=5)
    entries = [entry for response in stub.SampleStream(iter([request]), timeout=60) for entry in response.entries]
    thread.join(timeout=60)
    assert [entry.info.item.key for entry in entries] == [1, 2, 3, 4, 5]
    assert ended == [(grpc.StatusCode.OK, [3, 4, 5])]


def test_a_limiter_timeout_says_what_reverbs_clients_look_for(stubs, channel):
    request = stubs.service.SampleStreamRequest(table="t", num_samples=1)
    request.rate_limiter_timeout.milliseconds = 20
    with pytest.raises(grpc.RpcError) as caught:
        list(stubs.Reverb(channel).SampleStream(iter([request]), timeout=60))
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert "Rate Limiter: Timeout exceeded before the right to insert was acquired." in caught.value.details()


def test_priorities_are_mutated(stubs, channel):
    stub = stubs.Reverb(channel)
    fill(stubs, stub, "p", 3)
    updates = [stubs.schema.KeyWithPriority(key=2, priority=0), stubs.schema.KeyWithPriority(key=3, priority=9)]
    stub.MutatePriorities(stubs.service.MutatePrioritiesRequest(table="p", updates=updates, delete_keys=[1]), timeout=60)
    request = stubs.service.SampleStreamRequest(table="p", num_samples=20)
    entries = [entry for response in stub.SampleStream(iter([request]), timeout=60) for entry in response.entries]
    assert {entry.info.item.key for entry in entries} == {3}
    bad = [stubs.schema.KeyWithPriority(key=3, priority=-1)]
    with pytest.raises(grpc.RpcError) as caught:
        stub.MutatePriorities(stubs.service.MutatePrioritiesRequest(table="p", updates=bad), timeout=60)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "must not be" in caught.value.details()


def test_server_info_and_reset(stubs, channel):
    stub = stubs.Reverb(channel)
    fill(stubs, stub, "t", 3)
    info = stub.ServerInfo(stubs.service.ServerInfoRequest(), timeout=60)
    tables = {table.name: table for table in info.table_info}
    assert set(tables) == {"t", "q", "p"}
    assert tables["t"].current_size == 3
    assert tables["t"].sampler_options.fifo
    assert tables["p"].sampler_options.prioritized.priority_exponent == 1
    assert tables["q"].max_times_sampled == 1
    assert tables["q"].rate_limiter_info.max_diff == 2
    assert tables["t"].rate_limiter_info.insert_stats.completed == 3
    assert info.tables_state_id.high or info.tables_state_id.low
    stub.Reset(stubs.service.ResetRequest(table="t"), timeout=60)
    info = stub.ServerInfo(stubs.service.ServerInfoRequest(), timeout=60)
    assert {table.name: table.current_size for table in info.table_info} == {"t": 0, "q": 0, "p": 0}


def test_checkpoint_and_initialize_connection_answer_as_documented(stubs, channel):
    stub = stubs.Reverb(channel)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Checkpoint(stubs.service.CheckpointRequest(), timeout=60)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    request = stubs.service.InitializeConnectionRequest(pid=1, table_name="t")
    answers = list(stub.InitializeConnection(iter([request]), timeout=60))
    assert [answer.address for answer in answers] == [0]


@pytest.mark.parametrize("method", ["Reset", "MutatePriorities"])
def test_an_unknown_table_is_not_found(stubs, channel, method):
    request = getattr(stubs.service, f"{method}Request")(table="nowhere")
    with pytest.raises(grpc.RpcError) as caught:
        getattr(stubs.Reverb(channel), method)(request, timeout=60)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert "was not found" in caught.value.details()


def test_reveries_own_methods(stubs, channel):
    fill(stubs, stubs.Reverb(channel), "t", 3)
    stub = stubs.Reverie(channel)
    page = stub.Items(stubs.reverie.ItemsRequest(table="t", capacity=2), timeout=60)
    assert [i.key for i in page.items] == [1, 2]
    assert page.cursor != 0
    page = stub.Items(stubs.reverie.ItemsRequest(table="t", capacity=2, cursor=page.cursor), timeout=60)
    assert [i.key for i in page.items] == [3]
    assert page.cursor == 0
    response = stub.Get(stubs.reverie.GetRequest(table="t", key=2), timeout=60)
    assert [(e.info.item.key, e.info.item.times_sampled, e.end_of_sequence) for e in response.entries] == [(2, 0, True)]
    request = stubs.reverie.SetRateLimiterRequest(table="t")
    request.rate_limiter.samples_per_insert = 1
    request.rate_limiter.min_size_to_sample = 4
    request.rate_limiter.min_diff = -1e300
    request.rate_limiter.max_diff = 1e300
    stub.SetRateLimiter(request, timeout=60)
    info = stubs.Reverb(channel).ServerInfo(stubs.service.ServerInfoRequest(), timeout=60)
    assert {i.name: i.rate_limiter_info.min_size_to_sample for i in info.table_info}["t"] == 4
    stub.SetBounds(stubs.reverie.SetBoundsRequest(table="t", max_times_sampled=3), timeout=60)
    after = stubs.Reverb(channel).ServerInfo(stubs.service.ServerInfoRequest(), timeout=60)
    assert [(i.max_size, i.max_times_sampled) for i in after.table_info if i.name == "t"] == [
        (i.max_size, 3) for i in info.table_info if i.name == "t"
    ]
    stub.SetMemoryLimit(stubs.reverie.SetMemoryLimitRequest(bytes=1 << 30), timeout=60)


QUANTIZED = {11: "int8", 12: "uint8", 13: "int32", 15: "int16", 16: "uint16"}


@pytest.mark.parametrize(("number", "name"), QUANTIZED.items(), ids=QUANTIZED.values())
def test_quantized_integers_are_sampled_into_arrays_of_what_they_are_stored_as(stubs, server, channel, number, name):
    data = chunk(stubs, 1, [0.0])
    tensor = data.data.tensors[0]
    tensor.dtype = number
    tensor.tensor_content = server_program.snappy_literal(np.array([7], name).tobytes())
    request = stubs.service.InsertStreamRequest(chunks=[data], items=[item(stubs, 1, "t", 1)])
    assert [list(r.keys) for r in stubs.Reverb(channel).InsertStream(iter([request]), timeout=60)] == [[1]]
    client = reverie.Client(server.address)
    plain = client.sample_batch("t", 2).data[0]
    assert (plain.dtype, plain.tolist()) == (name, [[7], [7]])
    out = np.zeros_like(plain)
    assert client.sample_batch("t", 2, out=[out]).data[0] is out
    assert out.tolist() == [[7], [7]]
    assert client.sample_batch("t", 2, out=np.zeros).data[0].dtype == name
    with pytest.raises(ValueError, match=rf"out\[0\] has dtype float32, but should have {name}, as column 0"):
        client.sample_batch("t", 2, out=[np.zeros((2, 1), np.float32)])


def test_health(server, channel):
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"", timeout=60) == b"\x08\x01"
    assert check(b"\x0a\x1ddeepmind.reverb.ReverbService", timeout=60) == b"\x08\x01"
    with pytest.raises(grpc.RpcError) as caught:
        check(b"\x0a\x07nothing", timeout=60)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=60)
    assert next(watch) == b"\x08\x01"
    watch.cancel()


def test_a_compressed_request_is_refused(stubs, channel):
    with pytest.raises(grpc.RpcError) as caught:
        stubs.Reverb(channel).Reset(stubs.service.ResetRequest(table="t" * 1000), timeout=10, compression=grpc.Compression.Gzip)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "identity" in caught.value.details()


def test_a_message_of_many_megabytes_goes_both_ways(stubs, channel):
    stub = stubs.Reverb(channel)
    values = [1.5] * (5 << 20)  # 20 MiB
    request = stubs.service.InsertStreamRequest(
        chunks=[chunk(stubs, 1, values)], items=[item(stubs, 1, "t", 1, length=len(values))]
    )
    assert [list(r.keys) for r in stub.InsertStream(iter([request]), timeout=60)] == [[1]]
    ask = stubs.service.SampleStreamRequest(table="t", num_samples=2)
    entries = [entry for response in stub.SampleStream(iter([ask]), timeout=60) for entry in response.entries]
    assert [len(e.data[0].data.tensors[0].tensor_content) > 20 << 20 for e in entries] == [True, True]


def test_a_server_that_stops_says_so(stubs):
    server = server_program.Server("--port", "0", "--drain", "0", "--table", "name=t")
    with server_program.channel(server.address) as channel:
        call = stubs.Reverb(channel).SampleStream(iter([stubs.service.SampleStreamRequest(table="t", num_samples=1)]), timeout=60)
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=60) == b"\x08\x01"
        server.signal(15)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        assert server.wait()[0] == 0
