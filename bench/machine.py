"""Which machine a result comes from."""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
import time

from .programs import ROOT


def _first(path: str, begins: str) -> str:
    try:
        for line in pathlib.Path(path).read_text().splitlines():
            if line.startswith(begins):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return ""


def describe() -> dict:
    """What a reader needs to know to judge the figures: processor, memory, system, settings, and what else was running."""
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "load_at_start": round(os.getloadavg()[0], 2),
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
