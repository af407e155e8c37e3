"""The structured writer: items are made by patterns that are said once, not by calls.

A pattern says which rows of the steps make an item, counted from the newest step; conditions say when. After each append the writer
makes the items whose conditions hold and whose rows are all there::

    from reverie import structured

    step = {"obs": obs_spec, "action": action_spec, "reward": reward_spec}
    transitions = structured.create_config(
        pattern=structured.pattern_from_transform(
            step,
            lambda ref: {
                "obs": ref["obs"][-2],
                "action": ref["action"][-2],
                "reward": ref["reward"][-2],
                "next_obs": ref["obs"][-1],
            },
        ),
        table="transitions",
    )
    sequences = structured.create_config(
        pattern=structured.pattern_from_transform(step, lambda ref: {"obs": ref["obs"][-80:], "action": ref["action"][-80:]}),
        table="sequences",
        conditions=[structured.Condition.step_index() >= 79, structured.Condition.steps_since_applied() >= 40],
    )
    writer = client.structured_writer([transitions, sequences])
    for each in episode:
        writer.append(each)
    writer.append({"obs": last_observation, "action": None, "reward": None})  # the last step's next_obs
    writer.end_episode()

docs/structured-writer.md has transitions of n steps up to the last reward, and sequences up to the last step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NewType, NoReturn

import numpy as np
from numpy.typing import NDArray

from reverie import _arguments, _core, _dtypes, _leaving, nest
from reverie._messages import convert
from reverie._patterns import ItemStream, columns_of
from reverie.cc import patterns_pb2
from reverie.errors import ReverieError
from reverie.specs import TensorSpec, shown
from reverie.trajectory_writer import WriterStatus

__all__ = [
    "Condition",
    "ConditionProto",
    "Config",
    "Pattern",
    "PatternTransform",
    "ReferenceStep",
    "StructuredWriter",
    "constant_priority_fn",
    "create_config",
    "create_reference_step",
    "infer_signature",
    "pattern_from_transform",
    "pattern_items",
    "patterns_pb2",
    "td_error",
    "unpack_pattern",
]

Config = patterns_pb2.StructuredWriterConfig
ConditionProto = patterns_pb2.Condition

ReferenceStep = NewType("ReferenceStep", Any)  # type: ignore[valid-newtype]
Pattern = Any  # a nest of PatternNode
PatternTransform = Callable[[Any], Pattern]


# ---- patterns ----


class _Reference:
    """Stands for one column of the steps; indexing says which of its rows."""

    __slots__ = ("_index",)

    def __init__(self, index: int) -> None:
        self._index = index

    def __getitem__(self, key: int | slice) -> patterns_pb2.PatternNode:
        node = patterns_pb2.PatternNode(flat_source_index=self._index)
        if isinstance(key, slice):
            for name in ("start", "stop", "step"):
                if getattr(key, name) is not None:
                    setattr(node, name, getattr(key, name))
        elif isinstance(key, int):
            node.stop = int(key)
        else:
            raise ValueError(f"Key must be an int or a slice of rows counted from the newest (-1), got {key!r}")
        return node

    def __iter__(self) -> Any:
        raise TypeError("a reference to a column has no rows of its own: index it with an int or a slice")


def create_reference_step(step_structure: Any) -> Any:
    """A nest like a step, with something at each leaf that can be indexed to say which rows of it an item has.

    Parameters
    ----------
    step_structure : nest
        Of the steps that will be appended; what its leaves are does not matter.

    Returns
    -------
    nest
        ``ref["obs"][-1]`` is the newest row, without a time dimension; ``ref["obs"][-3:]`` the last three;
        ``ref["obs"][-5::2]`` the rows -5, -3 and -1. As in Reverb, ``ref[:k]`` is the one row ``ref[k]``.
    """
    structure = nest.Structure(step_structure)
    return structure.unflatten([_Reference(index) for index in range(len(structure))])


def pattern_from_transform(step_structure: Any, transform: PatternTransform) -> Pattern:
    """What the function makes of a reference step: a nest of rows, to be given to `create_config`.

    Parameters
    ----------
    step_structure : nest
        As for `create_reference_step`.
    transform : callable
        ``transform(reference_step) -> nest``.
    """
    return transform(create_reference_step(step_structure))


def create_config(
    pattern: Pattern,
    table: str,
    conditions: Sequence[patterns_pb2.Condition] = (),
    priority: patterns_pb2.Priority | None = None,
) -> patterns_pb2.StructuredWriterConfig:
    """A config: items of this pattern go to this table whenever all conditions hold.

    Parameters
    ----------
    pattern : nest
        Of indexed references (see `create_reference_step`): dicts with string keys, lists, tuples, namedtuples.
    table : str
    conditions : sequence
        What comparisons of `Condition` give; all must hold.
    priority : optional
        What `constant_priority_fn` or `td_error` give; the constant 1.0 by default.

    Raises
    ------
    TypeError
        A leaf that is no indexed reference, a condition that was not compared with anything, a nest that cannot be written down.
    """
    table = _arguments.name("table", table)
    structure = nest.Structure(pattern)
    config = Config(table=table)
    for path, leaf in zip(structure.paths(), structure.flatten(pattern), strict=True):
        try:
            config.flat.append(leaf)
        except TypeError:
            raise TypeError(
                f"the pattern's leaf at {path} must be rows of a reference step, such as ref['obs'][-1], got {leaf!r}"
            ) from None
    config.pattern_structure.set_structure(structure)
    for condition in _arguments.listed("conditions", conditions, "conditions, such as [Condition.step_index() >= 3]"):
        if isinstance(condition, _ConditionBuilder):
            raise TypeError("a condition must be compared with something, such as Condition.step_index() >= 3")
        config.conditions.append(condition)
    config.priority.CopyFrom(constant_priority_fn(1.0) if priority is None else convert(patterns_pb2.Priority, priority))
    return config


def unpack_pattern(config: patterns_pb2.StructuredWriterConfig) -> Pattern:
    """The nest of `PatternNode` of a config; the flat sequence of them if it has no structure."""
    config = convert(Config, config)
    if not config.HasField("pattern_structure"):
        return config.flat
    structure = _structure(config)
    if len(structure) != len(config.flat):
        raise ValueError(f"the config's structure has {len(structure)} leaves and its pattern {len(config.flat)} nodes")
    return structure.unflatten(list(config.flat))


def _structure(config: patterns_pb2.StructuredWriterConfig) -> nest.Structure:
    """The nest of its items."""
    return config.pattern_structure.structure() if config.HasField("pattern_structure") else nest.Structure(list(config.flat))


# ---- conditions ----


class _ConditionBuilder:
    """The left side of a condition; comparing it gives the condition."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("_left", "_mod")

    def __init__(self, left: dict[str, Any], mod: int | None = None) -> None:
        self._left = left
        self._mod = mod

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"a condition must be compared with something, such as Condition.step_index() >= 3; {patterns_pb2.NOT_COMBINED}"
        )

    def __mod__(self, mod: int) -> _ConditionBuilder:
        number = operator.index(mod)
        if self._mod is not None:
            raise ValueError("a condition takes one remainder only")
        if number <= 0:
            raise ValueError(f"a condition's remainder must be by a positive number, got % {number}")
        return _ConditionBuilder(self._left, number)

    def _equal(self, value: Any, inverse: bool) -> patterns_pb2.Condition:
        number = _arguments.integer("what a condition compares with", value)
        if self._mod is None:
            return ConditionProto(**self._left, eq=number, inverse=inverse)
        return ConditionProto(**self._left, mod_eq={"mod": self._mod, "eq": number}, inverse=inverse)

    def _at_least(self, value: Any, add: int, inverse: bool) -> patterns_pb2.Condition:
        number = _arguments.integer("what a condition compares with", value) + add
        if self._mod is not None:
            raise ValueError("a remainder can only be tested with == and !=")
        return ConditionProto(**self._left, ge=number, inverse=inverse)

    def __eq__(self, value: int) -> patterns_pb2.Condition:  # type: ignore[override]
        return self._equal(value, False)

    def __ne__(self, value: int) -> patterns_pb2.Condition:  # type: ignore[override]
        return self._equal(value, True)

    def __ge__(self, value: int) -> patterns_pb2.Condition:
        return self._at_least(value, 0, False)

    def __gt__(self, value: int) -> patterns_pb2.Condition:
        return self._at_least(value, 1, False)

    def __lt__(self, value: int) -> patterns_pb2.Condition:
        return self._at_least(value, 0, True)

    def __le__(self, value: int) -> patterns_pb2.Condition:
        return self._at_least(value, 1, True)


