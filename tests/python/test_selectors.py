"""Selectors: names, picks, probabilities, and which priorities they take."""

import collections

import pytest
import reverie
from conftest import make_table
from reverie import selectors, table_info
from reverie.server_executable.server_from_proto import selector_from_proto


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (selectors.Fifo, "FifoSelector"),
        (selectors.Lifo, "LifoSelector"),
        (selectors.Uniform, "UniformSelector"),
        (lambda: selectors.Prioritized(0.5), "PrioritizedSelector(priority_exponent=0.5)"),
        (selectors.MaxHeap, "HeapSelector(sign=-1)"),
        (selectors.MinHeap, "HeapSelector(sign=1)"),
    ],
)
def test_selectors_show_themselves(make, text):
    assert repr(make()) == text


def test_selectors_are_values():
    assert selectors.Fifo() == selectors.Fifo() != selectors.Lifo()
    assert selectors.Prioritized(1) == selectors.Prioritized(1.0) != selectors.Prioritized(2)


@pytest.mark.parametrize("exponent", [float("nan"), float("inf"), "text"])
def test_an_exponent_must_be_a_finite_number(exponent):
    with pytest.raises((ValueError, TypeError)):
        selectors.Prioritized(exponent)


@pytest.mark.parametrize("exponent", [float("nan"), float("inf"), float("-inf")])
def test_an_exponent_that_no_table_takes_is_refused_at_once(exponent):
    with pytest.raises(reverie.InvalidArgumentError, match="priority_exponent is .*; give a finite number"):
        selectors.Prioritized(exponent)


def test_an_exponent_of_another_server_is_shown_though_ours_would_refuse_it():
    options = table_info.options_of_kind(selectors.Prioritized.kind, float("inf"))
    assert options.WhichOneof("distribution") == "prioritized"
    assert options.prioritized.priority_exponent == float("inf")


def test_prioritized_needs_its_exponent():
    with pytest.raises(TypeError):
        selectors.Prioritized()


def draw(client, n):
    return [step[0] for step in zip(*[iter(client.sample("t", n, emit_timesteps=False))], strict=True)]


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [(selectors.Fifo(), 0), (selectors.Lifo(), 3), (selectors.MaxHeap(), 1), (selectors.MinHeap(), 2)],
)
def test_deterministic_selectors_pick_theirs_with_probability_one(connect, sampler, expected):
    client = connect(make_table(sampler=sampler))
    for value, priority in enumerate([2.0, 9.0, 1.0, 3.0]):
        client.add("t", value, priority)
    sample = draw(client, 1)[0]
    assert (sample.data[0].item(), sample.info.probability, sample.info.table_size) == (expected, 1.0, 4)


@pytest.mark.parametrize("make", [selectors.MaxHeap, selectors.MinHeap])
def test_of_equal_priorities_heaps_take_the_one_updated_longest_ago(connect, make):
    client = connect(make_table(sampler=make()))
    keys = [client.add("t", value) for value in range(3)]
    assert draw(client, 1)[0].data[0].item() == 0
    client.update_priorities("t", keys[:1], [1.0])
    assert draw(client, 1)[0].data[0].item() == 1


def test_uniform_gives_one_over_n(connect):
    client = connect(make_table(sampler=selectors.Uniform()))
    for value in range(4):
        client.add("t", value)
    counts = collections.Counter(client.sample_batch("t", 4000).data.tolist())
    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 800
    assert draw(client, 1)[0].info.probability == 0.25


def test_prioritized_gives_the_share_of_the_power(connect):
    client = connect(make_table(sampler=selectors.Prioritized(2.0)))
    for value, priority in enumerate([0.0, 1.0, 2.0]):
        client.add("t", value, priority)
    batch = client.sample_batch("t", 2000)
    assert set(batch.data.tolist()) == {1, 2}
    expected = {1: 0.2, 2: 0.8}
    assert all(abs(p - expected[v]) < 1e-12 for v, p in zip(batch.data.tolist(), batch.probabilities, strict=True))


def test_when_all_weights_are_zero_sampling_is_uniform(connect):
    client = connect(make_table(sampler=selectors.Prioritized(1.0)))
    for value in range(2):
        client.add("t", value, 0.0)
    batch = client.sample_batch("t", 100)
    assert set(batch.data.tolist()) == {0, 1}
    assert set(batch.probabilities) == {0.5}


@pytest.mark.parametrize("role", ["sampler", "remover"])
@pytest.mark.parametrize("priority", [-1.0, float("nan"), float("inf")])
def test_prioritized_refuses_priorities_that_are_no_weights(connect, role, priority):
    client = connect(make_table(**{role: selectors.Prioritized(1.0)}))
    key = client.add("t", 0)
    with pytest.raises(ValueError, match="must not be|priority"):
        client.add("t", 0, priority)
    with pytest.raises(ValueError, match="must not be|priority"):
        client.update_priorities("t", [key], [priority])
    with pytest.raises(ValueError, match="must not be|priority"):
        client.mutate_priorities("t", {key: priority})
    with pytest.raises(ValueError, match="priority"):
        client.insert(0, {"t": priority})
    assert client.get("t", key).info.priority == 1.0
    client.add("t", 0)
    assert client.server_info()["t"].current_size == 2


@pytest.mark.parametrize("sampler", [selectors.Fifo(), selectors.Uniform(), selectors.MaxHeap()])
def test_others_take_negative_and_infinite_priorities_but_not_nan(connect, sampler):
    client = connect(make_table(sampler=sampler))
    key = client.add("t", 0, -1.0)
    client.update_priorities("t", [key], [float("inf")])
    assert client.get("t", key).info.priority == float("inf")
    with pytest.raises(ValueError, match="(?i)nan"):
        client.add("t", 0, float("nan"))
    with pytest.raises(ValueError, match="(?i)nan"):
        client.update_priorities("t", [key], [float("nan")])


def test_one_selector_may_serve_as_sampler_and_remover_of_many_tables(connect):
    shared = selectors.Prioritized(1.0)
    client = connect(*[make_table(name, sampler=shared, remover=shared, max_size=2) for name in "ab"])
    for name in "ab":
        for value in range(5):
            client.add(name, value, 1.0 + value)
        assert client.server_info()[name].current_size == 2


def test_the_remover_chooses_who_goes(connect):
    client = connect(make_table(remover=selectors.MinHeap(), max_size=2))
    for value, priority in enumerate([5.0, 1.0, 3.0, 0.5]):
        client.add("t", value, priority)
    assert sorted(item.priority for item in client.items("t")) == [3.0, 5.0]


def test_options_are_reported_as_protocol_buffers_spell_them(connect):
    client = connect(make_table(sampler=selectors.Prioritized(0.75), remover=selectors.MinHeap()))
    info = client.server_info()["t"]
    assert info.sampler_options.WhichOneof("distribution") == "prioritized"
    assert info.sampler_options.prioritized.priority_exponent == 0.75
    assert not info.sampler_options.is_deterministic
    assert info.remover_options.HasField("heap")
    assert info.remover_options.heap.min_heap
    assert info.remover_options.is_deterministic
    assert selector_from_proto(info.sampler_options) == selectors.Prioritized(0.75)
    with pytest.raises(ValueError, match="oneof"):
        info.sampler_options.WhichOneof("other")


def test_the_base_class_is_no_selector():
    with pytest.raises(TypeError, match="base class"):
        selectors.Selector()
    assert issubclass(selectors.MaxHeap, selectors.Selector)
    assert reverie.selectors is selectors
