"""Client.transitions: rows that are stored once, against a plain list of what was added."""

from __future__ import annotations

import collections
import logging
import math
import threading

import gymnasium
import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie import _log
from reverie.errors import CancelledError, DeadlineExceededError, FailedPreconditionError, NotFoundError, UnimplementedError
from waiting import Call, wait_until_waiting

SHARED = {"next": {"next_obs": "obs"}, "stack": {"obs": 3}}


class Envs:
    """Environments side by side with stacks of frames, whose episodes end at random, each at its own time."""

    def __init__(self, n: int, frames: int, shape: tuple[int, ...], dtype: str, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.n, self.frames, self.shape, self.dtype = n, frames, shape, dtype
        self.obs = np.stack([self._first() for _ in range(n)])
        self.steps = 0

    def _frame(self) -> np.ndarray:
        return self.rng.integers(0, 200, self.shape).astype(self.dtype)

    def _first(self) -> np.ndarray:
        return np.stack([self._frame()] * self.frames) if self.frames > 1 else self._frame()

    def step(self) -> dict[str, np.ndarray]:
        if self.frames > 1:
            newest = np.stack([self._frame() for _ in range(self.n)])[:, None]
            next_obs = np.concatenate([self.obs[:, 1:], newest], axis=1)
        else:
            next_obs = np.stack([self._frame() for _ in range(self.n)])
        done = self.rng.random(self.n) < 0.1
        row = {
            "obs": self.obs,
            "action": self.rng.integers(0, 4, self.n),
            "reward": self.rng.standard_normal(self.n).astype(np.float32),
            "next_obs": next_obs,
            "done": done,
            "id": np.arange(self.n) + self.steps * self.n,
        }
        self.obs = next_obs.copy()
        for env in np.flatnonzero(done):
            self.obs[env] = self._first()
        self.steps += 1
        return row


def together(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def same(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert list(got) == list(want)
    for name, column in want.items():
        assert got[name].dtype == column.dtype
        np.testing.assert_array_equal(got[name], column, err_msg=name)


@pytest.mark.parametrize(("n", "frames", "shape", "dtype"), [
    (1, 1, (4,), "float32"), (5, 1, (8, 8, 3), "uint8"), (1, 4, (9, 9), "uint8"), (6, 3, (2,), "float64"), (3, 2, (40, 10), "int16"),
])  # fmt: skip
def test_batches_are_what_was_added(connect, n, frames, shape, dtype):
    client = connect(make_table(sampler=reverie.selectors.Uniform(), max_size=120))
    envs = Envs(n, frames, shape, dtype, seed=n)
    stack = {"obs": frames} if frames > 1 else None
    rows = []
    with client.transitions("t", n, next={"next_obs": "obs"}, stack=stack) as writer:
        for i in range(150 // n):
            rows.append(envs.step())
            writer.add(rows[-1])
            if i % 10 < 9:
                continue
            writer.flush()
            added = together(rows)
            batch = client.sample_batch("t", 50)
            ids = batch.data["id"]
            assert ids.min() >= len(added["id"]) - 120
            same(batch.data, {name: column[ids] for name, column in added.items()})
            assert all(array.flags.writeable for array in batch.data.values())
            before = batch.data["next_obs"].copy()
            batch.data["obs"][...] = 0  # arrays of the caller's own
            np.testing.assert_array_equal(batch.data["next_obs"], before)
    assert writer.closed


def test_items_are_those_of_add_batch(connect):
    shared, plain = make_table("t"), make_table("plain")
    client = connect(shared, plain)
    envs = Envs(4, 1, (3,), "float32", seed=1)
    with client.transitions("t", 4, next={"next_obs": "obs"}) as writer:
        for _ in range(20):
            row = envs.step()
            writer.add(row, np.arange(1.0, 5.0))
            client.add_batch("plain", row, np.arange(1.0, 5.0))
    pairs = [[client.get(name, key) for key in client.keys(name)] for name in ("t", "plain")]
    assert len(pairs[0]) == len(pairs[1]) == 80
    for ours, theirs in zip(*pairs, strict=True):
        assert ours.info.priority == theirs.info.priority
        same(ours.data, theirs.data)


def test_the_iterator_gives_them_too(connect):
    client = connect(make_table(max_times_sampled=1))
    envs = Envs(2, 3, (5,), "uint8", seed=2)
    rows = [envs.step() for _ in range(6)]
    with client.transitions("t", 2, **SHARED) as writer:
        for row in rows:
            writer.add(row)
    added = together(rows)
    for i, sample in enumerate(client.sample("t", 12, emit_timesteps=False)):
        for got, name in zip(sample.data, sorted(added), strict=True):
            np.testing.assert_array_equal(got, added[name][i])


def memory(client: reverie.Client) -> int:
    return client.server_info()["t"].memory_bytes


@pytest.mark.parametrize(("frames", "shape", "most"), [(1, (32, 32, 3), 1.22), (4, (84, 84), 1.4)])
def test_what_repeats_takes_no_memory(connect, frames, shape, most):
    """A table takes little more than one frame an item, and so half, or a sixth, of what rows take that are whole."""
    taken = []
    for write in ("add_batch", "transitions"):
        client = connect(make_table(max_size=400))
        envs = Envs(2, frames, shape, "uint8", seed=3)
        stack = {"obs": frames} if frames > 1 else None
        with client.transitions("t", 2, next={"next_obs": "obs"}, stack=stack) as writer:
            for _ in range(300):
                row = envs.step()
                if row["done"].any():  # resets are for other tests
                    envs.obs = row["next_obs"].copy()
                writer.add(row) if write == "transitions" else client.add_batch("t", row)
            writer.flush()
            taken.append(memory(client))
    if client.server_address.partition(":")[0] not in ("", "inproc"):  # such an item is written down out of line, with two chunks
        taken[1] -= 400 * 1200
    frame = math.prod(shape)
    assert taken[1] <= most * 400 * frame, taken
    assert taken[0] >= 2 * frames * 400 * frame


@pytest.mark.parametrize("steps_on", [1, 3])
def test_a_next_that_is_never_found_is_told_once(connect, steps_on, caplog):
    client = connect(make_table(max_size=5000))
    frames = np.random.default_rng(0).integers(0, 255, (700, 2, 4, 5)).astype(np.uint8)
    writer = client.transitions("t", 2, next={"next_obs": "obs"}, stack={"obs": 4})
    with caplog.at_level(logging.WARNING, "reverie"), _log.told_before_it_ends(), writer:
        for t in range(690):
            obs, following = (np.stack(frames[at : at + 4], axis=1) for at in (t, t + steps_on))
            writer.add({"obs": obs, "next_obs": following})
    said = [record.getMessage() for record in caplog.records if "stored whole" in record.getMessage()]
    assert len(said) == (steps_on > 1)
    assert all("stack" in line for line in said)


def test_nests_and_several_shared_columns(connect):
    client = connect(make_table(sampler=reverie.selectors.Uniform()))
    rng = np.random.default_rng(0)
    rows, obs = [], {"image": rng.integers(0, 9, (2, 2, 6), np.uint8), "speed": rng.random((2, 3), np.float32)}
    with client.transitions("t", 2, next={"next": "now"}, stack={"now/image": 2}) as writer:
        for i in range(30):
            image = np.concatenate([obs["image"][:, 1:], rng.integers(0, 9, (2, 1, 6), np.uint8)], axis=1)
            following = {"image": image, "speed": rng.random((2, 3), np.float32)}
            rows.append({"now": obs, "next": following, "id": np.arange(2) + 2 * i})
            writer.add(rows[-1])
            obs = following
    data = client.sample_batch("t", 40).data
    for place in ("now", "next"):
        for leaf in ("image", "speed"):
            added = np.concatenate([row[place][leaf] for row in rows])
            np.testing.assert_array_equal(data[place][leaf], added[data["id"]])


def test_any_container_of_columns_will_do(connect):
    row = collections.namedtuple("Row", "obs next_obs")
    client = connect()
    with client.transitions("t", 1, next={"next_obs": "obs"}) as writer:
        writer.add(row(np.zeros((1, 2)), np.ones((1, 2))))
    batch = client.sample_batch("t", 1)
    assert isinstance(batch.data, row)
    assert batch.data.next_obs.tolist() == [[1, 1]]


def test_a_signature_is_of_the_rows_as_they_are_given(connect):
    spec = reverie.TensorSpec
    signature = {"next_obs": spec((3, 2), np.uint8), "obs": spec((3, 2), np.uint8), "reward": spec((), np.float32)}
    client = connect(make_table(signature=signature))
    stacks = np.zeros((2, 3, 2), np.uint8)
    row = {"obs": stacks, "next_obs": stacks, "reward": np.zeros(2, np.float32)}
    with client.transitions("t", 2, **SHARED) as writer:
        with pytest.raises(ValueError, match="signature of column"):
            writer.add({**row, "reward": np.zeros(2, np.float64)})
        writer.add(row)
    assert len(client.keys("t")) == 2
    with client.transitions("t", 2, next={"next": "obs"}) as writer, pytest.raises(ValueError, match="next"):
        writer.add({"obs": stacks, "next": stacks, "reward": row["reward"]})
    assert len(client.keys("t")) == 2


def test_mistakes_are_named(connect):
    client = connect(make_table(sampler=reverie.selectors.Prioritized(1.0)))
    envs = Envs(2, 3, (4,), "float32", seed=4)
    row = envs.step()
    writer = client.transitions("t", 2, **SHARED)
    for known in (False, True):
        for change, sentence in (
            ({"reward": np.zeros(3)}, "has 3 rows; this writer has 2 environments"),
            ({"obs": row["obs"][:, :2]}, "a stack of 3 frames"),
            ({"next_obs": row["next_obs"].astype(np.float64)}, "next_obs.*float64"),
            ({"done": True}, "0 dimensions"),
        ):
            with pytest.raises(ValueError, match=sentence):
                writer.add({**row, **change})
        with pytest.raises(UnimplementedError, match="strings"):
            writer.add({**row, "action": np.array(["left", "right"])})
        with pytest.raises(ValueError, match="nan"):
            writer.add(row, [1.0, np.nan])
        with pytest.raises(ValueError, match="-1"):
            writer.add(row, [1.0, -1.0])
        with pytest.raises((ValueError, TypeError)):
            writer.add(row, [1.0])
        writer.add(row, 2.0)
        writer.flush()
        assert len(client.keys("t")) == 2 * (known + 1)
    with pytest.raises(ValueError, match="structure"):
        writer.add({"obs": row["obs"]})
    writer.close()
    with pytest.raises((FailedPreconditionError, RuntimeError), match="close"):
        writer.add(row)
    with pytest.raises(FailedPreconditionError):
        writer.flush()


def test_columns_that_are_not_there_are_named(connect):
    client = connect()
    row = {"obs": np.zeros((1, 2)), "next_obs": np.zeros((1, 2))}
    for options, sentence in (
        ({"next": {"nxt": "obs"}}, "'nxt'"),
        ({"next": {"next_obs": "observation"}}, "'observation'"),
        ({"stack": {"frames": 4}}, "'frames'"),
        ({"next": {"next_obs": "next_obs"}}, "next itself"),
    ):
        with pytest.raises(ValueError, match=sentence):
            client.transitions("t", 1, **options).add(row)
    for options in ({"stack": {"obs": 0}}, {"stack": {"obs": 5000}}):
        with pytest.raises(ValueError, match="stack"):
            client.transitions("t", 1, **options)
    with pytest.raises(ValueError, match="num_envs"):
        client.transitions("t", 0)
    with pytest.raises(NotFoundError):
        client.transitions("other", 1).add(row)
    with pytest.raises(TypeError):
        client.transitions("t", 1).add({"obs": object()})


def test_a_step_waits_as_long_as_the_limiter_wants(serve):
    _, client = serve(make_table(max_times_sampled=1, rate_limiter=reverie.rate_limiters.Queue(3)))
    writer = client.transitions("t", 2, next={"next_obs": "obs"})
    obs = np.arange(4.0).reshape(2, 2)
    writer.add({"obs": obs, "next_obs": obs + 1})
    with pytest.raises(DeadlineExceededError, match="1 of the step's 2 rows"):
        writer.add({"obs": obs + 1, "next_obs": obs + 2}, timeout=0.01)
    drawn = []
    thread = threading.Thread(target=lambda: drawn.extend(client.sample("t", 5, emit_timesteps=False)))
    thread.start()
    writer.add({"obs": obs + 2, "next_obs": obs + 3})
    thread.join()
    assert [sample.data[1].tolist() for sample in drawn] == [[0, 1], [2, 3], [1, 2], [2, 3], [4, 5]]


@pytest.mark.parametrize("steps", [0, 1], ids=["its first step waits", "its second step waits"])
def test_closing_ends_a_call_that_another_thread_waits_in(connect, steps):
    client = connect(reverie.Table.queue("q", 1))
    if steps == 0:
        client.add("q", np.ones(3))
    for _ in range(10):
        writer = client.transitions("q", 1)
        for _ in range(steps):
            writer.add(np.ones((1, 3)))
            writer.flush()

        def wait(writer=writer):
            writer.add(np.ones((1, 3)), timeout=None)
            writer.flush()

        call = Call(wait)
        wait_until_waiting([call], client, "q", "inserts")
        assert Call(writer.close).join() is None
        if not isinstance(call.join(), FailedPreconditionError):
            break
        client.reset("q")  # it was between its two calls
        if steps == 0:
            client.add("q", np.ones(3))
    assert isinstance(call.result, CancelledError), call.result
    assert "closed meanwhile" in str(call.result)
    with pytest.raises(FailedPreconditionError, match="close"):
        writer.add(np.ones((1, 3)))


def test_it_cannot_be_pickled_and_says_what_it_is(connect):
    import pickle

    writer = connect().transitions("t", 3, **SHARED)
    assert "num_envs=3" in repr(writer)
    assert writer.num_envs == 3
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(writer)


def test_an_exception_leaves_with_what_is_in(connect):
    client = connect()
    with pytest.raises(KeyError), client.transitions("t", 1, next={"next_obs": "obs"}) as writer:
        writer.add({"obs": np.zeros((1, 2)), "next_obs": np.ones((1, 2))})
        raise KeyError
    assert writer.closed
    assert len(client.keys("t")) == 1


def test_a_writer_goes_on_after_a_row_that_was_refused(tmp_path):
    address = f"unix:{tmp_path}/server"
    writer = reverie.Client(address).transitions("t", 1)
    assert writer.discard_failed() == 0
    with reverie.Server([make_table()], address=address):
        writer.add({"x": np.zeros(1)})
        writer.flush(timeout=30)
    writer.add({"x": np.ones(1)})
    with reverie.Server([make_table("u")], address=address):
        for _ in range(2):  # until it is discarded
            with pytest.raises(NotFoundError, match='"t"'):
                writer.flush(timeout=30)
        assert writer.discard_failed() == 1
        writer.flush(timeout=30)
    with reverie.Server([make_table()], address=address) as server:
        writer.add({"x": np.full(1, 2.0)})
        writer.flush(timeout=30)
        assert [sample.data[0] for sample in reverie.Client(server).sample("t", 1, emit_timesteps=False)] == [2.0]
    writer.close()


class Scalar:
    """As other frameworks' tensors without dimensions are."""

    ndim = 0

    def __array__(self, dtype=None, copy=None):
        return np.array(2.0, dtype)


@pytest.mark.parametrize(
    "number", [2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.array(2.0), np.array(2), Scalar()], ids=repr
)
def test_one_priority_of_any_kind_is_that_of_all_rows(connect, number):
    client = connect(make_table())
    sequence = client.transitions("t", 3)
    sequence.add({"x": np.arange(3.0)}, number)
    sequence.flush()
    assert [item.priority for item in client.items("t")] == [2.0] * 3


def test_an_array_of_one_priority_is_not_that_of_all_rows(connect):
    with pytest.raises(ValueError, match=r"priorities must have shape \(3,\)"):
        connect(make_table()).transitions("t", 3).add({"x": np.arange(3.0)}, np.ones(1))


def test_environments_that_only_reset_themselves_are_left_out(connect):
    client = connect(make_table(max_size=1000))
    envs = gymnasium.make_vec("CartPole-v1", num_envs=3)  # they reset themselves by a step of its own
    rng, rows = np.random.default_rng(5), []
    with client.transitions("t", 3, next={"next_obs": "obs"}) as writer:
        obs, _ = envs.reset(seed=5)
        over = np.zeros(3, bool)
        for _ in range(200):
            next_obs, reward, terminated, truncated, _ = envs.step(rng.integers(2, size=3))
            step = {"obs": obs, "reward": reward, "next_obs": next_obs, "done": terminated}
            writer.add(step, where=~over)
            rows.append({name: column[~over].copy() for name, column in step.items()})
            obs, over = next_obs, terminated | truncated
    envs.close()
    want = together(rows)
    assert len(want["done"]) < 600
    items = [client.get("t", key).data for key in client.keys("t")]
    got = [item if isinstance(item, dict) else dict(zip(sorted(want), item, strict=True)) for item in items]
    for name, column in want.items():
        assert np.array_equal(np.stack([item[name] for item in got]), column)
    assert all(reward == 1 for reward in want["reward"])  # the step of a reset has none: no such row is in


@pytest.mark.parametrize("where", [np.array([True, False, True]), [True, False, True], np.array([1, 0, 1], np.uint8).view(bool)])
def test_where_is_whatever_is_bools(connect, where):
    client = connect()
    with client.transitions("t", 3) as writer:
        writer.add({"x": np.arange(3)}, [0.5, float("nan"), 2.0], where=where)
    assert sorted(item.priority for item in client.items("t")) == [0.5, 2.0]


def test_a_where_that_is_none_is_named(connect):
    writer = connect().transitions("t", 3)
    for where in ([0, 2], [1, 0, 1], "no", 1.5):
        with pytest.raises(TypeError, match="where must be bools, one for each environment"):
            writer.add({"x": np.arange(3)}, where=where)
    for where in ([True], np.ones((3, 1), bool), True):
        with pytest.raises(ValueError, match=r"where must have shape \(3,\), one bool for each environment, got \("):
            writer.add({"x": np.arange(3)}, where=where)
    with pytest.raises(ValueError, match="row 2|environment 2"):
        writer.add({"x": np.arange(3)}, [1, float("nan"), float("nan")], where=[True, False, True])
    with pytest.raises(ValueError, match="where with masked elements"):
        writer.add({"x": np.arange(3)}, where=np.ma.masked_array([True] * 3, [False, True, False]))
