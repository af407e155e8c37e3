"""Patterns, conditions and the structured writer: calls that are made with both packages; see calls.py."""

CALLS = [
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][-1]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][:-1]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][-3:]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][-3:-1]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][-5::2]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][0]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][3]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][-1:-3]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][::]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("r = reverb.structured.create_reference_step({'a': 0, 'b': [1, 2]}); n = r['b'][0][-2:0]; "
     "result = str(n).split(), n.HasField('start'), n.HasField('stop'), n.HasField('step')",
     None, None),
    ("reverb.structured.create_reference_step({'a': 0})['a'][None]", "Key must be", None),
    ("reverb.structured.create_reference_step({'a': 0})['a']['a']", "Key must be", None),
    ("reverb.structured.create_reference_step({'a': 0})['a'][[0]]", "Key must be", None),
    ("reverb.structured.create_reference_step({'a': 0})['a'][np.int64(1)]", "Key must be", None),
    ("reverb.structured.create_reference_step({'a': 0})['a'][1.5]", "Key must be", None),
    ("C = reverb.structured.Condition; "
     "result = [str(x).split() for x in (C.step_index() == 3, C.step_index() != 3, C.step_index() > 3, "
     "C.step_index() >= 3, C.step_index() < 3, C.step_index() <= 3, C.steps_since_applied() >= 2, "
     "C.step_index() % 4 == 1, C.step_index() % 4 != 1, C.is_end_episode(), C.data({'a': 0})['a'] == 1, 3 < "
     "C.step_index())]",
     None, None),
    ("reverb.structured.Condition.step_index() == 'a'", None, None),
    ("reverb.structured.Condition.step_index() >= 1.5", None, None),
    ("hash(reverb.structured.Condition.step_index())", None, None),
    ("S = reverb.structured; S.create_config({'a': 3}, 't')", None, None),
    ("S = reverb.structured; c = S.create_config(S.pattern_from_transform({'a': 0, 'b': 1}, lambda s: {'x': "
     "s['b'][-2:], 'y': (s['a'][-1],)}), 't'); p = S.unpack_pattern(c); "
     "result = sorted(p), type(p['y']).__name__, str(p['x']).split(), str(c.priority).split(), c.table, "
     "len(c.flat), len(c.conditions)",
     None, None),
    ("S = reverb.structured; c = S.Config(); c.flat.add(flat_source_index=1, stop=-1); "
     "result = [str(x).split() for x in S.unpack_pattern(c)]",
     None, None),
    ("S = reverb.structured; result = str(S.constant_priority_fn(2.5)).split(), str(S.td_error(0.5, {'a': 0, "
     "'b': 1}, lambda s: s['b'])).split()",
     None, None),
    ("S = reverb.structured; c = S.Config(table='t'); pass; client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=-1); c.table = ''; client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(); client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(start=0, stop=0); client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(start=-1, stop=1); client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(start=-1, stop=-2); client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=0); client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(start=-2, step=0); client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=-2, step=1); client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=-1, flat_source_index=-1); "
     "client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=-1); c.conditions.add(); "
     "client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=-1); c.conditions.add(step_index=True); "
     "client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=-1); c.conditions.add(eq=3); "
     "client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=-1); "
     "c.conditions.add(step_index=True).mod_eq.eq = 1; client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=-1); "
     "c.conditions.add(is_end_episode=True, eq=0); client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; c = S.Config(table='t'); c.flat.add(stop=-1); "
     "c.conditions.add(is_end_episode=True, eq=1, inverse=True); client.structured_writer([c])",
     "Invalid configuration at position 0", None),
    ("S = reverb.structured; w = client.structured_writer([S.create_config(S.pattern_from_transform({'a': 0, "
     "'b': 0}, lambda s: {'x': s['a'][-2:]}), 'q')]); w.append({'a': 1, 'b': 1}); a = w.step_is_open; "
     "w.append({'a': 2, 'b': None}, partial_step=True); b = w.step_is_open; w.flush(0, 5000); "
     "result = a, b, next(client.sample('q', emit_timesteps=False)).data[0].tolist()",
     None, None),
    ("S = reverb.structured; w = client.structured_writer([S.create_config(S.pattern_from_transform({'a': 0, "
     "'b': 0}, lambda s: {'x': s['a'][-2:]}), 'q')]); w.append({'a': 1, 'b': 1}); w.append({'a': 1})",
     "unexpected length", None),
    ("S = reverb.structured; w = client.structured_writer([S.create_config(S.pattern_from_transform({'a': 0, "
     "'b': 0}, lambda s: {'x': s['a'][-2:]}), 'q')]); w.append({'a': 1, 'b': 1}); w.append({'a': 1.5, 'b': 1})",
     "for column", None),
    ("S = reverb.structured; w = client.structured_writer([S.create_config(S.pattern_from_transform({'a': 0, "
     "'b': 0}, lambda s: {'x': s['a'][-2:]}), 'q')]); w.append({'a': 1, 'b': 1}, partial_step=True); "
     "w.append({'a': 1, 'b': 1})",
     "provided by multiple", None),
    ("S = reverb.structured; w = client.structured_writer([S.create_config(S.pattern_from_transform({'a': 0, "
     "'b': 0}, lambda s: {'x': s['a'][-2:]}), 'q')]); w.append({'a': object(), 'b': 1})",
     None, None),
    ("S = reverb.structured; w = client.structured_writer([S.create_config(S.pattern_from_transform({'a': 0}, "
     "lambda s: {'x': s['a'][-1:]}), 'nope')]); w.append({'a': 1}); w.flush(0, 20000)",
     "was not found", None),
    ("S = reverb.structured; w = client.structured_writer([S.create_config(S.pattern_from_transform({'a': 0}, "
     "lambda s: {'x': s['a'][-1:]}), 'q', priority=S.td_error(0.5, {'a': 0}, lambda s: s['a']))]); "
     "w.append({'a': np.zeros(2)})",
     "TD Error", None),
    ("S = reverb.structured; c = S.create_config(S.pattern_from_transform({'a': 0}, lambda s: {'x': "
     "s['a'][-1:]}), 'q'); c.ClearField('priority'); w = client.structured_writer([c]); w.append({'a': 1})",
     "Priority function", None),
    ("S = reverb.structured; sp = {'a': spec([2], np.float32), 'b': spec([], np.int64)}; "
     "s = S.infer_signature([S.create_config(S.pattern_from_transform(sp, lambda s: {'x': s['a'][-3:], 'y': "
     "s['b'][-1]}), 'q')], sp); result = [str(s['x'].shape), s['y'].dtype == np.int64, s['x'].name]",
     None, None),
    ("reverb.structured.infer_signature([], {})", None, None),
    ("S = reverb.structured; sp = {'a': spec([2], np.float32)}; "
     "c = [S.create_config(S.pattern_from_transform(sp, lambda s: {'x': s['a'][-3:]}), t) for t in 'qt']; "
     "S.infer_signature(c, sp)",
     None, None),
    ("S = reverb.structured; sp = {'a': spec([2], np.float32)}; "
     "c = [S.create_config(S.pattern_from_transform(sp, lambda s, n=n: {'x': s['a'][-n:]}), 'q') for n in (2, "
     "3)]; result = str(S.infer_signature(c, sp)['x'].shape)",
     None, None),
    ("S = reverb.structured; sp = {'a': spec([2], np.float32)}; "
     "c = [S.create_config(S.pattern_from_transform(sp, lambda s, n=n: {n: s['a'][-1:]}), 'q') for n in 'xy']; "
     "S.infer_signature(c, sp)",
     None, None),
    ("result = repr(reverb.pybind.HeapSelector(True)), repr(reverb.pybind.PrioritizedSelector(0.5)), "
     "isinstance(FIFO(), reverb.pybind.FifoSelector)",
     None, None),
    ("w = writer(3); w.create_item('q', 1.0, [w.history['y'][-1]]); w.flush(0, 5000); "
     "result = len(list(client.sample('q', 1)))",
     None, None),
]  # fmt: skip
