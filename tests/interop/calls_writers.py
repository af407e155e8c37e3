"""Trajectory writers, their history, columns and references: calls that are made with both packages; see calls.py."""

CALLS = [
    ("w = client.trajectory_writer(3); w.append([1, 2]); result = len(w.history), w.history[0][-1].numpy().tolist()", None, None),
    ("w = client.trajectory_writer(3); w.append(5); result = w.history[-1].numpy().tolist()", None, None),
    ("w = client.trajectory_writer(3); w.append({'a': 1}); w.append({'b': 2}); "
     "result = [sorted(w.history), len(w.history['b']), list(w.history['b'])[0], w.history['b'][-1].numpy().tolist()]",
     None, None),
    ("w = client.trajectory_writer(3); w.append({'a': 1}); w.append({'b': 2}); w.history['a'][:]",
     "cannot contain any None", None),
    ("w = client.trajectory_writer(3); w.append([1]); w.append([1, 2, 3]); "
     "result = len(w.history), [len(c) for c in w.history]",
     None, None),
    ("w = client.trajectory_writer(3); w.append([1, 2]); w.append([1]); "
     "result = len(w.history), [len(c) for c in w.history], list(w.history[1])[1]",
     None, None),
    ("import collections; P = collections.namedtuple('P', 'a b'); w = client.trajectory_writer(3); "
     "w.append(P(1, None)); w.append(P(None, 2)); result = type(w.history).__name__, [len(c) for c in w.history]",
     None, None),
    ("w = client.trajectory_writer(3); w.append({1: 1}); w.append({1: 1, 2: 2})",
     "keywords must be strings", "ours takes any keys"),
    ("w = client.trajectory_writer(3); w.append({'x': 1}); w.append({'x': {'y': 1}})", None, None),
    ("w = client.trajectory_writer(3); w.append({'x': {'y': 1}}); w.append({'x': 1})", None, None),
    ("w = writer(3); w.append({'y': np.int64(1)}, partial_step=True); "
     "result = w.episode_steps, len(w.history['y']), len(w.history['x'])",
     None, None),
    ("w = writer(3); w.append({'y': np.int64(1)}, partial_step=True); "
     "w.append({'x': np.zeros(2, np.float32)}); result = w.episode_steps, w.history['x'][-1].numpy().tolist()",
     None, None),
    ("w = writer(3); w.append({'y': np.int64(1)}, partial_step=True); "
     "w.create_item('q', 1.0, [w.history['y'][-1]]); w.append({}); w.flush(0, 5000); "
     "result = next(client.sample('q', emit_timesteps=False)).data[0].tolist()",
     None, None),
    ("w = writer(3); w.append({'x': np.zeros(2, np.float64)})", "('x',)", None),
    ("w = writer(6, 4); c = w.history['y'][5]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][-1]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][2]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][-4]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][True]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][2:]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][-3:]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][-3:-1]; "
     "result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][3:5]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][4:2:-1]; "
     "result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][::-1]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][2::2]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][-1:-4:-1]; "
     "result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][[2, 5]]; "
     "result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][[-1, -1]]; "
     "result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][:3]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][:-1]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][2:100]; "
     "result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][-100:]; "
     "result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][[]]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][5:5]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); c = w.history['y'][[5]]; result = type(c).__name__, c.shape, c.numpy().tolist(), c.is_squeezed",
     None, None),
    ("w = writer(6, 4); w.history['y'][0]", None, None),
    ("w = writer(6, 4); w.history['y'][1]", None, None),
    ("w = writer(6, 4); w.history['y'][-5]", None, None),
    ("w = writer(6, 4); w.history['y'][-7]", None, None),
    ("w = writer(6, 4); w.history['y'][7]", None, None),
    ("w = writer(6, 4); w.history['y'][100]", None, None),
    ("w = writer(6, 4); w.history['y'][0:]", None, None),
    ("w = writer(6, 4); w.history['y'][::2]", None, None),
    ("w = writer(6, 4); w.history['y'][[0]]", None, None),
    ("w = writer(6, 4); w.history['y'][[100]]", None, None),
    ("w = writer(2, 4); w.history['y'][-3:]", None, None),
    ("w = writer(2, 4); w.history['y'][-3:-1]", None, None),
    ("w = writer(2, 4); w.end_episode(); w.history['y'][-1:]", None, None),
    ("w = writer(6, 4); w.history['y'][1.0]", None, None),
    ("w = writer(6, 4); w.history['y']['a']", None, None),
    ("w = writer(6, 4); w.history['y'][np.arange(2)]", None, None),
    ("w = writer(6, 4); w.history['y'][...]", None, None),
    ("result = len(writer(6, 4).history['y']), [e is None for e in writer(6, 4).history['y']]", None, None),
    ("result = str(writer(2).history['y']).count('y') > 0, [type(k).__name__ for k in [writer(2).history]]", None, None),
    ("w = writer(3); w.create_item('q', np.float32(2), {'y': w.history['y'][-1]}); "
     "w.create_item('q', np.array([3]), {'y': w.history['y'][-1]}); "
     "w.create_item('q', 4, {'y': w.history['y'][-1]}); w.flush(); "
     "result = [s[0].info.priority if isinstance(s, list) else s.info.priority for s in client.sample('q', 3, "
     "emit_timesteps=False)]",
     None, None),
    ("w = writer(3); w.create_item('q', None, {'y': w.history['y'][-1]})", None, None),
    ("w = writer(3); w.create_item('q', np.zeros(2), {'y': w.history['y'][-1]})", None, None),
    ("w = writer(3); w.create_item(3, 1.0, {'y': w.history['y'][-1]})", None, None),
    ("w = writer(3); w.create_item('q', 1.0, [[], {}])", "must not be empty", None),
    ("w = writer(3); w.create_item('q', 1.0, {'y': w.history['y'][3:3]})", None, None),
    ("w = writer(3, 2); c = w.history['y'][-2]; w.append({}); "
     "w.append({'x': np.zeros(2, np.float32), 'y': np.int64(9)}); "
     "w.append({'x': np.zeros(2, np.float32), 'y': np.int64(9)}); w.create_item('q', 1.0, [c])",
     "expired", None),
    ("w = writer(3); c = w.history['y'][-2:]; w.end_episode(); c.numpy()", "expired", None),
    ("w = writer(3); c = w.history['y'][-2:]; w.end_episode(clear_buffers=False); result = c.numpy().tolist()", None, None),
    ("w = writer(3); c = reverb.TrajectoryColumn([w.history['x'][0:1][0] if False else "
     "list(w.history['x'][:])[0], list(w.history['y'][:])[0]]); w.create_item('q', 1.0, [c])",
     "different dtypes", None),
    ("w = writer(3); w.create_item('q', 1.0, {'a': w.history['y'][-1], 'b': w.history['x'][-2:], 'c': "
     "w.history['y'][[0, 2]]}); w.flush(); "
     "result = [d.tolist() for d in next(client.sample('q', emit_timesteps=False)).data][0::2]",
     None, None),
    ("with writer(3) as w: pass\nresult = w.append({'y': np.int64(3)}), w.episode_steps", None, None),
    ("try:\n    with writer(3) as w: raise reverb.DeadlineExceededError('x')\n"
     "except reverb.ReverbError as e: result = str(e)",
     None, None),
    ("w = writer(3); result = w.flush(timeout_ms=None), w.flush(0, -1), w.end_episode(True, 0)", None, None),
    ("w = writer(3); w.flush(True)", None, None),
    ("w = writer(3); w.end_episode(timeout_ms=1.5)", None, None),
    ("w = writer(0); w.configure(('y',), num_keep_alive_refs=2)", None, None),
    ("w = writer(0); w.configure(('y',), num_keep_alive_refs=2, max_chunk_length=0)", "positive", None),
    ("w = writer(0); result = w.configure(('nope',), num_keep_alive_refs=2, max_chunk_length=2)", None, None),
    ("w = writer(3); c = w.history['y'][:]; "
     "result = len(c), [e.numpy().tolist() for e in c], c[0].numpy().tolist(), c[-2:].numpy().tolist(), c[[0, "
     "2]].numpy().tolist(), c.dtype == np.int64",
     None, None),
    ("w = writer(3); w.history['y'][:][np.int64(0)]", None, None),
    ("w = writer(3); w.history['y'][:][None]", None, None),
    ("w = writer(3); w.history['y'][:][-4]", None, None),
    ("w = writer(3); w.history['y'][:][[7]]", None, None),
    ("w = writer(3); c = w.history['y'][:]; result = c == c, c == w.history['y'][:]", None, None),
    ("w = writer(3); r = list(w.history['x'][:])[0]; "
     "result = r.expired, list(r.shape), str(r.dtype), r.numpy().tolist()",
     None, None),
    ("w = writer(3); r = list(w.history['x'][:])[0]; w.end_episode(); result = r.expired", None, None),
    ("w = writer(3); r = list(w.history['x'][:])[0]; w.end_episode(); r.numpy()", None, None),
    ("w = writer(3); reverb.TrajectoryColumn([])", None, None),
    ("w = writer(3); reverb.TrajectoryColumn([], squeeze=True)", "exactly one", None),
    ("reverb.TrajectoryColumn(3)", None, None),
]  # fmt: skip
