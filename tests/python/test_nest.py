"""Nests are flattened as dm-tree does it."""

import array
import collections
import collections.abc
import sys
import types

import attrs
import numpy as np
import pytest
import reverie
from reverie import nest

Point = collections.namedtuple("Point", "y x")


@attrs.define
class Step:
    reward: object
    action: object


def test_dicts_are_taken_by_sorted_key_whatever_their_kind():
    assert nest.flatten({"b": 1, "a": 2}) == [2, 1]
    assert nest.flatten(collections.OrderedDict(b=1, a=2)) == [2, 1]
    assert nest.flatten(types.MappingProxyType({"b": 1, "a": 2})) == [2, 1]


def test_keys_that_cannot_be_sorted_are_refused():
    with pytest.raises(TypeError, match="sorted"):
        nest.flatten({"a": 1, 2: 3})


def test_lists_tuples_namedtuples_and_attrs_keep_their_order():
    assert nest.flatten([3, (1, [2]), Point(y=5, x=4), Step(7, 6)]) == [3, 1, 2, 5, 4, 7, 6]


def test_empty_containers_have_no_leaves():
    assert nest.flatten({"a": {}, "b": [], "c": ()}) == []
    assert nest.flatten({}) == []


@pytest.mark.parametrize("leaf", [None, 1.5, "text", b"bytes", {1, 2}, np.zeros(3), True])
def test_leaves_are_what_is_no_container(leaf):
    assert nest.flatten(leaf) == [leaf]
    assert nest.flatten([leaf])[0] is leaf


def test_unflattening_gives_the_containers_back():
    given = {"b": [1, (2, 3)], "a": Point(4, {"c": 5}), "s": Step(6, 7)}
    again = nest.map_structure(lambda leaf: leaf * 10, given)
    assert again == {"b": [10, (20, 30)], "a": Point(40, {"c": 50}), "s": Step(60, 70)}
    assert list(again) == ["b", "a", "s"]
    assert isinstance(again["a"], Point)


def test_an_ordered_dict_keeps_its_class_and_order():
    again = nest.map_structure(lambda leaf: leaf, collections.OrderedDict(b=1, a=2))
    assert isinstance(again, collections.OrderedDict)
    assert list(again.items()) == [("b", 1), ("a", 2)]


class Size(tuple):
    """As torch.Size: a tuple of ints, and of nothing else."""

    def __new__(cls, sizes):
        if not all(type(size) is int for size in sizes):
            raise TypeError("Size() takes ints")
        return super().__new__(cls, sizes)


def test_a_kind_of_tuple_that_takes_no_arrays_is_sampled_as_a_plain_one():
    assert nest.Structure(Size([1, 2])).unflatten([3, 4]) == Size([3, 4])
    table = reverie.Table("t", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 10, reverie.rate_limiters.MinSize(1))
    with reverie.Server([table], in_process=True) as server:
        client = reverie.Client(server)
        client.add("t", {"shape": Size([84, 96])})
        shape = client.sample_batch("t", 1).data["shape"]
        assert type(shape) is tuple
        assert [size.tolist() for size in shape] == [[84], [96]]


def test_paths_are_tuples_of_keys_indices_and_field_names():
    assert nest.paths({"b": [1, 2], "a": Point(1, 2)}) == [("a", "y"), ("a", "x"), ("b", 0), ("b", 1)]
    assert nest.paths(1) == [()]


def test_a_structure_flattens_only_nests_like_its_own():
    structure = nest.Structure({"a": 1, "b": [2, 3]})
    assert len(structure) == 3
    assert structure.flatten({"b": [5, 6], "a": 4}) == [4, 5, 6]
    for other in ({"a": 1}, {"a": 1, "b": [2]}, {"a": 1, "c": [2, 3]}, {"a": [1], "b": [2, 3]}, [1, 2, 3], 5):
        with pytest.raises(ValueError, match="another structure"):
            structure.flatten(other)


def other_strings(given):
    """The same nest with keys that are equal, but not the same objects."""
    if not isinstance(given, dict):
        return given
    return {key.encode().decode(): other_strings(value) for key, value in given.items()}


def turned(given):
    """The same nest with the keys of its dicts in the opposite order."""
    return {key: turned(given[key]) for key in reversed(given)} if isinstance(given, dict) else given


STEP = {"reward": 1, "obs": {"position": 2, "angle": 3}, "done": 4}


@pytest.mark.parametrize(
    "change", [dict, turned, other_strings, lambda given: turned(other_strings(given)), collections.OrderedDict]
)
def test_a_structure_flattens_dicts_by_key_whatever_their_order_and_whoever_made_the_keys(change):
    assert nest.Structure(STEP).flatten(change(STEP)) == [4, 3, 2, 1]


@pytest.mark.parametrize("change", [dict, turned, other_strings])
@pytest.mark.parametrize(
    "difference",
    [
        {"done": [5]},
        {"other": 5},
        {"obs": {"position": 5}},
        {"obs": {"position": 5, "other": 6}},
        {"reward": {"a": 5}},
        {"obs": 5},
    ],
)
def test_of_a_nest_that_turns_out_to_differ_no_leaf_is_held(change, difference):
    leaves = [object() for _ in range(4)]
    structure = nest.Structure(STEP)
    given = {"reward": leaves[0], "obs": {"position": leaves[1], "angle": leaves[2]}, "done": leaves[3]} | difference
    if "other" in difference:
        del given["done"]
    given = change(given)
    before = [sys.getrefcount(leaf) for leaf in leaves]
    for _ in range(10):
        with pytest.raises(ValueError, match="structure"):
            structure.flatten(given)
    assert [sys.getrefcount(leaf) for leaf in leaves] == before


