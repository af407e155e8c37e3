"""Makes ``import reverb`` mean Reverie, for code that is not ours to change.

In a program, before anything imports reverb::

    import reverie
    reverie.install_as_reverb()

Around one, its arguments behind it::

    python -m reverie.as_reverb train.py --steps 1000
    python -m reverie.as_reverb -m package.train --steps 1000

The Python processes that a program started like this starts have Reverie for Reverb, too. Those of a program that calls
`install_as_reverb` itself have to call it themselves.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import runpy
import sys
import zipfile
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

__all__ = ["install_as_reverb"]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds Reverie's modules by Reverb's names. They are the same modules: a class has one identity under both names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "reverb" and not name.startswith("reverb."):
            return None
        ours = _ours(name)
        if importlib.util.find_spec(ours) is None:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(_ours(module.__name__))


def _ours(name: str) -> str:
    return "reverie" + name[len("reverb") :]


def install_as_reverb() -> None:
    """From now on ``import reverb``, and any of its modules that Reverie has, gives Reverie. May be called again.

    Raises
    ------
    RuntimeError
        Reverb itself is imported already: some code holds on to its classes.
    """
    present = sys.modules.get("reverb")
    if present is not None and present.__name__ != "reverie":
        where = getattr(present, "__file__", "from somewhere")
        raise RuntimeError(f"reverb is already imported ({where}); call install_as_reverb() before anything imports it")
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    importlib.import_module("reverb")


def _install_in_children() -> None:
    """Programs that are started find the folder by the environment, those of multiprocessing by this process's own path."""
    folder = str(pathlib.Path(__file__).resolve().parent / "_as_reverb")
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder if not others else folder + os.pathsep + others
    sys.path.insert(0, folder)


def _run(code: CodeType, **names: Any) -> None:
    """As the program: its module stays when its last line has run, for its threads, and for what it does at exit."""
    module = ModuleType("__main__")
    module.__dict__.update(names, __builtins__=builtins)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _run_script(path: str) -> None:
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        runpy.run_path(path, run_name="__main__")
        return
    file = os.path.abspath(path)
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec")
    loader = importlib.machinery.SourceFileLoader("__main__", file)
    _run(code, __file__=file, __cached__=None, __loader__=loader, __package__=None, __spec__=None)


def _run_module(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(name + ".__main__")
    loader = None if spec is None else spec.loader
    code = loader.get_code(spec.name) if spec is not None and isinstance(loader, importlib.abc.InspectLoader) else None
    if spec is None or code is None:
        sys.exit(f"reverie.as_reverb: there is no module {name} that can be run")
    sys.argv[0] = spec.origin or name
    _run(code, __file__=spec.origin, __cached__=spec.cached, __loader__=loader, __package__=spec.parent, __spec__=spec)


def main(arguments: list[str]) -> None:
    """Runs a script, or with -m a module, in which reverb is Reverie."""
    usage = "usage: python -m reverie.as_reverb SCRIPT [ARGUMENT...]\n       python -m reverie.as_reverb -m MODULE [ARGUMENT...]"
    if arguments and arguments[0] in ("-h", "--help"):
        print(usage)
        return
    if not arguments or (arguments[0] == "-m" and len(arguments) < 2):
        sys.exit(usage)
    install_as_reverb()
    _install_in_children()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, "")
        module = _ours(arguments[1]) if arguments[1].startswith("reverb.") else arguments[1]
        _run_module(module)
    else:
        if not pathlib.Path(arguments[0]).exists():
            sys.exit(f"reverie.as_reverb: there is no {arguments[0]}")
        sys.argv = arguments
        sys.path.insert(0, str(pathlib.Path(arguments[0]).resolve().parent))
        _run_script(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
