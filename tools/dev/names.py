"""Compares Reverie's Python package with dm-reverb's published wheel, public name by public name, and keeps docs/reverb-names.md.

    tools/dev/names.py           writes docs/reverb-names.md
    tools/dev/names.py --check   says what is missing or differs, and whether the page is up to date

Both packages are looked at in the wheel's virtual environment (tools/dev/peer.sh; RV_PEER_PYTHON names its interpreter), by what
their objects say of themselves: modules, names, kinds, parameters, fields of messages. Nothing of the wheel is read.

What differs on purpose is in tools/dev/names_on_purpose.py, with the reason. Every other difference is a fault, and so is a reason that
nothing needs any more.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import pathlib
import pkgutil
import subprocess
import sys
import tempfile
import types
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reverb-names.md"
PROTOCOLS = ("__enter__", "__exit__", "__getitem__", "__iter__", "__len__")
NUMBERS = {1: "double", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 11: "message"}

# Of these, what an instance has is looked at, too: attributes that only its constructor makes.
INSTANCES = {
    "DefaultCheckpointer": lambda package: package.checkpointers.DefaultCheckpointer("root"),
    "RateLimiter": lambda package: package.rate_limiters.MinSize(1),
    "Table": lambda package: package.Table.queue("table", 1),
    "TableInfo": lambda package: package.Table.queue("table", 1).info,
}

# ---- what a package says of itself; runs in the wheel's environment, once for each package ----


def parameters(thing, bound):
    """[name, kind, default] of each; None where it does not say. `bound`: without the first one."""
    if isinstance(thing, type) and thing.__init__ is Exception.__init__:
        return None
    try:
        found = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return None
    return [
        [each.name, each.kind.name.lower(), None if each.default is each.empty else repr(each.default)]
        for each in (found[1:] if bound else found)
    ]


def is_message(thing):
    return isinstance(thing, type) and hasattr(thing, "DESCRIPTOR") and hasattr(thing, "SerializeToString")


def fields(message):
    """The fields of a message and of those inside it, each as text."""
    if hasattr(message, "FIELDS"):
        for field in message.FIELDS:
            repeated, presence = " repeated" * field.repeated, f" oneof {field.oneof}" * (field.oneof is not None)
            kind = field.kind if field.message is None else field.message.DESCRIPTOR.full_name
            yield f"{field.name} = {field.number} {kind}{repeated}{presence}"
        return
    for field in message.DESCRIPTOR.fields:
        repeated = " repeated" * (field.label == field.LABEL_REPEATED)
        presence = f" oneof {field.containing_oneof.name}" if field.containing_oneof is not None else ""
        kind = NUMBERS[field.type] if field.message_type is None else field.message_type.full_name
        yield f"{field.name} = {field.number} {kind}{repeated}{presence}"


def describe(thing, root):
    """Kind, parameters and members of what a name stands for."""
    if isinstance(thing, types.ModuleType):
        return {"kind": "module", "is": thing.__name__.partition(".")[2]}
    if is_message(thing):
        inner = {name: describe(each, root) for name, each in inspect.getmembers(thing, is_message)}
        return {"kind": "message", "fields": sorted(fields(thing)), "members": inner}
    if isinstance(thing, type):
        return {
            "kind": "class",
            "parameters": parameters(thing, False),
            "members": members(thing, root),
            "home": thing.__module__,
        }
    if isinstance(thing, functools.partial):
        return {"kind": "partial", "parameters": parameters(thing, False)}
    if callable(thing) and not isinstance(thing, typing.NewType) and type(thing).__module__ != "typing":
        return {"kind": "function", "parameters": parameters(thing, False)}
    return {"kind": "alias" if type(thing).__module__ in ("typing", "types") or isinstance(thing, type(typing.Any)) else "value"}


def members(owner, root):
    """Those of its own and of bases that the package has, and those of an instance."""
    found = {}
    for base in reversed(owner.__mro__):
        if base.__module__.split(".")[0] != root:
            continue
        for name, raw in vars(base).items():
            if name.startswith("_") and name not in PROTOCOLS:
                continue
            if isinstance(raw, (classmethod, staticmethod)):
                found[name] = {"kind": type(raw).__name__, "parameters": parameters(getattr(owner, name), False)}
            elif callable(raw) or type(raw).__name__ == "instancemethod":
                is_protocol = name in PROTOCOLS
                found[name] = {"kind": "method", "parameters": None if is_protocol else parameters(raw, True)}
            else:
                found[name] = {"kind": "attribute"}
    instance = INSTANCES.get(owner.__name__, lambda _: None)(importlib.import_module(root))
    if instance is not None and isinstance(instance, owner):
        for name in dir(instance):
            if not name.startswith("_"):
                found.setdefault(name, {"kind": "attribute"})
    return found


def describe_message_methods(message):
    names = {name for name in dir(message) if not name.startswith("_")}
    own = {text.split(" ")[0] for text in fields(message)} | {
        f"{text.split(' ')[0].upper()}_FIELD_NUMBER" for text in fields(message)
    }
    inner = {name for name, _ in inspect.getmembers(message, is_message)}
    return {name: {"kind": "method", "parameters": None} for name in names - own - inner}


def describe_package(root, wanted):
    """{module: {name: description}}: of all public names, or of those that are wanted."""
    package = importlib.import_module(root)
    if wanted is None:
        modules = ["", *(each.name.partition(".")[2] for each in pkgutil.walk_packages(package.__path__, f"{root}."))]
    else:
        modules = list(wanted)
    found = {}
    for module_name in modules:
        full = f"{root}.{module_name}".rstrip(".")
        try:
            module = importlib.import_module(full)
        except ImportError:
            if wanted is None:
                found[module_name] = {}
            continue
        names = public(module, root) if wanted is None else wanted[module_name]
        found[module_name] = {name: describe(getattr(module, name), root) for name in names if hasattr(module, name)}
    message = importlib.import_module(f"{root}.cc.schema_pb2").ChunkData
    found["(messages)"] = describe_message_methods(message)
    return found


def public(module, root):
    """Names that the module gives its users: not what it imported from other packages, nor modules that only it uses."""
    for name, thing in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(thing, types.ModuleType):
            if thing.__name__.startswith(f"{root}.") and (
                module.__name__ == root or thing.__name__ == f"{module.__name__}.{name}" or name == "patterns_pb2"
            ):
                yield name
            continue
        home = getattr(thing, "__module__", None) or module.__name__
        is_alias = home == "typing" and getattr(typing, name, None) is not thing and not isinstance(thing, typing.TypeVar)
        if isinstance(thing, functools.partial) or home.split(".")[0] == root or is_alias or name == "FLAGS":
            yield name


# ---- the comparison ----


def compare_parameters(theirs, ours):
    """("same" | "more" | "differs", note) of two lists of parameters."""
    if theirs is None or ours is None:
        return "same", ""
    by_name = {each[0]: each for each in ours}
    positional = ("positional_only", "positional_or_keyword")
    for i, (name, kind, default) in enumerate(theirs):
        mine = by_name.get(name)
        if mine is None:
            return "differs", f"no parameter `{name}`"
        if mine[2] != default and not (default is None and mine[2] is not None):
            return "differs", f"`{name}` is {default} there and {mine[2]} here"
        if kind in positional and (i >= len(ours) or ours[i][0] != name or ours[i][1] not in positional):
            return "differs", f"`{name}` is no parameter in the place {i}"
        if kind in ("positional_or_keyword", "keyword_only") and mine[1] == "positional_only":
            return "differs", f"`{name}` cannot be given by its name"
    theirs_by_name = {each[0]: each for each in theirs}
    more = [each for each in ours if each[0] not in theirs_by_name]
    if any(each[2] is None and not each[1].startswith("var_") for each in more):
        return "differs", f"needs {', '.join(f'`{each[0]}`' for each in more if each[2] is None)}"
    notes = [f"`{name}`" for name, *_ in more]
    notes += [f"`{each[0]}` has a default" for each in theirs if each[2] is None and by_name[each[0]][2] is not None]
    return ("more" if notes else "same"), ("adds " + ", ".join(notes) if notes else "")


def compare(theirs, ours):
    if ours is None:
        return "missing", ""
    if theirs["kind"] == "module":
        return ("same", "") if ours["kind"] == "module" else ("differs", f"a {ours['kind']} here")
    if theirs["kind"] == "alias":
        return "same", ""
    if theirs["kind"] != ours["kind"]:
        return "differs", f"a {theirs['kind']} there, a {ours['kind']} here"
    if theirs["kind"] == "message":
        gone = [text for text in theirs["fields"] if text not in ours["fields"]]
        more = [text.split(" ")[0] for text in ours["fields"] if text not in theirs["fields"]]
        if gone:
            return "differs", "; ".join(gone)
        return ("more", "adds " + ", ".join(f"`{name}`" for name in more)) if more else ("same", "")
    return compare_parameters(theirs.get("parameters"), ours.get("parameters"))


def rows(theirs, ours):
    """(name, state, note) of every public name of theirs, members behind their class where it is at home."""
    for module, names in theirs.items():
        prefix = "message" if module == "(messages)" else f"reverb.{module}".rstrip(".")
        yield prefix, *(("same", "") if module in ours else ("missing", ""))
        if module not in ours:
            continue
        for name, thing in sorted(names.items()):
            mine = ours[module].get(name)
            if thing["kind"] == "module" and f"{module}.{name}".lstrip(".") in theirs:
                continue  # it has a row of its own
            yield f"{prefix}.{name}", *compare(thing, mine)
            if mine is None or thing.get("home", prefix) not in (prefix, "reverb.libpybind"):
                continue
            inner = mine.get("members") or {}
            for member, each in sorted((thing.get("members") or {}).items()):
                yield f"{prefix}.{name}.{member}", *compare(each, inner.get(member))


def judged(found, reasons):
    """(rows with "on purpose" where a reason is given, faults)."""
    out, faults, used = [], [], set()
    for name, state, note in found:
        reason = next((each for each in reasons if name == each or (each.endswith(".*") and name.startswith(each[:-1]))), None)
        if state in ("missing", "differs") and reason is not None:
            used.add(reason)
            out.append((name, "absent on purpose" if state == "missing" else "differs on purpose", reasons[reason]))
        else:
            out.append((name, {"more": "same, with additions"}.get(state, state), note))
            if state in ("missing", "differs"):
                faults.append(f"{name}: {state}{': ' + note if note else ''}")
    faults += [
        f"tools/dev/names_on_purpose.py: nothing needs the reason for {each} any more" for each in reasons if each not in used
    ]
    return out, faults


def page(found):
    """docs/reverb-names.md."""
    counts = {}
    for _, state, _ in found:
        counts[state] = counts.get(state, 0) + 1
    text = [
        "# Reverb's names, and what they are here",
        "",
        "Written by `tools/dev/names.py`, which compares this package with the published wheel (dm-reverb 0.14.0); a test in CI fails",
        "when a name is missing, when one differs that is not listed as such, and when this page is out of date. Compared are modules,",
        "names, what kind of thing each is, parameters with order and defaults, and messages' fields with number and type. Write `reverie`",
        "for `reverb`, or see [migrating-from-reverb.md](migrating-from-reverb.md) for how `import reverb` can mean Reverie.",
        "",
        "| state | names |",
        "|---|---|",
        *(f"| {state} | {counts[state]} |" for state in sorted(counts, key=counts.get, reverse=True)),
        f"| all | {len(found)} |",
        "",
        "## What is not the same",
        "",
        "| name | state | |",
        "|---|---|---|",
    ]
    text += [f"| `{name}` | {state} | {note} |" for name, state, note in found if state != "same"]
    text += ["", "## What is the same", ""]
    module, names = None, []
    for name, state, _ in [*found, ("", "same", "")]:
        owner = next((each for each in sorted(MODULES, key=len, reverse=True) if name == each or name.startswith(f"{each}.")), "")
        if owner != module:
            if module is not None and names:
                text += [f"**{module}**: {', '.join(names)}", ""]
            module, names = owner, []
        if state == "same" and name != owner:
            names.append(f"`{name[len(owner) + 1 :]}`")
    return "\n".join(text).rstrip() + "\n"


MODULES = []


def describe_in_peer(root, wanted=None):
    """What the package says of itself in the wheel's environment."""
    python = os.environ.get("RV_PEER_PYTHON", str(ROOT / ".venv-reverb/bin/python"))
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
        if root == "reverie":
            import reverie

            (pathlib.Path(folder) / "reverie").symlink_to(pathlib.Path(reverie.__file__).parent)
            environment["PYTHONPATH"] = folder
        command = [python, __file__, "--describe", root]
        done = subprocess.run(command, input=json.dumps(wanted), capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compared():
    """The page, and what is wrong."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    from names_on_purpose import REASONS

    theirs = describe_in_peer("reverb")
    ours = describe_in_peer("reverie", {module: list(names) for module, names in theirs.items() if module != "(messages)"})
    MODULES[:] = ["message", *(f"reverb.{module}".rstrip(".") for module in theirs)]
    found, faults = judged(list(rows(theirs, ours)), REASONS)
    return page(found), faults


def main(arguments):
    if arguments[:1] == ["--describe"]:
        print(json.dumps(describe_package(arguments[1], json.loads(sys.stdin.read()))))
        return 0
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    text, faults = compared()
    if arguments:
        if not PAGE.exists() or PAGE.read_text() != text:
            faults.append("docs/reverb-names.md is out of date: run tools/dev/names.py")
    else:
        PAGE.write_text(text)
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
