"""nginx's grpc_pass in front of the server: inserts and samples go through it."""

import shutil
import struct
import subprocess

import grpc
import pytest
import server_program
from waiting import HeldPort

CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  upstream reverie {{ server 127.0.0.1:{server}; }}
  server {{
    listen 127.0.0.1:{port} http2;
    location / {{
      grpc_pass grpc://reverie;
      grpc_read_timeout 60s;
      grpc_send_timeout 60s;
    }}
  }}
}}
"""


def find_nginx():
    program = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    assert program is not None, "nginx is not installed; ./dev test installs it (Debian: nginx-light)"
    return program


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    server_program.generate_stubs(tmp_path_factory.mktemp("stubs"))
    from deepmind.reverb import reverb_service_pb2, reverb_service_pb2_grpc

    return reverb_service_pb2, reverb_service_pb2_grpc.ReverbServiceStub


@pytest.fixture
def channel(tmp_path):
    """A channel to nginx, which stands before a server with table "t"."""
    with server_program.Server("--port", "0", "--drain", "1", "--table", "name=t,sampler=fifo") as server:
        held = HeldPort()
        config = tmp_path / "nginx.conf"
        config.write_text(CONFIG.format(folder=tmp_path, server=server.port, port=held.number))
        nginx = subprocess.Popen([find_nginx(), "-p", str(tmp_path), "-c", str(config)], stderr=subprocess.PIPE, text=True)
        try:
            with server_program.channel(held.address) as opened:
                grpc.channel_ready_future(opened).result(timeout=30)
                yield opened
        finally:
            nginx.terminate()
            _, err = nginx.communicate(timeout=30)
            held.close()
            print(err)


def requests(service, n, floats):
    for key in range(1, n + 1):
        request = service.InsertStreamRequest()
        chunk = request.chunks.add(chunk_key=key, data_tensors_len=1)
        tensor = chunk.data.tensors.add(dtype=1)
        tensor.tensor_shape.dim.add(size=1)
        tensor.tensor_shape.dim.add(size=floats)
        tensor.tensor_content = server_program.snappy_literal(struct.pack("<f", key) * floats)
        item = request.items.add(key=key, table="t", priority=1)
        item.flat_trajectory.columns.add().chunk_slices.add(chunk_key=key, length=1)
        yield request


@pytest.mark.parametrize("floats", [1, 500_000])
def test_items_go_in_and_come_out_through_nginx(stubs, channel, floats):
    service, stub = stubs[0], stubs[1](channel)
    keys = [key for response in stub.InsertStream(requests(service, 10, floats), timeout=60) for key in response.keys]
    assert sorted(keys) == list(range(1, 11))
    ask = service.SampleStreamRequest(table="t", num_samples=5)
    entries = [entry for response in stub.SampleStream(iter([ask]), timeout=60) for entry in response.entries]
    assert [entry.info.item.key for entry in entries if entry.HasField("info")] == [1] * 5
    assert entries[0].data[0].data.tensors[0].tensor_content[-4:] == struct.pack("<f", 1)


def test_errors_and_unary_calls_pass_through_nginx(stubs, channel):
    service, stub = stubs[0], stubs[1](channel)
    info = stub.ServerInfo(service.ServerInfoRequest(), timeout=60)
    assert [table.name for table in info.table_info] == ["t"]
    with pytest.raises(grpc.RpcError) as caught:
        stub.Reset(service.ResetRequest(table="nowhere"), timeout=60)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    ask = service.SampleStreamRequest(table="t", num_samples=1)
    ask.rate_limiter_timeout.milliseconds = 20
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.SampleStream(iter([ask]), timeout=60))
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
