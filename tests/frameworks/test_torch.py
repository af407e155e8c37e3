"""reverie.torch: batches, samples and items of steps as tensors, in this process and in a data loader's workers."""

from __future__ import annotations

import itertools
import pickle
import threading
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
import reverie
import torch
from reverie import structured
from reverie.torch import BatchDataset, PatternDataset, TimestepDataset, TrajectoryDataset, as_array, as_tensor
from torch.utils.data import DataLoader
from waiting import SAMPLING, SOON, interrupted, says_at_its_deadline


def take(dataset, n):
    return list(itertools.islice(dataset, n))


def test_batches_are_tensors_in_the_nest_of_the_signature(source):
    for batch in take(BatchDataset(source, "replay", 16), 5):
        assert batch.data["obs"].shape == (16, 3, 2)
        assert batch.data["obs"].dtype == torch.float32
        assert batch.data["action"].dtype == torch.int64
        assert torch.equal(batch.data["obs"][:, 0, 0].long(), batch.data["action"])
        assert batch.data["name"][3] == f"row {int(batch.data['action'][3])}".encode()
        assert torch.equal(batch.priorities, batch.data["action"].double() + 1)
        assert batch.table_size == 100
        assert batch.table_sizes.dtype == torch.int64
        assert batch.table_sizes.tolist() == [100] * 16
        assert batch.lengths is None


def test_a_batch_is_the_callers_own(source):
    first, second = take(BatchDataset(source, "replay", 16), 2)
    kept = second.data["obs"].clone()
    first.data["obs"].fill_(-1)
    assert torch.equal(second.data["obs"], kept)


def test_keys_of_a_batch_update_priorities(source):
    batch = next(iter(BatchDataset(source, "replay", 8)))
    client = reverie.Client(source)
    client.update_priorities("replay", batch.keys, torch.full((8,), 500.0))
    updated = {item.key for item in client.items("replay") if item.priority == 500.0}
    assert updated == set(batch.keys.tolist())


@pytest.mark.parametrize("dtype", [torch.uint64, torch.int64])
def test_keys_of_64_bits_update_priorities(source, dtype):
    client = reverie.Client(source)
    large = [2**63, 7, 2**64 - 1]
    keys = torch.from_numpy(np.array(large, np.uint64)).view(dtype)
    assert client.update_priorities("replay", keys, torch.ones(3)).tolist() == large
    if dtype == torch.uint64:
        assert client.update_priorities("replay", list(keys), torch.ones(3)).tolist() == large
        with pytest.raises(reverie.errors.NotFoundError, match=str(2**63)):
            client.get("replay", keys[0])


def test_breaking_off_ends_the_thread(source):
    before = threading.active_count()
    for _ in BatchDataset(source, "replay", 4, prefetch=3):
        break
    assert [t for t in threading.enumerate() if t.name == "reverie-batches"] == []
    assert threading.active_count() <= before + 1  # a client's loop may have begun


def test_a_loader_without_workers_gives_the_batches_as_they_are(address):
    batches = take(DataLoader(BatchDataset(address, "replay", 4), batch_size=None), 3)
    assert [len(batch.keys) for batch in batches] == [4, 4, 4]


