"""What documents and examples show works as they show it."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import types
from typing import Any

import numpy as np
import pytest
import reverie
from reverie import structured_writer

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))
import stubs  # noqa: E402


def run_page(path: str, blocks: int, data: pathlib.Path | None = None) -> dict[str, Any]:
    """Runs the page's Python from top to bottom, with `data` in the place of /data, and returns what it leaves."""
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == blocks
    names: dict[str, Any] = {"__name__": "page"}
    text = "\n".join(found).replace("127.0.0.1:8000", "127.0.0.1:0").replace('"/data/', f'"{data}/')
    exec(compile(text, path, "exec"), names)
    return names


def test_the_readmes_code_runs_from_top_to_bottom():
    names = run_page("README.md", 2)
    assert names["batch"].data["obs"].shape == (256, 4)
    tables = {name: table.current_size for name, table in names["client"].server_info().items()}
    assert tables == {"replay": 1000, "sequences": 8, "frames": 8}
    for name in tables:  # each holds items of one kind, also after all of it
        assert len(names["client"].sample_batch(name, 4)) == 4
    names["server"].stop()


def test_getting_started_runs_from_top_to_bottom():
    names = run_page("docs/getting-started.md", 8)
    shutil.rmtree(names["place"])


def run_example(documented: Any, **names: Any) -> dict[str, Any]:
    """Runs the first program that help shows of it, and returns what it leaves."""
    (text,) = re.findall(r"::\n\n((?:    .*\n|\n)+)", inspect.getdoc(documented) or "")[:1]
    exec(compile(textwrap.dedent(text), repr(documented), "exec"), names)
    return names


def a_server(*tables: str) -> reverie.Server:
    selectors, limiter = (reverie.selectors.Uniform(), reverie.selectors.Fifo()), reverie.rate_limiters.MinSize(1)
    return reverie.Server([reverie.Table(name, *selectors, 1000, limiter) for name in tables], in_process=True)


def test_what_help_shows_of_the_package_runs():
    names = run_example(reverie)
    assert len(names["batch"]) == 32
    names["server"].stop()


def test_what_help_shows_of_a_trajectory_writer_runs():
    with a_server("replay") as server:
        client = reverie.Client(server)
        run_example(reverie.TrajectoryWriter, client=client, episode=[types.SimpleNamespace(obs=np.zeros(4), reward=1.0)] * 5)
        assert client.server_info()["replay"].current_size == 3


def test_what_help_shows_of_the_structured_writer_runs():
    names = {f"{name}_spec": reverie.TensorSpec((), np.float32) for name in ("obs", "action", "reward")}
    step = dict.fromkeys(("obs", "action", "reward"), np.float32(1))
    with a_server("transitions", "sequences") as server:
        client = reverie.Client(server)
        run_example(structured_writer, client=client, episode=[step] * 200, last_observation=np.float32(2), **names)
        sizes = {name: table.current_size for name, table in client.server_info().items()}
        assert sizes == {"transitions": 200, "sequences": 4}


def test_what_help_shows_of_a_transitions_writer_runs():
    class Envs:
        """Two environments whose episodes end after 3 and 4 steps, and which reset themselves by a step of its own."""

        num_envs, steps = 2, 0

        def reset(self):
            return np.zeros((2, 4, 8), np.uint8), {}

        def step(self, action):
            self.steps += 1
            over = np.array([self.steps % 4 == 3, self.steps % 5 == 4])
            return np.full((2, 4, 8), self.steps, np.uint8), np.ones(2), over, np.zeros(2, bool), {}

    class Training:
        left = 20

        def __bool__(self):
            self.left -= 1
            return self.left >= 0

    with a_server("replay") as server:
        client = reverie.Client(server)
        kind = type(client.transitions("replay", 1))
        run_example(kind, client=client, np=np, envs=Envs(), training=Training(), policy=lambda obs: np.zeros(2, np.int32))
        assert client.server_info()["replay"].current_size == 2 * 20 - 5 - 4  # without the steps that reset one


