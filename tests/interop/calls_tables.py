"""Infos, selectors, limiters, tables, servers and checkpointers: calls that are made with both packages; see calls.py."""

CALLS = [
    ("result = [f.name for f in __import__('dataclasses').fields(client.server_info()['q'])]", None, "ours has more"),
    ("i = client.server_info()['t']; i.max_size = 3; result = i.max_size, i == client.server_info()['t']", None, None),
    ("result = isinstance(next(client.sample('t'))[0].info, reverb.SampleInfo), "
     "isinstance(next(client.sample('t'))[0], tuple)",
     None, None),
    ("s = next(client.sample('p', emit_timesteps=False)); "
     "result = s.info.probability, s.info.table_size, s.info.priority, s.info.key >= 0, isinstance(s.data, list)",
     None, None),
    ("a = client.server_info()['p'].num_unique_samples; "
     "result = 0 < a <= 4, client.server_info()['p'].num_episodes, client.server_info()['p'].num_deleted_episodes",
     None, None),
    ("result = client.server_info()['t'].table_worker_time.sleeping_ms >= 0, "
     "client.server_info()['t'].max_times_sampled",
     None, None),
    ("result = repr(PRIORITIZED(-1.0)), repr(PRIORITIZED(priority_exponent=2))", None, None),
    ("result = repr(PRIORITIZED(float('nan')))", None, "ours refuses it"),
    ("t = table(sampler=PRIORITIZED(-2.0)); s = reverb.Server([t]); c = s.localhost_client(); c.insert([1], {'x': 1.0}); "
     "c.insert([2], {'x': 3.0}); result = sorted({round(e[0].info.probability, 6) for e in c.sample('x', 100)})[-1]; s.stop()",
     None, None),
    ("FIFO() == FIFO()", None, None),
    ("result = Ratio(1.0, 2, np.float64(3))._max_diff, Ratio(2, 3, 9)._min_diff, Ratio(2.0, 3, (1, "
     "8.5))._max_diff, Ratio(1.0, 1, float('inf'))._min_diff",
     None, None),
    ("result = Ratio(1.0, 5, (0.0, 4.0))._max_diff", None, None),
    ("result = MinSize(3)._min_size_to_sample, MinSize(3)._samples_per_insert, MinSize(3)._max_diff, "
     "MinSize(3)._min_diff",
     None, None),
    ("r = reverb.rate_limiters.RateLimiter(1.5, 2, -1.0, 3.0); "
     "result = repr(r), table(rate_limiter=r).can_insert(2), "
     "table(rate_limiter=reverb.rate_limiters.RateLimiter(samples_per_insert=1.0, min_size_to_sample=1, "
     "min_diff=-1.0, max_diff=2.0)).can_insert(4)",
     None, None),
    ("reverb.rate_limiters.RateLimiter(1.0, 1)", None, None),
    ("result = isinstance(MinSize(1), reverb.rate_limiters.RateLimiter), "
     "isinstance(reverb.rate_limiters.Queue(3), reverb.rate_limiters.RateLimiter)",
     None, None),
    ("reverb.rate_limiters.Queue('a')", None, None),
    ("reverb.rate_limiters.Queue()", None, None),
    ("result = repr(MinSize(True))", None, None),
    ("MinSize(None)", None, None),
    ("Ratio(1.0, 1.5, 5.0)", None, None),
    ("Ratio('a', 1, 5.0)", None, None),
    ("Ratio(1.0, 1, None)", None, None),
    ("Ratio(1.0, 1, 'ab')", None, None),
    ("result = repr(reverb.Table.stack('a', 3)), repr(reverb.Table.queue('a', 3))", None, None),
    ("t = table(); server2 = reverb.Server([t]); server2.localhost_client().insert([1], {'x': 1.0}); "
     "result = t.can_sample(5), t.can_sample(1), t.info.current_size; server2.stop()",
     None, None),
    ("t = reverb.Table.queue('a', 3).replace(max_size=5); "
     "result = t.info.max_size, t.info.rate_limiter_info.max_diff, t.info.max_times_sampled",
     None, None),
    ("t = table(signature={'x': spec([2], np.float32)}).replace(name='z'); "
     "result = sorted(t.info.signature), t.name, t.info.max_size",
     None, None),
    ("t = table(max_times_sampled=3).replace(max_times_sampled=0); result = t.info.max_times_sampled", None, None),
    ("t = table(sampler=PRIORITIZED(0.5)).replace(sampler=FIFO(), remover=reverb.selectors.MaxHeap(), "
     "rate_limiter=MinSize(7)); result = repr(t)",
     None, None),
    ("class E(reverb.server.TableExtensionBase):\n"
     "    def build_internal_extensions(self, table_name): return []\nresult = table(extensions=[E()]).name",
     None, None),
    ("reverb.server.TableExtensionBase()", None, None),
    ("result = table(name='with space/and ü').name", None, None),
    ("table().name = 'y'", None, None),
    ("table(nope=3)", None, None),
    ("reverb.Table('x')", None, None),
    ("table().can_sample('a')", None, None),
    ("table().can_insert(1.5)", None, None),
    ("table(max_times_sampled='a')", None, None),
    ("table(max_times_sampled=1.5)", None, None),
    ("table(sampler=3)", None, None),
    ("reverb.Table.queue('', 3)", "nonempty", None),
    ("reverb.Table.queue('a', 0)", "positive integer", None),
    ("s = reverb.Server([table()]); a, b = s.stop(), s.stop(); result = a, b, s.wait(), s.port > 0", None, None),
    ("s = reverb.Server((table(), table('y'))); result = sorted(s.localhost_client().server_info()); s.stop()", None, None),
    ("s = reverb.Server([table()], port=None); "
     "result = repr(s).startswith('Server('), str(s.port) in repr(s), 'tables=[' in repr(s); s.stop()",
     None, None),
    ("reverb.Server([table()], port=1.5)", None, None),
    ("result = repr(server.localhost_client()) == f'Client, server_address=localhost:{server.port}'", None, None),
    ("import os; r = tempfile.mkdtemp(); "
     "s = reverb.Server([table()], checkpointer=reverb.checkpointers.DefaultCheckpointer(r)); "
     "p = s.localhost_client().checkpoint(); "
     "result = p.rsplit('/', 1)[0] == r, sorted(os.listdir(p)), len(os.listdir(r)); s.stop()",
     None, "ours adds a file"),
    ("class C(reverb.platform.checkpointers_lib.CheckpointerBase):\n"
     "    def internal_checkpointer(self): return None\ns = reverb.Server([table()], checkpointer=C())\n"
     "s.localhost_client().checkpoint()",
     "no Checkpointer", None),
    ("result = reverb.checkpointers.DefaultCheckpointer('/tmp/x', "
     "fallback_checkpoint_path='/tmp/y').fallback_checkpoint_path, "
     "reverb.checkpointers.DefaultCheckpointer('/tmp/x').fallback_checkpoint_path",
     None, None),
    ("reverb.checkpointers.DefaultCheckpointer()", None, None),
    ("r = tempfile.mkdtemp(); s = reverb.Server([table()], "
     "checkpointer=reverb.checkpointers.DefaultCheckpointer(r)); s.localhost_client().insert([1], {'x': 1.0}); "
     "s.localhost_client().checkpoint(); s.stop(); "
     "reverb.Server([table('other')], checkpointer=reverb.checkpointers.DefaultCheckpointer(r))",
     "not found in provided", None),
    ("r = tempfile.mkdtemp(); s = reverb.Server([table(max_size=7)], "
     "checkpointer=reverb.checkpointers.DefaultCheckpointer(r)); s.localhost_client().insert([1], {'x': 1.0}); "
     "p = s.localhost_client().checkpoint(); s.stop(); "
     "s = reverb.Server([table(max_size=9), table('more')], "
     "checkpointer=reverb.checkpointers.DefaultCheckpointer(tempfile.mkdtemp(), fallback_checkpoint_path=p)); "
     "i = s.localhost_client().server_info(); "
     "result = i['x'].max_size, i['x'].current_size, i['more'].current_size; s.stop()",
     None, None),
    ("s = reverb.Server([table()], checkpointer=reverb.checkpointers.DefaultCheckpointer(tempfile.mkdtemp(), "
     "fallback_checkpoint_path='/nowhere')); result = s.localhost_client().server_info()['x'].current_size; s.stop()",
     None, None),
]  # fmt: skip
