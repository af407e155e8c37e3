"""Checkpoints: saved while a server is in use, and what a server begins with."""

import os
import pathlib
import tempfile
import threading

import numpy as np
import pytest
import reverie
import server_program
from reverie.checkpointers import CheckpointerBase, DefaultCheckpointer, TempDirCheckpointer, default_checkpointer
from waiting import until


def table(name="t", **fields):
    given = {
        "name": name,
        "sampler": reverie.selectors.Prioritized(0.6),
        "remover": reverie.selectors.Fifo(),
        "max_size": 1000,
        "rate_limiter": reverie.rate_limiters.MinSize(1),
    }
    return reverie.Table(**(given | fields))


def serve(root, *tables, **fields):
    given = {"in_process": True} | fields
    return reverie.Server(list(tables) or [table()], checkpointer=DefaultCheckpointer(root), **given)


def items(server, name="t"):
    client = reverie.Client(server)
    return [(item.key, item.priority, item.times_sampled, item.inserted_at) for item in client.items(name)]


@pytest.mark.parametrize("by", ["in process", "network"])
def test_a_server_begins_with_what_was_saved(tmp_path, by):
    root = tmp_path / "made" / "when saved"
    with serve(root, in_process=False, address="localhost:0") as server:
        client = reverie.Client(server if by == "in process" else server.address)
        client.add_batch("t", {"x": np.arange(40), "name": np.array(["ä", ""] * 20, object)}, np.arange(40) / 2)
        client.sample_batch("t", 10)
        path = client.checkpoint()
        assert pathlib.Path(path).parent == root
        before = items(server)
        info = client.server_info()["t"]
    with serve(root) as server:
        assert items(server) == before
        after = reverie.Client(server).server_info()["t"]
        assert after.rate_limiter_info == info.rate_limiter_info
        assert after.num_unique_samples == info.num_unique_samples
        again = reverie.Client(server)
        again.add("t", {"x": 40, "name": "like the others"})
        assert set(again.sample_batch("t", 5).data) == {"x", "name"}, "what columns are called came back, too"


def test_a_root_whose_path_is_no_text_is_used_as_it_is_and_shown_as_text(tmp_path):
    root = os.fsencode(tmp_path) + b"/caf\xff"
    with serve(root, in_process=False, address="localhost:0") as server:
        reverie.Client(server).add_batch("t", {"x": np.arange(40)})
        told = reverie.Client(server.address).checkpoint()
        assert os.path.dirname(told) == f"{tmp_path}/caf?"
        here = reverie.Client(server).checkpoint()
        assert os.path.dirname(os.fsencode(here)) == root
        before = items(server)
    assert os.listdir(tmp_path) == [os.fsdecode(b"caf\xff")]
    with serve(root) as server:
        assert items(server) == before


def test_tables_show_what_was_restored_and_keep_what_was_saved(tmp_path, caplog):
    with serve(tmp_path) as server:
        reverie.Client(server).add_batch("t", {"x": np.arange(40)})
        reverie.Client(server).checkpoint()
    smaller = table(max_size=10)
    with serve(tmp_path, smaller, table("new")):
        assert smaller.info.current_size == 40
        assert smaller.info.max_size == 1000
    assert "max_size 1000 (configured: 10)" in caplog.text


def test_a_saved_table_must_be_among_the_tables(tmp_path):
    with serve(tmp_path, table("a"), table("b")) as server:
        reverie.Client(server).checkpoint()
    with pytest.raises(ValueError, match='table "b" was not found in provided list'):
        serve(tmp_path, table("a"))


