"""The program reverie-server: its configuration file, its flags, and what a check says of them. While it runs: test_server_program.py."""

import importlib.metadata
import os
import re
import socket
import subprocess
import textwrap

import numpy as np
import pytest
import reverie
import server_program

FULL = """
    listen: [127.0.0.1:0, "unix:{folder}/socket"]
    threads: 2
    drain_seconds: 0.5
    seed: 18446744073709551615
    log: warning
    limits:
      max_message_bytes: 64MiB
      max_connections: 100
      max_connections_per_address: 90
      peer_timeout_seconds: 10
      max_streams_per_connection: 1000
      max_streams_per_identity: 1000
      max_bytes_per_identity: 1GiB
      max_writer_sessions: 50
      writer_session_ttl_seconds: 60
      max_stream_chunk_bytes: 256MiB
      max_orphan_bytes: 1GiB
      max_decode_cache_bytes: 16MiB
    tables:
      - name: replay
        sampler: prioritized:0.6
        remover: fifo
        max_size: 100000
        max_times_sampled: 0
        rate_limiter:
          kind: sample_to_insert_ratio
          samples_per_insert: 4
          min_size: 1000
          error_buffer: 4000
        signature:
          observation:
            pixels: {{dtype: uint8, shape: [84, 84]}}
            speed: {{dtype: float32, shape: []}}
          action: {{dtype: int64, shape: any, name: action}}
        extensions:
          - statistics
          - name: diffusion
            options: {{steps: 3, decay: 0.5}}
      - name: queue
        preset: queue:100
      - name: listed
        sampler: {{kind: prioritized, priority_exponent: 0.8}}
        rate_limiter: min_size:10
        signature: [{{name: a, dtype: float32, shape: [4]}}, {{dtype: string, shape: [-1]}}]
"""


def write(folder, text):
    file = folder / "config.yaml"
    file.write_text(textwrap.dedent(text).lstrip("\n"))
    return str(file)


def test_help_and_version_say_what_they_should():
    out = server_program.run("--help")
    assert out.returncode == 0
    assert "--table" in out.stdout
    assert "custom" not in out.stdout, "there can be none in this program"
    assert out.stderr == ""
    out = server_program.run("--version")
    assert out.returncode == 0
    assert out.stdout.startswith("reverie-server 0.")


def test_the_package_brings_the_program():
    (program,) = (file for file in importlib.metadata.files("reverie") if file.name == "reverie-server")
    path = program.locate().resolve()
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, f"reverie-server {reverie.__version__}\n"), done.stderr
    check = [path, "--listen", "127.0.0.1:0", "--table", "name=replay,sampler=prioritized:0.6,max_size=100000", "--check"]
    assert subprocess.run(check, capture_output=True, timeout=30).returncode == 0


def test_a_full_configuration_is_right_and_served(tmp_path):
    config = write(tmp_path, FULL.format(folder=tmp_path))
    out = server_program.run("--config", config, "--check")
    assert out.returncode == 0, out.stderr
    assert "3 tables" in out.stdout
    with server_program.Server("--config", config) as server:
        assert f"listening on 127.0.0.1:{server.port}, unix:{tmp_path}/socket, 3 tables" in server.line
        assert server_program.health(server.address) == b"\x08\x01"
        assert server_program.health(f"unix:{tmp_path}/socket") == b"\x08\x01"


