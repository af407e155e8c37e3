"""Writes into _core.pyi what the compiled calls say of themselves, so that editors show it; run it after a change of their docstrings."""

import ast
import inspect
import pathlib
import textwrap

from reverie import _core

STUB = pathlib.Path(__file__).resolve().parents[2] / "python/reverie/_core.pyi"
PUBLIC = ("Cancel", "Client", "ReplayBatch", "StructuredWriter", "TrajectoryColumn", "TrajectoryWriter")


def with_docstrings(stub: str) -> str:
    """The stub with the docstrings of this process's `_core` in the place of those it has."""
    lines = stub.splitlines()
    for kind in reversed([node for node in ast.parse(stub).body if isinstance(node, ast.ClassDef) and node.name in PUBLIC]):
        for call in reversed(kind.body):
            if not isinstance(call, ast.FunctionDef) or call.name.startswith("_"):
                continue
            text = inspect.getdoc(getattr(getattr(_core, kind.name), call.name))
            if text is None:
                raise SystemExit(f"_core.{kind.name}.{call.name} has no docstring")
            body, end = call.body[0], call.body[-1].end_lineno
            header = lines[body.lineno - 1][: body.col_offset].rstrip()
            quoted = f'"""{text}' + ('\n"""' if "\n" in text else '"""')
            lines[body.lineno - 1 : end] = ([header] if header else []) + textwrap.indent(quoted, " " * 8).splitlines()
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(with_docstrings(STUB.read_text()))
