"""The demo, short: it learns, draws its plot, and leaves no process behind."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.cartpole", "--plain", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def members(group: int) -> list[int]:
    """Processes of a process group that still run."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def wait_until_gone(group: int, seconds: float) -> list[int]:
    end = time.monotonic() + seconds
    while members(group) and time.monotonic() < end:
        time.sleep(0.05)
    return members(group)


def test_the_demo_learns(tmp_path):
    demo = start("--seed", "3", "--time-limit", "200", "--plot", str(tmp_path / "demo.png"))
    output, _ = demo.communicate(timeout=400)
    found = re.search(r"mean return ([0-9.]+) over 20 evaluation episodes", output)
    assert found, output
    # A random policy returns about 22; the time limit is short of what every seed needs to be solved.
    assert float(found.group(1)) >= 150.0, output
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert wait_until_gone(demo.pid, 60) == []


def test_ctrl_c_ends_the_demo_and_its_actors(tmp_path):
    demo = start("--plot", str(tmp_path / "demo.png"))
    for line in demo.stdout:
        if re.search(r"updates +[1-9]", line):
            break
    assert len(members(demo.pid)) >= 3
    os.killpg(demo.pid, signal.SIGINT)
    demo.communicate(timeout=120)
    assert demo.returncode == 130
    assert wait_until_gone(demo.pid, 60) == []


def test_a_killed_demo_leaves_no_actor_behind(tmp_path):
    demo = start("--plot", str(tmp_path / "demo.png"))
    for line in demo.stdout:
        if re.search(r"updates +[1-9]", line):
            break
    demo.kill()
    demo.communicate(timeout=120)
    assert wait_until_gone(demo.pid, 60) == []


def test_a_server_that_is_not_there_is_said_with_its_address():
    demo = start("--server", "127.0.0.1:1")
    output, _ = demo.communicate(timeout=120)
    assert demo.returncode != 0
    assert "127.0.0.1:1" in output


def test_a_full_disk_costs_the_plot_and_not_the_result(tmp_path):
    (tmp_path / "full.png").symlink_to("/dev/full")
    demo = start("--time-limit", "1", "--plot", str(tmp_path / "full.png"))
    output, _ = demo.communicate(timeout=120)
    assert "mean return" in output
    assert "could not be written to" in output
    assert "No space left" in output
    assert "Traceback" not in output
    assert demo.returncode == 1


def test_a_wrong_address_or_folder_is_told_in_a_sentence_before_anything_is_trained():
    for arguments, words in (
        (["--server", "127.0.0.1"], "has no port"),
        (["--server", "127.0.0.1:9"], "is one running there?"),
        (["--plot", "/nowhere/demo.png"], "there is no folder"),
    ):
        demo = start(*arguments)
        output, _ = demo.communicate(timeout=120)
        assert words in output
        assert "Traceback" not in output
        assert demo.returncode != 0