def test_a_check_does_not_listen(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        out = server_program.run("--port", str(port), "--table", "name=t", "--check")
        assert out.returncode == 0, out.stderr


@pytest.mark.parametrize(
    ("config", "line", "words"),
    [
        ("", None, ["empty"]),
        ("tables: [{name: t}]\n---\nport: 9\n", 3, ["a second document begins here"]),
        ("tables: [{name: t}]\n---\nport: [\n", 4, ["not YAML"]),
        ("tables:\n  - name: t\n    signature: {a: {shape: [2]}}\n", 3, ["signature.a: ", "no dtype"]),
        ("tables:\n  - name: t\n    signature: {a: {shape: any}}\n", 3, ["signature.a: ", "no dtype"]),
        (
            "tables:\n  - name: t\n    signature: {a: {dtype: float32, shape: [null, 2]}}\n",
            3,
            ["shape[0]", "write -1 for any size"],
        ),
        ("tables: [{name: t}]\ncheckpoints:\n  path: ~/data\n", 3, ["checkpoints.path: ", "only a shell knows"]),
        ("tables:\n  - name: ~\n", 2, ["tables[0].name: ", "got ~, which is nothing in YAML"]),
        ("tables:\n  - name:\n", 2, ["tables[0].name: ", "got nothing; give one"]),
        ("tables: [{name: t}]\ncheckpoints: {path: null}\n", 2, ["checkpoints.path: ", "got null, which is nothing"]),
        ("tables: [{name: t}]\nhost: Null\n", 2, ["host: ", "got Null, which is nothing"]),
        ("tables: [{name: t}]\nidentities: [{name: x, certificate_name: ~}]\n", 2, ["certificate_name: ", "got ~, which"]),
        ("tables: [{name: t}]\nidentities: [{name: x, rights: {~: read}}]\n", 2, ["rights: ", "got ~, which"]),
        ("tables: " + "[" * 100000 + "]" * 100000, 1, ["nested more than 64 deep"]),
        ("tables: " + "{a: " * 30000 + "}" * 30000, 1, ["nested more than 64 deep"]),
        ("tables: \n  " + "- " * 30000 + "a", 2, ["nested more than 64 deep"]),
        ("port: 0\n", None, ["no tables"]),
        ("tables: []\n", None, ["no tables"]),
        ("tables: {name: t}\n", 1, ["tables", "list"]),
        ("tables:\n  - name: t\n    max_size: many\n", 3, ["tables[0].max_size", "whole number", "many"]),
        ("tables:\n  - name: t\n    max_size: 0\n", 3, ["max_size"]),
        ("tables:\n  - max_size: 3\n", 2, ["tables[0]", "no name"]),
        ("tables:\n  - name: t\n    name: u\n", 3, ["stands twice"]),
        ("tables:\n  - name: t\n    size: 3\n", 3, ["size", "max_size"]),
        ("tables:\n  - name: t\n    sampler: best\n", 3, ["sampler", "best", "prioritized"]),
        ("tables:\n  - name: t\n    sampler: prioritized\n", 3, ["exponent"]),
        (
            "tables:\n  - name: t\n    sampler: {kind: fifo, priority_exponent: 1}\n",
            3,
            ["only kind: prioritized has", "take it out"],
        ),
        ("tables:\n  - name: t\n    sampler: {kind: prioritized}\n", 3, ["needs its exponent: add priority_exponent: 0.6"]),
        ("tables:\n  - name: t\n    rate_limiter: queue\n", 3, ["queue", "size"]),
        ("tables:\n  - name: t\n    rate_limiter: {kind: queue, length: 3}\n", 3, ["length"]),
        (
            "tables:\n  - name: t\n    rate_limiter: {kind: sample_to_insert_ratio, samples_per_insert: 1, min_size: 1}\n",
            3,
            ["error_buffer"],
        ),
        ("tables:\n  - name: t\n    rate_limiter: sample_to_insert_ratio:1:1:nan\n", 3, ["nan"]),
        ("tables:\n  - name: t\n    rate_limiter: general:1:10:20:5\n", 3, ["rate_limiter"]),
        ("tables:\n  - name: t\n    signature: {a: {dtype: float, shape: []}}\n", 3, ["signature.a", "float"]),
        ("tables:\n  - name: t\n    signature: {a: {dtype: float32}}\n", 3, ["shape"]),
        ("tables:\n  - name: t\n    signature: {a: {dtype: float32, shape: [-2]}}\n", 3, ["shape[0]", "-2"]),
        ("tables:\n  - name: t\n    signature: {a: &x [*x]}\n", 3, ["deep"]),
        ("tables:\n  - name: t\n    extensions: statistics\n", 3, ["extensions", "list"]),
        ("port: 70000\ntables: [{name: t}]\n", 1, ["port", "65535"]),
        ("prot: 7000\ntables: [{name: t}]\n", 1, ["prot", "port"]),
        ("limits: {max_message_bytes: lots}\ntables: [{name: t}]\n", 1, ["limits.max_message_bytes", "256MiB"]),
        ("limits: {port: 3}\ntables: [{name: t}]\n", 1, ["port"]),
        ("tables: [{name: t}\n", 2, ["not YAML"]),
        ("tables:\n\t- name: t\n", 2, ["not YAML", "indent by spaces, not by tabs"]),
        ("tables: [{name: t}]\nidentities:\n  - {name: x, rights: {*: read}}\n", 3, ["not YAML", 'put a * in quotes: "*"']),
        ("tables:\n  - {name: t}\n  - {name: u}\n  - {name: t}\n", 4, ["tables[2]: ", "names must differ"]),
        ("tables: [{name: t, extensions: [nothing]}]\n", 1, ["tables[0]: ", "nothing"]),
        ("table:\n  - name: t\n", 2, ['no setting "table"', "did you mean tables"]),
        ("checkpoint: {path: /data}\ntables: [{name: t}]\n", 1, ['no setting "checkpoint"', "did you mean checkpoints"]),
        ("memory_limits: 1GiB\ntables: [{name: t}]\n", 1, ["did you mean memory_limit;"]),
        ("zzz: 1\ntables: [{name: t}]\n", 1, ['no setting "zzz"; docs/server.md']),
        ("limits: {max_conections: 3}\ntables: [{name: t}]\n", 1, ['no limit "max_conections"; did you mean max_connections;']),
        ("limits: {zzz: 3}\ntables: [{name: t}]\n", 1, ['no limit "zzz"; docs/server.md']),
        ("checkpoints:\n  evry_seconds: 5\n", 2, ['no field "evry_seconds" here; did you mean every_seconds;']),
        ("checkpoints: {every: 5}\n", 1, ['no field "every" here; did you mean every_seconds;']),
        ("journal: {mod: always}\n", 1, ['no field "mod" here; did you mean mode;']),
        ("spill: {max: 1GiB}\n", 1, ['no field "max" here; did you mean max_bytes;']),
        ("tls: {cert: x}\n", 1, ['no field "cert" here; did you mean certificate;']),
        ("tls: {zzz: x}\n", 1, ['no field "zzz" here; docs/server.md']),
        ("limits: {foo: 3}\n", 1, ['no limit "foo"; docs/server.md']),
        (
            "tables:\n  - name: t\n    rate_limiter: sample_to_insert_ratio:4:1000:0.1\n",
            3,
            ["error_buffer is 0.1", "at least max(1, samples_per_insert) = 4"],
        ),
        ("tables:\n  - name: t\n    sampler: custom:mine\n", 3, ['"custom:mine" is no selector', "prioritized"]),
        ("tables:\n  - name: t\n    signature: {a: {dtype: floaty, shape: []}}\n", 3, ["bfloat16", "complex128", "string"]),
        ("tables: [{name: t}]\nlisten: [127.0.0.1:0, nonsense]\n", 2, ["listen[1]: ", "nonsense", "has no port"]),
        ("tables: [{name: t}]\nhost: a b\n", 2, ["host: ", "a b"]),
        ("tables: [{name: t}]\nhost: 127.0.0.1:8000\n", 2, ["host: ", '"127.0.0.1:8000" is a host with a port', "--port N"]),
        ("tables: [{name: t}]\nport: 1\nhost: '[::1]:8000'\n", 3, ["host: ", '"[::1]:8000" is a host with a port']),
        ("tables: [{name: t}]\nlisten: []\n", 2, ["listen: the list of addresses is empty; give one"]),
        (
            "tables: [{name: t}]\nlisten:\n  - 127.0.0.1:80\n  - unix:/x\n  - 127.0.0.1:80\n",
            5,
            ["listen[2]: the address 127.0.0.1:80 stands twice"],
        ),
        ("tables: [{name: t}]\nlisten: ['unix:/x', 'unix:///x']\n", 2, ["listen[1]: the address unix:///x stands twice"]),
        ("listen: 127.0.0.1:0\nport: 3\ntables: [{name: t}]\n", 2, ["port: both"]),
        (
            "tables:\n  - {name: t}\n  - {name: u, max_size: 10, rate_limiter: min_size:100}\n",
            3,
            ['tables[1]: table "u": rate_limiter: ', "max_size = 10"],
        ),
        ("tables: [{name: t}]\nseed: -1\n", 2, ['seed: expected a whole number from 0 to 18446744073709551615, got "-1"']),
        ("tables: [{name: t}]\nseed: 1.5\n", 2, ["seed: expected a whole number", "1.5"]),
        ("tables: [{name: t}]\nlimits: {seed: 1}\n", 2, ['no limit "seed"']),
        ("tables: [{name: t}]\njournal: {path: /j}\n", 2, ["journal.path: ", "goes on from checkpoints"]),
        ("tables: [{name: t}]\njournal:\n  mode: periodic\n", 3, ["journal.mode: ", "has no path"]),
        ("tables: [{name: t}]\ncheckpoints:\n  keep: 3\n", 3, ["checkpoints.keep: ", "no path"]),
        ("tables: [{name: t}]\ncheckpoints:\n  keep: 3\n  path: /dev/null/c\n", 4, ["checkpoints.path: ", "/dev/null/c"]),
        ("tables: [{name: t}]\nspill: {path: /s}\n", 2, ["spill.path: ", "memory_limit"]),
        ("tables: [{name: t}]\nspill: {max_bytes: 1GiB}\n", 2, ["spill.max_bytes: ", "no path"]),
        ("tables: [{name: t}]\ntls:\n  certificate: /nowhere.pem\n", 3, ["tls.certificate: ", "/nowhere.pem"]),
        ("tables: [{name: t}]\ntls:\n  key: /nowhere.pem\n", 3, ["tls.key: ", "no certificate", "--tls-certificate"]),
        (
            "tables: [{name: t}]\nidentities:\n  - {name: a, token: 0123456789abcdef}\n  - {name: b, token: short}\n",
            4,
            ["identities[1]: ", '"b" is too short'],
        ),
        (
            "tables: [{name: t}]\nidentities:\n  - {name: a, certificate_name: x}\n  - {name: b, certificate_name: x}\n",
            4,
            ["identities[1]: ", "the same certificate_name"],
        ),
        ("tables: [{name: t}]\nidentities: [{name: a, certificate_name: ''}]\n", 2, ["identities[0]: ", "is empty, so that no"]),
    ],
)
def test_a_wrong_configuration_is_told_with_its_place(tmp_path, config, line, words):
    file = tmp_path / "config.yaml"
    file.write_text(config)
    out = server_program.run("--config", str(file), "--check")
    assert out.returncode == 2, out.stdout
    (said,) = server_program.lines(out.stderr, "error")
    if line is not None:
        assert said.startswith(f"{file}:{line}: ")
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["no tables", "--table"]),
        (["--nonsense"], ["--nonsense", "--help"]),
        (["--port"], ["--port", "value"]),
        (["--port", "x", "--table", "name=t"], ["--port", "x"]),
        (["--table", "max_size=3"], ["--table", "name"]),
        (["--table", "name=t,max_size"], ["FIELD=VALUE"]),
        (["--table", "name=t,max_size=-1"], ["--table", "max_size", "-1"]),
        (["--table", "name=t,name=u"], ['--table: "name" stands twice']),
        (["--table", "name=t,max_size=1,sampler=fifo,max_size=2"], ['--table: "max_size" stands twice']),
        (["--table", "name=t", "--host", "localhost:80"], ['--host: "localhost:80" is a host with a port', "--port N"]),
        (["--table", "name=t", "--listen", "[::1]:80", "--listen", "[::1]:80"], ["--listen: the address [::1]:80 stands twice"]),
        (["--config", "/does/not/exist"], ["/does/not/exist"]),
        (["--set", "threads"], ["NAME=VALUE"]),
        (["--set", "nothing=3"], ["nothing"]),
        (["--set", "memory_limt=3"], ["did you mean memory_limit"]),
        (["--set", "foo=1"], ['no setting "foo"; docs/server.md']),
        (["--set", "a=1"], ['no setting "a"; docs/server.md']),
        (["--set", "pool=1"], ['no setting "pool"; docs/server.md']),
        (["--set", "prot=1"], ["did you mean port;"]),
        (["--set", "therads=1"], ["did you mean threads;"]),
        (["--set", "checkpoint_every=3"], ["did you mean checkpoint_every_seconds"]),
        (["--table", "name=t", "--listen", "localhost"], ["--listen: ", "has no port"]),
        (["--table", "name=t", "--table", "name=t"], ["--table: ", "names must differ"]),
        (["--drain", "99999999999999999999"], ['--drain: expected a number of seconds from 0 to 1000000000, got "9999']),
        (["--drain", "-1"], ['--drain: expected a number of seconds from 0 to 1000000000, got "-1"']),
        (["--seed"], ["--seed needs a value"]),
        (["--seed", ""], ['--seed: expected a whole number from 0 to 18446744073709551615, got ""']),
        (["--seed", "18446744073709551616"], ['--seed: expected a whole number from 0 to 18446744073709551615, got "184']),
        (["--set", "seed= 1"], ["--set: seed: expected a whole number"]),
        (["--table", "name=t", "--journal", "/j"], ["--journal: ", "--checkpoints"]),
        (["--table", "name=t", "--tls-certificate", "/nowhere.pem"], ["--tls-certificate: ", "/nowhere.pem"]),
    ],
)
def test_wrong_flags_are_told(args, words):
    out = server_program.run(*args)
    assert out.returncode == 2
    for word in words:
        assert word in out.stderr, out.stderr