def test_unflattening_needs_as_many_leaves_as_there_are():
    with pytest.raises(ValueError, match="2 leaves, got 3"):
        nest.Structure([1, 2]).unflatten([1, 2, 3])


def test_nesting_without_end_is_refused():
    deep = current = []
    for _ in range(1000):
        current.append([])
        current = current[0]
    with pytest.raises(ValueError, match="nested more than"):
        nest.flatten(deep)
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested more than"):
        nest.flatten(loop)


def test_flattening_drops_no_reference_and_keeps_none():
    import sys

    leaf = object()
    before = sys.getrefcount(leaf)
    structure = nest.Structure({"a": leaf, "b": [leaf, 1]})
    for _ in range(100):
        structure.flatten({"a": leaf, "b": [leaf, 1]})
        with pytest.raises(ValueError, match="another"):
            structure.flatten({"a": leaf, "b": [leaf]})
        structure.unflatten([leaf, leaf, leaf])
    assert sys.getrefcount(leaf) == before


class Fresh(collections.abc.Mapping):
    """Makes its keys anew whenever it is asked for them."""

    def __init__(self, values):
        self.entries = dict(values)

    def __getitem__(self, key):
        return self.entries[key]

    def __iter__(self):
        return ("".join(letters) for letters in self.entries)

    def __len__(self):
        return len(self.entries)


def test_a_mapping_may_make_its_keys_when_it_is_asked_for_them():
    given = Fresh({"second": 1, "first": [2, 3]})
    assert nest.flatten(given) == [2, 3, 1]
    again = nest.map_structure(lambda leaf: leaf * 10, given)
    assert isinstance(again, Fresh)
    assert list(again.entries.items()) == [("second", 10), ("first", [20, 30])]


class Key:
    """Sorts, and cannot be compared with others of its kind."""

    def __lt__(self, other):
        return False

    def __eq__(self, other):
        raise KeyboardInterrupt

    __hash__ = object.__hash__


def test_what_a_key_raises_when_it_is_compared_reaches_the_caller():
    class Keys(Fresh):
        def __getitem__(self, key):
            return 1

        def __iter__(self):
            return iter([Key(), Key()])

    with pytest.raises(KeyboardInterrupt):
        nest.flatten(Keys({1: 1, 2: 2}))


def test_ctrl_c_while_an_object_is_asked_what_it_is_reaches_the_caller():
    class Asked:
        @property
        def __class__(self):
            raise error

    asked = Asked()
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        nest.flatten([asked])
    error = RuntimeError("no class")
    assert nest.flatten([asked])[0] is asked


@attrs.define
class Private:
    _obs: object
    reward: object = attrs.field(alias="r", kw_only=True)


class Old:
    """As attrs below 22.2 made them: fields do not say what they are called when an object is made."""

    __attrs_attrs__ = (types.SimpleNamespace(name="_obs"), types.SimpleNamespace(name="reward"))

    def __init__(self, obs, reward):
        self._obs, self.reward = obs, reward


def test_attrs_classes_are_made_by_the_names_that_they_take_their_fields_by():
    assert nest.paths(Private(1, r=2)) == [("_obs",), ("reward",)]
    assert nest.map_structure(lambda leaf: leaf * 10, Private(1, r=2)) == Private(10, r=20)
    again = nest.map_structure(lambda leaf: leaf * 10, Old(1, 2))
    assert (again._obs, again.reward) == (10, 20)


def test_other_sequences_are_containers_as_lists_are():
    frames = collections.deque([np.zeros(2), np.ones(2)], maxlen=2)
    assert [leaf.tolist() for leaf in nest.flatten({"obs": frames})] == [[0, 0], [1, 1]]
    assert nest.paths([frames, collections.UserList([1, [2]])]) == [(0, 0), (0, 1), (1, 0), (1, 1, 0)]
    again = nest.map_structure(lambda leaf: leaf * 10, collections.deque([1, {"a": 2}]))
    assert again == collections.deque([10, {"a": 20}])
    assert isinstance(again, collections.deque)


def test_a_structure_of_a_sequence_takes_those_of_its_type_and_length():
    structure = nest.Structure([collections.deque([1, 2])])
    assert structure.flatten([collections.deque([3, 4])]) == [3, 4]
    for other in ([collections.deque([3])], [[3, 4]], [3], [np.zeros(2)]):
        with pytest.raises(ValueError, match="another structure"):
            structure.flatten(other)
    for other in (collections.deque([1]), collections.UserDict(a=1), Step(1, 2)):
        with pytest.raises(ValueError, match="another structure"):
            nest.Structure([1]).flatten([other])


@pytest.mark.parametrize("leaf", [bytearray(b"ab"), memoryview(b"ab"), array.array("i", [1, 2]), range(2), iter([1])], ids=repr)
def test_what_has_a_buffer_and_ranges_and_iterators_are_leaves(leaf):
    assert nest.flatten([leaf])[0] is leaf