def test_the_page_on_checkpoints_runs_from_top_to_bottom(tmp_path):
    names = run_page("docs/checkpoints.md", 1, tmp_path)
    assert pathlib.Path(names["path"]).parent == tmp_path / "replay"


def test_a_server_with_the_journal_of_its_page_begins_where_it_was(tmp_path):
    for size in (0, 1):
        names = run_page("docs/journal.md", 1, tmp_path)
        client = reverie.Client(names["server"].address)
        assert client.server_info()["replay"].current_size == size
        client.add("replay", 1.0)
        names["server"].stop()


def test_the_readme_names_the_packages_that_a_build_needs():
    (needed,) = re.findall(r'^packages_build="(.*)"$', (ROOT / "tools/dev/setup.sh").read_text(), re.MULTILINE)
    (named,) = re.findall(r"^sudo apt-get install (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named.split() == needed.split()


def undocumented(name: str, thing: Any) -> list[str]:
    """The name, and those of its public members of this package, that say nothing of themselves."""
    lost = [] if inspect.getdoc(thing) else [name]
    if inspect.isclass(thing):
        for kind in thing.__mro__:
            if kind.__module__.startswith("reverie"):
                members = {member: value for member, value in vars(kind).items() if not member.startswith("_")}
                lost += [f"{name}.{member}" for member, value in members.items() if says_nothing(thing, member, value)]
    return lost


def says_nothing(kind: type, member: str, value: Any) -> bool:
    """Fields of tuples and dataclasses, and plain values, are told by their class."""
    fields = (*getattr(kind, "_fields", ()), *getattr(kind, "__dataclass_fields__", ()), *getattr(kind, "__annotations__", ()))
    called = callable(value) or isinstance(value, (classmethod, staticmethod, property, types.GetSetDescriptorType))
    return member not in fields and called and not inspect.getdoc(getattr(kind, member))


def test_every_public_name_says_what_it_is():
    modules = [reverie, reverie.checkpointers, reverie.errors, reverie.extensions, reverie.nest, reverie.rate_limiters]
    modules += [reverie.selectors, reverie.server, reverie.structured, reverie.batches, reverie.table_info, reverie.specs]
    lost: list[str] = []
    for module in modules:
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing):
                lost += undocumented(f"{module.__name__}.{name}", thing)
    assert sorted(set(lost)) == []


