"""Whatever is called with whatever: an exception or an answer, and the process lives on. RV_TEST_CALLS: how many calls for each seed."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("any_arguments.py")
CALLS = int(os.environ.get("RV_TEST_CALLS", "1500"))


@pytest.mark.parametrize("seed", range(2))
def test_no_argument_of_any_call_ends_the_process(seed, tmp_path):
    environment = {**os.environ, "RV_TEST_SCRATCH": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(PROGRAM), str(seed), str(CALLS)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, f"seed {seed}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
