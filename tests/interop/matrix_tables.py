"""Tables of either package, and what many draws show of one."""

from __future__ import annotations

import numpy as np
from matrix_values import flatten, info

NOWHERE = "127.0.0.1:1"  # nobody listens there
DRAWS = 400  # from at most nine items, of which the rarest comes one time in thirty


def selector(module, name):
    made = getattr(module.selectors, name.split("(")[0])
    return made(float(name.split("(")[1].rstrip(")"))) if "(" in name else made()


def table(module, name="t", sampler="Fifo", remover="Fifo", max_size=100, limiter=None, **options):
    limiter = module.rate_limiters.MinSize(1) if limiter is None else limiter
    return module.Table(name, selector(module, sampler), selector(module, remover), max_size, limiter, **options)


def everything(client, name="t"):
    """What many draws show of a table, item by item in the order of their data: data, priority, probability, table size."""
    found = {}
    for each in client.sample(name, DRAWS, emit_timesteps=False):
        seen = info(each.info)
        del seen["times_sampled"]
        found[int(np.ravel(flatten(each.data)[0])[0])] = seen
    return [[value, found[value]] for value in sorted(found)]


def keys_by_value(client, name="t"):
    samples = client.sample(name, DRAWS, emit_timesteps=False)
    return {int(np.ravel(flatten(each.data)[0])[0]): each.info.key for each in samples}
