"""``import reverb`` gives Reverie: in a program that asks for it, and around one that knows nothing of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import reverb
import reverb.trajectory_writer
from reverb import errors, rate_limiters
from reverb import item_selectors as selectors
import reverie

assert reverb is reverie
assert reverb.Client is reverie.Client
assert errors.ReverbError is reverie.ReverbError
assert reverb.trajectory_writer is reverie.trajectory_writer
assert reverb.TrajectoryColumn is reverb.trajectory_writer.TrajectoryColumn
server = reverb.Server([reverb.Table.queue("queue", 10)], address="127.0.0.1:0")
client = reverb.Client(server.address)
client.insert([1.0], {"queue": 1.0})
print(next(client.sample("queue"))[0].data[0], __name__, sys.argv)
server.stop()
"""


def run(*arguments, cwd=None):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=cwd)


def test_a_script_runs_unchanged(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = run("-m", "reverie.as_reverb", script, "--steps", "3")
    assert done.stderr == ""
    assert done.stdout == f"1.0 __main__ ['{script}', '--steps', '3']\n"


def test_a_module_runs_unchanged(tmp_path):
    (tmp_path / "training").mkdir()
    (tmp_path / "training/main.py").write_text(SCRIPT)
    done = run("-m", "reverie.as_reverb", "-m", "training.main", "-x", cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.startswith("1.0 __main__ ")
    assert done.stdout.endswith("'-x']\n")


def test_a_module_of_reverbs_runs_as_reveries():
    done = run("-m", "reverie.as_reverb", "-m", "reverb.server_executable.server_main", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--config TEXT" in done.stdout


def test_a_program_may_ask_for_it_itself():
    done = run("-c", "import reverie; reverie.install_as_reverb(); reverie.install_as_reverb()\n" + SCRIPT)
    assert done.stderr == ""
    assert done.stdout.startswith("1.0 __main__")


def test_it_is_refused_once_reverb_itself_is_there(tmp_path):
    (tmp_path / "reverb.py").write_text("")
    done = run("-c", "import reverb, reverie; reverie.install_as_reverb()", cwd=tmp_path)
    assert "RuntimeError: reverb is already imported" in done.stderr
    assert "reverb.py" in done.stderr


def test_a_module_that_reverie_lacks_is_not_found():
    done = run("-c", "import reverie; reverie.install_as_reverb(); import reverb.no_such_module")
    assert "ModuleNotFoundError: No module named 'reverb.no_such_module'" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("-m",), ("--help",)])
def test_without_a_script_it_says_how(arguments):
    done = run("-m", "reverie.as_reverb", *arguments)
    assert done.returncode == 1
    assert "usage: python -m reverie.as_reverb SCRIPT" in done.stderr


def test_an_error_in_the_script_is_the_scripts(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(7)")
    assert run("-m", "reverie.as_reverb", script).returncode == 7