def test_a_damaged_checkpoint_is_passed_over(tmp_path, caplog):
    keep = DefaultCheckpointer(tmp_path, keep=2)
    with reverie.Server([table()], checkpointer=keep, in_process=True) as server:
        client = reverie.Client(server)
        client.add("t", 1)
        older = client.checkpoint()
        client.add("t", 2)
        newer = pathlib.Path(client.checkpoint())
    bytes_ = bytearray((newer / "items.tfrecord").read_bytes())
    bytes_[len(bytes_) // 2] ^= 1
    (newer / "items.tfrecord").write_bytes(bytes_)
    with serve(tmp_path) as server:
        assert len(items(server)) == 1
    said = caplog.text
    assert f"{newer} cannot be used, and is passed over: {newer}/items.tfrecord" in said
    (pathlib.Path(older) / "tables.tfrecord").write_bytes(b"")
    (pathlib.Path(older) / "items.tfrecord").write_bytes(b"x")
    with pytest.raises(reverie.ReverieError, match=rf"no checkpoint in {tmp_path} is whole .*move .* away.*items\.tfrecord"):
        serve(tmp_path)


@pytest.mark.parametrize("path", ["~", "~/replay"])
def test_a_home_directory_that_only_a_shell_knows_is_refused(path):
    for paths in ((path,), ("/nowhere", "", path)):
        with pytest.raises(ValueError, match="only a shell knows; write the directory out"):
            reverie.Server([table()], checkpointer=DefaultCheckpointer(*paths), in_process=True)


def test_the_fallback_is_used_while_the_root_has_none(tmp_path, caplog):
    with serve(tmp_path / "seed") as server:
        reverie.Client(server).add_batch("t", {"x": np.arange(3)})
        seed = reverie.Client(server).checkpoint()
    with reverie.Server([table()], checkpointer=DefaultCheckpointer(tmp_path / "own", "", seed), in_process=True) as server:
        assert len(items(server)) == 3
    with reverie.Server([table()], checkpointer=DefaultCheckpointer(tmp_path / "own", "", "/nowhere"), in_process=True) as server:
        assert items(server) == []
    assert "/nowhere cannot be used" in caplog.text


def test_a_checkpoint_given_as_the_root_is_refused_with_the_remedy(tmp_path):
    with serve(tmp_path / "own") as server:
        reverie.Client(server).add_batch("t", {"x": np.arange(3)})
        path = reverie.Client(server).checkpoint()
    with pytest.raises(ValueError, match="is a checkpoint itself.*give .*own, or this one as the fallback"):
        serve(path)
    with serve(tmp_path / "own") as server:
        assert len(items(server)) == 3


def test_a_root_given_as_the_fallback_is_passed_over_with_the_remedy(tmp_path, caplog):
    with serve(tmp_path / "seed") as server:
        reverie.Client(server).checkpoint()
    checkpointer = DefaultCheckpointer(tmp_path / "own", "", tmp_path / "seed")
    with reverie.Server([table()], checkpointer=checkpointer, in_process=True):
        assert "give one of those in it" in caplog.text


def test_only_the_newest_stays_and_nothing_of_others_goes(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "zzz").mkdir()
    with serve(tmp_path) as server:
        paths = [reverie.Client(server).checkpoint() for _ in range(4)]
    assert sorted(os.listdir(tmp_path)) == sorted(["mine.txt", "zzz", os.path.basename(paths[-1])])


def test_saving_while_others_write_loses_nothing_that_was_there(tmp_path):
    with serve(tmp_path, in_process=False, address="localhost:0") as server:
        stop = threading.Event()

        def work():
            client = reverie.Client(server.address)
            while not stop.is_set():
                client.add_batch("t", {"x": np.arange(20)})
                client.sample_batch("t", 5)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        client = reverie.Client(server)
        sizes = []
        for _ in range(5):
            least = client.server_info()["t"].current_size
            client.checkpoint()
            sizes.append(least)
        stop.set()
        for thread in threads:
            thread.join()
    with serve(tmp_path) as server:
        info = reverie.Client(server).server_info()["t"]
        assert info.current_size >= sizes[-1]


@pytest.mark.parametrize("where", [{"in_process": True}, {"in_process": False, "address": "localhost:0"}])
def test_a_server_saves_by_itself(tmp_path, where):
    with serve(tmp_path, **where, checkpoint_every_seconds=0.02) as server:
        reverie.Client(server).add_batch("t", {"x": np.arange(3)})
        seen = set()

        def saved():
            seen.update(entry for entry in os.listdir(tmp_path) if not entry.startswith("."))
            return len(seen) >= 3

        until(saved)
        reverie.Client(server).checkpoint()  # beside those that it saves by itself
    with serve(tmp_path) as server:
        assert len(items(server)) == 3


@pytest.mark.parametrize("where", [{"in_process": True}, {"in_process": False, "address": "localhost:0"}])
def test_what_a_living_server_saved_last_is_not_removed_by_another_on_its_directory(tmp_path, caplog, where):
    with serve(tmp_path, **where) as first:
        of_first = reverie.Client(first).checkpoint()
        with serve(tmp_path, **where) as second:
            assert f" uses {tmp_path}, too" in caplog.text
            for _ in range(2):
                of_second = reverie.Client(second).checkpoint()
                assert os.path.exists(os.path.join(of_first, "DONE"))
            again = reverie.Client(first).checkpoint()
            assert os.path.exists(os.path.join(of_second, "DONE"))
    assert again != of_first
    assert not os.path.exists(of_first)


def test_a_server_in_process_saves_after_so_many_inserts(tmp_path):
    with serve(tmp_path, checkpoint_every_inserts=3) as server:
        reverie.Client(server).add_batch("t", {"x": np.arange(2)})
        assert os.listdir(tmp_path) == []
        reverie.Client(server).add_batch("t", {"x": np.arange(5)})
        until(lambda: [entry for entry in os.listdir(tmp_path) if not entry.startswith(".")])
    with serve(tmp_path) as server:
        assert len(items(server)) == 7


def test_a_server_in_process_that_cannot_save_says_so_and_goes_on(tmp_path, caplog):
    root, file = tmp_path / "root", tmp_path / "file"
    (tmp_path / "folder").mkdir()
    root.symlink_to("folder")
    file.write_text("not a directory")
    with serve(root, checkpoint_every_seconds=0.01) as server:
        client = reverie.Client(server)
        client.add("t", 1)
        until(lambda: os.listdir(root))
        file.rename(root)  # in one step: it would make a directory again
        until(lambda: "no checkpoint was saved" in caplog.text)
        assert client.sample_batch("t", 1).data == [1]


@pytest.mark.parametrize("every", [{"checkpoint_every_seconds": 1}, {"checkpoint_every_inserts": 5}])
def test_saving_by_itself_needs_a_place(tmp_path, every):
    class Nothing(CheckpointerBase):
        def internal_checkpointer(self):
            return None

    for where in ({"in_process": True}, {"address": "localhost:0"}):
        with pytest.raises(ValueError, match="by time or by inserts"):
            reverie.Server([table()], **where, **every)
        with pytest.raises(ValueError, match="by time or by inserts"):
            reverie.Server([table()], checkpointer=Nothing(), **where, **every)
    with pytest.raises(ValueError):
        serve(tmp_path, in_process=False, address="localhost:0", **dict.fromkeys(every, -1))


@pytest.mark.parametrize("where", [{"in_process": True}, {"in_process": False, "address": "localhost:0"}])
def test_a_server_that_is_to_save_by_itself_where_it_cannot_does_not_begin(tmp_path, where):
    (tmp_path / "root").symlink_to(tmp_path / "gone")  # nobody, not even root, can make a directory of that
    with pytest.raises(reverie.ReverieError, match="no checkpoint could be saved: .*root"):
        serve(tmp_path / "root", **where, checkpoint_every_seconds=3600)


def test_a_server_that_saves_when_asked_warns_where_it_cannot(tmp_path, caplog):
    (tmp_path / "root").symlink_to(tmp_path / "gone")
    with serve(tmp_path / "root", in_process=False, address="localhost:0") as server:
        assert "no checkpoint could be saved" in caplog.text
        reverie.Client(server).add("t", 1)


# ---- the classes ----


def test_a_server_without_a_checkpointer_of_its_own_has_a_temporary_directory():
    with reverie.Server([table()], in_process=True) as server:
        root = server._checkpointer.path
        assert os.path.isdir(root)
    assert not os.path.exists(root), "nothing was saved in it"
    with reverie.Server([table()], in_process=True) as server:
        path = reverie.Client(server).checkpoint()
    assert os.path.isdir(path)


def test_a_server_that_can_have_no_temporary_directory_serves_and_says_that_it_saves_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    for where in ({"in_process": True}, {"address": "localhost:0"}):
        caplog.clear()
        with reverie.Server([table()], **where) as server:
            assert "no temporary directory for checkpoints" in caplog.text
            assert "gone" in caplog.text, "the reason"
            client = reverie.Client(server)
            client.add("t", 1)
            with pytest.raises(ValueError, match="no Checkpointer"):
                client.checkpoint()


def test_a_checkpointer_that_gives_none_means_no_checkpoints():
    class Nothing(CheckpointerBase):
        def internal_checkpointer(self):
            return None

    with reverie.Server([table()], checkpointer=Nothing(), address="localhost:0") as server:
        for client in (reverie.Client(server), reverie.Client(server.address)):
            with pytest.raises(ValueError, match="no Checkpointer"):
                client.checkpoint()


def test_a_group_is_refused_when_saving(tmp_path):
    with reverie.Server([table()], checkpointer=DefaultCheckpointer(tmp_path, group="g"), address="localhost:0") as server:
        for client in (reverie.Client(server), reverie.Client(server.address)):
            with pytest.raises(ValueError, match="group"):
                client.checkpoint()


def test_a_checkpointer_of_ones_own_may_give_the_librarys(tmp_path):
    class Mine(CheckpointerBase):
        def internal_checkpointer(self):
            return reverie.pybind.create_default_checkpointer(str(tmp_path), "", None)

    with reverie.Server([table()], checkpointer=Mine(), in_process=True) as server:
        reverie.Client(server).add("t", 1)
        assert os.path.dirname(reverie.Client(server).checkpoint()) == str(tmp_path)
    with reverie.Server([table()], checkpointer=Mine(), in_process=True) as server:
        assert len(items(server)) == 1


def test_the_classes_are_where_reverbs_users_find_them():
    assert reverie.platform.checkpointers_lib.DefaultCheckpointer is DefaultCheckpointer
    assert reverie.platform.default.checkpointers.default_checkpointer is default_checkpointer
    first, second = TempDirCheckpointer(), default_checkpointer("ignored")
    assert isinstance(second, TempDirCheckpointer)
    assert first.path != second.path
    assert (first.group, first.fallback_checkpoint_path) == ("", None)
    for one in (first, second):
        os.rmdir(one.path)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"path": ""}, ValueError),
        ({"path": 3}, TypeError),
        ({"path": "x", "keep": 0}, ValueError),
        ({"path": "x", "level": 10}, ValueError),
        ({"path": "x", "group": None}, TypeError),
        ({"path": "x", "fallback_checkpoint_path": 1}, TypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments, error):
    with pytest.raises(error):
        DefaultCheckpointer(**arguments)


