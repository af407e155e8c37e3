"""Datasets and `TFClient`, eager and in graphs: calls that are made with both packages; see calls.py."""

CALLS = [
    ("tf_client.insert([1.0, 2, np.float64(3), 'text'], tf.constant(['q']), DOUBLES); "
     "result = [str(x.dtype) for x in next(client.sample('q'))[0].data]",
     None, None),
    ("tf_client.insert([tf.constant(1.0)], tf.constant(['q', 'q']), tf.constant([1.0, 2.0], tf.float64)); "
     "result = sorted(s[0].info.priority for s in client.sample('q', 2))",
     None, None),
    ("result = [str(x.dtype) for x in tf_client.sample(tf.constant('p'), [F32, tf.int64]).data]", None, None),
    ("result = tf_client.update_priorities(tf.constant('t'), [1], [1.0])", None, None),
    ("tf_client.sample('squeezed', [F32])", None, None),
    ("tf_client.sample('uneven', [F32, tf.int64])", None, None),
    ("tf_client.insert([tf.constant(1.0)], tf.constant(['q']), tf.constant([float('nan')], tf.float64))", None, None),
    ("tf_client.insert([], tf.constant(['q']), DOUBLES)", None, "ours is an InvalidArgumentError: the argument is wrong"),
    ("tf_client.insert([tf.constant([1.0, 2.0, 3.0])], tf.constant(['s']), DOUBLES)", "inconsistent", None),
    ("tf_client.update_priorities('p', [next(client.sample('p'))[0].info.key], [-1.0])", None, None),
    ("tf_client.update_priorities('p', [next(client.sample('p'))[0].info.key], [float('nan')])", None, None),
    ("tf.function(lambda: (tf_client.update_priorities('nope', tf.constant([1], tf.uint64), DOUBLES), "
     "tf.constant(1))[1])()",
     None, None),
    ("tf.function(lambda: (tf_client.update_priorities('t', tf.constant([1, 2], tf.uint64), DOUBLES), "
     "tf.constant(1))[1])()",
     None, None),
    ("tf.function(lambda: (tf_client.insert([tf.constant(1.0)], tf.constant(['nope']), DOUBLES), tf.constant(1))[1])()",
     None, None),
    ("tf.function(lambda: (tf_client.insert([tf.constant([1.0, 2.0, 3.0])], tf.constant(['s']), DOUBLES), "
     "tf.constant(1))[1])()",
     None, None),
    ("tf.function(lambda: (tf_client.insert([tf.constant(1.0)], tf.constant(['q']), "
     "tf.constant([float('nan')], tf.float64)), tf.constant(1))[1])()",
     None, None),
    ("tf.function(lambda: tf_client.sample('nope', [F32]).data[0])()", None, None),
    ("tf.function(lambda: tf_client.sample('nope', [F32]).info.key)()", None, None),
    ("tf.function(lambda: tf_client.sample('p', [F32]).data[0])()", None, None),
    ("tf.function(lambda: tf_client.sample('p', [F32, F32]).data[0])()", None, "ours is InvalidArgumentError here, too"),
    ("tf.function(lambda: tf_client.sample('uneven', [F32, tf.int64]).data[0])()", None, None),
    ("tf.function(lambda: tf_client.update_priorities('p', [next(client.sample('p'))[0].info.key], "
     "tf.constant([-1.0], tf.float64)))()",
     None, None),
    ("result = [x.name for x in tf_client.sample('p', (F32, {'y': tf.int64}), name='n').data[1].values()] if "
     "False else type(tf_client.sample('p', (F32, {'y': tf.int64})).data).__name__",
     None, None),
    ("ds = tf.data.Dataset.range(2).interleave(lambda _: trajectories(max_samples=3), cycle_length=2); "
     "result = len(list(ds))",
     None, None),
    ("result = len(list(trajectories(max_samples=7).batch(3)))", None, None),
    ("result = [b.info.key.shape.as_list() for b in trajectories(max_samples=7).batch(3, drop_remainder=True)]", None, None),
    ("result = trajectories().batch(3).element_spec.info.key.shape.as_list()", None, None),
    ("result = len(list(trajectories(max_samples=5).map(lambda s: s.data['x']).take(2)))", None, None),
    ("result = int(trajectories(max_samples=5).reduce(np.int64(0), lambda n, _: n + 1))", None, None),
    ("trajectories(dtypes=F32, shapes={'x': S([None, 2])})", None, None),
    ("trajectories(shapes={'x': [None, 2]})", None, None),
    ("trajectories(shapes={'x': (None, 2)})", None, None),
    ("trajectories(ahead=1.5)", None, "ours refuses it"),
    ("trajectories(ahead=None)", None, None),
    ("trajectories(table=None)", None, None),
    ("trajectories(table=3)", None, None),
    ("reverb.TrajectoryDataset(3, 's', {'x': F32}, {'x': S([None, 2])}, 1)", None, None),
    ("pickle.dumps(trajectories())", None, None),
    ("result = len(list(tf.compat.v1.data.make_one_shot_iterator(trajectories(max_samples=2)).get_next())) if "
     "False else hasattr(trajectories(), 'make_one_shot_iterator')",
     None, None),
    ("import collections; P = collections.namedtuple('P', 'a b'); "
     "d = reverb.TrajectoryDataset(address, 'p', P(F32, tf.int64), P(S([None, 2]), S([None])), 1, "
     "max_samples=1); result = type(first(d).data).__name__, [x.shape for x in first(d).data]",
     None, None),
    ("d = reverb.TimestepDataset(address, 'p', [F32, tf.int64], [S([2]), S([])], 1, max_samples=2); "
     "result = [x.data[0].shape for x in d.as_numpy_iterator()]",
     None, None),
    ("result = [x.dtype.name for x in first(trajectories(max_samples=1)).info]", None, None),
    ("iterator = iter(trajectories(max_samples=1)); next(iterator); next(iterator)", None, None),
    ("first(trajectories(table='empty', dtypes=[F32], shapes=[S(None)], rate_limiter_timeout_ms=50))", None, None),
    ("first(reverb.TrajectoryDataset(address, 'nope', [F32], [S(None)], 1).batch(2))", "was not found", None),
    ("next(iter(tf.data.Dataset.range(2).interleave(lambda _: reverb.TrajectoryDataset(address, 'nope', [F32], "
     "[S(None)], 1), cycle_length=2)))",
     "was not found", None),
    ("result = [int(n) for n in [len(list(signed(max_samples=4, num_workers_per_iterator=3))), "
     "len(list(signed(max_samples=3, max_samples_per_stream=2)))]]",
     None, None),
    ("P = lambda r, e=(lambda s: s['end']): reverb.PatternDataset(tf.data.Dataset.range(6).map(lambda i: {'i': "
     "i, 'end': tf.equal(i % 3, 2)}), "
     "[reverb.structured.create_config(reverb.structured.pattern_from_transform({'end': 0, 'i': 0}, lambda s: "
     "{'i': s['i'][-2:]}), 't')], r, e)\n"
     "result = [d['i'].tolist() for d in P(True).as_numpy_iterator()], [d['i'].tolist() for d in "
     "P(False).as_numpy_iterator()]",
     None, None),
    ("reverb.PatternDataset(tf.data.Dataset.range(6).map(lambda i: {'i': i}), "
     "[reverb.structured.create_config(reverb.structured.pattern_from_transform({'i': 0}, lambda s: {'i': "
     "s['i'][-2:]}), 't')], True, lambda s: s['i'])",
     "must return", None),
    ("reverb.PatternDataset(tf.data.Dataset.range(6).map(lambda i: {'i': i}), [], True, lambda s: False)", None, None),
    ("from tensorflow.python.framework import tensor_spec; "
     "b = tensor_spec.BoundedTensorSpec([2], F32, 0.0, 1.0, 'bb'); "
     "s = table(signature={'x': b}).info.signature['x']; "
     "result = type(s).__name__, s.name, s.minimum.tolist(), s.maximum.tolist()",
     None, None),
    ("table(signature={'x': tf.SparseTensorSpec([2], F32)})", "Unsupported signature spec", None),
    ("result = client.insert([tf.Variable([1.0])], {'q': 1.0}), next(client.sample('q'))[0].data[0].tolist()", None, None),
    ("result = client.insert([tf.constant(['a', 'b'])], {'q': tf.constant(2.0)}), [str(x) for x in "
     "next(client.sample('q'))[0].data[0]]",
     None, None),
    ("client.insert([tf.constant(1.0, tf.bfloat16)], {'q': 1.0})", None, None),
]  # fmt: skip
