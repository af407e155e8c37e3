"""What pip builds from."""

import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_source_distribution_has_what_the_build_reads():
    left_out = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["sdist"]["exclude"]
    read = re.findall(r"(?:configure_file|configure_package_config_file)\((\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert len(read) >= 3
    assert [name for name in read if name.split("/")[0] in left_out] == []
