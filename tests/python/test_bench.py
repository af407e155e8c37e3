"""The benchmark's parts, on a tiny setting and without the peers: that they work and tell what they measured, not what it was."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from bench import __main__ as command
from bench import crowd, limits, report, subjects, turns
from bench.cells import Cell, Results
from bench.checkpoint import run as checkpoint
from bench.checkpoint.disk import KEPT, PAST_CACHE
from bench.growth import run as growth
from bench.items import run as items
from bench.items.cases import CASES
from bench.latency import histogram, locks
from bench.latency import run as latency
from bench.local import run as local
from bench.processes import ProcessError
from bench.report import against, goals, readme, targets
from bench.single import run as single
from bench.wire import plan
from bench.wire import run as wire
from bench.wire.board import Board
from bench.wire.side import PYTHON, Pace, Side, Work

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORT = Pace(seconds=0.02, warm=0.01, at_most=2.0, units=1, no_answer=20.0)
MACHINE = dict.fromkeys(("date", "commit", "cores", "processor", "memory", "system", "load_at_start"), "some")


@pytest.fixture
def results():
    def make(kind: str) -> Results:
        return Results(kind, "./dev bench", dict(MACHINE))

    return make


def quiet(_: str) -> None:
    pass


def children_of(pid: int) -> list[int]:
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def is_there(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}").exists()


def test_wire_measures_every_operation_language_and_variant(results, tmp_path):
    found = results("wire")
    without = tuple(operation for operation in plan.OPERATIONS if operation != "dataset")
    options = plan.Options(payloads=("400B",), operations=without, clients=(2,), stores=("reverie",), rounds=1, pace=SHORT)
    wire.run(found, options, quiet)
    assert [cell.name for cell in found.cells if cell.failure or not cell.values] == []
    rows = [cell.row for cell in found.cells if cell.row["store"] == "reverie" and "language" in cell.row]
    assert {row["operation"] for row in rows} == {"insert", "iterate", "batch", "both", "memory a client"}
    assert {row.get("sampler", "uniform") for row in rows} == {"uniform", "prioritized"}
    assert {row["transport"] for row in rows} == {"tcp", "unix", "socket"}
    assert {row.get("tables", "1") for row in rows} == {"1", "8"}
    assert {row["language"] for row in rows} == {"python", "c"}
    copied = found.find(what="copied", operation="insert")
    assert all(cell.median >= 400 for cell in copied), "each item's bytes are copied at least once"
    assert len(copied) == 1
    assert found.versions == {"reverie": importlib.metadata.version("reverie")}
    text = report.save(found, tmp_path)
    assert "insert" in text
    assert Results.load(tmp_path / "wire.json").cells == found.cells


def test_datasets_without_tensorflow_are_left_out_with_a_reason(results, monkeypatch):
    found = results("wire")
    monkeypatch.setattr(wire, "has_tensorflow", lambda: False)
    wire.run(found, plan.Options(payloads=("400B",), operations=("dataset",), stores=("reverie",), variants=False), quiet)
    assert found.cells == []
    assert "datasets were not measured" in found.notes[0]


def test_latency_tells_percentiles_of_each_load(results, tmp_path):
    found = results("latency")
    options = latency.Options(payloads=("400B",), clients=(2,), stores=("reverie",), loads=(50,), seconds=0.05, rounds=1)
    board = Board(8)
    try:
        latency._payload(found, "400B", options, board, quiet)
    finally:
        board.close()
    assert [cell.name for cell in found.cells if cell.failure or not cell.values] == []
    for language in ("python", "c"):
        rows = [cell.row for cell in found.find(language=language, operation="sample", load="50 %")]
        assert {row["percentile"] for row in rows} == set(histogram.PERCENTILES)
    assert "p99.9" in report.save(found, tmp_path)


def test_latency_measures_the_operations_that_were_asked_for(results):
    found = results("latency")
    few = {"payloads": ("400B",), "languages": ("python",), "clients": (1,), "stores": ("reverie",), "loads": (50,)}
    latency.run(found, latency.Options(**few, operations=("sample",), seconds=0.05, rounds=1), quiet)
    assert {cell.row["operation"] for cell in found.cells if cell.row["what"] == "round trip"} == {"sample"}
    assert not [cell for cell in found.cells if cell.row["what"] == "lock"]


def test_items_of_several_columns_are_weighed_and_moved(results, tmp_path):
    found = results("items")
    items.run(found, items.Options(stores=("reverie",), seconds=0.02, rounds=1, items=300), quiet)
    for case in CASES:
        cells = {cell.row["operation"]: cell for cell in found.find(what="items", case=case)}
        assert set(cells) == {"memory", "insert", "iterate", "batch"}
        assert all(len(cell.values) == 1 and cell.values[0] > 0 for cell in cells.values())
        assert cells["insert"].details["server_cpu_us"][0] >= 0
        assert cells["iterate"].details["client_cpu_us"][0] > 0
    text = report.save(found, tmp_path)
    assert "transition" in text
    assert "bytes an item" in text
    assert (tmp_path / "items.md").exists()
    assert (tmp_path / "items.json").exists()


def test_items_leave_out_a_store_that_is_not_there_with_a_reason(results, tmp_path, monkeypatch):
    monkeypatch.setitem(PYTHON, "dm-reverb", "/nothing")
    found = results("items")
    items.run(found, items.Options(cases=("transition",), stores=("dm-reverb",), seconds=0.02, rounds=2, items=10), quiet)
    (cell,) = found.cells
    assert "does not start" in cell.failure
    assert not cell.values
    assert "does not start" in report.save(found, tmp_path)


def test_single_calls_are_measured_with_and_without_a_pause_beside_the_machines_round_trip(results, tmp_path):
    found = results("single")
    single.run(found, single.Options(stores=("reverie",), seconds=0.02, rounds=1, items=100), quiet)
    assert [cell.name for cell in found.cells if cell.failure or not cell.values] == []
    calls = {(row["language"], row["operation"]) for row in (cell.row for cell in found.find(what="single call"))}
    assert calls == {("python", name) for name in single.TABLES} | {("c", name) for name in single.TABLES if name != "insert"}
    for transport in ("tcp", "unix"):
        for pace in single.PAUSES_US:
            rows = [cell.row for cell in found.find(transport=transport, pace=pace, operation="writer", language="c")]
            assert {row["percentile"] for row in rows} == set(histogram.PERCENTILES)
            assert len(found.find(what="machine", transport=transport, pace=pace)) == 1
    text = report.save(found, tmp_path)
    assert "a millisecond between calls" in text
    assert "the machine's own" in text


def test_single_calls_leave_out_a_store_that_is_not_there_with_a_reason(results, monkeypatch):
    found = results("single")
    monkeypatch.setitem(PYTHON, "dm-reverb", "/nowhere/python")
    options = single.Options(operations=("server_info",), languages=("python",), seconds=0.01, rounds=1, items=10)
    single.run(found, options, quiet)
    assert {cell.row["store"] for cell in found.cells if cell.values} == {"reverie", "machine"}
    assert "dm-reverb is left out" in found.notes[0]


def test_a_slow_answer_counts_for_those_that_had_to_wait_for_it():
    trips = [(1_000, 99), (2_000_000, 1)]
    found = histogram.percentiles(trips)
    assert found["p50"] == pytest.approx(1.0, rel=0.01)
    assert found["max"] == pytest.approx(2000.0, rel=0.01)


def test_lock_counters_stand_for_their_nanoseconds():
    assert [locks.nanoseconds(i) for i in range(16)] == list(range(16))
    values = [locks.nanoseconds(i) for i in range(16, 40 * 16)]
    assert values == sorted(values)
    for value in (17, 1_000, 20_000, 123_456_789):
        e = value.bit_length() - 1
        counter = 16 * (e - 3) + ((value >> (e - 4)) & 15)
        assert locks.nanoseconds(counter) == pytest.approx(value, rel=1 / 16)


def test_locks_without_their_build_are_left_out_with_a_reason(results, monkeypatch, tmp_path):
    found = results("latency")
    monkeypatch.setattr(locks, "PROGRAM", tmp_path / "nothing")
    locks.run(found, 1000, 1, SHORT, quiet)
    assert found.cells == []
    assert "locks were not measured" in found.notes[0]


@pytest.mark.parametrize("case", ["small", "sequence", "nstep", "next", "framestack"])
def test_local_measures_from_python_and_from_c_beside_bare_copies(results, tmp_path, case):
    found = results("local")
    local.run(found, (case,), ("reverie",), ("add", "sample", "update_priorities"), 1, 0.001, quiet)
    assert [cell.name for cell in found.cells if cell.failure] == []
    who = {(cell.row["store"], cell.row["language"]) for cell in found.find(rows=case)}
    assert who == {("reverie", "python"), ("reverie", "c"), ("machine", "c")}
    assert "reverie, from C" in report.save(found, tmp_path)


def test_growth_measures_times_memory_and_creep(results, tmp_path):
    found = results("growth")
    options = growth.Options(
        sizes=(1000, 2000), seconds=0.001, rounds=1, creep=(1000, 5000, 10_000), wire_items=2000, spill_limit=8 << 20
    )
    growth.run(found, options, quiet)
    assert [cell.name for cell in found.cells if cell.failure or not cell.values] == []
    assert {cell.row["what"] for cell in found.cells} == {"time", "memory an item", "more than memory", "creep"}
    text = report.save(found, tmp_path)
    assert "times a bare gather" in text
    assert "min_heap" in text
    assert all(
        cell.details["spilled_bytes"][-1] > 8 << 20
        for cell in found.find(what="more than memory")
        if cell.row["data / limit"] == "4"
    )


def test_checkpoint_measures_waits_memory_speed_and_the_journals_cost(results, tmp_path):
    found = results("checkpoint")
    options = checkpoint.Options(
        items=2000,
        stores=("reverie",),
        calls=100.0,
        insert_megabytes=4.0,
        seconds=0.2,
        journal_payloads=("400B",),
        journal_items=500,
        journal_pace=SHORT,
    )
    checkpoint.run(found, options, quiet)
    assert [cell.name for cell in found.cells if cell.failure or not cell.values] == []
    assert {cell.row["meanwhile"] for cell in found.find(what="wait")} == set(checkpoint.MEANWHILE)
    assert {cell.row["since"] for cell in found.find(what="wait")} == {"schedule", "call"}
    assert {cell.row["journal"] for cell in found.find(what="journal")} == set(checkpoint.MODES)
    assert {cell.row["store"] for cell in found.find(what="load")} - {PAST_CACHE, KEPT} == {"reverie", "machine"}
    assert {cell.row["inserts"] for cell in found.find(what="memory")} == {"none", "4 MB/s"}
    text = report.save(found, tmp_path)
    assert "p99.9" in text
    assert "periodic" in text


def test_the_machines_limits_are_told():
    for transport in ("tcp", "unix"):
        for flow in ("plain", "insert", "sample"):
            moved, details = limits.loopback(transport, flow, 4096, 0.02)
            assert moved > 0
            assert details["cpu_s_per_gb"] > 0
    assert limits.round_trip("tcp", "hot", 0.02)[0] > 0
    assert limits.memory_copy(0.02) > 0


def test_a_cell_that_fails_says_why_and_the_others_go_on():
    def fail() -> float:
        raise ProcessError("no answer in 3 s")

    cells = [Cell({"operation": name}, "us", "lower") for name in ("bad", "good")]
    turns.run_turns([turns.Measurement(cells[0], fail), turns.Measurement(cells[1], lambda: 1.0)], 2, quiet)
    assert cells[0].failure == "no answer in 3 s"
    assert cells[1].values == [1.0, 1.0]


def test_a_server_that_does_not_answer_is_given_up():
    board = Board(2)
    side = Side("reverie", 100, board, ["uniform"], items=100)
    try:
        side.measure(Work("batch", 1), SHORT)
        os.kill(side.server.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, side.server.pid, os.WSTOPPED)  # until then some of its threads may still serve
        with pytest.raises(ProcessError, match=r"no answer in 1 s"):
            side.measure(Work("batch", 1), Pace(0.1, 0.01, 1.0, 1, no_answer=1.0))
    finally:
        os.kill(side.server.pid, signal.SIGCONT)
        side.stop()
        board.close()


def test_an_interrupted_run_keeps_what_was_measured_and_leaves_no_process(tmp_path):
    command = [sys.executable, "-m", "bench", "wire", "--stores", "reverie", "--cases", "400B", "--clients", "2"]
    command += ["--seconds", "0.05", "--output", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while "items/s" not in process.stderr.readline():
            assert process.poll() is None
        children = children_of(process.pid)
        assert children
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "was interrupted" in out
    assert any(cell.values for cell in Results.load(tmp_path / "wire.json").cells)
    deadline = time.monotonic() + 60
    while any(is_there(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [pid for pid in children if is_there(pid)] == []


def two_results(results, before, after, unit, better="lower"):
    """An older and a newer run with one cell of ours."""
    found = []
    for values in (before, after):
        made = results("local")
        made.cells.append(Cell({"operation": "add", "store": "reverie"}, unit, better, values))
        found.append(made)
    return found


@pytest.mark.parametrize(
    ("before", "after", "better", "slower"),
    [
        ([1.0, 1.1, 1.2], [0.5, 0.6, 0.7], "higher", True),
        ([1.0, 1.1, 1.2], [0.9, 1.0, 1.1], "higher", False),
        ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], "higher", False),
        ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], "lower", True),
        ([1.0, 5.0, 9.0], [10.0, 10.5, 11.0], "lower", False),
        ([1.0, 1.0], [1.01, 1.01], "lower", False),
        ([1.0, 1.0], [1.5, 1.5], "lower", True),
    ],
)
def test_slower_is_what_lies_beyond_the_spread(results, before, after, better, slower):
    text, cells = against.compare(*two_results(results, before, after, "us", better))
    assert bool(cells) == slower
    assert ("slower |" in text) == slower


@pytest.mark.parametrize(
    ("before", "after", "unit", "slower"),
    [
        ([100.0], [120.0], "bytes an item", False),
        ([100.0], [150.0], "bytes an item", True),
        ([3.0], [3.5], "% more memory", False),
        ([3.0], [4.5], "% more memory", True),
    ],
)
def test_memory_is_judged_by_one_turn(results, before, after, unit, slower):
    text, cells = against.compare(*two_results(results, before, after, unit))
    assert bool(cells) == slower
    assert ("slower |" in text) == slower
    assert "one turn" not in text


@pytest.mark.parametrize(("before", "after"), [([1.0], [1.2]), ([1.0], [9.0]), ([1.0, 1.1], [9.0]), ([1.0], [9.0, 9.1])])
def test_a_time_of_one_turn_gets_no_verdict_and_fails_nothing(results, before, after):
    text, cells = against.compare(*two_results(results, before, after, "us"))
    assert cells == []
    assert "one turn: no verdict |" in text
    assert "1 cells had one turn in one of the runs, which tells no spread: --rounds 2 or more in both" in text


def test_the_readmes_part_has_its_tables_and_the_commands_that_made_them(results):
    found = {"wire": results("wire"), "local": results("local")}
    for store, value in (("reverie", 5000.0), ("dm-reverb", 1000.0)):
        found["wire"].cells.append(Cell({**readme.base_row("400B", "insert", "2"), "store": store}, "items/s", "higher", [value]))
    for store, language, value in (("reverie", "python", 3.0), ("rlox", "python", 2.0), ("machine", "c", 1.0)):
        row = {"rows": "small", "operation": "add 1", "language": language, "store": store}
        found["local"].cells.append(Cell(row, "us", "lower" if store != "machine" else "", [value]))
    text = readme.part(found)
    assert "**5k** : 1k" in text
    assert "**2**" in text  # where a peer is ahead, it is the peer's figure that stands out
    assert "**3**" not in text
    assert text.count("`./dev bench`") == 2


def test_targets_are_met_or_missed_by_figures_of_the_same_run(results):
    found = results("wire")
    for clients, store, value in (
        ("1", "reverie", 5000.0),
        ("1", "dm-reverb", 1000.0),
        ("2", "reverie", 9000.0),
        ("2", "dm-reverb", 1000.0),
        ("32", "reverie", 9000.0),
    ):
        row = {**readme.base_row("400B", "insert", clients), "store": store}
        found.cells.append(Cell(row, "items/s", "higher", [value]))
    inserts = next(
        goal for goal in goals.wire(found) if goal.what.startswith("400B, inserts") and "times dm-reverb's" in goal.what
    )
    assert inserts.figures == {"1": 5.0, "2": 9.0}  # there is nothing to compare 32 clients with
    text = targets.lines([inserts])
    assert ">= 6 " in text
    assert "1: 5; 2: 9" in text
    assert "missed: 1 |" in text


def test_what_was_not_measured_meets_no_target(results):
    for kind, make in goals.OF.items():
        assert {targets.state(goal) for goal in make(results(kind))} == {"not measured"}


@pytest.mark.parametrize(("value", "state"), [(0.29, "met"), (0.3, "met"), (0.31, "missed")])
def test_a_call_in_process_meets_its_target_by_its_median(results, value, state):
    found = results("local")
    row = {"rows": "small", "operation": "add 1", "language": "python", "store": "reverie"}
    found.cells.append(Cell(row, "us", "lower", [0.1, value, 9.0]))
    goal = next(goal for goal in goals.local(found) if goal.what == "small rows from Python, add 1, us")
    assert targets.state(goal) == state


def test_targets_stand_between_the_marks_of_their_page(results, tmp_path, capsys):
    found = results("growth")
    found.cells.append(Cell({"what": "creep", "remover": "fifo", "store": "reverie"}, "% more memory", "lower", [0.5]))
    found.save(tmp_path)
    page = tmp_path / targets.PAGE
    page.parent.mkdir()
    page.write_text(f"before\n{targets.BEGIN}\nold\n{targets.END}\nafter\n")
    assert targets.write(tmp_path, tmp_path) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "fifo: 0.5" in text
    page.write_text("no marks\n")
    assert targets.write(tmp_path, tmp_path) == 1
    assert "lost its marks" in capsys.readouterr().err


def test_a_crowd_is_measured():
    load, overload, beside = crowd.run(crowd.Options(idle=20, readers=2, seconds=0.05, rounds=1))
    assert [row["operation"] for row in load] == ["insert", "sample"]
    assert all(row["few"] > 0 and row["many"] > 0 for row in load)
    assert [(row["beside"], row["clients"]) for row in beside] == [("alone", 0), ("idle", 20), ("readers", 2)]
    assert [row["times"] for row in overload] == [0, 1, 2, 4]
    assert all(row["ok"] + row["exhausted"] + row["late"] + row["other"] == row["offered"] > 0 for row in overload)
    assert "| idle | 20 |" in crowd.show(load, overload, beside, crowd.quick())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("wire --operations inset", "no 'inset': wire has insert, iterate, batch, dataset, both"),
        ("wire --cases 4KB", "no '4KB': wire has 400B"),
        ("wire --clients some", "no 'some': wire has whole numbers from 1"),
        ("single --languages rust", "no 'rust': single has python, c"),
        ("single --cases 400B,4kB", "--cases: one at a time"),
        ("local --stores reverei", "no 'reverei': local has reverie, dm-reverb"),
        ("growth --operations add", "--operations: growth has no such option"),
        ("all --cases 400B", "items has none of 400B; it has transition"),
        (
            "local --cases small,sequence --operations add_batch,update_priorities",
            "of sequence there is no add_batch or update_priorities: it has add, sample",
        ),
        ("wire --rounds 0", "--rounds must be more than 0"),
        ("wire --against {}", "has no results of wire"),
        ("wire --against {}/nothing.json", "nothing.json cannot be read"),
    ],
)
def test_what_nobody_knows_is_refused_before_anything_is_measured(line, says, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        command.parse(line.format(tmp_path).split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_each_of_all_takes_the_stores_that_it_has():
    options = command.parse(["all", "--stores", "reverie,cpprb"])
    assert {what: named.stores for what, named in options.named.items()} == {
        what: "reverie,cpprb" if what == "local" else "reverie" for what in subjects.SUBJECTS
    }


def test_a_quick_run_does_not_take_the_place_of_one_that_is_quoted():
    assert command.parse(["wire"]).output == ROOT / "bench/results"
    assert command.parse(["wire", "--quick"]).output != ROOT / "bench/results"
    assert command.parse(["table"]).output == ROOT / "bench/results"


def run_command(monkeypatch, tmp_path, fill, *more: str) -> int:
    """The command's exit status, where the benchmark `growth` is this."""
    fake = subjects.Subject(lambda results, options, say: fill(results), lambda: {"stores": ("reverie",)}, {})
    monkeypatch.setitem(subjects.SUBJECTS, "growth", fake)
    monkeypatch.setattr(command, "save", lambda results, folder: str(results.save(folder)))
    before = signal.getsignal(signal.SIGTERM)
    try:
        return command.main(["growth", "--output", str(tmp_path), *more])
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_run_in_which_one_of_ours_fails_has_failed(monkeypatch, tmp_path, capsys):
    def fill(results: Results) -> None:
        results.cell({"operation": "a", "store": "reverie"}, "us", "lower").add(1.0)
        results.cell({"operation": "b", "store": failing}, "us", "lower").failure = "no answer"

    failing = "dm-reverb"
    assert run_command(monkeypatch, tmp_path, fill) == 0
    failing = "reverie"
    assert run_command(monkeypatch, tmp_path, fill) == 1
    assert "FAILED: b, reverie: no answer" in capsys.readouterr().err


def test_a_run_that_measured_nothing_fails_and_leaves_the_saved_results(monkeypatch, tmp_path, capsys):
    (tmp_path / "growth.json").write_text("older")
    machine = {"operation": "memcpy", "store": "machine"}
    assert run_command(monkeypatch, tmp_path, lambda results: results.cell(machine, "MB/s", "").add(1.0)) == 1
    assert "nothing was measured" in capsys.readouterr().err
    assert (tmp_path / "growth.json").read_text() == "older"


def test_cells_of_the_older_results_that_are_missing_are_told(monkeypatch, tmp_path, capsys):
    def fill(results: Results) -> None:
        for operation in operations:
            results.cell({"operation": operation, "store": "reverie"}, "us", "lower").add(1.0)

    operations = ["first", "second"]
    assert run_command(monkeypatch, tmp_path, fill) == 0
    operations = ["first"]
    assert run_command(monkeypatch, tmp_path / "now", fill, "--against", str(tmp_path)) == 0
    assert "1 cells of the older results were not measured: second, reverie" in capsys.readouterr().out
