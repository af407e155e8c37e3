"""One end of the matrix: a process that serves tables, or does the steps of operations as a client, with the package it is told.

Run as ``python matrix_worker.py reverb|reverie``; commands come on standard input and are answered on standard output, as lines of JSON.
Both packages run in the peer's virtual environment, so that both have its TensorFlow.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import sys
import traceback

import matrix_operations
import peer_writers


class Worker:
    def __init__(self, package: str) -> None:
        self.module = importlib.import_module(package)
        self.servers = {}

    def serve(self, operation, parameters, root=None):
        """Serves the operation's tables; answers the address. `root`: of its checkpoints, which it begins with."""
        tables = matrix_operations.OPERATIONS[operation].tables(self.module, **parameters)
        checkpointer = None if root is None else self.module.checkpointers.DefaultCheckpointer(root)
        if self.module.__name__ == "reverie":
            server = self.module.Server(tables, address="127.0.0.1:0", checkpointer=checkpointer)
        else:
            server = self.module.Server(tables, checkpointer=checkpointer)
        address = f"127.0.0.1:{server.port}"
        self.servers[address] = server
        return address

    def stop(self, address):
        self.servers.pop(address).stop()

    def do(self, operation, step, parameters, address, server):
        """Does one step of an operation, with a new client; `server`: whose it talks to, "T" or "O"."""
        of_reverb_alone = self.module.__name__ == "reverb" and server == "T"
        with peer_writers.waiting_for_items(self.module) if of_reverb_alone else contextlib.nullcontext():
            return getattr(matrix_operations.OPERATIONS[operation], step)(self.module, self.module.Client(address), **parameters)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print does not come between the answers
    faulthandler.enable()
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"answer": getattr(worker, name)(**arguments)}
        except BaseException:
            answer = {"failure": traceback.format_exc()}
        print(json.dumps(answer), file=answers)
    for server in worker.servers.values():
        server.stop()
    os._exit(0)  # clients and datasets of either package have nothing left to say


if __name__ == "__main__":
    main()
