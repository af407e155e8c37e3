"""What a server refused is told: by a call, by the end of the writer's ``with`` block, or, where nobody else was told before, by the log.

Every kind of writer has one item refused, of which no call has told, and two more that wait for room in a queue.
"""

import dataclasses
import gc
import logging
import signal
import threading

import numpy as np
import pytest
import reverie
from reverie import _leaving, _log, structured
from reverie.errors import InvalidArgumentError, ReverbError
from waiting import Call, until

pytestmark = pytest.mark.filterwarnings("ignore:a reverie.Writer was dropped:ResourceWarning")

KINDS = ["trajectory_writer", "structured_writer", "writer", "transitions"]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
BLOCK_CLOSES = {"writer", "transitions"}
CLOSE_WAITS = {"writer"}
TABLE = "t"
REFUSED = 'an item for table "t" was not inserted'


def make(client, kind):
    if kind == "structured_writer":
        last = structured.pattern_from_transform([None], lambda step: [step[0][-1]])
        (value,) = structured.Condition.data([0])
        return client.structured_writer(
            [
                structured.create_config(last, TABLE, [value == priority], structured.constant_priority_fn(priority))
                for priority in (1, -1)
            ]
        )
    if kind == "trajectory_writer":
        return client.trajectory_writer(1, validate_items=False)
    return client.writer(1) if kind == "writer" else client.transitions(TABLE, 1)


def put(writer, priority):
    """An item."""
    if isinstance(writer, reverie.Transitions):
        writer.add([np.ones(1)], priority)
        return
    writer.append([np.int32(priority)])
    if isinstance(writer, reverie.Writer):
        writer.create_item(TABLE, 1, priority)
    elif isinstance(writer, reverie.TrajectoryWriter):
        writer.create_item(TABLE, priority, [writer.history[0][-1:]])


def queue(**options):
    """A queue of one, all the same: a `Prioritized` sampler refuses priorities below 0."""
    return reverie.Table(
        TABLE, remover=reverie.selectors.Fifo(), max_size=1, rate_limiter=reverie.rate_limiters.Queue(1), **options
    )


class Scene:
    """A server that takes any priority, then one that refuses some, and a writer that goes on there."""

    def __init__(self, address, kind, refused=1, beside=1):
        self.kind = kind
        with reverie.Server([queue(sampler=reverie.selectors.Fifo())], address=address):
            self.writer = make(reverie.Client(address), kind)
            put(self.writer, 1)
            self.writer.flush()
        for _ in range(refused):
            put(self.writer, -1)
        for _ in range(beside):
            put(self.writer, 1)
        self.server = reverie.Server([queue(sampler=reverie.selectors.Prioritized(1.0))], address=address)
        self.client = reverie.Client(self.server)

    def take(self, items):
        """In a thread of its own."""
        return Call(self.client.sample_batch, TABLE, items, timeout=60)

    def end(self):
        self.writer = None
        gc.collect()
        self.server.stop()


@pytest.fixture
def refused(kind, tmp_path):
    """The refusal is known."""
    scene = Scene(f"unix:{tmp_path}/server", kind)
    scene.writer._settle(60)
    yield scene
    scene.end()


@pytest.fixture
def waiting(kind, tmp_path):
    """The refused item has company, of which two wait for room."""
    scene = Scene(f"unix:{tmp_path}/server", kind, beside=3)
    yield scene
    scene.end()


@pytest.fixture
def told(caplog):
    """What the log says of refused items."""

    def lines():
        with _log.told_before_it_ends():
            pass
        return [line for line in (record.getMessage() for record in caplog.records) if "was not inserted" in line]

    with caplog.at_level(logging.WARNING, "reverie"):
        yield lines


def notes(error):
    return [note for note in getattr(error, "__notes__", []) if "was not inserted" in note]


@EVERY_KIND
def test_the_end_of_a_block_raises_it_and_the_items_beside_it_get_their_second(waiting, told, monkeypatch):
    monkeypatch.setattr(_leaving, "GRACE", 60.0)
    taken = waiting.take(3)
    with pytest.raises(InvalidArgumentError, match=REFUSED), waiting.writer:
        pass
    assert len(taken.join().keys) == 3
    assert told() == []
    if waiting.kind in BLOCK_CLOSES:
        with pytest.raises(reverie.ReverieError, match="(?i)close"):
            waiting.writer.flush()


@EVERY_KIND
def test_another_exception_that_ends_the_block_notes_it_and_the_items_beside_it_get_their_second(waiting, told, monkeypatch):
    monkeypatch.setattr(_leaving, "GRACE", 60.0)
    taken = waiting.take(3)
    with pytest.raises(KeyError, match="mine") as caught, waiting.writer:
        raise KeyError("mine")
    assert len(taken.join().keys) == 3
    assert len(notes(caught.value)) == 1
    waiting.end()
    assert len(told()) == 1
    assert "KeyError" in told()[0]


@EVERY_KIND
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_says_end_now_notes_it_and_waits_for_nothing(refused, told, error, monkeypatch):
    monkeypatch.setattr(type(refused.writer), "_settle", None)
    with pytest.raises(error) as caught, refused.writer:
        raise error
    assert len(notes(caught.value)) == 1
    assert len(told()) == 1


@EVERY_KIND
def test_an_error_of_ours_notes_it(refused, told):
    with pytest.raises(ReverbError, match="mine") as caught, refused.writer:
        raise ReverbError("mine")
    assert len(notes(caught.value)) == 1
    assert len(told()) == 1
    if refused.kind not in BLOCK_CLOSES:
        with pytest.raises(InvalidArgumentError, match=REFUSED):  # as every flush does until it is discarded
            refused.writer.flush()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in CLOSE_WAITS])
