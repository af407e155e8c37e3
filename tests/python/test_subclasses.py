"""Subclasses that do not call the `__init__` of what they derive from: what is asked of them says so."""

import gc
import pickle
import sys

import numpy as np
import pytest
import reverie

CALLS = {
    reverie.Writer: [
        lambda writer: writer.append([1]),
        lambda writer: writer.append_sequence([np.zeros(2)]),
        lambda writer: writer.create_item("t", 1, 1.0),
        lambda writer: writer.flush(),
        lambda writer: writer.discard_failed(),
        lambda writer: writer.close(),
        lambda writer: writer.__enter__(),
        lambda writer: writer.__exit__(None, None, None),
        repr,
    ],
    reverie.Client: [
        lambda client: client.insert([1], {"t": 1.0}),
        lambda client: next(client.sample("t")),
        lambda client: client.add("t", [1]),
        lambda client: client.sample_batch("t", 1),
        lambda client: client.writer(1),
        lambda client: client.trajectory_writer(1),
        lambda client: client.mutate_priorities("t", {1: 1.0}),
        lambda client: client.reset("t"),
        lambda client: client.server_info(),
        lambda client: client.checkpoint(),
        lambda client: client.server_address,
        lambda client: list(client.items("t")),
        pickle.dumps,
        repr,
    ],
    reverie.Table: [
        lambda table: table.name,
        lambda table: table.info,
        lambda table: table.can_sample(1),
        lambda table: table.can_insert(1),
        lambda table: table.replace(max_size=2),
        lambda table: reverie.Server([table], in_process=True),
        repr,
    ],
    reverie.Server: [
        lambda server: server.port,
        lambda server: server.localhost_client(),
        lambda server: server.wait(),
        lambda server: server.stop(),
        reverie.Client,
        repr,
    ],
}


@pytest.mark.parametrize("base", CALLS, ids=lambda base: base.__name__)
def test_what_was_not_initialised_names_what_is_missing(base, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    bare = type("Bare", (base,), {"__init__": lambda self: None})()
    for call in CALLS[base]:
        with pytest.raises((AttributeError, RuntimeError), match=r"was not initialised.*super\(\).__init__\("):
            call(bare)
    del bare
    gc.collect()
    assert unraisable == []
