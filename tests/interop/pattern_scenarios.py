"""Pattern datasets in words that Reverb and Reverie share: both, in one interpreter, must make the same items and refuse the same.

`module` is `reverb` or `reverie`. Needs TensorFlow. What Reverb gets wrong is left out: configs stand shortest first (a short one after
a longer one is delayed), patterns have no lists (they fail at the first item), strides divide what they stride over (their signature is
one too short), none is repeated or inside a flat_map or interleave (only the first one's items come), and configs can be applied
(others end the process).
"""

import collections
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

Step = collections.namedtuple("Step", ["obs", "act"])


class Words:
    """Short words for what a dataset is made of."""

    def __init__(self, module):
        self.module = module
        self.structured = module.structured
        self.condition = module.structured.Condition

    def config(self, step, transform, conditions=(), table="t"):
        s = self.structured
        return s.create_config(s.pattern_from_transform(step, transform), table, conditions)

    def dataset(self, steps, configs, respect=True, end=lambda step: step["end"]):
        return self.module.PatternDataset(steps, configs, respect, end)


def numbered(n=12, ends=(3, 4, 9)):
    return tf.data.Dataset.from_tensor_slices(
        {
            "x": np.arange(n),
            "obs": {"image": np.arange(6 * n, dtype=np.uint8).reshape(n, 2, 3), "name": [f"s{i}" for i in range(n)]},
            "end": np.array([i in ends for i in range(n)]),
        }
    )


PAIR = {"x": 0, "obs": {"image": 0, "name": 0}, "end": 0}


def pairs(w, conditions=(), length=2):
    return [w.config(PAIR, lambda ref: {"x": ref["x"][-length:], "last": ref["x"][-1]}, conditions)]


# ---- scenarios: each returns datasets ----


def boundaries(w):
    return [w.dataset(numbered(), pairs(w, length=n), respect) for respect in (True, False) for n in (1, 2, 3)]


def nests(w):
    def transform(ref):
        return ({"i": ref["obs"]["image"][-2:], "a": ref["x"][-1]}, (ref["obs"]["name"][-3], ref["end"][-3:]))

    def named(ref):
        return Step(act=ref["x"][-1], obs=(ref["obs"]["name"][-1:],))

    return [w.dataset(numbered(), [w.config(PAIR, each)]) for each in (transform, named, lambda ref: ref["x"][-2:])]


def steps_of_other_nests(w):
    end = tf.constant(False)
    named = tf.data.Dataset.from_tensor_slices(Step(np.arange(5.0), np.arange(5, dtype=np.int32)))
    return [
        w.dataset(tf.data.Dataset.range(6), [w.config(0, lambda ref: (ref[-2:],))], end=lambda step: step == 2),
        w.dataset(
            tf.data.Dataset.zip((tf.data.Dataset.range(6), tf.data.Dataset.range(6))),
            [w.config((0, 0), lambda ref: (ref[1][-2:], ref[0][-1]))],
            end=lambda a, b: a + b == 4,
        ),
        w.dataset(named, [w.config(Step(0, 0), lambda ref: (ref.obs[-1], ref.act[-2:]))], end=lambda *_: end),
    ]


def conditions(w):
    c = w.condition
    data = c.data(PAIR)
    proto = w.structured.ConditionProto
    chosen = [
        [c.step_index() >= 2],
        [c.step_index() % 2 == 1],
        [c.step_index() % 3 != 1, c.step_index() < 4],
        [c.steps_since_applied() >= 2],
        [c.steps_since_applied() == 1],
        [c.is_end_episode()],
        [data["x"] % 3 == 1],
        [data["x"] > 5, data["end"] != 1],
        [data["end"] == 1],
        [data["obs"]["name"] == 1],
        [proto(buffer_length=True, ge=2)],
    ]
    return [w.dataset(numbered(), pairs(w, each), respect) for each in chosen for respect in (True, False)]


def several_configs(w):
    c = w.condition
    odd, late, rest = [c.step_index() % 2 == 1], [c.step_index() >= 3], [c.is_end_episode()]
    same = pairs(w, odd) + pairs(w, late) + pairs(w, rest)
    differ = pairs(w, rest, 1) + pairs(w, odd, 2) + pairs(w, late, 4)
    columns = [w.config(PAIR, lambda ref, r=row: (ref["x"][r], ref["x"][-2:])) for row in (-1, -2)]
    return [w.dataset(numbered(30, (7, 8, 20)), each, respect) for each in (same, differ, columns) for respect in (True, False)]


def strides(w):
    return [
        w.dataset(numbered(), [w.config(PAIR, lambda ref, k=k: (ref["x"][-6::k], ref["obs"]["image"][-7:-1:k]))])
        for k in (1, 2, 3)
    ]


def long_streams(w):
    """More steps than any block has."""
    return [
        w.dataset(
            numbered(500, range(31, 500, 47)), pairs(w, length=n) + pairs(w, [w.condition.is_end_episode()], n + 1), respect
        )
        for n in (1, 40)
        for respect in (True, False)
    ]


