"""Writes down what a library asks of Reverb's client and writers, with the answers it got, so that the same can be asked again.

A record is JSON: a scenario's tables, the calls of its writers in order, and the items that were in the tables at the end. It holds
no code, so `replay` needs neither the library nor TensorFlow. This module imports neither reverb nor reverie.
"""

from __future__ import annotations

import collections
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# ---- values as JSON: every nest is a list that begins with its kind ----


def encode(value: Any) -> Any:
    """Nests of arrays, Python numbers, specs and recorded columns."""
    if isinstance(value, Column):
        return ["column", value.path, value.index]
    if isinstance(value, dict):
        return ["dict", {key: encode(each) for key, each in value.items()}]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ["named", type(value).__name__, list(value._fields), [encode(each) for each in value]]
    if isinstance(value, list | tuple):
        return [type(value).__name__, [encode(each) for each in value]]
    if value is None or type(value) in (bool, int, float, str):
        return ["plain", value]
    if hasattr(value, "shape") and hasattr(value, "name") and not hasattr(value, "numpy"):  # a tf.TensorSpec, or one like it
        return ["spec", value.dtype.name, list(value.shape), value.name]
    array = np.asarray(value)
    return ["array", array.dtype.str, list(array.shape), array.ravel().tolist()]


def decode(coded: Any, column: Callable[[Any, Any], Any], spec: Callable[[str, Any, str], Any]) -> Any:
    """What was encoded; `column(path, index)` and `spec(dtype, shape, name)` make those."""
    kind, *rest = coded
    if kind == "plain":
        return rest[0]
    if kind == "array":
        dtype, shape, values = rest
        return np.array(values, np.dtype(dtype)).reshape(shape)
    if kind == "column":
        return column(rest[0], decode_index(rest[1]))
    if kind == "spec":
        return spec(*rest)
    if kind == "dict":
        return {key: decode(each, column, spec) for key, each in rest[0].items()}
    if kind == "named":
        name, fields, values = rest
        return _named(name, tuple(fields))(*(decode(each, column, spec) for each in values))
    values = [decode(each, column, spec) for each in rest[0]]
    return values if kind == "list" else tuple(values)


@functools.cache
def _named(name: str, fields: tuple[str, ...]) -> type:
    return collections.namedtuple(name, fields)


def encode_index(index: Any) -> Any:
    return [index.start, index.stop, index.step] if isinstance(index, slice) else int(index)


def decode_index(coded: Any) -> Any:
    return slice(*coded) if isinstance(coded, list) else coded


# ---- recording ----


class Column:
    """A column of a history, or a part of one, that remembers which."""

    def __init__(self, calls: list[Any], column: Any, path: list[Any], index: Any = None) -> None:
        self.calls, self.column, self.path, self.index = calls, column, path, index

    def __getitem__(self, index: Any) -> Column:
        return Column(self.calls, self.column[index], self.path, encode_index(index))

    def _answered(self, attribute: str, answer: Any) -> Any:
        self.calls.append(["answer", self.path, self.index, attribute, encode(answer)])
        return answer

    def numpy(self) -> Any:
        return self._answered("numpy", self.column.numpy())

    @property
    def shape(self) -> Any:
        shape = self.column.shape
        self._answered("shape", tuple(shape))
        return shape

    @property
    def dtype(self) -> Any:
        dtype = self.column.dtype
        self._answered("dtype", np.dtype(dtype).str)
        return dtype


def _map_leaves(call: Callable[[Any, list[Any]], Any], nest: Any, path: tuple[Any, ...] = ()) -> Any:
    if isinstance(nest, dict):
        return {key: _map_leaves(call, each, (*path, key)) for key, each in nest.items()}
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        parts = zip(nest._fields, nest, strict=True)
        return type(nest)(*(_map_leaves(call, each, (*path, field)) for field, each in parts))
    if isinstance(nest, list | tuple):
        return type(nest)(_map_leaves(call, each, (*path, i)) for i, each in enumerate(nest))
    return call(nest, list(path))


def _bare(nest: Any) -> Any:
    return _map_leaves(lambda leaf, _: leaf.column if isinstance(leaf, Column) else leaf, nest)