def test_what_is_nothing_in_yaml_is_text_in_quotes(tmp_path):
    config = write(tmp_path, "tables: [{name: '~'}, {name: \"null\"}]")
    out = server_program.run("--port", "0", "--config", config, "--check")
    assert (out.returncode, out.stdout) == (0, "the configuration is right: 2 tables\n"), out.stderr


def test_flags_alone_are_enough_and_loopback_is_the_default():
    table = "name=replay,sampler=prioritized:0.6,max_size=1000,rate_limiter=min_size:10,extension=diffusion:steps=2:decay=0.5"
    with server_program.Server("--port", "0", "--threads=1", "--table", table, "--table=name=q,preset=queue:3") as server:
        assert server.line == f"listening on 127.0.0.1:{server.port}, 2 tables\n"
        assert server_program.health(server.address) == b"\x08\x01"


def test_what_may_stand_twice_is_taken():
    table = "name=t,extension=statistics,extension=diffusion:steps=2"
    for args in (
        ["--table", table],
        ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"],
        ["--host", "::1"],
        ["--host", "[::1]"],
    ):
        out = server_program.run("--table", "name=u", *args, "--check")
        assert (out.returncode, out.stderr) == (0, ""), args


def test_flags_that_follow_the_file_win(tmp_path):
    config = write(tmp_path, "listen: 127.0.0.1:1\ntables: [{name: t}]")
    with server_program.Server("--config", config, "--port", "0") as server:
        assert server.line == f"listening on 127.0.0.1:{server.port}, 1 table\n"


