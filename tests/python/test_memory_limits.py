"""Memory under control: a table's bound in bytes, a server's limit, and what they say of themselves."""

import os
import threading

import numpy as np
import pytest
import reverie
from conftest import make_table
from waiting import until

LIMIT = 4 << 20
ROW = 16 << 10


def row(number: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(number).integers(0, 1 << 60, ROW // 8)  # as large on the wire
    x[0] = number
    return {"x": x}


@pytest.fixture(params=["in process", "tcp"])
def limited(request):
    """limited(*tables): a client of a new server that may take LIMIT bytes."""
    servers = []

    def make(*tables):
        where = {"in_process": True} if request.param == "in process" else {"address": "127.0.0.1:0"}
        servers.append(reverie.Server(tables, memory_limit=LIMIT, **where))
        return reverie.Client(servers[-1] if servers[-1].address is None else servers[-1].address)

    yield make
    for server in servers:
        server.stop()


def fill(client: reverie.Client) -> tuple[int, str]:
    """Adds rows until one has to wait; how many are in, and what the wait was told."""
    for number in range(LIMIT // ROW + 1):
        try:
            client.add("t", row(number), timeout=2.0 if number > LIMIT // ROW // 2 else 60.0)
        except reverie.errors.DeadlineExceededError as error:
            return number, str(error)
    raise AssertionError("nothing waited")


def test_an_add_that_waits_for_memory_says_so():
    with reverie.Server([make_table(max_size=100_000)], in_process=True, memory_limit=LIMIT) as server:
        said = fill(reverie.Client(server))[1]
    assert 'table "t": inserting waits for memory' in said
    assert "of 4.0 MiB used" in said


def test_a_higher_limit_lets_an_add_go_on_that_waits(limited):
    client = limited(make_table(max_size=100_000))
    added, _ = fill(client)
    result = []
    waiting = threading.Thread(target=lambda: result.append(client.add("t", row(added), timeout=60)))
    waiting.start()
    until(lambda: client.server_info()["t"].waiting)
    client.set_memory_limit(2 * LIMIT)
    waiting.join()
    assert result
    assert client.memory_info().limit == 2 * LIMIT
    client.set_memory_limit(LIMIT // 2)
    with pytest.raises(reverie.errors.DeadlineExceededError):
        client.add("t", row(added + 1), timeout=0.2)
    assert client.server_info()["t"].current_size == added + 1


def test_a_lower_bound_in_bytes_takes_the_oldest_away_and_lasts(tmp_path):
    def serve():
        saved = reverie.checkpointers.DefaultCheckpointer(str(tmp_path))
        return reverie.Server([make_table(max_size=1000)], address="127.0.0.1:0", checkpointer=saved)

    with serve() as server:
        client = reverie.Client(server.address)
        keys = [client.add("t", row(number)) for number in range(50)]
        client.set_bounds("t", max_bytes=10 * ROW)
        info = client.server_info()["t"]
        assert info.item_bytes <= info.max_bytes == 10 * ROW
        assert 7 <= info.current_size <= 10
        assert [item.key for item in client.items("t")] == keys[-info.current_size :]
        client.checkpoint()
    with serve() as server:
        assert reverie.Client(server.address).server_info()["t"].max_bytes == 10 * ROW


def test_near_the_limit_an_add_waits(limited):
    client = limited(make_table(max_size=100_000))
    added, said = fill(client)
    assert "waits for" in said
    assert added > LIMIT // ROW // 2
    memory = client.memory_info()
    assert LIMIT // 2 < memory.used <= LIMIT
    assert memory.limit == LIMIT


def test_who_waits_for_what_a_spill_cannot_take_hears_of_both(tmp_path):
    """The books of chunks stay in memory: in the end they fill it."""
    with reverie.Server([make_table(max_size=100_000)], address="127.0.0.1:0", memory_limit=1 << 20, spill=tmp_path) as server:
        client = reverie.Client(server.address)
        with (
            pytest.raises(
                reverie.errors.DeadlineExceededError,
                match=r"memory_limit\): .* of 1.0 MiB are used, and .* are in its spill file, which takes no more: the rest is books",
            ),
            client.trajectory_writer(1) as writer,
        ):
            for number in range(10_000):
                writer.append(row(number))
                writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
                writer.flush(100, timeout_ms=5000)
        memory = client.memory_info()
        assert memory.spilled > memory.limit >= memory.used
        assert memory.spill_fault == "the rest is books and what cannot go there"


def test_a_spill_whose_path_is_no_text_is_used(tmp_path):
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    with reverie.Server([make_table(max_size=100_000)], in_process=True, memory_limit=LIMIT, spill=folder) as server:
        client = reverie.Client(server)
        rows = np.random.default_rng(1).integers(0, 256, (64, 20_000), np.uint8)
        for _ in range(100):
            client.add_batch("t", {"x": rows}, timeout=60)
        assert client.memory_info().spilled > 0


def test_who_waits_because_the_spill_is_full_hears_that(tmp_path):
    with reverie.Server(
        [make_table(max_size=100_000)], address="127.0.0.1:0", memory_limit=LIMIT, spill=tmp_path, spill_bytes=8 << 20
    ) as server:
        client = reverie.Client(server.address)
        rows = np.random.default_rng(1).integers(0, 256, (64, 20_000), np.uint8)  # they do not compress
        with pytest.raises(
            reverie.errors.DeadlineExceededError, match="spill file, which takes no more: No space left on device"
        ):
            for _ in range(100):
                client.add_batch("t", {"x": rows}, timeout=5)
        assert client.memory_info().spill_fault == "No space left on device"


def test_who_waits_for_memory_is_seen_and_goes_on_when_items_go(limited):
    client = limited(make_table(max_size=100_000))
    fill(client)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (client.add("t", row(1)), done.set()))
    thread.start()
    waiting = until(lambda: client.server_info()["t"].waiting)
    assert (waiting[0].operation, waiting[0].reason) == ("insert", "memory")
    client.reset("t")
    thread.join(60)
    assert done.is_set()


@pytest.mark.parametrize("remover", [reverie.selectors.Fifo(), reverie.selectors.Uniform()])
def test_a_table_with_max_bytes_removes_what_does_not_fit(connect, remover):
    bound = 1 << 20
    client = connect(make_table(max_size=100_000, max_bytes=bound, remover=remover))
    for number in range(3 * bound // ROW):
        client.add("t", row(number))
    info = client.server_info()["t"]
    assert info.max_bytes == bound
    assert info.item_bytes <= bound * 9 // 8
    assert info.current_size >= bound // ROW // 2
    assert info.num_deletes == 3 * bound // ROW - info.current_size
    if isinstance(remover, reverie.selectors.Fifo):
        newest = client.sample_batch("t", 1).data["x"]
        assert newest[0, 0] == 3 * bound // ROW - info.current_size


SIDE = 32


def add_steps(writer: reverie.Transitions, first: int, steps: int) -> None:
    """Frames of SIDE x SIDE that come once, whichever row of the table they are in."""
    for step in range(first, first + steps):
        obs, following = (np.full((writer.num_envs, SIDE, SIDE), number % 251, np.uint8) for number in (step, step + 1))
        writer.add({"obs": obs, "next_obs": following})


def transitions(client: reverie.Client, num_envs: int) -> reverie.Transitions:
    return client.transitions("t", num_envs, next={"next_obs": "obs"})


def check_bytes(client: reverie.Client, bound: int, least: float) -> None:
    """The bound holds but for a sixteenth, and at least this part of it is frames."""
    table = client.server_info()["t"]
    assert table.item_bytes <= bound * 17 / 16
    assert table.current_size * SIDE * SIDE >= least * bound


def test_many_transitions_writers_keep_a_table_full():
    bound = 16 << 20
    with reverie.Server([make_table(max_size=1_000_000, max_bytes=bound)], in_process=True) as server:
        client = reverie.Client(server)
        writers = [transitions(client, 8) for _ in range(24)]
        for step in range(200):
            for writer in writers:
                add_steps(writer, step, 1)
            check_bytes(client, bound, 0.5 if step > 100 else 0)


def test_transitions_writers_that_come_one_after_another_keep_a_table_full():
    bound = 4 << 20
    with reverie.Server([make_table(max_size=1_000_000, max_bytes=bound)], in_process=True) as server:
        client = reverie.Client(server)
        idle = []
        for _ in range(12):
            idle.append(transitions(client, 8))
            add_steps(idle[-1], 0, 500)
            check_bytes(client, bound, 0.5)
        for writer in idle:
            add_steps(writer, 500, 500)
            check_bytes(client, bound, 0.5)


def test_a_transitions_writer_follows_a_lower_bound():
    bound = 2 << 20
    with reverie.Server([make_table(max_size=1_000_000)], in_process=True) as server:
        client = reverie.Client(server)
        writer = transitions(client, 32)
        add_steps(writer, 0, 1000)
        client.set_bounds("t", max_bytes=bound)
        check_bytes(client, bound, 0.1)  # rows that move take their frames with them, each its own
        for step in range(1000, 2000):
            add_steps(writer, step, 1)
            check_bytes(client, bound, 0.5 if step > 1500 else 0.1)


def test_trajectories_that_share_chunks_keep_the_bound_too(connect):
    bound = 8 << 20
    client = connect(make_table(max_size=100_000, max_bytes=bound))
    with client.trajectory_writer(4, chunk_length=4) as writer:
        for number in range(900):
            writer.append(row(number))
            if number >= 3:
                writer.create_item("t", 1.0, {"x": writer.history["x"][-4:]})
                writer.flush(timeout_ms=60_000)
    info = client.server_info()["t"]
    assert info.item_bytes <= bound
    assert info.current_size >= 200


def test_what_never_fits_is_an_error_at_once(limited):
    client = limited(make_table(max_bytes=1 << 20))
    with pytest.raises(reverie.errors.InvalidArgumentError, match="max_bytes leaves room for 1.0 MiB"):
        client.add("t", {"x": np.random.default_rng(1).integers(0, 1 << 60, 1 << 18)})


def test_max_bytes_is_kept_by_replace_and_shown_before_the_table_is_served():
    table = make_table(max_bytes=12345)
    assert table.info.max_bytes == table.replace(max_size=7).info.max_bytes == 12345
    assert table.replace(max_bytes=0).info.max_bytes == 0
    assert "max_bytes=12345" in repr(table)
    with pytest.raises(ValueError, match="max_bytes"):
        make_table(max_bytes=-1)
    with pytest.raises(ValueError, match="memory_limit"):
        reverie.Server([table], in_process=True, memory_limit=-1)


@pytest.mark.parametrize("where", [{"in_process": True}, {"address": "127.0.0.1:0"}])
def test_with_a_spill_four_times_the_limit_is_kept_and_read_as_it_came(tmp_path, where):
    number = 4 * LIMIT // ROW
    with reverie.Server([make_table(max_size=100_000)], memory_limit=LIMIT, spill=tmp_path, **where) as server:
        client = reverie.Client(server if server.address is None else server.address)
        for begin in range(0, number, 16):
            batch = [row(n)["x"] for n in range(begin, begin + 16)]
            client.add_batch("t", {"x": np.stack(batch)})
        memory = client.memory_info()
        assert memory.used <= LIMIT
        assert memory.spilled > 2 * LIMIT
        assert client.server_info()["t"].current_size == number
        assert os.listdir(tmp_path) == []
        oldest = client.sample_batch("t", 1).data["x"][0]
        assert np.array_equal(oldest, row(0)["x"])
        for item in list(client.items("t"))[:: number // 50]:
            x = client.get("t", item.key).data["x"]
            assert np.array_equal(x, row(int(x[0]))["x"])


def spill_file(directory) -> int:
    """The descriptor of the file without a name that this process has in the directory."""
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith(f"{directory}/"):
                return int(number)
        except OSError:
            continue
    raise AssertionError(f"no file in {directory} is open")


def let_it_rest(client: reverie.Client) -> None:
    """The spill begins with three quarters in use, and goes on until it is eleven sixteenths: then nothing is written to its file any
    more. Behind the end of one that was cut short, what is before it would read as zeros."""
    while client.memory_info().used <= LIMIT // 4 * 3:
        client.add("t", row(0))
    until(lambda: client.memory_info().used <= LIMIT // 16 * 11)


@pytest.mark.parametrize("where", [{"in_process": True}, {"address": "127.0.0.1:0"}])
def test_rows_that_the_spills_disk_does_not_give_back_are_data_loss(tmp_path, where):
    tables = [make_table(max_size=100_000), make_table(name="other", max_size=10)]
    with reverie.Server(tables, memory_limit=LIMIT, spill=tmp_path, **where) as server:
        client = reverie.Client(server if server.address is None else server.address)
        client.add("other", {"x": 1})
        for number in range(4 * LIMIT // ROW):
            client.add("t", row(number))
        let_it_rest(client)
        os.truncate(spill_file(tmp_path), 0)
        with pytest.raises(
            reverie.errors.DataLossError, match=f'item .* cannot be read back from the spill.s file in "{tmp_path}"'
        ):
            client.sample_batch("t", 256)
        with pytest.raises(reverie.errors.DataLossError, match="delete the item"):
            for sample in client.sample("t", num_samples=256, emit_timesteps=False):
                assert sample.data["x"].shape == (ROW // 8,)
        assert client.sample_batch("other", 1).data["x"][0] == 1


def test_small_chunks_of_a_checkpoint_move_to_the_spill_like_others(tmp_path):
    size, number = 4 << 10, 3 * LIMIT // 4096

    def serve(limit):
        saved = reverie.checkpointers.DefaultCheckpointer(str(tmp_path / "saved"))
        table = make_table(max_size=100_000, sampler=reverie.selectors.Fifo())
        return reverie.Server([table], address="127.0.0.1:0", memory_limit=limit, spill=tmp_path, checkpointer=saved)

    def small(n):
        return {"x": row(n)["x"][: size // 8]}

    def insert(client, begin, end):
        with client.trajectory_writer(1) as writer:
            for n in range(begin, end):
                writer.append(small(n))
                writer.create_item("t", 1.0, {"x": writer.history["x"][-1]})

    with serve(16 * LIMIT) as server:
        client = reverie.Client(server.address)
        insert(client, 0, number)
        client.checkpoint()
    with serve(LIMIT) as server:
        client = reverie.Client(server.address)
        insert(client, number, number + 16)  # waits until some that were restored have moved
        memory = client.memory_info()
        assert memory.used <= LIMIT
        assert memory.spilled > LIMIT
        for n, item in enumerate(client.items("t")):
            if n % 97 == 0:
                assert np.array_equal(client.get("t", item.key).data["x"], small(n)["x"])


def test_a_spill_needs_a_limit_and_a_directory(tmp_path):
    with pytest.raises(reverie.errors.FailedPreconditionError, match="memory_limit"):
        reverie.Server([make_table()], in_process=True, spill=tmp_path)
    with pytest.raises(reverie.errors.NotFoundError, match="nowhere"):
        reverie.Server([make_table()], in_process=True, memory_limit=LIMIT, spill=tmp_path / "nowhere")