@pytest.mark.parametrize("unequal", ["error", "pad"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_would_make_batches_of_batches_says_what_to_give_it(address, workers, unequal):
    with pytest.raises(TypeError, match=r"DataLoader\(dataset, batch_size=None\)"):
        take(DataLoader(BatchDataset(address, "replay", 4, unequal=unequal), num_workers=workers), 1)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loaders_workers_have_clients_of_their_own(address, method):
    dataset = TrajectoryDataset(address, "replay", 1, max_samples=21)
    next(iter(dataset))  # the parent has used its own before
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method)
    assert len(list(loader)) == 21
    assert reverie.Client(address).server_info()["replay"].rate_limiter_info.sample_stats.completed >= 22


class Row(NamedTuple):
    obs: torch.Tensor
    action: torch.Tensor


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_without_a_signature_a_loaders_workers_know_the_nest_that_the_client_inserted(serve, method):
    client = reverie.Client(serve("127.0.0.1:0").address)
    loader = DataLoader(
        BatchDataset(client, "replay", 4), batch_size=None, num_workers=0 if method is None else 2, multiprocessing_context=method
    )
    for row in ({"obs": np.zeros(3), "action": 1}, Row(np.zeros(3), 1)):
        client.reset("replay")
        client.add("replay", row)
        for batch in take(loader, 3):
            assert type(batch.data) is type(row)
            assert [leaf.shape for leaf in reverie.nest.flatten(batch.data)] == [
                np.shape([leaf] * 4) for leaf in reverie.nest.flatten(row)
            ]


def test_a_nest_that_cannot_be_pickled_keeps_no_dataset_from_a_worker(serve):
    class Local(NamedTuple):
        obs: np.ndarray

    client = reverie.Client(serve("127.0.0.1:0").address)
    client.add("replay", Local(np.zeros(3)))
    dataset = pickle.loads(pickle.dumps(BatchDataset(client, "replay", 4)))
    assert [column.shape for column in next(iter(dataset)).data] == [(4, 3)]


def test_a_source_without_an_address_does_not_go_to_a_worker(serve):
    server = serve()
    with pytest.raises(TypeError, match="address"):
        pickle.dumps(BatchDataset(reverie.Client(server), "replay", 4))


def test_trajectories_have_their_rows_and_their_info(source):
    samples = list(TrajectoryDataset(source, "replay", 2, max_samples=7))
    assert len(samples) == 7
    for sample in samples:
        assert sample.data["obs"].shape == (3, 2)
        assert sample.info.priority == int(sample.data["action"]) + 1
        assert sample.info.table_size == 100


def test_timesteps_come_one_by_one_and_items_are_counted(serve):
    server = serve(signature={"x": reverie.TensorSpec((None,), np.int64)})
    client = reverie.Client(server)
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append({"x": np.int64(i)})
        writer.create_item("replay", 1.0, {"x": writer.history["x"][:]})
    assert [int(step.data["x"]) for step in TimestepDataset(server, "replay", 1, max_samples=2)] == [0, 1, 2, 0, 1, 2]
    assert [sample.data["x"].tolist() for sample in TrajectoryDataset(client, "replay", 1, max_samples=2)] == [
        [0, 1, 2],
        [0, 1, 2],
    ]


def test_a_row_that_was_added_is_one_step(source):
    for step in take(TimestepDataset(source, "replay", 1), 5):
        assert step.data["obs"].shape == (3, 2)
        assert torch.equal(step.data["obs"], torch.full((3, 2), float(step.data["action"])))
        assert step.data["name"] == f"row {int(step.data['action'])}".encode()


def test_an_item_without_steps_is_refused_with_the_class_that_reads_it(serve):
    server = serve(sampler=reverie.selectors.Fifo(), max_times_sampled=1)
    with reverie.Client(server).trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append({"x": np.int64(i), "y": np.int64(i)})
        writer.create_item("replay", 1.0, {"x": writer.history["x"][:], "y": writer.history["y"][-1]})
    steps = iter(TimestepDataset(server, "replay", 1, max_samples=1))
    with pytest.raises(ValueError, match=r"column 0 has 3 rows, column 1 has 1; read it whole, with TrajectoryDataset"):
        next(steps)


@pytest.mark.parametrize("dataset", [TrajectoryDataset, TimestepDataset])
def test_a_loader_makes_batches_of_items_whose_keys_have_64_bits(serve, dataset):
    address = serve("127.0.0.1:0").address
    keys = set()
    client = reverie.Client(address)
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for i in range(30):
            writer.append({"x": np.float32(i)})
            writer.create_item("replay", 1.0, {"x": writer.history["x"][-1:]})
    for batch in take(DataLoader(dataset(address, "replay", 4, max_samples=40), batch_size=4), 10):
        assert batch.info.key.dtype == torch.uint64
        assert batch.info.times_sampled.dtype == torch.int32
        assert batch.info.probability.tolist() == [1 / 30] * 4
        keys |= set(batch.info.key.tolist())
    known = {item.key for item in client.items("replay")}
    assert keys <= known
    assert max(keys) > 2**63


def test_the_iteration_ends_when_the_limiter_lets_nothing_through(source):
    client = reverie.Client(source)
    client.reset("replay")
    assert list(TrajectoryDataset(source, "replay", 1, rate_limiter_timeout_ms=20)) == []


def test_a_batch_waits_no_longer_than_told(source):
    client = reverie.Client(source)
    client.reset("replay")
    batches = iter(BatchDataset(source, "replay", 4, timeout=0.05))
    with pytest.raises(reverie.errors.DeadlineExceededError, match="replay"):
        next(batches)


def test_items_of_different_lengths_are_padded(serve):
    server = serve()
    client = reverie.Client(server)
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append([np.int64(i + 1)])
            writer.create_item("replay", 1.0, [writer.history[0][:]])
    batch = next(iter(BatchDataset(server, "replay", 64, unequal="pad")))
    for row, length in zip(batch.data[0], batch.lengths, strict=True):
        assert row.tolist() == [1, 2, 3][: int(length)] + [0] * (row.shape[0] - int(length))


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "uint8",
        "int16",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float64",
        "complex64",
        "bfloat16",
        "float8_e5m2",
        "float8_e4m3fn",
    ],
)
def test_a_tensor_shares_the_memory_of_its_array(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.array([[0, 1], [1, 1]]).astype(kind)
    tensor = as_tensor(array)
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert tensor.shape == array.shape
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.float().tolist() == [[0, 1], [1, 1]] if dtype != "complex64" else tensor.real.tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "float32", "uint64"])
def test_an_array_shares_the_memory_of_its_tensor(dtype):
    tensor = torch.tensor([[0, 1], [1, 1]]).to(getattr(torch, dtype))
    array = as_array(tensor)
    assert array.dtype == np.dtype(getattr(ml_dtypes, dtype, dtype))
    assert array.ctypes.data == tensor.data_ptr()
    assert array.astype(float).tolist() == [[0, 1], [1, 1]]


