"""Checks that no layer includes one above it, and that client and server do not include each other."""

import pathlib
import re
import sys

# Bottom up; a file may include its own layer and those before it (docs/architecture.md).
LAYERS = ["base", "tensor", "store", "wire", "persist", "net", "client", "server"]
APART = {("client", "server"), ("server", "client"), ("net", "store"), ("net", "wire"), ("net", "tensor"), ("net", "persist")}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([a-z_]+)/', re.MULTILINE)


def faults(root: pathlib.Path) -> list[str]:
    found = []
    for path in sorted((root / "src").rglob("*.[ch]")):
        layer = path.relative_to(root / "src").parts[0]
        if layer not in LAYERS:
            found.append(f"{path}: src/{layer} is no layer; LAYERS in {__file__} lists them")
            continue
        for included in INCLUDE.findall(path.read_text()):
            if included == "reverie":
                continue
            if included not in LAYERS:
                found.append(f"{path}: includes {included}/, which is no layer")
            elif LAYERS.index(included) > LAYERS.index(layer):
                found.append(f"{path}: {layer} includes {included}, which is above it")
            elif (layer, included) in APART:
                found.append(f"{path}: {layer} must not include {included}")
    for path in sorted((root / "include").rglob("*.h")):
        for included in INCLUDE.findall(path.read_text()):
            if included != "reverie":
                found.append(f"{path}: a public header includes {included}/")
    return found


if __name__ == "__main__":
    problems = faults(pathlib.Path(__file__).resolve().parents[2])
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    sys.exit(1 if problems else 0)