class Condition:
    """What conditions can be on. Compare it with an int (``==``, ``!=``, ``>``, ``>=``, ``<``, ``<=``), or its remainder with
    ``== `` and ``!=``: ``Condition.step_index() % 3 == 0``. How long the buffer is can be tested with
    ``ConditionProto(buffer_length=True, ge=n)``. Several that must all hold stand in a list; ``and``, ``or`` and ``3 <= x <= 7``
    do not combine conditions, and are refused."""

    @staticmethod
    def step_index() -> _ConditionBuilder:
        """The newest step's place in its episode, from 0."""
        return _ConditionBuilder({"step_index": True})

    @staticmethod
    def steps_since_applied() -> _ConditionBuilder:
        """Steps since the config last made an item: 1 in the step after one, and in the first step. Goes on across episodes."""
        return _ConditionBuilder({"steps_since_applied": True})

    @staticmethod
    def is_end_episode() -> patterns_pb2.Condition:
        """Holds while `StructuredWriter.end_episode` runs, and never before."""
        return ConditionProto(is_end_episode=True, eq=1)

    @staticmethod
    def data(step_structure: Any) -> Any:
        """A nest like a step, with the newest value at each leaf, which must be one integer or bool.

        Where the value is missing, or anything else, no condition on it holds, inverted ones neither.
        """
        structure = nest.Structure(step_structure)
        return structure.unflatten([_ConditionBuilder({"flat_source_index": index}) for index in range(len(structure))])