def test_a_server_takes_nothing_else_for_a_checkpointer():
    with pytest.raises(TypeError, match="CheckpointerBase"):
        reverie.Server([table()], checkpointer="/tmp", in_process=True)


# ---- incremental ones ----


def bytes_of(checkpoint):
    """Of its files of chunks: those that are its own, and those that others have too."""
    found = [path.stat() for path in pathlib.Path(checkpoint).glob("chunks*.tfrecord")]
    return tuple(sum(each.st_size for each in found if (each.st_nlink > 1) == shared) for shared in (False, True))


def test_incremental_checkpoints_write_what_is_new_also_after_a_restart(tmp_path):
    checkpointer = DefaultCheckpointer(tmp_path / "root", keep=2, incremental=True)
    with reverie.Server([table()], checkpointer=checkpointer, in_process=True) as server:
        client = reverie.Client(server)
        client.add_batch("t", {"x": np.random.default_rng(0).standard_normal((500, 100))})
        whole, _ = bytes_of(client.checkpoint())
        client.add_batch("t", {"x": np.zeros((5, 100))})
        second = client.checkpoint()
        fresh, shared = bytes_of(second)
        assert whole > 400_000
        assert fresh < 20_000
        assert shared == whole
        before = items(server)
    again = DefaultCheckpointer(tmp_path / "root", keep=1, incremental=True)
    with reverie.Server([table()], checkpointer=again, in_process=True) as server:
        assert items(server) == before
        reverie.Client(server).add_batch("t", {"x": np.ones((5, 100))})
        third = reverie.Client(server).checkpoint()
        before = items(server)
        assert os.listdir(tmp_path / "root") == [os.path.basename(third)], "older ones go"
        assert bytes_of(third)[0] > 400_000, "and what this one needs of them is its own now"
    with serve(tmp_path / "root") as server:
        assert items(server) == before, "any checkpointer reads it"