def test_what_a_network_made_in_half_precision_can_be_stored(serve):
    client = reverie.Client(serve())
    state = torch.ones(4, 2, dtype=torch.bfloat16, requires_grad=True).T  # and not contiguous
    client.add("replay", {"state": as_array(state), "reward": 1.0})
    assert client.sample_batch("replay", 1).data["state"].dtype == ml_dtypes.bfloat16


def test_a_tensor_that_requires_grad_is_refused_with_its_place_and_the_remedy(serve):
    with pytest.raises(TypeError, match=r"^\('x',\): .*Parameter.*requires grad.*; reverie\.torch\.as_array makes one"):
        reverie.Client(serve()).add("replay", {"x": torch.nn.Parameter(torch.zeros(3))})


def test_a_list_of_tensors_that_require_grad_is_refused_with_its_place(serve):
    client = reverie.Client(serve(signature={"x": reverie.TensorSpec((3,), np.float32)}))
    with pytest.raises(TypeError, match=r"^\('x',\): a list cannot be made an array of: .*requires grad"):
        client.add_batch("replay", {"x": [torch.zeros(3, requires_grad=True)] * 2})


def test_priorities_that_require_grad_are_taken(serve):
    client = reverie.Client(serve())
    client.add_batch("replay", {"x": torch.zeros(2, 2)}, torch.tensor([0.5, 2], requires_grad=True))
    assert [item.priority for item in client.items("replay")] == [0.5, 2]


def test_what_is_conjugate_is_an_array_of_what_it_says():
    tensor = torch.tensor([1 + 2j], requires_grad=True)
    assert as_array(tensor.conj()).tolist() == [1 - 2j]
    assert as_array(tensor.conj().imag).tolist() == [-2]


def test_priorities_in_half_precision_are_taken(serve):
    client = reverie.Client(serve())
    client.add_batch("replay", {"x": torch.zeros(3, 2)}, torch.tensor([0.5, 1, 2], dtype=torch.bfloat16))
    assert [item.priority for item in client.items("replay")] == [0.5, 1, 2]
    keys = next(iter(BatchDataset(client, "replay", 4))).keys[:1]
    client.update_priorities("replay", keys, torch.tensor([0.25], dtype=torch.bfloat16))
    assert 0.25 in [item.priority for item in client.items("replay")]


def test_four_bit_integers_become_eight():
    assert as_tensor(np.array([-3, 7], ml_dtypes.int4)).tolist() == [-3, 7]
    assert as_tensor(np.array([15], ml_dtypes.uint4)).tolist() == [15]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batch_size": 0}, ValueError),
        ({"batch_size": "four"}, TypeError),
        ({"prefetch": 0}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"unequal": "list"}, ValueError),
        ({"table": 3}, TypeError),
        ({"server": 3}, TypeError),
    ],
)
def test_a_wrong_argument_is_named_at_once(arguments, error):
    given = {"server": "localhost:1", "table": "replay", "batch_size": 4, **arguments}
    with pytest.raises(error, match=next(iter(arguments))):
        BatchDataset(**given)


@pytest.mark.parametrize(
    "name", ["max_in_flight_samples_per_worker", "num_workers_per_iterator", "max_samples_per_stream", "max_samples"]
)
def test_counts_of_a_stream_are_positive(name):
    with pytest.raises(ValueError, match=name):
        TrajectoryDataset("localhost:1", "replay", **{"max_in_flight_samples_per_worker": 1, name: 0})