class StructuredWriter:
    """Stands before a structured writer."""

    def __init__(self, calls: list[Any], writer: Any) -> None:
        self._calls, self._writer = calls, writer

    def append(self, data: Any, *, partial_step: bool = False) -> None:
        self._calls.append(["append", encode(data), bool(partial_step)])
        self._writer.append(data, partial_step=partial_step)

    def flush(self, *arguments: Any, **options: Any) -> None:
        self._calls.append(["flush", list(arguments), options])
        self._writer.flush(*arguments, **options)

    def end_episode(self, **options: Any) -> None:
        self._calls.append(["end_episode", [], options])
        self._writer.end_episode(**options)

    def _asked(self, attribute: str) -> Any:
        answer = getattr(self._writer, attribute)
        self._calls.append(["answer", None, None, attribute, encode(answer)])
        return answer

    @property
    def step_is_open(self) -> bool:
        return self._asked("step_is_open")


class Writer(StructuredWriter):
    """Stands before a trajectory writer."""

    def create_item(self, table: str, priority: float, trajectory: Any) -> None:
        self._calls.append(["create_item", table, float(priority), encode(trajectory)])
        self._writer.create_item(table, priority, _bare(trajectory))

    def close(self) -> None:
        self._calls.append(["close", [], {}])
        self._writer.close()

    @property
    def episode_steps(self) -> int:
        return self._asked("episode_steps")

    @property
    def history(self) -> Any:
        return _map_leaves(lambda column, path: Column(self._calls, column, path), self._writer.history)


class Client:
    """Stands before a client, for what observers and adders do with one."""

    def __init__(self, calls: list[Any], client: Any) -> None:
        self._calls, self._client = calls, client

    def trajectory_writer(self, num_keep_alive_refs: int, **options: Any) -> Writer:
        self._calls.append(["trajectory_writer", [num_keep_alive_refs], options])
        return Writer(self._calls, self._client.trajectory_writer(num_keep_alive_refs, **options))

    def structured_writer(self, configs: Any) -> StructuredWriter:
        self._calls.append(["structured_writer", [config.SerializeToString(deterministic=True).hex() for config in configs]])
        return StructuredWriter(self._calls, self._client.structured_writer(configs))


def items(client: Any, tables: list[str]) -> dict[str, Any]:
    """What is in the tables, in order, and what the server says of their episodes."""
    infos = client.server_info()
    found = {}
    for table in tables:
        number = infos[table].current_size
        samples = list(client.sample(table, number, emit_timesteps=False)) if number else []
        found[table] = {
            "episodes": infos[table].num_episodes,
            "items": [[sample.info.priority, [encode(column) for column in sample.data]] for sample in samples],
        }
    return found


def dump(record: dict[str, Any]) -> None:
    """Prints a record, a line for each scenario."""
    lines = (f"{json.dumps(name)}: {json.dumps(scenario, separators=(',', ':'))}" for name, scenario in record.items())
    print("{\n" + ",\n".join(lines) + "\n}")


# ---- replaying ----


def _at(nest: Any, path: list[Any]) -> Any:
    for step in path:
        nest = getattr(nest, step) if isinstance(step, str) and hasattr(nest, "_fields") else nest[step]
    return nest


def replay(calls: list[Any], client: Any, read_config: Callable[[bytes], Any]) -> Iterator[tuple[str, Any, Any]]:
    """Makes the calls again; yields ``(what was asked, the answer then, the answer now)``."""
    writer: Any = None

    def column(path: list[Any], index: Any) -> Any:
        found = _at(writer.history, path)
        return found if index is None else found[index]

    def no_spec(*_: Any) -> Any:
        raise AssertionError("calls hold no specs")

    for name, *rest in calls:
        if name == "trajectory_writer":
            writer = client.trajectory_writer(*rest[0], **rest[1])
        elif name == "structured_writer":
            writer = client.structured_writer([read_config(bytes.fromhex(config)) for config in rest[0]])
        elif name == "append":
            writer.append(decode(rest[0], column, no_spec), partial_step=rest[1])
        elif name == "create_item":
            writer.create_item(rest[0], rest[1], decode(rest[2], column, no_spec))
        elif name == "answer":
            path, index, attribute, then = rest
            now = getattr(writer if path is None else column(path, decode_index(index)), attribute)
            now = now() if attribute == "numpy" else tuple(now) if attribute == "shape" else now
            now = np.dtype(now).str if attribute == "dtype" else now
            yield f"{attribute} of {path}[{index}]", then, encode(now)
        else:
            getattr(writer, name)(*rest[0], **rest[1])