def drawn(*args):
    """What one client inserts and draws, at a new server."""
    table = "name=t,sampler=prioritized:0.6,remover=uniform,max_size=100"
    with server_program.Server("--port", "0", "--table", table, *args) as server:
        client = reverie.Client(server.address)
        for i in range(200):
            client.add("t", {"x": np.float32(i)}, priority=1 + i % 7)
        return [client.sample_batch("t", n).data["x"].tolist() for n in (1, 7, 64)]


def test_one_seed_draws_the_same_items_and_another_draws_others(tmp_path):
    config = write(tmp_path, "seed: 5")
    first = drawn("--seed", "5")
    assert drawn("--set", "seed=5") == drawn("--config", config) == first
    assert drawn("--config", config, "--seed", "6") != first, "flags that follow the file win"
    assert drawn() != drawn()


def test_a_port_in_use_is_told():
    with server_program.Server("--port", "0", "--table", "name=t") as server:
        out = server_program.run("--port", str(server.port), "--table", "name=t")
        assert out.returncode == 1
        assert str(server.port) in out.stderr
        assert "in use" in out.stderr


def test_the_file_in_the_documentation_is_right(tmp_path):
    text = (server_program.ROOT / "docs" / "server.md").read_text()
    example = text.split("```yaml\n")[1].split("```")[0]
    file = tmp_path / "documented.yaml"
    file.write_text(example)
    out = server_program.run("--config", str(file), "--check")
    assert out.returncode == 0, out.stderr


