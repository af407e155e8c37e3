"""The client and the legacy writer: calls that are made with both packages; see calls.py."""

CALLS = [
    ("result = reverb.Client(b'localhost:1').server_address in ('localhost:1', b'localhost:1')", None, None),
    ("reverb.Client()", None, None),
    ("result = list(client.sample('t', -1))", None, "ours refuses it"),
    ("s = next(client.sample('t')); result = type(s).__name__, len(s)", None, None),
    ("w = writer(4); w.create_item('q', 1.0, {'x': w.history['x'][:], 'y': w.history['y'][:]}); w.flush(); "
     "s = next(client.sample('q')); "
     "result = len(s), all(e.info is s[0].info for e in s), [e.data[1].tolist() for e in s], "
     "type(s[0].data[1]).__name__",
     None, None),
    ("w = writer(4); w.create_item('q', 1.0, {'x': w.history['x'][-1]}); w.flush(); "
     "s = next(client.sample('q')); result = len(s), s[0].data[0].tolist()",
     None, None),
    ("w = writer(4); w.create_item('q', 1.0, [w.history['x'][-1], w.history['y'][-2:]]); w.flush(); "
     "s = next(client.sample('q', emit_timesteps=False)); result = [e.shape for e in s.data]",
     None, None),
    ("client.insert([1], {'q': 'a', 't': 1.0})", None, None),
    ("client.insert([7], {b'q': 1.0}); result = next(client.sample(b'q'))[0].data[0].item()", None, None),
    ("w = writer(4); w.create_item(b'q', 1.0, {'x': w.history['x'][-1]}); w.flush(); w = legacy(2); w.create_item(b'q', 1, 2.0); "
     "w.flush(); result = [s.info.priority for s in client.sample(table=b'q', num_samples=2, emit_timesteps=False)]",
     None, None),
    ("client.insert([1], {'empty': 5.0}); k = next(client.sample('empty'))[0].info.key; "
     "client.mutate_priorities(b'empty', updates={k: 7.0}); a = next(client.sample('empty'))[0].info.priority; "
     "client.reset(b'empty'); result = a, client.server_info()['empty'].current_size",
     None, None),
    ("result = client.insert([1], {'q': np.array([2.0])}), next(client.sample('q'))[0].info.priority", None, None),
    ("result = client.insert([1], {'q': -3.0}), next(client.sample('q'))[0].info.priority", None, None),
    ("result = client.insert([1], {'q': float('inf')}), next(client.sample('q'))[0].info.priority", None, None),
    ("result = client.insert([1], {'q': True}), next(client.sample('q'))[0].info.priority", None, None),
    ("client.insert([1], {3: 1.0})", None, None),
    ("client.insert([1], {'q': None})", None, None),
    ("client.insert([1])", None, None),
    ("client.insert(data=[1], priorities={'q': 1.0}); "
     "result = len(list(client.sample(table='q', num_samples=1, emit_timesteps=False)))",
     None, None),
    ("client.insert([1], {'empty': 5.0}); k = next(client.sample('empty'))[0].info.key; "
     "client.mutate_priorities('empty', updates={k: 7.0}); a = next(client.sample('empty'))[0].info.priority; "
     "client.mutate_priorities('empty', updates={k: 9.0}, deletes=[k]); "
     "result = a, client.server_info()['empty'].current_size; client.reset('empty')",
     None, None),
    ("result = client.mutate_priorities('t')", None, None),
    ("client.mutate_priorities('t', deletes=[1.5])", None, None),
    ("client.mutate_priorities('t', deletes=5)", None, None),
    ("client.mutate_priorities('t', {'a': 1.0})", None, None),
    ("result = client.mutate_priorities('t', {True: 1})", None, None),
    ("client.reset(3)", None, None),
    ("client.reset()", None, None),
    ("result = sorted(client.server_info(timeout=5)) == sorted(client.server_info(0)) == sorted(client.server_info(-1))",
     None, None),
    ("client.trajectory_writer(1, True)", None, None),
    ("client.structured_writer([])", "At least one config", None),
    ("client.structured_writer(None)", "At least one config", None),
    ("client.writer()", None, None),
    ("w = client.writer(3); result = repr(w).split(', episode_id')[0], repr(w).split('closed=')[1]", None, None),
    ("w = client.writer(3, delta_encoded=True, chunk_length=2, max_in_flight_items=None); "
     "result = repr(w).split(', episode_id')[0]; w.close()",
     None, None),
    ("w = client.writer(20); result = repr(w).split(',')[0]; w.close(); result = result, repr(w).split('closed=')[1]",
     None, None),
    ("with client.writer(3) as w:\n    for i in range(5): w.append({'a': np.int64(i), 'b': [np.float32(i)]})\n"
     "    w.create_item('q', 3, 1.5)\nresult = [e.data[0].tolist() for e in next(client.sample('q'))]",
     None, None),
    ("with client.writer(4, chunk_length=2) as w:\n"
     "    w.append_sequence({'a': np.arange(4), 'b': np.zeros((4, 2), np.float32)})\n"
     "    w.create_item('q', 4, 1.5)\nresult = [e.shape for e in next(client.sample('q', emit_timesteps=False)).data]",
     None, None),
    ("w = client.writer(3); w.append_sequence([np.zeros((0, 2), np.float32)])", None, "ours refuses it"),
    ("w = client.writer(3); w.create_item('q', 1, 1.0)", None, None),
    ("w = legacy(); w.create_item('q', 1, 'a')", None, None),
    ("w = legacy(); w.create_item('q', 1.5, 1.0)", None, None),
    ("w = legacy(); w.create_item(3, 1, 1.0)", None, None),
    ("w = legacy(0); w.close(retry_on_unavailable=False); result = 'True' in repr(w)", None, None),
    ("try:\n    with legacy() as w:\n        w.create_item('q', 1, 1.0)\n        raise KeyError('mine')\n"
     "except KeyError: result = len(list(client.sample('q', 1)))",
     None, None),
]  # fmt: skip