def test_a_close_that_does_not_wait_logs_it_once(refused, told):
    refused.writer.close()
    assert len(told()) == 1
    refused.writer.close()
    refused.end()
    assert len(told()) == 1


@pytest.mark.parametrize("kind", CLOSE_WAITS)
def test_a_close_that_waits_raises_it_when_the_other_items_are_in(waiting, told):
    taken = waiting.take(3)
    with pytest.raises(InvalidArgumentError, match=REFUSED):
        waiting.writer.close(timeout=60)
    assert len(taken.join().keys) == 3
    waiting.end()
    assert told() == []


@pytest.mark.parametrize("kind", CLOSE_WAITS)
def test_a_close_whose_time_runs_out_says_so_and_does_not_hide_it(waiting, told):
    with pytest.raises(reverie.DeadlineExceededError, match="items"):
        waiting.writer.close(timeout=1)
    waiting.end()
    assert len(told()) == 1


@pytest.mark.parametrize("kind", CLOSE_WAITS)
def test_a_close_without_a_timeout_does_not_wait_for_ever_beside_it(waiting, told):
    closing = Call(waiting.writer.close)
    assert REFUSED in str(closing.join())
    waiting.end()
    assert told() == []


def test_a_close_raises_what_a_stopped_server_of_its_process_dropped():
    server = reverie.Server([queue(sampler=reverie.selectors.Fifo())], in_process=True)
    writer = make(reverie.Client(server), "writer")
    for _ in range(3):
        put(writer, 1)
    server.stop()
    with pytest.raises(reverie.errors.CancelledError):
        writer.close(timeout=60)


@EVERY_KIND
def test_an_exception_that_takes_no_notes_comes_through(refused, told):
    @dataclasses.dataclass(frozen=True)
    class FrozenError(Exception):
        text: str

    with pytest.raises(FrozenError), refused.writer:
        raise FrozenError("mine")
    refused.end()
    assert len(told()) == 1


@EVERY_KIND
def test_a_tables_name_may_be_long_and_of_any_characters(kind, tmp_path, told, monkeypatch):
    monkeypatch.setitem(globals(), "TABLE", "x" + "é" * 80)
    scene = Scene(f"unix:{tmp_path}/server", kind)
    scene.writer._settle(60)
    with pytest.raises(KeyError) as caught, scene.writer:
        raise KeyError("mine")
    assert len(notes(caught.value)) == 1
    scene.end()
    assert len(told()) == 1


@EVERY_KIND
def test_a_writer_that_is_dropped_logs_it(refused, told):
    refused.end()
    assert len(told()) == 1
    assert "dropped" in told()[0]


@pytest.mark.parametrize("kind", ["structured_writer", "writer"])  # those that get a second when they are dropped
def test_the_items_beside_it_of_a_writer_that_is_dropped_get_their_second(waiting, told, monkeypatch):
    monkeypatch.setattr(_leaving, "GRACE", 60.0)
    taken = waiting.take(3)
    waiting.writer = None
    gc.collect()
    assert len(taken.join().keys) == 3
    assert len(told()) == 1


def left(scene):
    with pytest.raises(KeyError) as caught, scene.writer:
        raise KeyError
    assert notes(caught.value) == []


def closed(scene):
    scene.writer.close()


@EVERY_KIND
@pytest.mark.parametrize("end", [left, closed, Scene.end])
@pytest.mark.parametrize("how", ["raised", "discarded"])
def test_what_a_call_has_raised_or_was_discarded_is_not_told_by_the_end(refused, told, end, how):
    if how == "discarded":
        assert refused.writer.discard_failed() == 1
    else:
        with pytest.raises(InvalidArgumentError, match=REFUSED):
            refused.writer.flush()
    end(refused)
    assert told() == []


@EVERY_KIND
def test_the_end_tells_how_many_there_were(kind, tmp_path, told):
    scene = Scene(f"unix:{tmp_path}/server", kind, refused=3)
    scene.writer._settle(60)
    scene.end()
    assert len(told()) == 1
    assert told()[0].endswith("(and 2 more)")


@pytest.mark.parametrize("kind", ["trajectory_writer"])  # the others see by then that the new table refuses it
def test_one_that_comes_after_a_call_has_raised_another_is_told_by_the_end(refused, told):
    with pytest.raises(InvalidArgumentError, match=REFUSED):
        refused.writer.flush()
    put(refused.writer, -1)
    refused.writer._settle(60)
    refused.end()
    assert len(told()) == 1


@pytest.mark.parametrize("kind", ["trajectory_writer", "structured_writer"])
def test_a_handler_may_close_the_writer_while_the_block_waits_for_the_others(waiting, told, monkeypatch):
    monkeypatch.setattr(_leaving, "GRACE", 60.0)

    def interrupt():
        until(lambda: waiting.writer.status().items_failed == 1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    old = signal.signal(signal.SIGALRM, lambda *_: waiting.writer.close())
    try:
        with pytest.raises(KeyError) as caught, waiting.writer:
            interrupting = Call(interrupt)
            raise KeyError
    finally:
        interrupting.join()
        signal.signal(signal.SIGALRM, old)
    waiting.end()
    assert len(told()) == 1
    assert len(notes(caught.value)) <= 1  # the log's line may have been that of close