# ---- priorities ----


def constant_priority_fn(value: float) -> patterns_pb2.Priority:
    """The same priority for every item."""
    if isinstance(value, int):
        value = _arguments.number("a constant priority", value)
    return patterns_pb2.Priority(constant_fn={"value": value})


def td_error(
    max_priority_weight: float, step_structure: Any, get_field_from_step_fn: Callable[[Any], Any]
) -> patterns_pb2.Priority:
    """Priority from temporal-difference errors x: w * max|x| + (1 - w) * mean|x| over the item's rows of a field.

    Parameters
    ----------
    max_priority_weight : float
        w; 0.9 in Kapturowski et al., "Recurrent experience replay in distributed reinforcement learning", 2019.
    step_structure : nest
        As for `create_reference_step`.
    get_field_from_step_fn : callable
        Returns the field of a step: ``lambda step: step["td_error"]``. It must be one float32, float64, int32 or int64 a step, and be
        in the pattern; if several leaves of the pattern have it, the last one counts.
    """
    structure = nest.Structure(step_structure)
    index = operator.index(get_field_from_step_fn(structure.unflatten(list(range(len(structure))))))
    return patterns_pb2.Priority(td_error={"max_priority_weight": max_priority_weight, "flat_source_index": index})


# ---- signatures ----