def test_the_command_lines_of_the_pages_are_right(tmp_path):
    lines: list[str] = []
    for page in ("README.md", "docs/server.md", "docs/checkpoints.md", "docs/journal.md"):
        text = (server_program.ROOT / page).read_text()
        lines += re.findall(r"^(?:    )?reverie-server (.*?)(?: +#.*)?$", text, re.MULTILINE)
    assert len(lines) > 5
    for name in ("replay.yaml", "server.yaml"):
        (tmp_path / name).write_text("tables:\n  - name: replay\n")
    for line in lines:
        out = server_program.run(*line.replace("/data", str(tmp_path)).split(), "--check", cwd=tmp_path)
        assert out.returncode == 0, (line, out.stderr)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("identities: [{name: x, token_file: nowhere/x}]", 2),
        ("tls: {certificate: nowhere/x}", 2),
        ("checkpoints: {path: a-file/x}", 2),
        ("checkpoints: {path: c}\njournal: {path: a-file/x}", 1),
        ("limits: {memory_limit: 1GiB}\nspill: {path: ./nowhere/x}", 1),
    ],
)
def test_a_relative_path_is_relative_to_where_the_program_was_started_and_told_whole(tmp_path, text, status):
    folder, here = tmp_path / "configuration", tmp_path / "started"
    folder.mkdir()
    here.mkdir()
    (here / "a-file").write_text("")
    config = write(folder, f"{text}\nlisten: 127.0.0.1:0\ntables: [{{name: t}}]")
    out = server_program.run("--config", config, cwd=here)
    assert out.returncode == status, out.stderr
    assert f"{here}/nowhere/x" in out.stderr or f"{here}/a-file/x" in out.stderr