def dtypes(w):
    made = []
    for dtype in (
        tf.bool,
        tf.int8,
        tf.uint16,
        tf.int64,
        tf.uint64,
        tf.float16,
        tf.bfloat16,
        tf.float64,
        tf.complex64,
        tf.complex128,
    ):
        steps = tf.data.Dataset.from_tensor_slices(tf.cast(tf.reshape(tf.range(8), (4, 2)), dtype))
        made.append(w.dataset(steps, [w.config(0, lambda ref: (ref[-2:], ref[-1]))], end=lambda _: tf.constant(False)))
    return made


def shapes_that_are_not_known_before(w):
    def steps():
        for i in range(4):
            yield {"x": np.full(3, i), "end": False}

    spec = {"x": tf.TensorSpec([None], tf.int64), "end": tf.TensorSpec([], tf.bool)}
    made = tf.data.Dataset.from_generator(steps, output_signature=spec)
    return [w.dataset(made, [w.config({"x": 0, "end": 0}, lambda ref: (ref["x"][-2:], ref["x"][-1]))])]


def no_items(w):
    return [w.dataset(numbered(2), pairs(w, length=3)), w.dataset(numbered(3).take(0), pairs(w))]


def inside_others(w):
    return [
        w.dataset(numbered(), pairs(w)).batch(4),
        w.dataset(numbered().repeat(), pairs(w)).take(20),
    ]


def with_infos(w):
    return [w.module.pattern_dataset.pattern_dataset_with_info(numbered(), pairs(w), True, lambda step: step["end"])]


SCENARIOS = [
    boundaries,
    nests,
    steps_of_other_nests,
    conditions,
    several_configs,
    strides,
    long_streams,
    dtypes,
    shapes_that_are_not_known_before,
    no_items,
    inside_others,
    with_infos,
]


def plain(nest):
    """A nest as JSON has it, its containers and dtypes told."""
    if isinstance(nest, dict):
        return {key: plain(value) for key, value in nest.items()}
    if isinstance(nest, (list, tuple)):
        return [type(nest).__name__, *map(plain, nest)]
    if isinstance(nest, tf.TensorSpec):
        return [str(nest.shape), nest.dtype.name, nest.name]
    array = nest.numpy() if hasattr(nest, "numpy") else nest
    return [nest.dtype.name, repr(np.asarray(array).tolist())]


def run_all(module):
    w = Words(module)
    return {
        scenario.__name__: [
            [plain(dataset.element_spec), int(dataset.cardinality()), [plain(item) for item in dataset]]
            for dataset in scenario(w)
        ]
        for scenario in SCENARIOS
    }


# ---- errors ----


def mistakes(w):
    def iterate(dataset):
        return [plain(each) for each in dataset]

    def changing(n):
        def steps():
            for size in n:
                yield {"x": np.zeros(size, np.int64), "end": False}

        spec = {"x": tf.TensorSpec([None], tf.int64), "end": tf.TensorSpec([], tf.bool)}
        return tf.data.Dataset.from_generator(steps, output_signature=spec)

    def of_no_rank():
        return tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec(None, tf.int64))

    steps = numbered()
    return {
        "no configs": lambda: w.dataset(steps, []),
        "two tables": lambda: w.dataset(
            steps, [*pairs(w), w.config(PAIR, lambda r: {"x": r["x"][-2:], "last": r["x"][-1]}, (), "u")]
        ),
        "two structures": lambda: w.dataset(steps, [*pairs(w), w.config(PAIR, lambda r: r["x"][-1])]),
        "two dtypes": lambda: w.dataset(steps, [w.config(PAIR, lambda r: r["x"][-1]), w.config(PAIR, lambda r: r["end"][-1])]),
        "end is an int": lambda: w.dataset(steps, pairs(w), end=lambda step: step["x"]),
        "end is a dict": lambda: w.dataset(steps, pairs(w), end=lambda step: {"end": step["end"]}),
        "end is nothing": lambda: w.dataset(steps, pairs(w), end=lambda step: None),
        "end has dimensions": lambda: w.dataset(steps, pairs(w), end=lambda step: step["x"][None] > 0),
        "end is no function": lambda: w.dataset(steps, pairs(w), end=True),
        "steps of no rank": lambda: w.dataset(of_no_rank(), [w.config(0, lambda r: r[-1])]),
        "end fails": lambda: w.dataset(steps, pairs(w), end=lambda step: step["nothing"]),
        "steps change": lambda: iterate(w.dataset(changing([2, 2, 3]), [w.config({"x": 0, "end": 0}, lambda r: r["x"][-2:])])),
    }


def errors(module):
    """What became of each mistake: "nothing", or the kind of error."""
    kinds = {}
    for name, mistake in mistakes(Words(module)).items():
        try:
            mistake()
        except Exception as error:
            known = (tf.errors.InvalidArgumentError, AttributeError, KeyError, ValueError, TypeError, tf.errors.OpError)
            kinds[name] = next((kind.__name__ for kind in known if isinstance(error, kind)), repr(error))
        else:
            kinds[name] = "nothing"
    return kinds