def test_pinned_memory_is_pinned_or_refused(source):
    if torch.cuda.is_available():
        for batch in take(BatchDataset(source, "replay", 4, pin_memory=True), 3):
            assert batch.data["obs"].is_pinned()
            assert torch.equal(batch.data["obs"][:, 0, 0].long(), batch.data["action"])
    else:
        with pytest.raises(RuntimeError, match="CUDA"):
            BatchDataset("localhost:1", "replay", 4, pin_memory=True)


@pytest.fixture
def pinned(monkeypatch):
    """The tensors that are made as pinned ones, also where there is no device to pin them for."""
    made = []
    real = torch.empty

    def empty(*arguments, pin_memory=False, **options):
        made.append(real(*arguments, pin_memory=pin_memory and real_device, **options))
        return made[-1]

    real_device = torch.cuda.is_available()
    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return made


@pytest.mark.parametrize("limit", [4, 3], ids=("whole", "short"))
def test_pinned_batches_have_storages_of_pytorchs_own(serve, pinned, limit):
    """Also a slice, by whose storage PyTorch finds the memory that a copy to a device still reads."""
    signature = {
        "obs": reverie.TensorSpec((3,), np.float32),
        "half": reverie.TensorSpec((2,), ml_dtypes.bfloat16),
        "small": reverie.TensorSpec((), ml_dtypes.int4),
        "empty": reverie.TensorSpec((0,), np.float32),
        "name": reverie.TensorSpec((), str),
    }
    server = serve(signature=signature, sampler=reverie.selectors.Fifo(), max_times_sampled=1)
    for i in range(limit):
        row = {name: np.full(spec.shape, i, spec.dtype) for name, spec in signature.items() if name != "name"}
        reverie.Client(server).add("replay", {**row, "name": "x"})
    batch = next(iter(BatchDataset(server, "replay", 4, prefetch=1, timeout=0.5, pin_memory=True)))
    for name, dtype in (("obs", torch.float32), ("half", torch.bfloat16)):
        column = batch.data[name]
        assert column.dtype == dtype
        assert column[:, 0].tolist() == list(range(limit))
        assert column[2:].untyped_storage()._cdata in [tensor.untyped_storage()._cdata for tensor in pinned]
    assert batch.data["small"].tolist() == list(range(limit))
    assert batch.data["empty"].shape == (limit, 0)
    assert list(batch.data["name"]) == [b"x"] * limit


STEP = {"x": 0, "name": 0, "end": False}


def config_of(transform, step=STEP):
    return structured.create_config(structured.pattern_from_transform(step, transform), "t")


def steps_of(numbers, ends=()):
    return [{"x": torch.full((2,), float(i)), "name": f"step {i}", "end": i in ends} for i in numbers]


def ended(step):
    return step["end"]


PAIRS = config_of(lambda ref: {"two": ref["x"][-2:], "last": [ref["x"][-1], ref["name"][-1]]})


@pytest.mark.parametrize("respect", [True, False])
def test_patterns_are_the_items_of_a_structured_writer_each_time_they_are_iterated_over(respect):
    dataset = PatternDataset(steps_of(range(9), {3}), [PAIRS], respect, ended)
    wanted = list(structured.pattern_items(steps_of(range(9), {3}), [PAIRS], respect, ended))
    for _ in range(2):
        got = list(dataset)
        assert len(got) == (7 if respect else 8)
        for ours, theirs in zip(got, wanted, strict=True):
            assert ours["two"].dtype == torch.float32
            assert ours["two"].tolist() == theirs["two"].tolist()
            assert ours["last"][0].tolist() == theirs["last"][0].tolist()
            assert ours["last"][1] == theirs["last"][1]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn, torch.uint16, torch.bool]
)
def test_steps_are_tensors_and_items_are_of_the_same_dtype(dtype):
    steps = [{"x": torch.tensor([i % 2, 1]).to(dtype), "n": i, "z": None} for i in range(3)]
    asked = []
    config = config_of(lambda ref: ref["x"][-2:], {"x": 0, "n": 0, "z": 0})
    items = list(PatternDataset(steps, [config], True, lambda step: asked.append(step)))
    assert [item.dtype for item in items] == [dtype, dtype]
    assert [item.float().tolist() for item in items] == [[[0, 1], [1, 1]], [[1, 1], [0, 1]]]
    assert all(step is given for step, given in zip(asked, steps, strict=True))


