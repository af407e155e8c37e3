"""Calls that are made with both packages: what they return, and what they raise.

Each is (code, words, purpose). The code's `result` is what counts. `words` must be in the text of either package's error, where they
are what a caller would look for. `purpose` says why ours may end otherwise than theirs, which then is not compared.
"""

SETUP = """
import copy, pickle, tempfile
import numpy as np
FIFO, UNIFORM, PRIORITIZED = reverb.selectors.Fifo, reverb.selectors.Uniform, reverb.selectors.Prioritized
MinSize, Ratio = reverb.rate_limiters.MinSize, reverb.rate_limiters.SampleToInsertRatio

def table(name="x", sampler=None, remover=None, max_size=100, rate_limiter=None, **options):
    return reverb.Table(name, sampler or UNIFORM(), remover or FIFO(), max_size, rate_limiter or MinSize(1), **options)

server = reverb.Server([
    table("t"), table("p", PRIORITIZED(1.0)), reverb.Table.queue("q", 10), table("empty"),
    table("s", signature={"x": spec([None, 2], np.float32)}), table("uneven"), table("squeezed"),
], port=None)
client = reverb.Client(f"localhost:{server.port}")
for value in range(4):
    client.insert({"x": np.full(2, value, np.float32), "y": np.int64(value)}, {"t": 1.0, "p": 2.0})
with client.trajectory_writer(4) as filler:
    for value in range(4):
        filler.append({"x": np.float32(value), "y": np.int64(value)})
    filler.create_item("uneven", 1.0, {"x": filler.history["x"][-3:], "y": filler.history["y"][-2:]})
    filler.create_item("squeezed", 1.0, {"x": filler.history["x"][-1]})
    filler.flush()

def writer(rows=3, keep=4, **options):
    made = client.trajectory_writer(keep, **options)
    for value in range(rows):
        made.append({"x": np.full(2, value, np.float32), "y": np.int64(value)})
    return made

def legacy(rows=2):
    made = client.writer(3)
    for value in range(rows):
        made.append([np.float32(value)])
    return made
"""

_TEXT = "ours says what the table must be given, as a TypeError"
_KINDER = "ours takes it"
_EMPTY = "ours is a ValueError: the argument is wrong"

