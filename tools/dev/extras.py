"""Prints the requirements of one extra in pyproject.toml, for pip's command line."""

import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
if sys.argv[1] not in extras:
    sys.exit(f"pyproject.toml has no extra {sys.argv[1]!r}; it has {', '.join(extras)}")
print(" ".join(extras[sys.argv[1]]))
