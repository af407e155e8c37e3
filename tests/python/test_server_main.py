"""The server program under Reverb's flags: what it takes, what it says, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import pytest
import reverie
from reverie import rate_limiters, selectors
from reverie.cc import schema_pb2
from reverie.cc.checkpointing import checkpoint_pb2
from reverie.platform.default import server_main_command_line_args as command_line
from reverie.server_executable import server_from_proto

PROGRAM = [sys.executable, "-m", "reverie.server_executable.server_main"]
LIMITER = "rate_limiter { samples_per_insert: 2 min_size_to_sample: 3 min_diff: -10 max_diff: 50 }"
TABLE = f'table_name: "replay" sampler {{ uniform: true }} remover {{ fifo: true }} max_size: 100 {LIMITER}'


def environment():
    return dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))


def run(*arguments):
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, env=environment())


class Running:
    """The program, once it has said that it can be called."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        self.line = self.process.stdout.readline()
        assert self.line, self.process.communicate(timeout=30)[1]
        self.address = f"localhost:{re.search(r'port ([0-9]+)', self.line)[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate(timeout=30)

    def end(self, number):
        """Exit status and what it wrote to stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_what_the_text_says_until_a_signal_ends_it(number):
    with Running(
        f"--config=tables {{ {TABLE} max_times_sampled: 4 }} tables {{ {TABLE.replace('replay', 'other')} }}"
    ) as program:
        assert "2 tables" in program.line
        client = reverie.Client(program.address)
        info = client.server_info(timeout=20)
        assert set(info) == {"replay", "other"}
        assert (info["replay"].max_size, info["replay"].max_times_sampled, info["other"].max_times_sampled) == (100, 4, 0)
        limiter = info["replay"].rate_limiter_info
        assert (limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff) == (2, 3, -10, 50)
        client.insert([1.0], {"replay": 1.0}, timeout=20)
        status, errors = program.end(number)
    assert status == 0, errors
    assert "everybody who reaches the port" in errors
    assert "Traceback" not in errors


def test_it_listens_on_the_port_of_the_text_and_says_when_it_cannot():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("--config", f"port: {port} tables {{ {TABLE} }}")
    assert done.returncode == 1
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr
    with Running("--config", f"port: {port} tables {{ {TABLE} }}") as program:
        assert program.address == f"localhost:{port}"
        assert program.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("", r"--config:1:1: At least one table"),
        ("tables {", r"--config:1:9: "),
        ("tabels {}", r'--config:1:1: .* did you mean "tables"\?'),
        ("tables {\n}", r"--config:1:1: sampler: no selector is asked for"),
        (f"tables {{ {TABLE} }}\ntables {{ {TABLE} }}", r"--config:2:10: two tables have the same name: 'replay'"),
        (f"tables {{ {TABLE.replace('uniform: true', 'uniform: false')} }}", r"sampler: uniform: the boolean value is false"),
        (f"tables {{ {TABLE.replace('fifo: true', '')} }}", r"remover: no selector is asked for"),
        (f"tables {{ {TABLE.replace('100', '0')} }}", r"--config:1:\d+: max_size: max_size must be a positive integer"),
        (f"tables {{ {TABLE.replace('100', '3000000000')} }}", r"max_size: max_size must be below"),
        (f"tables {{ {TABLE.replace('replay', '')} }}", r"--config:1:10: table_name: .* nonempty"),
        (f"tables {{ {TABLE.replace('samples_per_insert: 2', '')} }}", r"--config:1:\d+: rate_limiter: samples_per_insert is 0"),
        (f"tables {{ {TABLE.replace('min_size_to_sample: 3', '')} }}", r"rate_limiter: min_size_to_sample"),
        (
            f"tables {{ {TABLE.replace('uniform: true', 'prioritized { priority_exponent: nan }')} }}",
            r"sampler: priority_exponent",
        ),
        (f"tables {{ {TABLE} }} port: 65536", r"port must be from 0 to 65535, got 65536"),
        (f"tables {{ {TABLE} }} port: -1", r"port must be from 0 to 65535, got -1"),
    ],
)
def test_a_wrong_text_ends_it_with_one_line_that_says_where(monkeypatch, capsys, config, sentence):
    from reverie.server_executable import server_main

    monkeypatch.setattr(sys, "argv", ["server_main", f"--config={config}"])
    with pytest.raises(SystemExit, match=sentence) as ended:
        server_main.main(sys.argv)
    assert "\n" not in ended.value.code
    assert capsys.readouterr().out == ""


def test_as_a_program_it_exits_with_1_when_the_text_is_wrong_or_missing():
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert "Flag --config must have a value" in done.stderr
    done = run("--config=tables { }")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_the_text_may_be_in_a_file_which_errors_name(tmp_path):
    path = tmp_path / "replay.textproto"
    path.write_text(f"port: 0\ntables {{ {TABLE} }}\n")
    found = command_line.read([f"--config=@{path}"])
    assert found.config.tables[0].table_name == "replay"
    path.write_text("port: 0\ntables { table_nam: 3 }\n")
    with pytest.raises(ValueError, match=rf"{path}:2:10: .* did you mean \"table_name\""):
        command_line.read(["--config", f"@{path}"])
    with pytest.raises(ValueError, match=r"--config: '.*none' cannot be read: No such file"):
        command_line.read([f"--config=@{path}.none"])
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="cannot be read: .*utf-8"):
        command_line.read([f"--config=@{path}"])
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        command_line.read([f"--config=@{tmp_path}"])


def test_flags_are_taken_as_reverbs_program_takes_them(tmp_path):
    flags = tmp_path / "flags"
    flags.write_text("# a comment\n--config=port: 5\n\n-v=1\n")
    for arguments in (
        ["--config=port: 5"],
        ["--config", "port: 5"],
        ["-config", "port: 5"],
        ["--config=port: 4", "--config=port: 5"],
        [f"--flagfile={flags}"],
        ["--flagfile", str(flags), "--logtostderr", "--noalsologtostderr", "--verbosity=1", "--stderrthreshold", "info"],
        ["--undefok=hbm_oom_exit,other", "--nohbm_oom_exit", "--other=3", "--config=port: 5"],
        ["--config=port: 5", "--"],
    ):
        found = command_line.read(arguments)
        assert (found.config.port, found.only_check) == (5, False)
    assert command_line.read(["--config=port: 5", "--only_check_args"]).only_check
    assert not command_line.read(["--config=port: 5", "--only_check_args", "--noonly_check_args"]).only_check


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Flag --config must have a value"),
        (["--config"], "--config needs a value"),
        (["--confg=1"], "Unknown command line flag 'confg'"),
        (["--config=", "--pdb"], "Unknown command line flag 'pdb'"),
        (["replay"], "got 'replay'"),
        (["--config=", "--flagfile=/no/such/file"], "--flagfile: '/no/such/file' cannot be read: No such file"),
    ],
)
def test_a_wrong_command_line_is_refused_with_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        command_line.read(arguments)


def test_a_file_of_flags_that_names_itself_ends_in_an_error(tmp_path):
    flags = tmp_path / "flags"
    flags.write_text(f"--flagfile={flags}\n")
    with pytest.raises(ValueError, match="does one name itself"):
        command_line.read([f"--flagfile={flags}"])


def test_help_says_what_it_takes(capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.read(["--helpfull"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "--config TEXT" in text
    config = text[text.index("--config='") + 10 : text.index("    }'") + 5]  # the example is right
    assert len(server_from_proto.tables_from_proto(command_line.read([f"--config={config}"]).config.tables)) == 1


def test_what_is_passed_over_is_said(monkeypatch, capsys):
    from reverie.server_executable import server_main

    text = f"tables {{ {TABLE} signature {{ list_value {{}} }} num_unique_samples: 3 }}"
    monkeypatch.setattr(sys, "argv", ["server_main", "--only_check_args", f"--config={text}"])
    server_main.main(sys.argv)
    told = capsys.readouterr()
    assert told.out == "the configuration is right: 1 table\n"
    assert re.search(r"--config:1:\d+: the signature is passed over", told.err)
    assert re.search(r"--config:1:\d+: num_unique_samples is passed over", told.err)


@pytest.mark.parametrize(
    ("options", "selector"),
    [
        ({"fifo": True}, selectors.Fifo()),
        ({"lifo": True}, selectors.Lifo()),
        ({"uniform": True}, selectors.Uniform()),
        ({"heap": {"min_heap": True}}, selectors.MinHeap()),
        ({"heap": {}}, selectors.MaxHeap()),
        ({"prioritized": {"priority_exponent": 0.5}}, selectors.Prioritized(0.5)),
    ],
)
def test_messages_ask_for_selectors(options, selector):
    assert server_from_proto.selector_from_proto(schema_pb2.KeyDistributionOptions(**options)) == selector


def test_messages_that_ask_for_no_selector_are_refused():
    with pytest.raises(ValueError, match="boolean value is false"):
        server_from_proto.selector_from_proto(schema_pb2.KeyDistributionOptions(lifo=False))
    with pytest.raises(NotImplementedError, match="no selector"):
        server_from_proto.selector_from_proto(schema_pb2.KeyDistributionOptions(is_deterministic=True))


def test_tables_come_from_the_messages_of_a_checkpoint():
    limiter = checkpoint_pb2.RateLimiterCheckpoint(samples_per_insert=1, min_size_to_sample=2, max_diff=9.5, sample_count=7)
    assert server_from_proto.rate_limiter_from_proto(limiter) == rate_limiters.RateLimiter(1.0, 2, 0.0, 9.5)
    message = checkpoint_pb2.PriorityTableCheckpoint(
        table_name="t", sampler={"fifo": True}, remover={"lifo": True}, max_size=5, max_times_sampled=-1, rate_limiter=limiter
    )
    (table,) = server_from_proto.tables_from_proto([message])
    assert (table.name, table.info.max_size, table.info.max_times_sampled) == ("t", 5, 0)
    assert table.info.sampler_options == schema_pb2.KeyDistributionOptions(fifo=True, is_deterministic=True)
    with pytest.raises(ValueError, match=r"tables\[1\].max_size: max_size must be"):
        server_from_proto.tables_from_proto([message, checkpoint_pb2.PriorityTableCheckpoint.FromString(
            message.SerializeToString() + b"\x30\x00"
        )])  # fmt: skip


def test_a_table_takes_extensions_that_are_built_for_its_name(serve):
    class Built(reverie.server.TableExtensionBase):
        def build_internal_extensions(self, table_name):
            return ["statistics"] if table_name == "t" else [reverie.extensions.Diffusion()]

    table = reverie.Table("t", selectors.Fifo(), selectors.Fifo(), 5, rate_limiters.MinSize(1), extensions=[Built()])
    _, client = serve(table)
    client.add("t", 1)
    assert client.server_info()["t"].extensions
    assert "statistics" in repr(table)
    with pytest.raises(TypeError, match="abstract"):
        reverie.server.TableExtensionBase()
