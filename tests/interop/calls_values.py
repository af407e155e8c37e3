"""Nests and the kinds of values: calls that are made with both packages; see calls.py."""

CALLS = [
    ("result = pickle.loads(pickle.dumps(reverb.ReplaySample(reverb.SampleInfo.zeros(), [1])))", None, None),
    ("import collections; client.insert(collections.OrderedDict([('b', 1), ('a', 2.5)]), {'q': 1.0}); "
     "result = [x.tolist() for x in next(client.sample('q'))[0].data]",
     None, None),
    ("import collections; P = collections.namedtuple('P', 'z a'); client.insert(P(1, 2.5), {'q': 1.0}); "
     "result = [x.tolist() for x in next(client.sample('q'))[0].data]",
     None, None),
    ("import collections; client.insert({'frames': collections.deque([1, 2.5], maxlen=2)}, {'q': 1.0}); "
     "result = [x.tolist() for x in next(client.sample('q'))[0].data]",
     None, None),
    ("import collections; w = client.trajectory_writer(2); w.append({'frames': collections.deque([1, 2.5])}); "
     "w.append({'frames': collections.deque([3, 4.5])}); "
     "result = type(w.history['frames']).__name__, [column[-2:].numpy().tolist() for column in w.history['frames']]",
     None, None),
    ("import collections; w = client.trajectory_writer(2); w.append({'x': np.zeros(2)}); w.append({'x': collections.deque([1, 2])})",
     None, None),
    ("import collections; w = legacy(0); w.append(collections.UserList([1, 2.5])); w.create_item('q', 1, 1.0); w.close(); "
     "result = [x.tolist() for x in next(client.sample('q'))[0].data]",
     None, None),
    ("import dataclasses; P = dataclasses.make_dataclass('P', ['z', 'a']); client.insert(P(1, 2.5), {'q': 1.0})", None, None),
    ("client.insert({1: 2, 'a': 3}, {'q': 1.0})", None, None),
    ("client.insert({2: 20, 1: 10}, {'q': 1.0}); result = [x.tolist() for x in next(client.sample('q'))[0].data]", None, None),
    ("client.insert([[], {}, (), 3], {'q': 1.0}); result = [x.tolist() for x in next(client.sample('q'))[0].data]", None, None),
    ("client.insert(5, {'q': 1.0}); result = [x.tolist() for x in next(client.sample('q'))[0].data]", None, None),
    ("client.insert('text', {'q': 1.0}); result = [str(x) for x in next(client.sample('q'))[0].data]", None, None),
    ("client.insert([{'x': [1, (2, {'y': 3})]}, 4], {'q': 1.0}); "
     "result = [x.tolist() for x in next(client.sample('q'))[0].data]",
     None, None),
    ("result = type(table(signature=(spec([], np.int64), [spec([], np.int32)])).info.signature).__name__", None, None),
    ("import collections; P = collections.namedtuple('P', 'z a'); "
     "s = table(signature=P(spec([], np.int64), spec([2], np.int32))).info.signature; "
     "result = type(s).__name__, s._fields",
     None, None),
    ("import collections; result = type(table(signature=collections.OrderedDict(b=spec([], np.int64), "
     "a=spec([2], np.int32))).info.signature).__name__",
     None, None),
    ("result = str(table(signature={'a': [], 'b': (), 'c': {}, 'd': spec([], np.int64)}).info.signature['a']), "
     "table(signature=()).info.signature, table(signature=[]).info.signature",
     None, None),
    ("table(signature={'a': None})", "Unsupported signature spec", None),
    ("client.insert([True], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.bool_(False)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([3], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([2**63], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([2**64 - 1], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([-2**63], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([1.5], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([1 + 2j], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.complex64(1j)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.float16(2)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.uint8(3)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.int8(-3)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.uint16(3)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.longlong(3)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.ulonglong(3)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert(['text'], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert(['täxt'], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([b'a\\x00b'], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([''], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([b''], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.str_('abc')], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.array(['a', 'bcd'])], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.array([b'a', b'bcd'])], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.array(['a', b'b'], dtype=object)], {'q': 1.0}); "
     "x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.array('x', dtype=object)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.ma.array([1, 2, 3], mask=[0, 1, 0])], {'q': 1.0}); "
     "x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, "ours refuses it: the mask would be lost"),
    ("client.insert([np.matrix([[1, 2]])], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.zeros((0, 3), np.float32)], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.asfortranarray(np.arange(6).reshape(2, 3))], {'q': 1.0}); "
     "x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.arange(10)[::3]], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.arange(6)[::-1]], {'q': 1.0}); x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.broadcast_to(np.float32(2), (2, 2))], {'q': 1.0}); "
     "x = next(client.sample('q'))[0].data[0]; "
     "result = type(x).__name__, str(x.dtype), x.shape, x.tolist() if x.dtype != object else [str(e) for e in "
     "x.ravel()], x.flags.writeable",
     None, None),
    ("client.insert([np.float32], {'q': 1.0})", None, None),
    ("client.insert([int], {'q': 1.0})", None, None),
    ("client.insert([np.timedelta64(1)], {'q': 1.0})", None, None),
    ("client.insert([np.array([(1, 2)], dtype=[('a', int), ('b', int)])], {'q': 1.0})", None, None),
    ("client.insert([np.array([None])], {'q': 1.0})", None, None),
    ("client.insert([np.array([1, 'a'], dtype=object)], {'q': 1.0})", None, None),
    ("client.insert([lambda: 3], {'q': 1.0})", None, None),
    ("client.insert([-2**63 - 1], {'q': 1.0})", None, None),
    ("client.insert([np.void(b'ab')], {'q': 1.0})", None, None),
    ("client.insert([np.array([[1], [1, 2]], dtype=object)], {'q': 1.0})", None, None),
    ("client.insert([np.longdouble(1)], {'q': 1.0})", None, None),
    ("client.insert([Exception('x')], {'q': 1.0})", None, None),
]  # fmt: skip
