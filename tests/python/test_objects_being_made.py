"""Nobody sees an object of the extension before it is whole: not whom it asks while it is made, nor another thread meanwhile."""

import gc
import time

import numpy as np
import reverie
from waiting import Call

core = reverie._core


def seen(kind):
    return sum(type(each) is kind for each in gc.get_objects())


class Looking(dict):
    """A mapping, or its key, that looks at what there is when it is asked."""

    def __init__(self, *kinds):
        super().__init__()
        self.kinds, self.found = kinds, []

    def look(self):
        self.found.append([seen(kind) for kind in self.kinds])


class LookingNest(Looking):
    def keys(self):
        self.look()
        return [*super().keys()]


class LookingKey:
    def __init__(self, nest):
        self.nest = nest

    def __lt__(self, other):
        return True

    def __str__(self):
        self.nest.look()
        return "key"


def test_a_structure_is_not_seen_by_the_nest_that_it_is_made_of():
    before = seen(core.Structure)
    nest = LookingNest(core.Structure)
    nest["x"] = 1
    structure = core.Structure(nest)
    assert nest.found
    assert {found for (found,) in nest.found} == {before}
    assert seen(core.Structure) == before + 1
    assert structure.paths() == [("x",)]


def test_transitions_are_not_seen_by_the_keys_whose_names_they_ask_for(connect):
    looking = Looking(core.Transitions)
    nest = {LookingKey(looking): np.zeros(2, np.float32)}
    before = seen(core.Transitions)
    structure = core.Structure(nest)
    transitions = core.Transitions(connect(), "t", 2, structure, [-1], [0])
    assert looking.found
    assert {found for (found,) in looking.found} == {before}
    assert seen(core.Transitions) == before + 1
    transitions.close()


def test_a_step_writer_is_not_seen_while_it_waits_for_its_server():
    client = reverie.Client("127.0.0.1:1")
    before = seen(core.StepWriter)
    call = Call(client.writer, 2, timeout=2.0)
    found = set()
    while call.is_alive():
        found.add(seen(core.StepWriter))
        time.sleep(0.02)
    assert isinstance(call.join(), reverie.errors.ReverieError)
    assert found == {before}