def test_files_of_a_configuration_are_found_from_where_the_program_was_started(tmp_path):
    folder = tmp_path / "configuration"
    folder.mkdir()
    config = write(folder, "identities: [{name: x, token_file: token, rights: {t: read}}]\ntables: [{name: t}]")
    (tmp_path / "token").write_text("a-token-of-sixteen-characters\n")
    assert server_program.run("--config", config, "--check", cwd=tmp_path).returncode == 0
    assert server_program.run("--config", config, "--check", cwd=folder).returncode == 2


def test_a_check_looks_at_the_directories_of_journal_and_spill_and_makes_none(tmp_path):
    file, spill = tmp_path / "file", tmp_path / "spill"
    file.write_text("in the way")
    spill.mkdir()
    flags = ["--port", "0", "--table", "name=t", "--checkpoints", f"{tmp_path}/c", "--memory-limit", "1GiB", "--check"]
    for more, told in [
        (["--journal", f"{file}/j"], ["--journal: no journal could be written: ", str(file), "Not a directory"]),
        (["--journal", str(file)], ["--journal: no journal could be written: ", str(file), "Not a directory"]),
        (["--spill", f"{tmp_path}/nowhere"], ["--spill: ", f"{tmp_path}/nowhere", "No such file or directory"]),
        (["--spill", str(file)], ["--spill: ", str(file), "Not a directory"]),
        (["--spill", str(spill), "--set", "spill_max_bytes=1MiB"], ["max_bytes is 1048576"]),
        (["--journal", f"{tmp_path}/a/j", "--spill", str(spill)], []),
        (["--journal", f"{tmp_path}/a/j", "--spill", f"{tmp_path}/a"], []),  # a start makes it
    ]:
        out = server_program.run(*flags, *more)
        assert out.returncode == (2 if told else 0), out.stderr
        assert (out.stdout == "") == bool(told)
        assert all(words in out.stderr for words in told), out.stderr
    assert sorted(os.listdir(tmp_path)) == ["file", "spill"]
    assert os.listdir(spill) == []


def test_a_check_looks_for_the_directory_of_a_socket(tmp_path):
    (tmp_path / "file").write_text("in the way")

    def check(address, *more):
        out = server_program.run("--table", "name=t", "--listen", address, *more, "--check", cwd=tmp_path)
        assert (out.returncode, out.stdout == "") in [(0, False), (2, True)]
        return out.stderr

    nowhere = f"unix:{tmp_path}/nowhere/s"
    for address, told in [
        (nowhere, [f"--listen: cannot listen on {nowhere}", f"{tmp_path}/nowhere/ cannot be used: No such file or directory"]),
        (f"unix:{tmp_path}/file/s", [f"{tmp_path}/file/ cannot be used: Not a directory"]),
        ("unix:nowhere/s", [f"{tmp_path}/nowhere/ cannot be used: No such file or directory"]),
    ]:
        said = check(address)
        assert all(words in said for words in told), said
    for address in (f"unix:{tmp_path}/s", "unix:s", "unix:@nowhere/s", "unix:/s"):
        assert check(address) == ""
    for address in (nowhere, "unix:nowhere/s"):
        assert check(address, "--checkpoints", f"{tmp_path}/nowhere/c") == "", "a start makes it"
    assert os.listdir(tmp_path) == ["file"]


