"""docs/migrating-from-reverb.md: what it shows runs, and what it says of errors and flags is so."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import reverie
import server_program
from reverie.platform.default import server_main_command_line_args as command_line
from reverie.server_executable import server_from_proto

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/migrating-from-reverb.md").read_text()


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_runs_from_top_to_bottom(tmp_path, capsys):
    found = blocks("python(?: both)?")
    assert len(found) == 4
    names = {"__name__": "page"}
    exec(compile("\n".join(found).replace("unix:/tmp/", f"unix:{tmp_path}/"), "docs/migrating-from-reverb.md", "exec"), names)
    assert "waits for" in capsys.readouterr().out
    assert pathlib.Path(names["path"]).parent == pathlib.Path(names["root"])


def test_the_program_that_runs_with_either_runs_where_reverb_is_this_package(tmp_path):
    command = blocks("sh")[0].splitlines()[0]
    assert command == "python -m reverie.as_reverb train.py --steps 1000"
    (program,) = blocks("python both")
    (tmp_path / "train.py").write_text(f"import reverb\n{program}\nprint('done')\n")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    arguments = [sys.executable, *shlex.split(command)[1:]]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout == "done\n", done.stderr


def config_of_the_page():
    (command,) = (each for each in blocks("sh") if "server_main" in each)
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "reverie.server_executable.server_main"]
    return command_line.read(words[3:]).config


def test_the_text_and_the_yaml_of_the_page_make_the_same_tables(tmp_path):
    config = config_of_the_page()
    (table,) = server_from_proto.tables_from_proto(config.tables)
    (yaml,) = blocks("yaml")
    path = tmp_path / "replay.yaml"
    path.write_text(yaml)
    assert server_program.run("--config", str(path), "--check").returncode == 0
    with server_program.Server("--config", str(path), "--port", "0") as server:
        found = reverie.Client(server.address).server_info(30)
    assert list(found) == ["replay"]
    for name in ("sampler_options", "remover_options", "max_size", "max_times_sampled", "rate_limiter_info"):
        assert getattr(found["replay"], name) == getattr(table.info, name)
    assert f"port: {config.port}" in yaml


def test_the_flags_of_the_page_are_taken():
    cells = [cell for line in PAGE.splitlines() if line.startswith("| ") for cell in re.findall(r"`([^`]*)`", line)]
    fields = [cell for cell in cells if re.fullmatch(r"(sampler|remover|rate_limiter)=[a-z_]+(:[0-9.A-Z]+)*", cell)]
    assert len(fields) == 4
    for field in fields:
        numbers = field.replace("S:N:A:B", "4:1000:0:8000")
        other = "" if field.startswith("remover") else ",remover=fifo"
        done = server_program.run("--check", "--table", f"name=replay,max_size=1000,max_times_sampled=1{other},{numbers}")
        assert done.returncode == 0, done.stderr


def rows(title):
    section = PAGE[PAGE.index(f"## {title}") :]
    lines = [line for line in section[: section.index("\n## ", 3)].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("row", [row for row in rows("Errors") if "tf.errors" not in row[1]], ids=lambda row: row[1])
def test_errors_are_of_the_classes_that_the_page_says(row):
    builtins = vars(__import__("builtins"))
    (name,) = re.findall(r"`(\w+)`", row[1])
    kind = builtins.get(name) or getattr(reverie, name)
    for other in re.findall(r"`(\w+)`", row[2]):
        assert issubclass(kind, builtins[other])
    assert name == "TypeError" or issubclass(kind, reverie.ReverbError)
