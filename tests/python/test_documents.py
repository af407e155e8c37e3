"""What documents and examples show works as they show it."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_structured_writers_page_runs_from_top_to_bottom():
    page = (ROOT / "docs/structured-writer.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    names = {"__name__": "page"}
    exec(compile("\n".join(blocks), "docs/structured-writer.md", "exec"), names)
    assert names["batch"].data["obs"].shape == (4, 8, 4)
    info = names["client"].server_info()
    assert (info["transitions"].current_size, info["sequences"].current_size) == (2 * 17, 2 * 4 + 2)
    names["server"].stop()


def test_the_structured_writers_example_runs():
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/structured_writer.py")],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "190 transitions, 50 sequences" in done.stdout
    assert "'obs': (32, 8, 4)" in done.stdout