def structured_writers_example() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("structured_writer_example", ROOT / "examples/structured_writer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_structured_writers_page_runs_from_top_to_bottom():
    names = run_page("docs/structured-writer.md", 7)
    assert names["batch"].data["obs"].shape == (4, 8, 4)
    info = names["client"].server_info()
    assert (info["transitions"].current_size, info["sequences"].current_size) == (20 + 22, 4 + 5)
    names["server"].stop()


def test_the_structured_writers_page_and_example_have_the_same_configs():
    names = run_page("docs/structured-writer.md", 7)
    names["server"].stop()
    example = structured_writers_example()
    assert [str(config) for config in names["configs"]] == [str(config) for config in example.make_configs()]


@pytest.fixture(params=["page", "example"])
def recipe(request):
    """What the structured writer's page leaves, and the example's functions over an empty server; GAMMA is 1/2, with which returns of
    whole rewards are exact in float32."""
    if request.param == "page":
        names = run_page("docs/structured-writer.md", 7)
        for table in ("transitions", "sequences"):
            names["client"].reset(table)
    else:
        names = vars(structured_writers_example())
        configs = names["make_configs"]()
        names["server"] = names["make_server"](configs)
        names["client"] = reverie.Client(names["server"])
        names["writer"] = names["client"].structured_writer(configs)
    names["GAMMA"] = 0.5
    yield names
    names["server"].stop()


def everything_in(client: reverie.Client, table: str) -> list[dict[str, np.ndarray]]:
    return [client.get(table, item.key).data for item in client.items(table)]


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("kind", ["only the last", "each another"])
def test_the_structured_writers_recipe_gives_every_step_its_n_step_return(recipe, kind, terminated):
    client, n, gamma = recipe["client"], recipe["N"], recipe["GAMMA"]
    for length in range(1, 3 * n + 1):
        rewards = [0.0] * (length - 1) + [7.0] if kind == "only the last" else [float(3 * t + 1) for t in range(length)]
        recipe["write_episode"](recipe["writer"], rewards, terminated)
        items = everything_in(client, "transitions")
        assert [item["obs"].tolist() for item in items] == [[t] * 4 for t in range(length)]
        assert [item["action"] for item in items] == [t % 3 for t in range(length)]
        assert [item["next_obs"].tolist() for item in items] == [[min(t + n, length)] * 4 for t in range(length)]
        columns = (np.stack([item[name] for item in items]) for name in ("rewards", "discounts"))
        returns, factors = recipe["n_step_returns"](*columns)
        for t in range(length):
            own = rewards[t : t + n]
            assert returns[t] == sum(gamma**k * reward for k, reward in enumerate(own))
            assert factors[t] == (0 if terminated and t + n >= length else gamma ** len(own))
        client.reset("transitions")


def test_the_structured_writers_recipe_ends_one_sequence_with_each_episodes_last_step(recipe):
    client, most, period = recipe["client"], recipe["LENGTH"], recipe["PERIOD"]
    for length in range(1, 3 * most + 1):
        recipe["write_episode"](recipe["writer"], [float(t) for t in range(length)], True)
        ends = sorted({*range(period, length + 1, period), length})
        expected = [list(range(max(0, end - most), end)) for end in ends if end >= most or end == length]
        items = everything_in(client, "sequences")
        assert [item["reward"].tolist() for item in items] == expected
        assert [item["obs"][:, 0].tolist() for item in items] == expected
        assert [item["discount"].tolist() for item in items] == [
            [0.0 if t == length - 1 else recipe["GAMMA"] for t in steps] for steps in expected
        ]
        client.reset("sequences")


def test_every_link_leads_to_a_file_and_a_heading():
    lost = []
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
            path, _, heading = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists():
                lost.append(f"{page.name}: {link}")
            elif heading:
                titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
                if heading not in [re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles]:
                    lost.append(f"{page.name}: {link}")
    assert lost == []


def test_editors_show_what_help_says_of_compiled_calls():
    assert stubs.STUB.read_text() == stubs.with_docstrings(stubs.STUB.read_text()), "run tools/dev/stubs.py"


def parameters_in_stub(call: ast.FunctionDef) -> list[str]:
    given = call.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def compiled_calls() -> list[tuple[str, ast.FunctionDef, Any]]:
    """Each call in the stub that tells its signature, as the stub has it and as it is."""
    found: list[tuple[str, ast.FunctionDef, Any]] = []
    for node in ast.parse(stubs.STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.append((node.name, node, getattr(stubs._core, node.name)))
        for call in node.body if isinstance(node, ast.ClassDef) else ():
            kind = getattr(stubs._core, node.name) if isinstance(node, ast.ClassDef) else None
            if isinstance(call, ast.FunctionDef) and not call.decorator_list:
                makes = call.name in ("__new__", "__init__")
                found.append((f"{kind.__name__}.{call.name}", call, kind if makes else getattr(kind, call.name)))
    return [each for each in found if getattr(each[2], "__text_signature__", None) is not None]


def test_the_stub_has_the_parameters_that_compiled_calls_say_they_have():
    calls = compiled_calls()
    assert len(calls) > 100
    said = {name: [each for each in inspect.signature(call).parameters if each != "self"] for name, _, call in calls}
    assert said == {name: parameters_in_stub(node) for name, node, _ in calls}


def test_the_structured_writers_example_runs():
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/structured_writer.py")],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "220 transitions, 50 sequences" in done.stdout
    assert "'obs': (32, 8, 4)" in done.stdout
