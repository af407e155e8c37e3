"""A Python client of Reverie or dm-reverb; the first argument, ``reverie`` or ``reverb``, names the module.

Inserting, iterating and datasets are the same calls on both; only batches are fetched in each store's own way. Reads jobs as lines
from standard input; answers each with ``{"ready": true}`` and, when its clients have stopped, with ``{"done": true}`` or
``{"error": "..."}``.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench.child import answers, die_with_parent
from bench.wire.job import GO, HOLD, LINE_WORDS, Job, parse_job, random_row

store = importlib.import_module(sys.argv[1])
Board = memoryview  # of int64


def connect(job: Job) -> Any:
    return store.Client(job.address) if job.shared_memory else store.Client(job.address, shared_memory=False)


def insert(job: Job, i: int, board: Board) -> Callable[[], None]:
    client = connect(job)
    writer = client.trajectory_writer(num_keep_alive_refs=1, validate_items=False)
    row, table, in_flight, step, line = random_row(job.elements, i), job.table(i), job.in_flight, job.step, (i + 1) * LINE_WORDS

    def work() -> None:
        items = 0
        while board[0] == GO:
            for _ in range(step):
                writer.append([row])
                writer.create_item(table, 1.0 + (items & 63), [writer.history[0][-1:]])
                writer.flush(in_flight)
                items += 1
            board[line] = items
        writer.flush()

    return work


def iterate(job: Job, i: int, board: Board) -> Callable[[], None]:
    client = connect(job)
    table, step, line = job.table(i), job.step, (i + 1) * LINE_WORDS

    def work() -> None:
        for items, _ in enumerate(client.sample(table, 1_000_000_000, emit_timesteps=False), 1):
            if items % step == 0:
                board[line] = items
                if board[0] != GO:
                    return

    return work


def reverie_batch(job: Job, i: int, board: Board) -> Callable[[], None]:
    client = connect(job)
    table, line = job.table(i), (i + 1) * LINE_WORDS

    def work() -> None:
        items = 0
        while board[0] == GO:
            client.sample_batch(table, job.batch)
            items += job.batch
            board[line] = items

    return work


def dataset(job: Job, i: int, board: Board) -> Callable[[], None]:
    import numpy as np
    import tensorflow as tf

    samples = store.TrajectoryDataset(
        server_address=job.address,
        table=job.table(i),
        dtypes=[np.dtype(np.float32)],
        shapes=[tf.TensorShape([1, job.elements])],
        max_in_flight_samples_per_worker=2 * job.batch,
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2  # the one of all datasets comes to a halt when there are 100 of them
    samples = samples.batch(job.batch).prefetch(1).with_options(options)
    line = (i + 1) * LINE_WORDS

    def work() -> None:
        items = 0
        batches = iter(samples)  # fetches at once: not before the clock runs
        while board[0] == GO:
            next(batches)
            items += job.batch
            board[line] = items

    return work


MAKE = {"insert": insert, "iterate": iterate, "batch": reverie_batch if sys.argv[1] == "reverie" else dataset, "dataset": dataset}


def open_board(path: str) -> Board:
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("q")


def run(job: Job, say: Callable[[dict], None]) -> dict:
    board = open_board(job.board)
    clients = range(job.first, job.first + job.clients)
    prepared = [MAKE[job.operation_of(i)](job, i, board) for i in clients]
    errors: list[str] = []

    def work(what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")

    say({"ready": True})
    while board[0] == HOLD:
        time.sleep(0.001)
    threads = [threading.Thread(target=work, args=(what,)) for what in prepared]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"error": errors[0]} if errors else {"done": True}


def main() -> None:
    die_with_parent()
    stream = answers()
    for line in sys.stdin:
        print(json.dumps(run(parse_job(line), lambda answer: print(json.dumps(answer), file=stream))), file=stream)
    os._exit(0)


if __name__ == "__main__":
    main()
