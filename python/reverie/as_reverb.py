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

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType
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
    _offer_names(importlib.import_module("reverb"))


def _offer_names(package: ModuleType) -> None:
    """``from reverb import *`` gives what needs TensorFlow, too, where that is there, as Reverb's does. Reverie's own leaves it out, which
    would import TensorFlow for everybody."""
    names = ("PatternDataset", "TFClient", "TimestepDataset", "TrajectoryDataset")
    package.__all__.extend(name for name in names if name not in package.__all__ and package._can_be_had(name))


def _install_in_children() -> None:
    """Programs that are started find the folder by the environment, those of multiprocessing by this process's own path."""
    folder = str(pathlib.Path(__file__).resolve().parent / "_as_reverb")
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder if not others else folder + os.pathsep + others
    sys.path.insert(0, folder)


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
        sys.path.insert(0, os.getcwd())
        name = arguments[1]
        spec = _spec(_ours(name) if name.startswith("reverb.") else name)
        sys.argv = [spec.origin or name, *arguments[2:]]
        _run_found(spec)
        return
    path = arguments[0]
    if not pathlib.Path(path).exists():
        sys.exit(f"reverie.as_reverb: there is no {path}")
    sys.argv = arguments
    if pkgutil.get_importer(path) is None:
        sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
        _run_script(os.path.abspath(path))
        return
    sys.path.insert(0, path)  # a folder or an archive
    found = importlib.machinery.PathFinder.find_spec("__main__", [path])
    if found is None:
        sys.exit(f"reverie.as_reverb: there is no __main__.py in {path}")
    _run_found(found)


def _spec(name: str) -> importlib.machinery.ModuleSpec:
    """Of the module that ``python -m name`` runs."""
    for part in name, f"{name}.__main__":
        try:
            spec = importlib.util.find_spec(part)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{part}.".startswith(f"{error.name}."):
                raise  # it is not this module that is missing, but one that its package imports
            spec = None
        if spec is None:
            sys.exit(f"reverie.as_reverb: there is no module {part}")
        if spec.submodule_search_locations is None:
            return spec
    raise ImportError(f"{name}.__main__ is a package and cannot be run", name=name)


def _run_found(spec: importlib.machinery.ModuleSpec) -> None:
    loader = spec.loader
    code = loader.get_code(spec.name) if isinstance(loader, importlib.abc.InspectLoader) else None
    if code is None:
        sys.exit(f"reverie.as_reverb: {spec.name} has no Python code to run")
    _run(importlib.util.module_from_spec(spec), code)


def _run_script(path: str) -> None:
    loader: importlib.machinery.SourceFileLoader | importlib.machinery.SourcelessFileLoader
    if path.endswith(".pyc"):
        loader = importlib.machinery.SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
    else:
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        code = loader.source_to_code(loader.get_data(path), path)
    module = ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = loader
    _run(module, code)


def _run(module: ModuleType, code: Any) -> None:
    """The program is ``__main__`` for as long as the process lives, as it is without us: its threads, its atexit handlers and what
    pickles its classes look for their globals there after its last line, and its servers are to last until they have ended, too.
    """
    module.__name__ = "__main__"
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
