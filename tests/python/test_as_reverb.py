"""``import reverb`` gives Reverie: in a program that asks for it, and around one that knows nothing of it."""

from __future__ import annotations

import os
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


def run(*arguments, cwd=None, env=None):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=cwd, env=env)


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


CHILDREN = """
import multiprocessing
import subprocess
import sys
import reverb.errors
import reverb


def told():
    from reverb import rate_limiters
    return reverb.__name__, rate_limiters.__name__, reverb.errors.__name__


if __name__ == "__main__":
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, *pool.apply(told))
    code = "import reverb.rate_limiters as r, reverb; print('program', reverb.__name__, r.__name__)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout, end="")
"""


@pytest.mark.parametrize("installed", [False, True], ids=("alone", "beside another reverb"))
def test_processes_that_a_program_starts_have_it_too(tmp_path, installed):
    script = tmp_path / "train.py"
    script.write_text(CHILDREN)
    others = tmp_path / "others"
    others.mkdir()
    if installed:
        (others / "reverb.py").write_text("raise ImportError('another reverb')\n")
    path = os.pathsep.join(each for each in (os.environ.get("PYTHONPATH"), str(others)) if each)
    done = run("-m", "reverie.as_reverb", script, env=os.environ | {"PYTHONPATH": path})
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "spawn reverie reverie.rate_limiters reverie.errors",
        "forkserver reverie reverie.rate_limiters reverie.errors",
        "fork reverie reverie.rate_limiters reverie.errors",
        "program reverie reverie.rate_limiters",
    ]


ELSEWHERE = """
import os
import subprocess
import sys

path = [each for each in os.environ["PYTHONPATH"].split(os.pathsep) if not os.path.exists(os.path.join(each, "reverie"))]
environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
code = "import reverb.errors, reverb; print(reverb.__name__, reverb.WHOSE, reverb.errors.WHOSE)"
print(subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True))
"""


def test_a_python_without_reverie_that_a_program_starts_has_its_own_reverb(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(ELSEWHERE)
    theirs = tmp_path / "others" / "reverb"
    theirs.mkdir(parents=True)
    for name in ("__init__.py", "errors.py"):
        (theirs / name).write_text("WHOSE = 'theirs'\n")
    path = os.pathsep.join(each for each in (os.environ.get("PYTHONPATH"), str(theirs.parent)) if each)
    done = run("-m", "reverie.as_reverb", script, env=os.environ | {"PYTHONPATH": path})
    assert done.stderr == ""
    assert "returncode=0, stdout='reverb theirs theirs\\n', stderr=''" in done.stdout


AFTER_ITS_LAST_LINE = """
import atexit
import os
import pickle
import sys
import threading
import time
import reverb


class Step:
    pass


def told(who):
    assert pickle.loads(pickle.dumps(Step())).__class__ is Step
    client = reverb.Client(server.address)
    client.insert([1.0], {"queue": 1.0}, timeout=10)
    print(who, next(client.sample("queue", timeout=10))[0].data[0], os.path.isabs(__file__), sys.modules["__main__"].__dict__ is globals())


def later():
    time.sleep(0.3)
    told("thread")


atexit.register(told, "atexit")
server = reverb.Server([reverb.Table.queue("queue", 10)], address="127.0.0.1:0")
threading.Thread(target=later).start()
"""


@pytest.mark.parametrize("arguments", [("train.py",), ("-m", "train"), ("-m", "package"), ("folder",)], ids=" ".join)
def test_what_a_program_defines_outlives_its_last_line(tmp_path, arguments):
    for place in ("train.py", "package/__main__.py", "folder/__main__.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(AFTER_ITS_LAST_LINE)
    done = run("-m", "reverie.as_reverb", *arguments, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout == "thread 1.0 True True\natexit 1.0 True True\n"


MAIN = """
import sys
import reverb
spec = __spec__ and (__spec__.name, __spec__.origin)
print(__name__, __file__, __package__, spec, type(__loader__).__name__, __doc__, sys.argv)
"""


@pytest.mark.parametrize("arguments", [("train.py", "-x"), ("-m", "train", "-x"), ("-m", "package")], ids=" ".join)
def test_a_program_finds_in_its_globals_what_python_puts_there(tmp_path, arguments):
    (tmp_path / "reverb.py").write_text("")
    (tmp_path / "package").mkdir()
    for place in ("train.py", "package/__main__.py"):
        (tmp_path / place).write_text(MAIN)
    ours, pythons = run("-m", "reverie.as_reverb", *arguments, cwd=tmp_path), run(*arguments, cwd=tmp_path)
    assert (ours.stdout, ours.stderr) == (pythons.stdout, pythons.stderr)
    assert "__main__" in ours.stdout


@pytest.mark.parametrize("name", ["nowhere", "nowhere.train", "reverie.nowhere", "bare"])
def test_a_module_that_is_not_there_is_named_in_one_line(tmp_path, name):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/__init__.py").write_text("")
    done = run("-m", "reverie.as_reverb", "-m", name, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"reverie.as_reverb: there is no module {name}")
    assert len(done.stderr.splitlines()) == 1


def test_a_module_that_the_program_lacks_is_its_own_error(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("import nowhere\n")
    done = run("-m", "reverie.as_reverb", "-m", "package.train", cwd=tmp_path)
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'nowhere'\n")


STAR = """
import sys
import reverie
before = list(reverie.__all__)
reverie.install_as_reverb()
reverie.install_as_reverb()
from reverb import *
lazy = {"PatternDataset", "TFClient", "TimestepDataset", "TrajectoryDataset"}
assert {"client", "server", "item_selectors", "selectors", "Client"} <= set(globals()) & set(dir(reverie))
assert not lazy & set(before)
assert len(set(reverie.__all__)) == len(reverie.__all__)
print(sorted(lazy & set(globals())) == sorted(lazy & set(dir(reverie))) == sorted(WITH))
"""


@pytest.mark.parametrize("there", [False, True], ids=("without TensorFlow", "with TensorFlow"))
def test_everything_is_imported_at_once_that_can_be(tmp_path, there):
    """A stand-in for the modules that need TensorFlow, since it need not be installed here; and for its absence."""
    stand_in = """
import importlib.util, sys, types
names = {"PatternDataset": "pattern", "TFClient": "tf", "TimestepDataset": "timestep", "TrajectoryDataset": "trajectory"}
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "tensorflow" else real(name, *rest)
WITH = ()
"""
    if there:
        stand_in += """
WITH = names
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
for name, kind in names.items():
    module = "reverie.tf_client" if kind == "tf" else f"reverie.{kind}_dataset"
    sys.modules[module] = types.SimpleNamespace(**{name: name})
"""
    done = run("-c", stand_in + STAR)
    assert (done.stdout, done.stderr) == ("True\n", "")


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


@pytest.mark.parametrize("arguments", [(), ("-m",)])
def test_without_a_script_it_says_how(arguments):
    done = run("-m", "reverie.as_reverb", *arguments)
    assert done.returncode == 1
    assert "usage: python -m reverie.as_reverb SCRIPT" in done.stderr


def test_who_asks_how_is_answered_without_an_error():
    done = run("-m", "reverie.as_reverb", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: python -m reverie.as_reverb SCRIPT")


def test_a_script_that_is_not_there_is_named_in_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "reverie.as_reverb", "nowhere.py"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "reverie.as_reverb: there is no nowhere.py\n"


def test_an_error_in_the_script_is_the_scripts(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(7)")
    assert run("-m", "reverie.as_reverb", script).returncode == 7
