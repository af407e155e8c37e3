"""The C examples and a program of one's own, built against an installed library in each way that docs/from-c.md shows, and run."""

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
def installed(tmp_path_factory):
    """The environment in which CMake and pkg-config find the library, which was installed where it is not looked for."""
    prefix = tmp_path_factory.mktemp("installed") / "prefix"
    run("cmake", "--install", str(ROOT / "build/release"), "--prefix", str(prefix), "--component", "library")
    description = next(prefix.rglob("reverie.pc"))
    return dict(os.environ, PKG_CONFIG_PATH=str(description.parent), CMAKE_PREFIX_PATH=str(prefix))


@pytest.fixture(scope="module")
def examples(tmp_path_factory, installed):
    """The examples' folder and the environment to run them in."""
    build = tmp_path_factory.mktemp("examples") / "build"
    run("cmake", "-G", "Ninja", "-S", str(ROOT / "examples/c"), "-B", str(build), env=installed)
    run("cmake", "--build", str(build), env=installed)
    return build, with_library(installed)


def with_library(installed: dict[str, str]) -> dict[str, str]:
    library = next(pathlib.Path(installed["CMAKE_PREFIX_PATH"]).rglob("libreverie.so"))
    return dict(installed, LD_LIBRARY_PATH=str(library.parent))


def blocks(path: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def mine(tmp_path):
    """A folder with the README's program."""
    (code,) = blocks("README.md", "c")
    (tmp_path / "mine.c").write_text(code)
    return tmp_path


def needs_the_shared_library(program: pathlib.Path) -> bool:
    return "libreverie.so" in run("readelf", "--dynamic", str(program))


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


def test_the_readmes_program_builds_and_runs(mine, installed):
    run(
        "sh",
        "-c",
        f"cd {mine} && cc $(pkg-config --cflags reverie) mine.c $(pkg-config --libs reverie) -o x && ./x",
        env=with_library(installed),
    )


def test_both_lines_with_pkg_config_build_a_program(mine, installed):
    (page,) = blocks("docs/from-c.md", "sh")
    shared, static = page.splitlines()
    run("sh", "-c", f"cd {mine} && {shared} && ./mine", env=with_library(installed))
    assert needs_the_shared_library(mine / "mine")
    run("sh", "-c", f"cd {mine} && {static} && ./mine", env=installed)
    assert not needs_the_shared_library(mine / "mine")


@pytest.mark.parametrize("way", ["shared", "static"])
def test_a_project_of_ones_own_finds_the_library(mine, installed, way):
    project, static = blocks("docs/from-c.md", "cmake")
    if way == "static":
        find, link = static.splitlines()
        project = project.replace("find_package(reverie REQUIRED)", find)
        project = project.replace("target_link_libraries(mine PRIVATE reverie::reverie)", link)
        assert find in project
        assert link in project
    (mine / "CMakeLists.txt").write_text(project)
    run("cmake", "-G", "Ninja", "-S", str(mine), "-B", str(mine / "build"), env=installed)
    run("cmake", "--build", str(mine / "build"), env=installed)
    run(str(mine / "build/mine"))
    assert needs_the_shared_library(mine / "build/mine") == (way == "shared")


@pytest.mark.parametrize(
    ("find", "said"),
    [
        ("find_package(reverie REQUIRED COMPONENTS statically)", 'no component "statically"; it has static'),
        ("find_package(reverie 99 REQUIRED)", 'compatible with requested version "99"'),
    ],
)
def test_a_project_that_asks_for_what_there_is_not_is_told(tmp_path, installed, find, said):
    (tmp_path / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.25)\nproject(mine LANGUAGES C)\n{find}\n")
    command = ["cmake", "-G", "Ninja", "-S", str(tmp_path), "-B", str(tmp_path / "build")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=installed)
    assert done.returncode != 0
    assert said in " ".join(done.stderr.split())


def test_an_example_without_a_server_says_so(examples, tmp_path):
    build, env = examples
    done = subprocess.run([str(build / "actor"), f"unix:{tmp_path}/nobody"], capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 1
    assert "nobody" in done.stderr