def _length(node: patterns_pb2.PatternNode) -> int | None:
    """Rows of a slice; None for a single row."""
    if not node.HasField("start"):
        return None
    stop = node.stop if node.HasField("stop") else 0
    step = node.step if node.HasField("step") else 1
    if step <= 0 or not node.start < stop <= 0:
        raise ValueError(f"a pattern has rows that cannot be: start {node.start}, stop {stop}, step {step}")
    return -((node.start - stop) // step)


def _spec_of(node: patterns_pb2.PatternNode, flat_specs: Sequence[Any]) -> tuple[Any, tuple[int | None, ...]]:
    if not 0 <= node.flat_source_index < len(flat_specs):
        raise ValueError(f"a pattern refers to leaf {node.flat_source_index} of the step, but step_spec has {len(flat_specs)}")
    spec = flat_specs[node.flat_source_index]
    if not hasattr(spec, "dtype") or not hasattr(spec, "shape"):
        raise ValueError(f"step_spec's leaves must have a dtype and a shape, got {spec!r}")
    shape = TensorSpec(spec.shape, spec.dtype).shape
    if shape is None:
        raise ValueError(f"step_spec's leaf {node.flat_source_index} has no known rank, so what items it makes cannot be said")
    length = _length(node)
    return _dtypes.canonical(spec.dtype), shape if length is None else (length, *shape)


def _merge(path: tuple[Any, ...], specs: list[tuple[Any, tuple[int | None, ...]]]) -> TensorSpec:
    dtypes = sorted({str(dtype) for dtype, _ in specs})
    if len(dtypes) > 1:
        raise ValueError(f"the configs make items of different dtypes at {path}: {', '.join(dtypes)}")
    shapes = [shape for _, shape in specs]
    if len({len(shape) for shape in shapes}) > 1 or len({shape[1:] for shape in shapes}) > 1:
        raise ValueError(f"the configs make items of incompatible shapes at {path}: {', '.join(map(str, shapes))}")
    shape = shapes[0]
    if len(set(shapes)) > 1:
        shape = (None, *shape[1:])
    return TensorSpec(shape, specs[0][0], _arguments.as_text("/".join(map(str, path))))


def infer_signature(configs: Sequence[patterns_pb2.StructuredWriterConfig], step_spec: Any) -> Any:
    """The signature of a table whose items these configs make.

    Parameters
    ----------
    configs : sequence
        All for one table, with patterns of one structure.
    step_spec : nest
        Of the steps; its leaves have a dtype and a shape (`TensorSpec`, arrays, specs of dm_env, tf.TensorSpec).

    Returns
    -------
    nest of TensorSpec
        Like the pattern, each named by its place in it. A slice has its length first, ceil((stop - start) / step), which is None where
        configs differ in it.

    Raises
    ------
    ValueError
        No configs, several tables or structures, a leaf whose dtype, rank or further sizes differ, one that step_spec does not have.
    """
    known = [convert(Config, config) for config in _arguments.listed("configs", configs, "configs")]
    if not known:
        raise ValueError("At least one config is needed")
    if len({config.table for config in known}) > 1:
        raise ValueError(f"the configs are for different tables: {', '.join(sorted({config.table for config in known}))}")
    if any(_key(config) != _key(known[0]) for config in known):
        raise ValueError("the configs have patterns of different structures")
    flat_specs = nest.flatten(step_spec)
    structure = _structure(known[0])
    specs = [[_spec_of(node, flat_specs) for node in config.flat] for config in known]
    merged = [_merge(path, list(each)) for path, each in zip(structure.paths(), zip(*specs, strict=True), strict=True)]
    return shown(structure.unflatten(merged))


def _key(config: patterns_pb2.StructuredWriterConfig) -> Any:
    """What configs of equal structure have in common."""
    return (config.HasField("pattern_structure"), config.pattern_structure, len(config.flat))


# ---- the writer ----

_LEFT = {"step_index": 1, "steps_since_applied": 2, "buffer_length": 3, "is_end_episode": 4, "flat_source_index": 5}
_TEST = {"eq": 1, "ge": 2, "mod_eq": 3}


def _raw_node(node: patterns_pb2.PatternNode) -> tuple[Any, ...]:
    given = [getattr(node, name) if node.HasField(name) else None for name in ("start", "stop", "step")]
    return (node.flat_source_index, *given)


def _raw_condition(condition: patterns_pb2.Condition) -> tuple[Any, ...]:
    left, test = condition.WhichOneof("left"), condition.WhichOneof("cmp")
    value, mod = 0, 0
    if test == "mod_eq":
        value, mod = condition.mod_eq.eq, condition.mod_eq.mod
    elif test is not None:
        value = getattr(condition, test)
    return (_LEFT.get(left or "", 0), condition.flat_source_index, _TEST.get(test or "", 0), value, mod, condition.inverse)


def _raw_priority(config: patterns_pb2.StructuredWriterConfig) -> tuple[Any, ...]:
    priority = config.priority
    kind = priority.WhichOneof("priority_fn")
    if kind == "constant_fn":
        return (1, priority.constant_fn.value, 0.0, 0)
    if kind == "td_error":
        return (2, 0.0, priority.td_error.max_priority_weight, priority.td_error.flat_source_index)
    return (0, 0.0, 0.0, 0)


def raw_config(given: Any) -> tuple[Any, ...]:
    """A config as the extension takes it."""
    config = convert(Config, given)
    structure = _structure(config)
    if len(structure) != len(config.flat):  # whose nest says nothing about its items
        structure = nest.Structure(list(config.flat))
    nodes = [_raw_node(node) for node in config.flat]
    return (
        _arguments.name("a config's table", config.table),
        nodes,
        [_raw_condition(each) for each in config.conditions],
        _raw_priority(config),
        structure,
    )


def raw_configs(configs: Any) -> list[tuple[Any, ...]]:
    """The configs as the extension takes them; ValueError if there are none."""
    given = [] if configs is None else _arguments.listed("configs", configs, "what create_config returns")
    if not given:
        raise ValueError("At least one config is needed, see reverie.structured.create_config")
    return [raw_config(config) for config in given]


# ---- items without a table ----


def _text(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"of objects only str and bytes can be in a step, got {value!r}")


def _one_row(leaf: Any) -> NDArray[Any]:
    """[1, ...]"""
    if isinstance(leaf, str | bytes):  # of which NumPy would take the zeros at the end for padding
        row = np.empty(1, object)
        row[0] = _text(leaf)
        return row
    array = np.asarray(leaf, order="C")
    if array.dtype.kind in "USO":
        texts = np.empty(array.shape, object)
        for at in np.ndindex(array.shape):
            texts[at] = _text(array[at])
        array = texts
    return array.astype(array.dtype.newbyteorder("="), copy=False)[None]


def pattern_items(
    steps: Iterable[Any],
    configs: Sequence[patterns_pb2.StructuredWriterConfig],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[[Any], Any],
) -> Iterator[Any]:
    """The items that a structured writer would make of these steps, in its order, without a table: what `PatternDataset` is for
    tf.data, `reverie.torch.PatternDataset` for PyTorch and `reverie.jax.patterns` for JAX.

    Parameters
    ----------
    steps : iterable of nests
        All of one structure. A leaf that is None has no row in that step.
    configs : sequence
        What `create_config` returns. Their tables and priorities play no part.
    respect_episode_boundaries : bool
        No item reaches back across the end of an episode.
    is_end_of_episode : callable
        ``is_end_of_episode(step) -> bool``: does the episode end with this step?

    Yields
    ------
    nest of ndarray
        Like the pattern of the item's config; each [T, ...], or [...] for a row without a time dimension. A step is only asked for when
        all items of those before it were taken.

    Raises
    ------
    ValueError
        A config that cannot be applied, or not to these steps; a leaf whose dtype or shape changes; `is_end_of_episode` is no function.
    """
    _arguments.function("is_end_of_episode", is_end_of_episode, "a step")
    raw = raw_configs(configs)
    used = set(columns_of(raw))
    bounded = bool(respect_episode_boundaries)
    ItemStream(raw, nest.Structure([None] * (max(used, default=0) + 1)), bounded)  # says now what is wrong with them
    return _pattern_items(iter(steps), raw, used, bounded, is_end_of_episode)


def _pattern_items(
    steps: Iterator[Any], raw: list[tuple[Any, ...]], used: set[int], bounded: bool, is_end_of_episode: Callable[[Any], Any]
) -> Iterator[Any]:
    structure: nest.Structure | None = None
    for step in steps:
        if structure is None:
            structure = nest.Structure(step)
            stream = ItemStream(raw, structure, bounded)
        columns = [
            None if leaf is None or index not in used else _one_row(leaf) for index, leaf in enumerate(structure.flatten(step))
        ]
        items = stream.append(columns, np.array([bool(is_end_of_episode(step))]))
        for config, leaves in zip(items.configs, items, strict=True):
            yield raw[config][4].unflatten(leaves)


# ---- the writer's timeouts ----


def _milliseconds(timeout_ms: int | None) -> float | None:
    """As seconds; what is negative does not wait."""
    return None if timeout_ms is None else max(_arguments.clamped("timeout_ms", timeout_ms), 0) / 1000


class StructuredWriter(_leaving.Block, _core.StructuredWriter):
    """Made by `Client.structured_writer`. Belongs to one thread at a time.

    Appending never waits. After each append, also of a part of a step, every config is tried in turn, and makes at most one item a
    step: its conditions must hold, and all rows of its pattern be there. The writer keeps as many rows of each leaf as the oldest
    reference to it needs; leaves that no config refers to are not kept.

    `flush` and `end_episode` wait until items are in their tables, and so does the end of a ``with`` block. A writer that is dropped
    gives its last items one second; what is unconfirmed then is lost, and logged. An exception that leaves a ``with`` block, and
    items that the server refused, are treated as in `TrajectoryWriter`.
    """

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """Sends what is pending and waits until at most `block_until_num_items` items are unconfirmed.

        Parameters
        ----------
        block_until_num_items : int
        timeout_ms : int, optional
            Milliseconds; None waits for ever, 0 and negative values do not wait at all.

        Raises
        ------
        DeadlineExceededError
            The sentence says what it waits for; the items go on in the background.
        """
        keep = _arguments.integer("block_until_num_items", block_until_num_items)
        if keep < 0:
            raise ValueError(f"block_until_num_items must be >= 0, got {keep}")
        self._flush(min(keep, 2**32 - 1), _milliseconds(timeout_ms))

    def end_episode(self, clear_buffers: bool = True, timeout_ms: int | None = None) -> None:
        """Makes the items that are due at the end of the episode, flushes everything, then begins a new episode.

        Parameters
        ----------
        clear_buffers : bool
            No pattern reaches back across the episode's border. Otherwise items may.
        timeout_ms : int, optional
            Milliseconds; None waits for ever, 0 and negative values do not wait at all.

        Raises
        ------
        DeadlineExceededError
            Nothing was reset: call again. No item is made twice.
        """
        self._end_episode(bool(clear_buffers), _milliseconds(timeout_ms))

    def status(self) -> WriterStatus:
        """What became of the items so far. May be called from any thread."""
        return WriterStatus(**self._status())

    def __del__(self) -> None:
        if self._outlives_modules() or self._unconfirmed() == 0:
            return
        if _leaving.ends_by_ctrl_c():
            self._give_up(KeyboardInterrupt)
            return
        try:
            self._settle(_leaving.GRACE)
        except ReverieError as error:
            _leaving.tell_dropped(self._abandon(), error)

    def __reduce__(self) -> Any:
        raise TypeError("a StructuredWriter cannot be pickled; pickle its client and make a new one")
