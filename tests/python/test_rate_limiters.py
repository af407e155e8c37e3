"""Rate limiters: their arithmetic, and the parameters they refuse."""

import sys

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie import rate_limiters
from reverie.errors import DeadlineExceededError
from waiting import says_at_its_deadline, until


@pytest.mark.parametrize("make", [rate_limiters.MinSize, rate_limiters.Queue, rate_limiters.Stack])
@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one_are_refused(make, size):
    with pytest.raises(ValueError, match="positive integer"):
        make(size)


@pytest.mark.parametrize(
    "make",
    [
        rate_limiters.Queue,
        rate_limiters.Stack,
        lambda size: rate_limiters.SampleToInsertRatio(1.0, size, 10.0),
        lambda size: rate_limiters.SampleToInsertRatio(1.0, 1, size),
    ],
)
def test_sizes_beyond_all_floats_are_refused(make):
    with pytest.raises(ValueError, match="is too large for a float"):
        make(10**400)


@pytest.mark.parametrize("make", [rate_limiters.MinSize, rate_limiters.Queue, rate_limiters.Stack])
def test_sizes_that_are_no_integers_are_refused(make):
    with pytest.raises(TypeError, match="integer"):
        make(1.5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 1, 10.0), "must be > 0"),
        ((-1.0, 1, 10.0), "must be > 0"),
        ((float("nan"), 1, 10.0), "must be > 0"),
        ((1.0, 1, 0.5), "size of error_buffer"),
        ((4.0, 1, 3.0), r"size of error_buffer must be at least .* = 8.0, as that of the number 4.0 is; got 3.0, a range of 6.0"),
        ((1.0, 10, (0.0, 1.0)), "size of error_buffer"),
        ((1.0, 1, (5.0, 10.0)), "above"),
        ((1.0, 0, 10.0), "positive integer"),
        ((1.0, 1, float("nan")), "error_buffer"),
    ],
)
def test_ratios_that_block_themselves_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        rate_limiters.SampleToInsertRatio(*arguments)


def test_a_ratios_range_lies_around_the_minimum_size():
    limiter = rate_limiters.SampleToInsertRatio(2.0, 10, 5.0)
    assert (limiter.min_diff, limiter.max_diff, limiter.min_size_to_sample, limiter.samples_per_insert) == (15.0, 25.0, 10, 2.0)
    limiter = rate_limiters.SampleToInsertRatio(2.0, 10, (3.0, 30.0))
    assert (limiter.min_diff, limiter.max_diff) == (3.0, 30.0)
    assert rate_limiters.SampleToInsertRatio(1.0, 1, np.float64(5)).max_diff == 6.0


@pytest.mark.parametrize(
    "arguments",
    [(0.0, 1, 0.0, 1.0), (-1.0, 1, 0.0, 1.0), (1.0, 0, 0.0, 1.0), (1.0, 1, float("nan"), 1.0), (1.0, 1, 5.0, 1.0)],
)
def test_the_general_limiter_refuses_what_can_never_work(arguments):
    with pytest.raises(ValueError, match=r"\w+"):
        rate_limiters.RateLimiter(*arguments)


def test_the_general_limiter_takes_what_acme_gives():
    limiter = rate_limiters.RateLimiter(
        samples_per_insert=8.0, min_size_to_sample=100, min_diff=-50.0, max_diff=sys.float_info.max
    )
    assert limiter.max_diff == sys.float_info.max


def test_limiters_show_themselves_and_are_values():
    assert repr(rate_limiters.Queue(3)) == "RateLimiter(samples_per_insert=1, min_diff_=0, max_diff=3, min_size_to_sample=1)"
    assert rate_limiters.Queue(3) == rate_limiters.Stack(3) != rate_limiters.Queue(4)
    assert hash(rate_limiters.MinSize(3)) == hash(rate_limiters.MinSize(3))


def test_min_size_lets_samples_wait_for_items(connect):
    client = connect(make_table(rate_limiter=rate_limiters.MinSize(3)))
    for _ in range(2):
        client.add("t", 0)
    says_at_its_deadline(lambda timeout: client.sample_batch("t", 1, timeout=timeout), "min_size_to_sample", 0.01)
    client.add("t", 0)
    assert len(client.sample_batch("t", 1)) == 1


def test_a_queue_lets_inserts_wait_for_samples(connect):
    client = connect(reverie.Table.queue("t", 2))
    for value in range(2):
        client.add("t", value)
    with pytest.raises(DeadlineExceededError):
        client.add("t", 2, timeout=0.01)
    until(lambda: client.server_info()["t"].num_waiting_inserts == 0)  # a server elsewhere hears of it a little later
    assert client.server_info()["t"].current_size == 2
    assert client.sample_batch("t", 2).data.tolist() == [0, 1]
    assert client.server_info()["t"].current_size == 0
    client.add("t", 2, timeout=0)


def test_a_minimum_above_the_maximum_works_where_items_go_with_their_sample(serve):
    limiter = rate_limiters.RateLimiter(3.0, 2, 4.0, 3.0)
    _, client = serve(make_table(rate_limiter=limiter, max_times_sampled=1))
    client.add("t", 0)
    for value in range(1, 100):
        client.add("t", value)
        with pytest.raises(DeadlineExceededError):
            client.add("t", -1, timeout=0)
        assert client.sample_batch("t", 1).data.tolist() == [value - 1]
        with pytest.raises(DeadlineExceededError):
            client.sample_batch("t", 1, timeout=0)
    for times in (0, 2):
        with pytest.raises(ValueError, match="min_diff 4 is greater than max_diff 3"):
            serve(make_table(rate_limiter=limiter, max_times_sampled=times))


def test_a_ratio_holds_both_sides(serve):
    _, client = serve(make_table(rate_limiter=rate_limiters.SampleToInsertRatio(1.0, 2, 2.0), max_times_sampled=0))
    done = [0, 0]
    for _ in range(50):
        for side, call in enumerate((lambda: client.add("t", 0, timeout=0), lambda: client.sample_batch("t", 1, timeout=0))):
            try:
                call()
                done[side] += 1
            except DeadlineExceededError:
                pass
        inserts, samples = done
        assert inserts <= 2 or 0.0 <= inserts - samples <= 4.0
    assert min(done) > 10


def test_a_running_tables_limiter_can_be_changed(connect):
    client = connect(make_table(rate_limiter=rate_limiters.MinSize(100)))
    client.add("t", 0)
    client.set_rate_limiter("t", rate_limiters.MinSize(1))
    assert len(client.sample_batch("t", 1)) == 1
    assert client.server_info()["t"].rate_limiter_info.min_size_to_sample == 1
    limiter = client.server_info()["t"].rate_limiter_info
    assert (limiter.samples_per_insert, limiter.min_diff, limiter.max_diff) == (1.0, -sys.float_info.max, sys.float_info.max)
    with pytest.raises(TypeError, match="rate_limiter"):
        client.set_rate_limiter("t", 5)
    with pytest.raises(reverie.errors.NotFoundError):
        client.set_rate_limiter("other", rate_limiters.MinSize(1))


def test_counters_are_reported(connect):
    client = connect()
    for value in range(3):
        client.add("t", value)
    client.sample_batch("t", 5)
    info = client.server_info()["t"]
    assert info.rate_limiter_info.insert_stats.completed == 3
    assert info.rate_limiter_info.sample_stats.completed == 5
    assert info.num_unique_samples == 1
    client.reset("t")
    info = client.server_info()["t"]
    assert info.rate_limiter_info.insert_stats.completed == 0
    assert info.current_size == 0
