"""What refers to itself through an object of the extension is collected, however the circle is closed."""

import gc
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
import reverie
from conftest import make_table


class Agent(reverie.Client):
    """A client that can hold what it made."""

    held: Any = None


class Key:
    """A key of steps that can hold what was made of it. Keys are sorted."""

    held: Any = None

    def __lt__(self, other):
        return id(self) < id(other)


def with_class(agent):
    """A class of rows, whose attributes are anybody's."""

    class Row(NamedTuple):
        x: np.float32

    return Row


def write(agent, step):
    writer = agent.trajectory_writer(2)
    writer.append(step)
    return writer


def client_and_column(agent):
    agent.held = write(agent, {"x": np.float32(1)}).history["x"][-1:]
    return agent


def client_and_column_of_references(agent):
    references = list(write(agent, {"x": np.float32(1)}).history["x"])
    agent.held = reverie.TrajectoryColumn(references)
    return agent


def client_and_reference(agent):
    agent.held = list(write(agent, {"x": np.float32(1)}).history["x"])
    return agent


def key_and_column(agent):
    key = Key()
    key.held = write(agent, {key: np.float32(1)}).history[key][-1]
    return key


def key_and_writer(agent):
    key = Key()
    key.held = write(agent, {key: np.float32(1)})
    return key


def class_and_writer(agent):
    row = with_class(agent)
    row.held = write(agent, row(np.float32(1)))
    return row


def class_and_structured_writer(agent):
    row = with_class(agent)
    pattern = reverie.structured.pattern_from_transform(row(np.float32(1)), lambda ref: {"x": ref.x[-1:]})
    row.held = agent.structured_writer([reverie.structured.create_config(pattern, "t")])
    row.held.append(row(np.float32(1)))
    return row


def class_and_client_that_added(agent):
    row = with_class(agent)
    row.held = agent
    agent.add("t", row(np.float32(1)))
    return row


def class_and_client_that_added_batches(agent):
    row = with_class(agent)
    row.held = agent
    agent.add_batch("t", row(np.ones(2, np.float32)))
    return row


def class_and_client_that_inserted(agent):
    row = with_class(agent)
    row.held = agent
    agent.insert([row(np.float32(1))], {"t": 1.0})
    return row


def client_and_transitions(agent):
    agent.held = agent.transitions("t", 2)
    return agent


def client_and_batch(agent):
    agent.add("t", {"x": np.float32(1)})
    agent.held = agent.sample_batch("t", 1)
    agent.held.data["client"] = agent
    return agent


def client_and_source_of_tensors(agent):
    agent.add("t", np.float32(1))
    sampler = agent.sample("t", 1, emit_timesteps=False)
    agent.held = reverie._core.TensorSource(sampler, [(1, ())], False, 0, False, False)
    agent.held.close()  # until then the module holds it, for TensorFlow
    return agent


CIRCLES = [
    client_and_column,
    client_and_column_of_references,
    client_and_reference,
    key_and_column,
    key_and_writer,
    class_and_writer,
    class_and_structured_writer,
    class_and_client_that_added,
    class_and_client_that_added_batches,
    class_and_client_that_inserted,
    client_and_transitions,
    client_and_batch,
    client_and_source_of_tensors,
]


@pytest.mark.parametrize("circle", CIRCLES)
def test_a_circle_is_collected(connect, circle):
    client = connect(make_table())
    kept = [weakref.ref(circle(Agent(client._server if client._address == "" else client._address))) for _ in range(3)]
    gc.collect()
    assert [each() for each in kept] == [None] * 3


def test_a_circle_that_somebody_holds_is_left_as_it_is(connect):
    writer = write(connect(make_table()), {"x": np.float32(1)})
    column, reference = writer.history["x"][-1:], next(iter(writer.history["x"]))
    gc.collect()
    assert column.numpy().tolist() == [1]
    assert reference.numpy().tolist() == 1
    writer.create_item("t", 1.0, {"x": column})
    writer.flush(timeout_ms=60_000)
