"""The torture in short: two servers under load and faults, of which nothing that was confirmed is lost or doubled."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("RV_TORTURE_BUILD", "release")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.torture", "--build", BUILD, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.mark.parametrize(("seed", "journal", "tls"), [(1, "always", "no"), (2, "periodic", "yes")])
def test_nothing_confirmed_is_lost_or_doubled_under_load_and_faults(
    tmp_path: pathlib.Path, seed: int, journal: str, tls: str
) -> None:
    result = tmp_path / "result.json"
    options = ["--seconds", "14", "--seed", str(seed), "--journal", journal, "--tls", tls, "--json", str(result)]
    ran = subprocess.run(
        command(*options), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400
    )
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout
    report = json.loads(result.read_text())
    assert (report["lost"], report["doubled"], report["violations"]) == (0, 0, [])
    assert report["confirmed"] > 0
    assert sum(report["faults"].values()) > 3


def processes_of(folder: pathlib.Path) -> list[str]:
    """The command lines of those who were started for it."""
    found = []
    for each in pathlib.Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                line = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found


def test_ctrl_c_leaves_no_process_behind(tmp_path: pathlib.Path) -> None:
    torture = subprocess.Popen(
        command("--minutes", "5", "--seed", "3", "--tls", "no", "--output", str(tmp_path)),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while torture.poll() is None and not any("tests.torture.loads" in line for line in processes_of(tmp_path)):
            time.sleep(0.05)
        torture.send_signal(signal.SIGINT)
        _, err = torture.communicate(timeout=120)
    finally:
        torture.kill()
        torture.wait()
    assert torture.returncode == 130, err
    assert processes_of(tmp_path) == []
