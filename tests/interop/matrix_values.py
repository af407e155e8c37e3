"""Values to store, and how what comes back is written down so that two runs can be compared bit by bit.

Imported by both packages' processes; imports neither package.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMBERS = (*INTEGERS, "bool", "float16", "float32", "float64", "complex64", "complex128")
DTYPES = (*NUMBERS, "string")


def values(dtype, shape, seed):
    """An array of any bits that the dtype can have: extremes, NaNs with payloads, -0.0; of strings, any bytes, also none."""
    random = np.random.RandomState(seed)
    shape = tuple(shape)
    count = math.prod(shape)
    if dtype == "string":
        lengths = random.choice([0, 1, 5, 300], count)
        out = np.empty(count, object)
        for i, length in enumerate(lengths):
            out[i] = random.bytes(length)
        return out.reshape(shape)
    if dtype == "bool":
        return random.randint(0, 2, shape).astype(bool)
    itemsize = np.dtype(dtype).itemsize
    return np.frombuffer(random.bytes(count * itemsize), dtype).reshape(shape).copy()


def bits(value):
    """Dtype, shape and every bit of an array or a tensor."""
    value = value.numpy() if hasattr(value, "numpy") else value
    array = np.asarray(value, object if isinstance(value, bytes) else None)  # NumPy's own bytes lose their last NULs
    if array.dtype.kind in "OSU":
        items = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
        return ["string", list(array.shape), _short(b"".join(len(item).to_bytes(4, "big") + item for item in items))]
    return [array.dtype.name, list(array.shape), _short(array.tobytes())]


def _short(data):
    return data.hex() if len(data) <= 100 else hashlib.sha256(data).hexdigest()


def flatten(nest):
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in flatten(nest[key])]
    if isinstance(nest, (list, tuple)):
        return [leaf for each in nest for leaf in flatten(each)]
    return [nest]


def structure(nest):
    """What a nest is made of, without its leaves."""
    if isinstance(nest, dict):
        return {str(key): structure(nest[key]) for key in sorted(nest)}
    if hasattr(nest, "_fields"):
        return [type(nest).__name__, [[name, structure(getattr(nest, name))] for name in nest._fields]]
    if isinstance(nest, (list, tuple)):
        return [type(nest).__name__, [structure(each) for each in nest]]
    return "leaf"


def key(value):
    """A key, which is random: what is compared is where the same one comes again (`number_keys`)."""
    return f"key:{int(value)}"


def number(value):
    """A float that JSON keeps, infinite or not."""
    return repr(float(value))


def info(info):
    """All of a SampleInfo. Of a probability, ten digits: sums of weights depend on the order they were added in."""
    return {
        "key": key(info.key),
        "probability": f"{float(info.probability):.10g}",
        "table_size": int(info.table_size),
        "priority": number(info.priority),
        "times_sampled": int(info.times_sampled),
    }


def sample(sample):
    """All of a ReplaySample."""
    return {"data": [bits(leaf) for leaf in flatten(sample.data)], "nest": structure(sample.data), "info": info(sample.info)}


def number_keys(result, seen=None):
    """The same with each key replaced by its number in the order in which keys are seen."""
    seen = {} if seen is None else seen
    if isinstance(result, str) and result.startswith("key:"):
        return f"key {seen.setdefault(result, len(seen))}"
    if isinstance(result, list):
        return [number_keys(each, seen) for each in result]
    if isinstance(result, dict):
        return {name: number_keys(each, seen) for name, each in result.items()}
    return result


_TF_KINDS = ("NotFoundError", "InvalidArgumentError", "CancelledError", "OutOfRangeError")


def outcome(call, *texts):
    """As what a program may catch the exception that a call ends with, and which of `texts` its message has."""
    try:
        call()
    except Exception as error:
        kinds = type(error).__mro__[: type(error).__mro__.index(Exception)]
        of_tensorflow = [each.__name__ for each in kinds if each.__name__ in _TF_KINDS and "tensorflow" in each.__module__]
        known = [each.__name__ for each in kinds if each.__module__ == "builtins" or each.__name__ == "DeadlineExceededError"]
        return {"raised": of_tensorflow or known, "says": [text for text in texts if text in str(error)]}
    return {"raised": [], "says": []}


def difference(found, expected, where="result"):
    """Where two results differ; "" where they agree. Whoever catches the exception that is expected must catch the one that was found."""
    if type(found) is not type(expected) or (isinstance(expected, (dict, list)) and len(found) != len(expected)):
        return f"{where}: {found!r} instead of {expected!r}"
    if isinstance(expected, dict) and "raised" in expected:
        caught = set(expected["raised"]) <= set(found["raised"]) and bool(expected["raised"]) == bool(found["raised"])
        return "" if caught and set(expected["says"]) <= set(found["says"]) else f"{where}: {found!r} instead of {expected!r}"
    if isinstance(expected, dict):
        found = {name: found.get(name) for name in expected}
        return next(filter(None, (difference(found[name], expected[name], f"{where}[{name!r}]") for name in expected)), "")
    if isinstance(expected, list):
        pairs = enumerate(zip(found, expected, strict=True))
        return next(filter(None, (difference(a, b, f"{where}[{i}]") for i, (a, b) in pairs)), "")
    return "" if found == expected else f"{where}: {found!r} instead of {expected!r}"
