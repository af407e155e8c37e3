"""A signal handler runs on the main thread, in the middle of whatever that does, a call of Reverie's that waits included: it may close or
stop what waits, and whatever else it calls of the same object is an error instead of a wait for itself. Each test runs a program."""

import pytest
from test_process import run

WHERE = pytest.mark.parametrize("address", ["server", "server.address"], ids=["in process", "remote"])

# What the main thread waits in, what closes that, and what tells a handler whether it does: a call that is refused inside another.
CLOSED = {
    "TrajectoryWriter.flush": ("writer.flush()", "writer", "writer.episode_steps", "FailedPreconditionError"),
    "TrajectoryWriter.end_episode": ("writer.end_episode()", "writer", "writer.episode_steps", "FailedPreconditionError"),
    "StructuredWriter.flush": ("structured.flush()", "structured", "structured.step_is_open", "FailedPreconditionError"),
    "Transitions": (  # in process it is add that waits, its first one
        "transitions.add(np.ones(1), timeout=None); transitions.flush()",
        "transitions",
        "transitions.discard_failed()",
        "FailedPreconditionError",
    ),
    "sample": ("next(samples)", "samples", "next(samples)", "StopIteration"),
}


@WHERE
@pytest.mark.parametrize("call", CLOSED)
def test_a_handler_closes_what_its_thread_waits_in_and_the_wait_ends(address, call):
    waits, waited_for, asks, again = CLOSED[call]
    program = f"""
    from reverie import structured as patterns
    server = reverie.Server([table(), reverie.Table.queue("q", 1)], address="127.0.0.1:0")
    client = reverie.Client({address})
    client.add("q", 0)
    if {waited_for == "writer"}:
        writer = client.trajectory_writer(1)
        writer.append([1])
        writer.create_item("q", 1.0, [writer.history[0][-1:]])
    elif {waited_for == "structured"}:
        config = patterns.create_config(
            patterns.pattern_from_transform([None], lambda reference: [reference[0][-1]]), "q")
        structured = client.structured_writer([config])
        structured.append([1])
    elif {waited_for == "transitions"}:
        transitions = client.transitions("q", 1)
    else:
        samples = client.sample("t", 5)
    def close(*_):
        try:
            {asks}
        except reverie.errors.CancelledError:  # one that came before the wait, and waited itself
            raise
        except RuntimeError as error:
            if "inside another call" in str(error):
                signal.setitimer(signal.ITIMER_REAL, 0)
                {waited_for}.close()
    signal.signal(signal.SIGALRM, close)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # until one comes while it waits
        {waits}
    except reverie.errors.CancelledError:
        print("cancelled")
    try:
        {waits}
    except (RuntimeError, StopIteration) as error:
        print(type(error).__name__)
    while client.server_info()["q"].num_waiting_inserts or client.server_info()["t"].num_waiting_samples:
        pass  # what was closed waits no longer
    """
    assert run(program, gives_up=True) == f"cancelled\n{again}\n"


# What is made, what puts an item into a queue of one, what waits then, what a handler asks of it, and how it ends.
REFUSED = {
    "TrajectoryWriter": (
        "writer = client.trajectory_writer(1)",
        "writer.append([1]); writer.create_item('q', 1.0, [writer.history[0][-1:]])",
        "writer.flush()",
        "writer.append([2])",
        "writer.close()",
    ),
    "Writer": (
        "writer = client.writer(1)",
        "writer.append([1]); writer.create_item('q', 1, 1.0)",
        "writer.close()",
        "repr(writer)",
        "pass",
    ),
    "Transitions": (
        "writer = client.transitions('q', 1)",
        "writer.add(np.ones(1))",
        "writer.add(np.ones(1), timeout=None); writer.flush()",
        "writer.flush(timeout=0)",
        "writer.close()",
    ),
}


@WHERE
@pytest.mark.parametrize("kind", REFUSED)
def test_what_else_a_handler_calls_of_what_its_thread_waits_in_is_an_error_that_says_why(address, kind):
    made, filled, waits, asks, closed = REFUSED[kind]
    program = f"""
    server = reverie.Server([reverie.Table.queue("q", 1)], address="127.0.0.1:0")
    client = reverie.Client({address})
    {made}
    {filled}
    {filled if kind != "Transitions" else ""}  # its next add waits itself, in process
    def ask(*_):
        try:
            {asks}
        except reverie.errors.DeadlineExceededError:
            pass
    signal.signal(signal.SIGALRM, ask)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # until one comes while it waits
        {waits}
    except RuntimeError as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("signal handler" in str(error))
    ask()  # outside of the call it may
    {closed}
    """
    assert run(program, gives_up=True) == "True\n"


def test_a_handler_that_saves_a_checkpoint_while_one_is_saved_gets_an_error_and_the_first_is_saved(tmp_path):
    program = """
    checkpointer = reverie.checkpointers.DefaultCheckpointer(sys.argv[1])
    server = reverie.Server([table(max_size=50_000)], in_process=True, checkpointer=checkpointer)
    client = reverie.Client(server)
    client.add_batch("t", np.arange(50_000))
    refused = []
    def save(*_):
        try:
            client.checkpoint()
        except RuntimeError as error:
            refused.append(str(error))
            signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, save)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    while not refused:
        client.checkpoint()  # of the handler's some come in between, too
    print("this thread is saving one" in refused[0], os.path.isdir(client.checkpoint()))
    """
    assert run(program, str(tmp_path), begins_empty=True) == "True True\n"


CLOSED_AT_EVERY_POINT = """
    import itertools
    server = reverie.Server([table()], in_process=True)
    client = reverie.Client(server)
    client.add("t", 1)
    signal.signal(signal.SIGTERM, lambda *_: batches.close())
    for at in itertools.count():
        batches = client.batches("t", 1)
        seen = 0
        def tell(frame, event, argument):
            global seen
            if seen == at:
                signal.raise_signal(signal.SIGTERM)
            seen += 1
        sys.setprofile(tell)
        next(batches, None)
        sys.setprofile(None)
        if seen <= at:
            break
        print(list(batches), end="")
    batches.close()
    print(at > 9)
"""


def test_a_handler_closes_batches_wherever_in_next_it_comes():
    printed = run(CLOSED_AT_EVERY_POINT)
    assert printed.endswith("True\n")
    assert printed.replace("[]", "") == "True\n"


AT_EVERY_POINT = """
    import itertools
    import reverie.server
    reverie.server.LOOK = 0.001
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    for at in itertools.count():
        server = reverie.Server([table()], address="127.0.0.1:0")
        seen = 0
        def tell(frame, event, argument):
            global seen
            if seen == at:
                signal.raise_signal(signal.SIGTERM)
            seen += 1
        sys.setprofile(tell)
        server.{call}
        sys.setprofile(None)
        server.wait(timeout=0)
        if seen <= at or at == 60:
            break
    print(at > 9)
"""


@pytest.mark.parametrize("call", ["stop()", "wait()"])
def test_a_handler_stops_a_server_wherever_in_its_stop_or_its_wait_it_comes(call):
    assert run(AT_EVERY_POINT.replace("{call}", call)) == "True\n"