CALLS = [
    # tables, limiters, servers
    ("result = table().name", None, None),
    ("result = repr(FIFO()), repr(UNIFORM()), repr(PRIORITIZED(0.5)), repr(reverb.selectors.MaxHeap())", None, None),
    ("result = repr(MinSize(3))", None, None),
    ("result = repr(reverb.rate_limiters.Queue(5)), repr(Ratio(2.0, 3, 9.0))", None, None),
    ("result = repr(table())", None, None),
    ("result = repr(table(rate_limiter=reverb.rate_limiters.Queue(3), max_times_sampled=2))", None, None),
    ("result = table().can_sample(1), table().can_insert(5), reverb.Table.queue('a', 3).can_insert(4)", None, None),
    ("table(name='')", "nonempty", None),
    ("table(name=3)", None, None),
    ("result = table(name=b'named').info.name", None, None),
    ("reverb.Table('x', FIFO, FIFO(), 5, MinSize(1))", None, None),
    ("reverb.Table('x', FIFO(), reverb.selectors.MinHeap, 5, MinSize(1))", None, None),
    ("table(max_size=0)", "positive integer", None),
    ("table(max_size=-3)", "positive integer", None),
    ("table(max_size=1.5)", None, None),
    ("table(max_size=2**31)", None, None),
    ("reverb.Table('x', FIFO(), FIFO(), 5, None)", None, _TEXT),
    ("table(extensions=[3])", None, _TEXT),
    ("table(signature=np.float32)", "Unsupported signature spec", None),
    ("table(signature={'x': 3})", "Unsupported signature spec", None),
    ("table(signature={1: spec([], np.float32)})", None, None),
    ("table(rate_limiter=3)", None, _TEXT),
    ("result = sorted(table(signature={'b': spec([2], np.float32), 'a': [spec([], np.int64)]}).info.signature)", None, None),
    ("result = type(table(signature=[spec([], np.int64)]).info.signature).__name__", None, None),
    ("result = table(signature={}).info.signature", None, None),
    ("result = table().replace(name='y').name, table().replace(max_size=5).info.max_size", None, None),
    ("result = table(max_times_sampled=-1).info.max_times_sampled <= 0", None, None),
    ("MinSize(0)", "positive integer", None),
    ("MinSize('a')", None, None),
    ("MinSize(1.5)", None, None),
    ("Ratio(0.0, 1, 5.0)", "must be > 0", None),
    ("Ratio(-1.0, 1, 5.0)", "must be > 0", None),
    ("Ratio(1.0, 1, 0.5)", "size of error_buffer", None),
    ("Ratio(1.0, 1, (5.0, 10.0))", "above", None),
    ("Ratio(1.0, 0, (-5.0, 5.0))", "positive integer", None),
    ("Ratio(1.0, 1, (1.0, 2.0, 3.0))", None, None),
    ("Ratio(1.0, 1, np.float32(5))", None, None),
    ("PRIORITIZED()", None, None),
    ("PRIORITIZED('a')", None, None),
    ("FIFO(3)", None, None),
    ("reverb.Server([])", "At least one table", None),
    ("reverb.Server(None)", "At least one table", None),
    ("reverb.Server([table(), table()])", "same name", None),
    ("reverb.Server(table())", None, None),
    ("reverb.Server([table()], port='a')", None, None),
    ("result = server.localhost_client().server_address == f'localhost:{server.port}'", None, None),
    ("pickle.dumps(table())", None, None),
    ("pickle.dumps(server)", None, None),
    # the client
    ("reverb.Client(3)", None, None),
    ("result = reverb.Client('nowhere:1').server_address", None, None),
    ("result = repr(reverb.Client('nowhere:1'))", None, None),
    ("result = pickle.loads(pickle.dumps(reverb.Client('nowhere:1'))).server_address", None, None),
    ("result = copy.deepcopy(reverb.Client('nowhere:1')) == reverb.Client('nowhere:1')", None, None),
    ("result = client.insert([np.float32(1)], {'q': 1.0})", None, None),
    ("result = client.insert([1], {'q': np.float32(1), 't': 2})", None, None),
    ("client.insert([1], {})", "at least one item", None),
    ("client.insert([1], None)", "at least one item", None),
    ("client.insert([1], [('q', 1.0)])", None, _TEXT),
    ("client.insert([1], {'q': 'a'})", None, None),
    ("client.insert([1], {'q': float('nan')})", "nan", None),
    ("client.insert([None], {'q': 1.0})", None, None),
    ("client.insert([object()], {'q': 1.0})", None, None),
    ("client.insert([np.datetime64('2020-01-01')], {'q': 1.0})", None, None),
    ("client.insert([2**64], {'q': 1.0})", None, None),
    ("client.insert([np.longdouble(1)], {'q': 1.0})", None, None),
    ("client.insert([{1, 2}], {'q': 1.0})", None, None),
    ("client.insert([], {'q': 1.0})", None, _EMPTY),
    ("client.insert([1], {'nope': 1.0})", None, None),
    ("client.insert({'x': np.zeros(3, np.float32)}, {'s': 1.0})", "inconsistent with", None),
    ("client.insert({'x': np.zeros(2, np.float64)}, {'s': 1.0})", "inconsistent with", None),
    ("client.insert([np.zeros(2, np.float32)] * 2, {'s': 1.0})", "inconsistent with", None),
    ("result = client.insert({'x': np.zeros(2, np.float32)}, {'s': 1.0})", None, None),
    ("result = client.insert({'other': np.zeros(2, np.float32)}, {'s': 1.0})", None, "ours refuses other names than the signature has"),
    ("client.writer(0)", "positive integer", None),
    ("client.writer(1.5)", None, None),
    ("client.writer(3, chunk_length=4)", "positive integer", None),
    ("client.writer(3, chunk_length=0)", "positive integer", None),
    ("client.writer(3, max_in_flight_items=0)", "positive integer", None),
    ("result = isinstance(client.sample('nope'), object)", None, None),
    ("next(client.sample('nope'))", "was not found", None),
    ("next(client.sample('nope', unpack_as_table_signature=True))", None, None),
    ("next(client.sample('t', 0))", "max_samples", None),
    ("next(client.sample('t', -2))", "max_samples", None),
    ("next(client.sample('t', 1.5))", None, None),
    ("client.sample('t', 1, False)", None, None),
    ("next(client.sample('uneven'))", "split", None),
    ("next(client.sample('squeezed'))", None, None),
    ("result = [type(x).__name__ for x in next(client.sample('t'))]", None, None),
    ("result = [type(x).__name__ for x in next(client.sample('t'))[0].info]", None, None),
    ("result = next(client.sample('p', emit_timesteps=False)).data[0].shape", None, None),
    ("result = [str(c.dtype) for c in next(client.sample('p', emit_timesteps=False)).data]", None, None),
    ("result = sorted(next(client.sample('s', emit_timesteps=False, unpack_as_table_signature=True)).data)", None, None),
    ("result = next(client.sample('p', emit_timesteps=False)).data[0].flags.writeable", None, None),
    ("result = len(list(client.sample('t', 3)))", None, None),
    ("result = client.mutate_priorities('t', {}, [])", None, None),
    ("result = client.mutate_priorities('t', {5: 1.0}, [6])", None, None),
    ("result = client.mutate_priorities('t', updates={np.uint64(5): np.float32(1)}, deletes=np.array([5], np.uint64))", None, None),
    ("client.mutate_priorities('t', {-1: 1.0})", None, None),
    ("client.mutate_priorities('t', {1.5: 1.0})", None, None),
    ("client.mutate_priorities('t', {2**64: 1.0})", None, None),
    ("client.mutate_priorities('t', {1: 'a'})", None, None),
    ("client.mutate_priorities('t', [(1, 1.0)])", None, _TEXT),
    ("client.mutate_priorities('t', deletes=[-1])", None, None),
    ("client.mutate_priorities('nope', {1: 1.0})", "was not found", None),
    ("client.mutate_priorities('p', {next(client.sample('p'))[0].info.key: -1.0})", "must not be", None),
    ("client.mutate_priorities('p', {next(client.sample('p'))[0].info.key: float('nan')})", "must not be", None),
    ("client.reset('nope')", "was not found", None),
    ("result = client.reset('empty')", None, None),
    ("result = sorted(client.server_info(5))", None, None),
    ("result = client.server_info()['t'].max_size, client.server_info()['p'].sampler_options.prioritized.priority_exponent", None, None),
    ("result = client.server_info()['t'].signature, client.server_info()['t'].name", None, None),
    ("client.server_info(0.5)", None, _KINDER),
    ("client.server_info('a')", None, None),
    ("reverb.Client('localhost:1').server_info(1)", None, None),
    ("reverb.Client('localhost:1').checkpoint()", None, None),
    # trajectory writers
    ("client.trajectory_writer(0)", "positive integer", None),
    ("client.trajectory_writer('a')", None, None),
    ("client.trajectory_writer(1.5)", None, None),
    ("client.trajectory_writer()", None, None),
    ("client.trajectory_writer(1, get_signature_timeout_ms=5)", None, "ours takes what older Acme gives"),
    ("writer(0).history", "history", None),
    ("result = writer(0).episode_steps, writer(3).episode_steps", None, None),
    ("w = writer(3); result = sorted(writer(2).history), len(w.history['x'])", None, None),
    ("w = writer(3); result = w.history['x'][-1].shape, w.history['x'][-2:].shape, w.history['x'][[0, 2]].shape", None, None),
    ("w = writer(3); result = str(w.history['x'][-1].dtype), w.history['y'][:].numpy().tolist()", None, None),
    ("w = writer(3); result = w.history['y'][-1].is_squeezed, w.history['y'][-1:].is_squeezed, len(w.history['y'][:])",
     None, None),
    ("w = writer(3); result = w.history['y'].path()", None, None),
    ("w = writer(3); result = [type(each).__name__ for each in w.history['y'][:]]", None, "the name of a row's type"),
    ("w = writer(3); result = [each.numpy().tolist() for each in w.history['y'][:]]", None, None),
    ("w = writer(3); result = [each.expired for each in w.history['y'][:]]", None, None),
    ("w = writer(6, 3); result = w.history['y'][-3:].numpy().tolist()", None, None),
    ("writer(3).history['x'][np.int64(1)]", "indices", None),
    ("writer(3).history['x'][(1, 2)]", "indices", None),
    ("writer(3).history['x'][None]", "indices", None),
    ("writer(3).history['x'][4]", None, None),
    ("writer(3).history['x'][-4]", "cannot contain any None", None),
    ("writer(6, 2).history['x'][0]", "cannot contain any None", None),
    ("writer(6, 2).history['x'][:]", "cannot contain any None", None),
    ("writer(3).history['nope']", None, None),
    ("writer(3).append({'x': np.zeros(2, np.float64)})", "wrong dtype", None),
    ("writer(3).append({'x': np.zeros(3, np.float32)})", "incompatible shape", None),
    ("writer(3).append({'x': object()})", None, None),
    ("result = writer(3).append({})", None, None),
    ("result = writer(3).append({'x': None, 'z': np.int32(1)})", None, None),
    ("w = writer(3); w.append({'y': np.int64(1)}, partial_step=True); w.append({'y': np.int64(1)})", "already been set", None),
    ("writer(3).append({'x': {'deeper': np.int64(1)}})", None, None),
    ("w = writer(0); w.append({'x': {'deeper': np.int64(1)}}); w.append({'x': np.int64(1)})", None, None),
    ("writer(3).append({'x': np.zeros(2, np.float32)}, True)", None, None),
    ("w = writer(3); result = w.create_item('t', 1.0, {'x': w.history['x'][:]}) is None", None, "ours returns the item's key"),
    ("w = writer(3); result = w.create_item('t', 1.0, w.history['x'][-1]) is None", None, "ours returns the item's key"),
    ("w = writer(3); w.create_item('t', 1.0, w.history)", "TrajectoryColumn", None),
    ("w = writer(3); w.create_item('t', 1.0, {'x': np.zeros(3)})", "TrajectoryColumn", None),
    ("w = writer(3); w.create_item('t', 1.0, {})", "must not be empty", None),
    ("w = writer(3); w.create_item('t', 'a', {'x': w.history['x'][:]})", None, None),
    ("w = writer(3); w.create_item('t', float('nan'), {'x': w.history['x'][:]})", "nan", None),
    ("w = writer(3); w.create_item('nope', 1.0, {'x': w.history['x'][:]})", None, None),
    ("w = writer(3); w.create_item('s', 1.0, {'x': w.history['x'][:], 'y': w.history['y'][:]})", "inconsistent", None),
    ("w = writer(3); w.create_item('s', 1.0, {'x': w.history['y'][:]})", "inconsistent", None),
    ("w = writer(3); w.create_item('s', 1.0, {'x': w.history['x'][-1]})", "inconsistent", None),
    ("w = writer(3, validate_items=False); w.create_item('nope', 1.0, w.history['x'][:]); w.flush(timeout_ms=20000)",
     "was not found", None),
    ("result = writer(3).flush(), writer(3).flush(0, 5000), writer(3).flush(block_until_num_items=2)", None, None),
    ("writer(3).flush(-1)", "must be >= 0", None),
    ("writer(3).flush(0, 0.5)", None, None),
    ("writer(3).flush(0.5)", None, None),
    ("result = writer(3).end_episode(), writer(3).end_episode(False, 5000)", None, None),
    ("w = writer(3); w.end_episode(); result = w.episode_steps, len(w.history['x'])", None, None),
    ("w = writer(3); w.end_episode(clear_buffers=False); result = w.episode_steps, len(w.history['x'])", None, None),
    ("writer(0).configure(('x',))", None, None),
    ("w = writer(3); w.configure(('x',), num_keep_alive_refs=3, max_chunk_length=3); "
     "w.append({'x': np.zeros(2, np.float32), 'y': np.int64(9)}); "
     "result = w.history['x'][-2:].numpy().tolist()", None, None),
    ("w = writer(0); w.configure(('x',), num_keep_alive_refs=3, max_chunk_length=3); "
     "w.append({'x': np.zeros(2, np.float32), 'y': np.int64(9)}); "
     "w.configure(('x',), num_keep_alive_refs=3, max_chunk_length=3)", "Flush must be called", None),
    ("result = len(writer(3).history['x'][5:])", None, "a slice from behind the rows wraps around in dm-reverb"),
    ("result = len(writer(3).history['x'][2:9])", None, None),
    ("result = len(writer(3).history['x'][:9])", None, None),
    ("writer(0).configure(('x',), num_keep_alive_refs=0, max_chunk_length=1)", "positive", None),
    ("writer(0).configure(('x',), num_keep_alive_refs=2, max_chunk_length=3)", "positive", None),
    ("writer(0).configure(['x'], num_keep_alive_refs=2, max_chunk_length=1)", None, None),
    ("result = writer(0).configure(('x',), num_keep_alive_refs=2, max_chunk_length=None)", None, None),
    ("w = writer(3); w.close(); w.close(); result = w.history['y'][-1].numpy().tolist()", None, None),
    ("w = writer(3); w.close(); w.append({'x': np.zeros(2, np.float32)})", "Close has been called", None),
    ("w = writer(3); w.close(); w.flush()", "Close has been called", None),
    ("w = writer(3); w.close(); w.end_episode()", "Close has been called", None),
    ("w = writer(3); result = reverb.TrajectoryColumn(list(w.history['y'][:])).numpy().tolist()", None, None),
    ("w = writer(3); result = reverb.TrajectoryColumn(list(w.history['y'][-1:]), squeeze=True).shape", None, None),
    ("w = writer(3); reverb.TrajectoryColumn(list(w.history['x'][:]), squeeze=True)", "exactly one", None),
    ("reverb.TrajectoryColumn([None])", "cannot contain any None", None),
    ("w = writer(3); w.history['x'][:][5]", None, None),
    ("w = writer(3); w.history['x'][:]['a']", None, None),
    ("w = writer(3); result = w.history['y'][:][0].is_squeezed, w.history['y'][:][1:].numpy().tolist()", None, None),
    ("pickle.dumps(writer(0))", None, None),
    # the legacy writer
    ("w = legacy(); result = w.create_item('t', 2, 1.0), w.flush(), w.close()", None, None),
    ("w = legacy(); w.create_item('t', 0, 1.0)", "num_timesteps", None),
    ("w = legacy(); w.create_item('t', 3, 1.0)", "larger than", None),
    ("w = legacy(); w.create_item('t', 4, 1.0)", None, None),
    ("w = legacy(); w.create_item('t', 1, float('nan'))", "nan", None),
    ("w = legacy(); w.create_item('nope', 1, 1.0)", None, None),
    ("w = legacy(); w.create_item('s', 1, 1.0)", "inconsistent with", None),
    ("w = legacy(); w.append([np.float32(1), np.float32(2)])", "inconsistent", None),
    ("w = legacy(3); w.append([np.float32(1), np.int8(2)]); w.create_item('q', 1, 1.0); w.close(); "
     "result = [x.tolist() for x in next(client.sample('q', emit_timesteps=False)).data]", None, None),
    ("w = legacy(3); w.append([np.zeros(2, np.int8)]); w.create_item('q', 1, 1.0); w.close(); "
     "result = [x.tolist() for x in next(client.sample('q', emit_timesteps=False)).data]", None, None),
    ("w = legacy(1); w.create_item('q', 1, 1.0); w.flush(); w.append([np.zeros(2, np.int8)]); w.create_item('q', 1, 1.0); "
     "w.close(); result = [x.data[0].tolist() for x in client.sample('q', 2, emit_timesteps=False)]", None, None),
    ("w = legacy(); w.append([np.zeros(2, np.float32)])", None, None),
    ("w = legacy(); w.append([None])", None, None),
    ("w = legacy(); result = w.append_sequence([np.zeros(2, np.float32)])", None, None),
    ("w = legacy(); w.append_sequence([])", None, None),
    ("w = legacy(); w.append_sequence([np.float32(1)])", "AppendSequence", None),
    ("w = legacy(0); w.append_sequence([np.zeros(2, np.float32), np.zeros(3, np.float32)])", "AppendSequence", None),
    ("w = legacy(); w.close(); w.append([np.float32(1)])", "after Close", None),
    ("w = legacy(); w.close(); w.create_item('t', 1, 1.0)", "after Close", None),
    ("w = legacy(); w.close(); w.flush()", "after Close", None),
    ("w = legacy(); w.close(); w.close()", "already been called", None),
    ("w = legacy(); w.close(); w.__enter__()", "closed Writer", None),
    ("with legacy() as w: result = w.create_item('t', 1, 1.0)", None, None),
    # samples, errors, infos
    ("result = reverb.SampleInfo.zeros(), reverb.SampleInfo._fields, reverb.ReplaySample._fields", None, None),
    ("result = reverb.SampleInfo(key=1, probability=2.0, table_size=3, priority=4.0, times_sampled=5)._asdict()", None, None),
    ("result = issubclass(reverb.DeadlineExceededError, reverb.ReverbError), issubclass(reverb.ReverbError, Exception)", None, None),
    ("result = issubclass(reverb.DeadlineExceededError, RuntimeError)", None, None),
    ("info = client.server_info()['q']; result = pickle.loads(pickle.dumps(info)) == info", None, None),
    ("result = type(client.server_info()['q'].sampler_options).__name__", None, None),
    ("result = str(client.server_info()['q'].sampler_options).split()", None, None),
    ("result = reverb.cc.schema_pb2.KeyDistributionOptions(fifo=True, is_deterministic=True) == server.localhost_client()"
     ".server_info()['q'].sampler_options", None, None),
    # checkpointers
    ("result = reverb.checkpointers.DefaultCheckpointer('/tmp/x').path, reverb.checkpointers.DefaultCheckpointer('/tmp/x').group",
     None, None),
    ("reverb.checkpointers.CheckpointerBase()", None, None),
    ("s = reverb.Server([table()], checkpointer=reverb.checkpointers.DefaultCheckpointer(tempfile.mkdtemp(), group='g'));"
     " s.localhost_client().checkpoint()", "group", None),
    ("result = type(reverb.checkpointers.default_checkpointer()).__name__", None, None),
    ("result = server.stop()", None, None),
]  # fmt: skip

