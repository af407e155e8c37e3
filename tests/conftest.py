"""What every test has: a folder for temporary files that goes with pytest's own."""

from __future__ import annotations

import os
import tempfile

import pytest


@pytest.fixture(autouse=True, scope="session")
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Servers of dm-reverb, TensorFlow's graphs and others leave theirs behind; pytest keeps those of its last three runs."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    os.environ["TMPDIR"] = folder  # for the programs that are started
    tempfile.tempdir = folder
