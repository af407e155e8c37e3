"""What documents and examples show works as they show it."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))
import stubs  # noqa: E402


def run_page(path: str, blocks: int, **names: Any) -> dict[str, Any]:
    """Runs the page's Python from top to bottom, in which `names` are there already; returns what it leaves."""
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == blocks
    names["__name__"] = "page"
    exec(compile("\n".join(found).replace("127.0.0.1:8000", "127.0.0.1:0"), path, "exec"), names)
    return names


def test_the_readmes_code_runs_from_top_to_bottom():
    step = {"obs": np.zeros((8, 4, 84, 84), np.uint8), "next_obs": np.zeros((8, 4, 84, 84), np.uint8)}
    step |= {"action": np.zeros(8, np.int32), "reward": np.zeros(8, np.float32), "done": np.zeros(8, bool)}
    names = run_page("README.md", 2, **step)
    assert names["batch"].data["obs"].shape == (256, 4)
    tables = {name: table.current_size for name, table in names["client"].server_info().items()}
    assert tables == {"replay": 1000, "sequences": 8, "frames": 8}
    for name in tables:  # each holds items of one kind, also after all of it
        assert len(names["client"].sample_batch(name, 4)) == 4
    names["server"].stop()


def test_getting_started_runs_from_top_to_bottom():
    names = run_page("docs/getting-started.md", 6)
    shutil.rmtree(names["place"])


def test_the_structured_writers_page_runs_from_top_to_bottom():
    names = run_page("docs/structured-writer.md", 6)
    assert names["batch"].data["obs"].shape == (4, 8, 4)
    info = names["client"].server_info()
    assert (info["transitions"].current_size, info["sequences"].current_size) == (2 * 17, 2 * 4 + 2)
    names["server"].stop()


def test_every_link_leads_to_a_file_and_a_heading():
    lost = []
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
            path, _, heading = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists():
                lost.append(f"{page.name}: {link}")
            elif heading:
                titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
                if heading not in [re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles]:
                    lost.append(f"{page.name}: {link}")
    assert lost == []


def test_editors_show_what_help_says_of_compiled_calls():
    assert stubs.STUB.read_text() == stubs.with_docstrings(stubs.STUB.read_text()), "run tools/dev/stubs.py"


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