TENSORFLOW_SETUP = (
    SETUP
    + """
import tensorflow as tf
address = client.server_address
for value in range(4):
    client.insert({"x": np.full(2, value, np.float32)}, {"s": 1.0})
tf_client = reverb.TFClient(address)
F32, S = tf.float32, tf.TensorShape
STRINGS, DOUBLES = tf.constant(["t"]), tf.constant([1.0], tf.float64)

def trajectories(table="s", dtypes={"x": F32}, shapes={"x": S([None, 2])}, ahead=1, kind=reverb.TrajectoryDataset, **options):
    return kind(address, table, dtypes, shapes, ahead, **options)

def signed(table="s", kind=reverb.TrajectoryDataset, **options):
    return kind.from_table_signature(address, table, 1, **options)

def first(dataset):
    return next(dataset.as_numpy_iterator())
"""
)

TENSORFLOW_CALLS = [
    ("result = isinstance(trajectories(), tf.data.Dataset), isinstance(signed(kind=reverb.TimestepDataset), tf.data.Dataset)", None, None),
    ("result = [str(each.dtype) for each in tf.nest.flatten(trajectories().element_spec)]", None, None),
    ("result = [str(each.shape) for each in tf.nest.flatten(signed().element_spec)]", None, None),
    ("result = type(trajectories().element_spec).__name__, type(trajectories().element_spec.info).__name__", None, None),
    ("result = type(trajectories(dtypes=[F32], shapes=[S([None, 2])]).element_spec.data).__name__", None, None),
    ("result = int(trajectories().cardinality())", None, None),
    ("result = len(list(signed(max_samples=5)))", None, None),
    ("result = len(list(trajectories(kind=reverb.TimestepDataset, shapes={'x': S([2])}, max_samples=5)))", None,
     "theirs compares a step with the signature of a trajectory"),
    ("result = len(list(trajectories('p', [F32, tf.int64], [S([2]), S([])], kind=reverb.TimestepDataset, max_samples=5)))", None, None),
    ("result = first(signed(max_samples=1)).data['x'].shape", None, None),
    ("result = [str(each.dtype) for each in first(signed(max_samples=1)).info]", None, None),
    ("result = len(list(trajectories(table='empty', dtypes=[F32], shapes=[S(None)], rate_limiter_timeout_ms=100)))", None, None),
    ("trajectories(shapes={'y': S([None, 2])})", None, None),
    ("trajectories(shapes=[S([None, 2])])", None, None),
    ("trajectories(ahead=0)", None, None),
    ("trajectories(ahead=-1)", None, None),
    ("trajectories(num_workers_per_iterator=0)", None, None),
    ("trajectories(num_workers_per_iterator=-2)", None, None),
    ("trajectories(max_samples_per_stream=0)", None, None),
    ("trajectories(max_samples=0)", None, None),
    ("trajectories(max_samples=-2)", None, None),
    ("trajectories(rate_limiter_timeout_ms=-2)", None, None),
    ("trajectories(kind=reverb.TimestepDataset, ahead=0)", None, None),
    ("reverb.TrajectoryDataset(address, 's', {'x': F32})", None, None),
    ("signed('nope')", "does not contain", None),
    ("signed('t')", "does not have a signature", None),
    ("signed('s', get_signature_timeout_secs=0.5)", None, _KINDER),
    ("reverb.TrajectoryDataset.from_table_signature('localhost:1', 's', 1, get_signature_timeout_secs=1)", None, None),
    ("first(trajectories(table='nope'))", "was not found", None),
    ("first(trajectories(dtypes={'x': tf.float64}))", None, None),
    ("first(trajectories(shapes={'x': S([None, 3])}))", None, None),
    ("first(trajectories(dtypes=[F32, F32], shapes=[S(None), S(None)]))", None, None),
    ("first(trajectories('uneven', [F32, tf.int64], [S([]), S([])], kind=reverb.TimestepDataset))", None, None),
    ("result = tf_client.server_address == address", None, None),
    ("reverb.TFClient()", None, None),
    ("result = tf_client.sample('p', [F32, tf.int64]).data[0].shape.as_list()", None, None),
    ("result = sorted(tf_client.sample('p', {'x': F32, 'y': tf.int64}).data)", None, None),
    ("result = [each.dtype.name for each in tf_client.sample('p', [F32, tf.int64]).info]", None, None),
    ("tf_client.sample('p', [F32])", "did not match", None),
    ("tf_client.sample('p', [F32, F32])", "Type mismatch", None),
    ("tf_client.sample('nope', [F32])", None, None),
    ("result = tf_client.insert([tf.constant(1.0)], tf.constant(['q']), DOUBLES)", None, None),
    ("tf_client.insert([tf.constant(1.0)], tf.constant('q'), DOUBLES)", "tables must", None),
    ("tf_client.insert([tf.constant(1.0)], tf.constant([1]), DOUBLES)", "tables must", None),
    ("tf_client.insert([tf.constant(1.0)], STRINGS, tf.constant(1.0, tf.float64))", "priorities must", None),
    ("tf_client.insert([tf.constant(1.0)], STRINGS, tf.constant([1.0], tf.float32))", "priorities must", None),
    ("tf_client.insert([tf.constant(1.0)], tf.constant(['t', 'q']), DOUBLES)", "same shape", None),
    ("tf_client.insert([tf.constant(1.0)], ['t'], [1.0])", None, None),
    ("tf_client.insert([tf.constant(1.0)], tf.constant(['nope']), DOUBLES)", None, None),
    ("result = tf_client.update_priorities('t', tf.constant([1], tf.uint64), DOUBLES)", None, None),
    ("result = tf_client.update_priorities('t', [1, 2], [1.0, 2.0])", None, None),
    ("tf_client.update_priorities('t', tf.constant([1], tf.int64), DOUBLES)", None, None),
    ("tf_client.update_priorities('t', tf.constant([1], tf.uint64), tf.constant([1.0], F32))", None, None),
    ("tf_client.update_priorities('t', tf.constant(1, tf.uint64), tf.constant(1.0, tf.float64))", None, None),
    ("tf_client.update_priorities('t', tf.constant([1, 2], tf.uint64), DOUBLES)", None, None),
    ("tf_client.update_priorities('nope', tf.constant([1], tf.uint64), DOUBLES)", None, None),
    ("result = [each.name for each in reverb.SampleInfo.tf_dtypes()], [str(each) for each in reverb.SampleInfo.tf_shapes()]", None, None),
    ("table(signature={'x': tf.RaggedTensorSpec([None], F32)})", None, None),
    ("result = type(table(signature={'x': tf.TensorSpec([2], F32, 'name')}).info.signature['x']).__name__", None, None),
    ("result = table(signature={'x': tf.TensorSpec([2], F32, 'name')}).info.signature['x'].name", None, None),
    ("result = client.insert([tf.constant([1.0, 2.0])], {'q': 1.0})", None, None),
    ("server.stop()", None, None),
]  # fmt: skip
