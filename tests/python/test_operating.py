"""docs/operating.md: its commands run from top to bottom as they stand there."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import server_program
import trustme
from waiting import HeldPort

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/operating.md").read_text()


def test_the_page_runs_from_top_to_bottom(tmp_path):
    held = {port: HeldPort() for port in ("8000", "8001", "8002")}
    blocks = re.findall(r"^```(sh|python|yaml)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks].count("yaml") == 1
    assert len(blocks) == 11
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for kind, text in blocks:
        text = re.sub("|".join(held), lambda port: str(held[port[0]].number), text)
        text = text.replace("/data/", f"{tmp_path}/data/").replace("/backup", f"{tmp_path}/backup")
        if kind == "yaml":
            (tmp_path / "replay.yaml").write_text(text)
        else:
            script.append(text if kind == "sh" else f"python - <<'END'\n{text}END")
    script.append('kill $server; wait $server; echo "the end"')
    trust = trustme.CA()
    for name in ("server.pem", "renewed.pem"):
        trust.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / name))
    programs = os.pathsep.join([str(pathlib.Path(server_program.path()).parent), str(pathlib.Path(sys.executable).parent)])
    environment = {
        **os.environ,
        "PATH": programs + os.pathsep + os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    ran = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    for port in held.values():
        port.close()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("the end\n")
    assert "replay 1000 now, 1000 in the back-up" in ran.stdout


def test_the_unit_is_the_one_that_the_page_shows(tmp_path):
    (shown,) = re.findall(r"^```ini\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == (ROOT / "deploy/reverie-server.service").read_text()
    command = re.search(r"^ExecStart=/usr/local/bin/reverie-server (.*)$", shown, re.MULTILINE)[1].split()
    command = [re.sub("^(/etc/reverie|/var/lib)", str(tmp_path), word) for word in command]
    (tmp_path / "reverie.yaml").write_text("tables: [{name: t}]\n")
    assert server_program.run(*command, "--check").returncode == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path):
    unit = tmp_path / "reverie-server.service"
    text = (ROOT / "deploy/reverie-server.service").read_text()
    unit.write_text(text.replace("/usr/local/bin/reverie-server", os.path.abspath(server_program.path())))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "reverie-server.service" in done.stderr) == (0, False), done.stderr


def test_lines_of_the_log_that_the_page_shows_are_those_of_the_sources():
    sources = "".join(path.read_text() for folder in ("src", "tools") for path in (ROOT / folder).rglob("*.c"))
    joined = re.sub(r'"\s*\n?\s*(?:PRI[a-z]\d+)?\s*"', "", sources)
    section = PAGE[PAGE.index("### Lines of the log") : PAGE.index("## Sizing")]
    lines = re.findall(r"^\| (?:error|warning|info) \| `([^`]*)`", section, re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        fixed = [part.strip(" :;") for part in re.split(r"\.\.\.|\b[A-Z]+\b|\"t\"|\bs\b|[\"();:,]", line)]
        for part in fixed:
            if len(part) > 14 and not part.startswith(("Input/output", "Too many", "a connection")) and "space left" not in part:
                assert part in joined, f"{line!r}: no source says {part!r}"