def test_a_check_of_a_server_that_runs_is_as_before_it_did(tmp_path):
    flags = server_program.disk_flags(tmp_path, "--memory-limit", "1GiB", "--spill", f"{tmp_path}/c")
    assert server_program.run(*flags, "--check").returncode == 0
    with server_program.Server(*flags):
        out = server_program.run(*flags, "--check")
        assert out.returncode == 0, out.stderr


def warnings_of_a_check(tmp_path, text):
    out = server_program.run("--config", write(tmp_path, text), "--check")
    assert out.returncode == 0, out.stderr
    return server_program.lines(out.stderr, "warning")


def test_bounds_of_tables_below_which_inserts_may_wait_for_memory_are_warned_of(tmp_path):
    def of(max_bytes, more=""):
        tables = f"tables: [{{name: a, max_bytes: {max_bytes}}}, {{name: b, max_bytes: 10MiB}}, {{name: unbounded}}]\n"
        return warnings_of_a_check(tmp_path, f"{tables}limits:\n  memory_limit: 30MiB\n{more}")

    assert of("10MiB") == []
    (line,) = of("11MiB")
    assert line.startswith(f"{tmp_path}")
    assert ":3: limits.memory_limit: the max_bytes of all tables are 21 MiB together, more than two thirds of it (20 MiB)" in line
    assert of("11MiB", f"spill: {{path: {tmp_path}}}\n") == []


@pytest.mark.parametrize(("seconds", "warned"), [("0", True), ("10", False), (None, False)])
def test_a_peer_timeout_of_0_is_the_default_and_warned_of(tmp_path, seconds, warned):
    limits = "" if seconds is None else f"limits:\n  peer_timeout_seconds: {seconds}\n"
    found = warnings_of_a_check(tmp_path, f"tables: [{{name: t}}]\n{limits}")
    assert len(found) == warned
    assert all("limits.peer_timeout_seconds: 0 is the default, 10 s, and not no timeout" in line for line in found)


def test_a_fallback_that_is_no_checkpoint_is_warned_of(tmp_path):
    def of(fallback):
        paths = f"{{path: {tmp_path}/checkpoints, fallback: {fallback}}}"
        return warnings_of_a_check(tmp_path, f"tables: [{{name: t}}]\ncheckpoints: {paths}\n")

    (line,) = of("/nope")
    assert ":2: checkpoints.fallback: /nope is no checkpoint, or is not there: " in line
    with server_program.Server(*server_program.checkpoint_flags(tmp_path / "others")) as server:
        saved = reverie.Client(server.address).checkpoint()
    assert of(saved) == []


def test_a_size_whose_default_is_0_may_be_written_as_0_and_no_other(tmp_path):
    text = "tables: [{name: t, max_bytes: 0}]\nlimits: {memory_limit: 0}\nspill: {max_bytes: 0}\n"
    assert warnings_of_a_check(tmp_path, text) == []
    of_spill = ["--spill", str(tmp_path), "--memory-limit", "1GiB", "--set", "spill_max_bytes=0"]
    for more in (["--memory-limit", "0"], ["--table", "name=u,max_bytes=0"], ["--table", "name=u,max_bytes=0MiB"], of_spill):
        out = server_program.run("--port", "0", "--table", "name=t", *more, "--check")
        assert (out.returncode, out.stderr) == (0, "")
    for more in (["--memory-limit", "-1"], ["--table", "name=u,max_bytes=-1"]):
        out = server_program.run("--table", "name=t", *more, "--check")
        assert out.returncode == 2
        assert "or 0 for no bound" in out.stderr
    out = server_program.run("--table", "name=t", "--set", "max_message_bytes=0", "--check")
    assert out.returncode == 2
    assert 'max_message_bytes: expected a size such as 65536, 64KiB, 256MiB or 1GiB, got "0"' in out.stderr


def test_a_bound_on_messages_in_which_no_answer_fits_is_refused():
    for given in ("1", "16383", "15KiB"):
        out = server_program.run("--table", "name=t", "--set", f"max_message_bytes={given}", "--check")
        assert out.returncode == 2
        assert f'max_message_bytes: expected a size such as 65536, 64KiB, 256MiB or 1GiB, got "{given}"' in out.stderr
        assert "at least 16384 bytes" in out.stderr
    for given in ("16384", "16KiB", "1MiB"):
        out = server_program.run("--port", "0", "--table", "name=t", "--set", f"max_message_bytes={given}", "--check")
        assert (out.returncode, out.stderr) == (0, "")