def test_an_incremental_checkpoint_is_exported_to_reverbs_format(tmp_path):
    checkpointer = DefaultCheckpointer(tmp_path / "root", incremental=True)
    with reverie.Server([table()], checkpointer=checkpointer, in_process=True) as server:
        client = reverie.Client(server)
        for value in range(3):
            client.add_batch("t", {"x": np.arange(7) + value})
            made = client.checkpoint()
        before = items(server)
    exported = reverie.checkpointers.export(made, tmp_path / "whole")
    assert {"DONE", "REVERIE", "chunks.tfrecord", "items.tfrecord", "tables.tfrecord"} == set(os.listdir(exported))
    with serve(tmp_path / "whole") as server:
        assert items(server) == before
    with pytest.raises(reverie.errors.NotFoundError, match="DONE"):
        reverie.checkpointers.export(tmp_path, tmp_path / "whole")


# ---- the program ----


def test_the_program_restores_and_saves(tmp_path):
    root = tmp_path / "root"
    flags = ["--port", "0", "--checkpoints", str(root), "--table", "name=t,max_size=100"]
    with server_program.Server(*flags) as server:
        client = reverie.Client(server.address)
        client.add_batch("t", {"x": np.arange(7)})
        assert pathlib.Path(client.checkpoint()).parent == root
    with server_program.Server(*flags) as server:
        assert reverie.Client(server.address).server_info(timeout=60)["t"].current_size == 7