def test_an_item_is_its_own():
    first, second = PatternDataset(steps_of(range(3)), [PAIRS], True, ended)
    first["two"].fill_(-1)
    assert second["two"].tolist() == [[1, 1], [2, 2]]


def test_a_step_is_read_only_when_the_items_before_it_were_taken():
    read = []
    items = iter(PatternDataset((read.append(step) or step for step in steps_of(range(9))), [PAIRS], True, ended))
    for count in (2, 3, 4):
        next(items)
        assert len(read) == count


def test_sampled_steps_go_into_patterns_also_in_a_loaders_workers(serve):
    server = serve("127.0.0.1:0", signature={"x": reverie.TensorSpec((None,), ml_dtypes.bfloat16)})
    with reverie.Client(server).trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append({"x": np.array(i, ml_dtypes.bfloat16)})
        writer.create_item("replay", 1.0, {"x": writer.history["x"][:]})
    dataset = PatternDataset(TimestepDataset(server.address, "replay", 1, max_samples=4), [SAMPLED], True, is_last)
    for workers in (0, 2):
        loader = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context="spawn" if workers else None)
        items = [item.tolist() for item in loader]
        assert sorted(items) == [[0, 1]] * 4 + [[1, 2]] * 4


SAMPLED = structured.create_config(
    structured.pattern_from_transform(reverie.ReplaySample(reverie.SampleInfo.zeros(), {"x": 0}), lambda ref: ref.data["x"][-2:]),
    "t",
)


def is_last(step):
    return step.data["x"] == 2


def test_a_loader_makes_batches_of_items():
    items = PatternDataset(steps_of(range(9)), [config_of(lambda ref: {"two": ref["x"][-2:]})], True, ended)
    assert [batch["two"].shape for batch in DataLoader(items, batch_size=4)] == [(4, 2, 2), (4, 2, 2)]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"configs": []}, ValueError, "At least one config"),
        ({"configs": None}, ValueError, "At least one config"),
        ({"configs": 3}, TypeError, "configs"),
        ({"configs": [config_of(lambda ref: ref["x"][0])]}, ValueError, "position 0"),
        ({"input_dataset": 3}, TypeError, "input_dataset"),
        ({"is_end_of_episode": True}, ValueError, "is_end_of_episode"),
    ],
)
def test_a_wrong_argument_of_patterns_is_told_at_once(arguments, error, text):
    given = {"input_dataset": [], "configs": [PAIRS], "respect_episode_boundaries": True, "is_end_of_episode": ended}
    with pytest.raises(error, match=text):
        PatternDataset(**{**given, **arguments})


def test_steps_that_change_are_refused_where_they_do():
    items = iter(PatternDataset([*steps_of(range(2)), {**steps_of([2])[0], "x": torch.zeros(3)}], [PAIRS], True, ended))
    next(items)
    with pytest.raises(ValueError, match="'x'"):
        next(items)


HELD = {
    "batches": lambda address, timeout: BatchDataset(address, "few", 2, timeout=timeout),
    "trajectories": lambda address, timeout: TrajectoryDataset(address, "few", 1, timeout=timeout),
    "steps": lambda address, timeout: TimestepDataset(address, "few", 1, timeout=timeout),
    "a loader": lambda address, timeout: DataLoader(BatchDataset(address, "few", 2, timeout=timeout), batch_size=None),
}


@pytest.mark.parametrize("name", HELD)
def test_what_the_table_holds_says_at_its_timeout_what_it_waits_for(holding, name):
    says_at_its_deadline(lambda timeout: next(iter(HELD[name](holding.address, timeout))), SAMPLING, SOON)


@pytest.mark.parametrize("name", HELD)
def test_a_server_that_went_is_named_at_the_timeout(holding, name):
    holding.stop()
    with pytest.raises(reverie.DeadlineExceededError, match=holding.address):
        next(iter(HELD[name](holding.address, SOON)))


@pytest.mark.parametrize("name", HELD)
def test_a_wait_ends_by_ctrl_c(holding, name):
    interrupted(lambda: next(iter(HELD[name](holding.address, None))))


def test_a_loaders_worker_tells_what_it_waited_for(holding):
    def wait(timeout):
        next(iter(DataLoader(BatchDataset(holding.address, "few", 2, timeout=timeout), batch_size=None, num_workers=1)))

    says_at_its_deadline(wait, SAMPLING, SOON)
