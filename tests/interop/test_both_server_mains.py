"""One configuration in protocol buffers' text starts dm-reverb's server program and ours, and both are the same to their clients."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest
import reverie
from peer import PYTHON, run

CONFIG = """
port: %d
tables: {
  table_name: "replay"
  sampler: { prioritized: { priority_exponent: 0.6 } }
  remover: { heap: { min_heap: true } }
  max_size: 5
  max_times_sampled: 7
  rate_limiter: { samples_per_insert: 2 min_size_to_sample: 1 min_diff: -20 max_diff: 300.5 }
}
tables {
  table_name: "queue" sampler { fifo: true } remover { fifo: true } max_size: 100 max_times_sampled: 1
  rate_limiter { samples_per_insert: 1, min_size_to_sample: 1, min_diff: 0, max_diff: 100 }
}
tables {
  table_name: 'stack', sampler < lifo: true > remover { lifo: true }; max_size: 0x64
  rate_limiter { samples_per_insert: 1e0 min_size_to_sample: 01 min_diff: -1.7976931348623157e+308 max_diff: 1.7976931348623157e+308 }
}
tables {
  table_name: "any" sampler { uniform: true } remover { heap { } } max_size: 2147483647
  rate_limiter { samples_per_insert: 0.5 min_size_to_sample: 10 min_diff: -inf max_diff: inf }
  signature { list_value { values { tensor_spec_value { name: "x" dtype: DT_FLOAT } } } }
}
"""


@pytest.fixture
def port():
    """Nobody else is given it until the server has it, for it is bound here, too."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server sets it as well
        held.bind(("", 0))
        yield held.getsockname()[1]


@pytest.fixture(params=["theirs", "ours"])
def address(request, port):
    """Of a server program that was given the text."""
    arguments = ["-m", f"{ {'theirs': 'reverb', 'ours': 'reverie'}[request.param] }.server_executable.server_main"]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path) if request.param == "ours" else "")
    program = subprocess.Popen(
        [{"theirs": PYTHON, "ours": sys.executable}[request.param], *arguments, f"--config={CONFIG % port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    yield f"localhost:{port}"
    program.send_signal(signal.SIGINT)
    try:
        program.wait(20)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


EXPECTED = {
    "replay": ("prioritized", 0.6, False, "heap", True, 5, 7, 2.0, 1, -20.0, 300.5),
    "queue": ("fifo", 0.0, True, "fifo", True, 100, 1, 1.0, 1, 0.0, 100.0),
    "stack": ("lifo", 0.0, True, "lifo", True, 100, 0, 1.0, 1, -sys.float_info.max, sys.float_info.max),
    "any": ("uniform", 0.0, False, "heap", True, 2**31 - 1, 0, 0.5, 10, -sys.float_info.max, sys.float_info.max),
}
TELL = """
def told(client):
    return {
        name: (
            info.sampler_options.WhichOneof("distribution"), info.sampler_options.prioritized.priority_exponent,
            info.sampler_options.is_deterministic, info.remover_options.WhichOneof("distribution"),
            info.remover_options.is_deterministic, info.max_size, info.max_times_sampled,
            info.rate_limiter_info.samples_per_insert, info.rate_limiter_info.min_size_to_sample,
            info.rate_limiter_info.min_diff, info.rate_limiter_info.max_diff,
        )
        for name, info in client.server_info(60).items()
        if info.signature is None
    }
"""


def finite(found):
    """Infinite bounds may be shown as the largest number."""
    biggest = sys.float_info.max
    return {
        name: tuple(max(-biggest, min(x, biggest)) if isinstance(x, float) else x for x in row) for name, row in found.items()
    }


def test_the_same_text_starts_the_same_server_to_either_client(address):
    tools: dict = {}
    exec(TELL, tools)
    client = reverie.Client(address)
    assert finite(tools["told"](client)) == EXPECTED
    for priority in (3.0, 1.0, 2.0, 5.0, 4.0, 6.0):
        client.insert([priority], {"replay": priority, "stack": 1.0}, timeout=30)
    script = (
        TELL
        + """
client = reverb.Client(sys.argv[1])
samples = [float(sample[0].data[0]) for sample in client.sample("stack", 2)]
answer([told(client), client.server_info(60)["replay"].current_size, samples])
"""
    )
    told, size, samples = run(script, address)
    assert finite({name: tuple(row) for name, row in told.items()}) == EXPECTED
    assert (size, samples) == (5, [6.0, 6.0])


@pytest.mark.parametrize("text", ["", "tabels {}", "tables { sampler { fifo: false } }"])
def test_both_refuse_the_same_texts(text):
    for python, package in ((PYTHON, "reverb"), (sys.executable, "reverie")):
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path) if package == "reverie" else "")
        command = [python, "-m", f"{package}.server_executable.server_main", f"--config={text}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 1, (package, done.stderr)
