"""The C examples, built by CMake and pkg-config against an installed library, and run."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = os.environ.get("RV_SERVER_PROGRAM", str(ROOT / "build/release/tools/reverie-server"))


def run(*command: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """The examples' folder and the environment to run them in."""
    place = tmp_path_factory.mktemp("examples")
    run("cmake", "--install", str(ROOT / "build/release"), "--prefix", str(place / "prefix"), "--component", "library")
    description = next((place / "prefix").rglob("reverie.pc"))
    library = next((place / "prefix").rglob("libreverie.so"))
    env = dict(os.environ, PKG_CONFIG_PATH=str(description.parent), LD_LIBRARY_PATH=str(library.parent))
    run("cmake", "-G", "Ninja", "-S", str(ROOT / "examples/c"), "-B", str(place / "build"), env=env)
    run("cmake", "--build", str(place / "build"), env=env)
    return place / "build", env


def test_the_embedded_buffer_samples(examples):
    build, env = examples
    assert "sampled 32 of 1000" in run(str(build / "buffer"), env=env)


def test_patterns_make_items(examples):
    build, env = examples
    assert "transitions: 100 items\nends: 5 items\n" in run(str(build / "structured"), env=env)


def test_an_actor_and_a_learner_meet_at_a_server(examples, tmp_path):
    build, env = examples
    address = f"unix:{tmp_path}/socket"
    command = [SERVER, "--listen", address, "--table", "name=replay"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert "listening" in server.stdout.readline()
            assert "wrote 20 episodes" in run(str(build / "actor"), address, env=env)
            assert "sampled 1600 trajectories, rewards sum to 4800" in run(str(build / "learner"), address, env=env)
        finally:
            server.terminate()
            assert server.wait(30) == 0


def test_the_readmes_program_builds_and_runs(examples, tmp_path):
    _, env = examples
    (code,) = re.findall(r"^```c\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "x.c").write_text(code)
    run("sh", "-c", f"cd {tmp_path} && cc $(pkg-config --cflags reverie) x.c $(pkg-config --libs reverie) -o x && ./x", env=env)


def test_an_example_without_a_server_says_so(examples, tmp_path):
    build, env = examples
    done = subprocess.run([str(build / "actor"), f"unix:{tmp_path}/nobody"], capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 1
    assert "nobody" in done.stderr