def test_the_program_saves_by_itself(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"listen: 127.0.0.1:0\ncheckpoints:\n  path: {tmp_path}/root\n  every_seconds: 0.05\n  keep: 2\n  level: 0\n  incremental: 1\n"
        "tables:\n  - name: t\n"
    )
    with server_program.Server("--config", str(config)) as server:
        reverie.Client(server.address).add_batch("t", {"x": np.arange(7)})
        root = tmp_path / "root"
        seen = set()

        def saved():
            seen.update(entry for entry in (os.listdir(root) if root.exists() else []) if not entry.startswith("."))
            return len(seen) >= 4

        until(saved)
    whole = [entry for entry in os.listdir(root) if not entry.startswith(".")]
    assert len(whole) <= 3
    assert all((root / entry / "CHUNKS").exists() for entry in whole if (root / entry / "DONE").exists())


@pytest.mark.parametrize("below", ["", "/below"])
def test_the_program_says_at_once_that_it_cannot_save(tmp_path, below):
    file = tmp_path / "file"
    file.write_text("in the way")
    flags = ["--port", "0", "--checkpoints", f"{file}{below}", "--table", "name=t"]
    for more in (["--check"], []):
        out = server_program.run(*flags, *more)
        assert out.returncode == 2
        assert out.stdout == ""
        assert "no checkpoint could be saved" in out.stderr
        assert f"{file}" in out.stderr
        assert "Not a directory" in out.stderr


def test_a_check_makes_no_directory_and_a_start_does(tmp_path):
    root = tmp_path / "a" / "root"
    flags = ["--port", "0", "--checkpoints", str(root), "--table", "name=t"]
    out = server_program.run(*flags, "--check")
    assert out.returncode == 0, out.stderr
    assert os.listdir(tmp_path) == []
    with server_program.Server(*flags):
        assert os.listdir(root) == []


# ---- a path in the place of an object ----


@pytest.mark.parametrize("path", ["/data", pathlib.Path("/data")])
def test_a_path_alone_is_refused_with_what_to_make_of_it(path):
    with pytest.raises(TypeError, match=rf"give reverie\.checkpointers\.DefaultCheckpointer\(.*{path}.*\)"):
        reverie.Server([table()], in_process=True, checkpointer=path)
    with pytest.raises(TypeError, match=rf"give reverie\.Journal\(.*{path}.*\)"):
        reverie.Server([table()], in_process=True, checkpointer=DefaultCheckpointer("/data"), journal=path)
