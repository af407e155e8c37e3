"""What every test has: a folder for temporary files that goes with pytest's own; and how several processes share tests out."""

from __future__ import annotations

import os
import pathlib
import tempfile

import pytest


@pytest.fixture(autouse=True, scope="session")
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Servers of dm-reverb, TensorFlow's graphs and others leave theirs behind; pytest keeps those of its last three runs."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    os.environ["TMPDIR"] = folder  # for the programs that are started
    tempfile.tempdir = folder


def pytest_configure(config: pytest.Config) -> None:
    """Several processes may share the tests out (RV_TEST_SHARED: a folder): a file is run by the first that comes to it, whole."""
    if folder := os.environ.pop("RV_TEST_SHARED", None):  # no matter of the programs that are started
        config.pluginmanager.register(SharedFiles(pathlib.Path(folder)))


class SharedFiles:
    """Passes over the tests of files that another process runs."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.ours: dict[pathlib.Path, bool] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if item.path not in self.ours:
            self.ours[item.path] = self.claim(str(item.path.relative_to(item.config.rootpath)).replace(os.sep, "+"))
        return None if self.ours[item.path] else True

    def claim(self, name: str) -> bool:
        try:
            (self.folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
