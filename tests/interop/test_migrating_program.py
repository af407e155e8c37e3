"""The program in docs/migrating-from-reverb.md that runs with either package runs with dm-reverb's (tests/python runs it with ours)."""

import pathlib
import re

from peer import run

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/migrating-from-reverb.md").read_text()


def test_it_runs_with_dm_reverb():
    (program,) = re.findall(r"^```python both\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert run(f"{program}\nanswer(info.current_size)") == 48
