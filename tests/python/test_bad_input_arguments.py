"""Arguments of the wrong kind: the error names the argument and says what to give instead, whatever it was."""

import collections
import fractions
import pathlib

import numpy as np
import pytest
import reverie
from conftest import make_table
from reverie.errors import InvalidArgumentError, StructureError

Pair = collections.namedtuple("Pair", "left right")


@pytest.fixture
def client(connect):
    signature = {"obs": {"image": reverie.TensorSpec((2,), np.float32), "speed": reverie.TensorSpec((), np.float32)}}
    return connect(make_table("t"), make_table("signed", signature=signature))


def writer(client):
    made = client.trajectory_writer(3)
    made.append([1])
    return made


def steps(client):
    made = client.writer(3)
    made.append([1])
    return made


CALLS = {
    "insert, priorities": (lambda c, x: c.insert([1], x), ["t", 1.0, ["t"]], "priorities must be a dict"),
    "insert, a priority": (lambda c, x: c.insert([1], {"t": x}), ["1", None, [1, 2]], "priority for table 't' must be a number"),
    "sample, table": (lambda c, x: next(c.sample(x)), [None, 1, ["t"], bytearray(b"t")], "table must be a str"),
    "sample, num_samples": (lambda c, x: c.sample("t", x), ["1", None, 1.0], "num_samples must be an integer"),
    "sample_batch, table": (lambda c, x: c.sample_batch(x, 1), [None, 1, ["t"], bytearray(b"t")], "table must be a str"),
    "sample_batch, batch_size": (lambda c, x: c.sample_batch("t", x), ["1", None, 1.0], "batch_size must be an integer"),
    "sample_batch, timeout": (lambda c, x: c.sample_batch("t", 1, timeout=x), ["1", [1]], "timeout must be a number"),
    "add, priority": (lambda c, x: c.add("t", [1], x), ["1", None, [1, 2]], "priority must be a number"),
    "add_batch, priorities": (lambda c, x: c.add_batch("t", [np.zeros(2)], x), ["one", {}, ["a", "b"]], "priorities must be"),
    "update_priorities, keys": (lambda c, x: c.update_priorities("t", x, [1.0]), ["1", None, [1.5]], "keys must be integers"),
    "update_priorities, priorities": (
        lambda c, x: c.update_priorities("t", [1], x),
        ["one", {}, ["a"]],
        "priorities must be numbers",
    ),
    "mutate_priorities, updates": (lambda c, x: c.mutate_priorities("t", x), ["1", [1], 3], "updates must be a dict"),
    "mutate_priorities, a key": (lambda c, x: c.mutate_priorities("t", {x: 1.0}), ["1", None, 1.5], "keys must be integers"),
    "mutate_priorities, a priority": (lambda c, x: c.mutate_priorities("t", {7: x}), ["1", None], "priority for key 7 must be"),
    "mutate_priorities, deletes": (
        lambda c, x: c.mutate_priorities("t", None, x),
        ["1", 7, np.uint64(7), np.array(7, np.uint64)],
        "deletes must be a sequence of keys",
    ),
    "mutate_priorities, a deleted key": (lambda c, x: c.mutate_priorities("t", None, [x]), ["1", None], "keys must be integers"),
    "get, key": (lambda c, x: c.get("t", x), ["1", None, 1.5], "key must be an integer"),
    "items, page_size": (lambda c, x: list(c.items("t", page_size=x)), ["1", None, 1.5], "page_size must be an integer"),
    "server_info, timeout": (lambda c, x: c.server_info(x), ["1", [1]], "timeout must be a number"),
    "set_rate_limiter": (lambda c, x: c.set_rate_limiter("t", x), [1, None], "rate_limiter must be a reverie.rate_limiters"),
    "configure, path": (
        lambda c, x: writer(c).configure(x, num_keep_alive_refs=1, max_chunk_length=1),
        ["a", ["a"]],
        "path must be",
    ),
    "flush, items": (lambda c, x: writer(c).flush(x), ["1", None], "block_until_num_items must be an integer"),
    "flush, timeout_ms": (lambda c, x: writer(c).flush(0, x), ["1", 1.5], "timeout_ms must be an integer"),
    "TrajectoryColumn": (lambda _, x: reverie.TrajectoryColumn(x), [None, 1], "data_references must be a list of references"),
    "Writer, num_timesteps": (lambda c, x: steps(c).create_item("t", x, 1.0), ["1", None], "num_timesteps must be an integer"),
    "Client, max_message_bytes": (
        lambda _, x: reverie.Client("127.0.0.1:1", max_message_bytes=x),
        ["1", None],
        "max_message_bytes must be an integer",
    ),
}


@pytest.mark.parametrize("given", [1, 128, 16383])
def test_a_bound_on_messages_in_which_no_answer_fits_is_a_value_error_that_names_it(given):
    words = f"max_message_bytes is {given}; give at least 16384"
    with pytest.raises(ValueError, match=words):
        reverie.Client("127.0.0.1:1", max_message_bytes=given)
    with pytest.raises(ValueError, match=words):
        reverie.Server([reverie.Table.queue("t", 1)], port=None, max_message_bytes=given)


WRONG = [(call, value, words) for call, values, words in CALLS.values() for value in values]
NAMES = [f"{name}={value!r}" for name, (_, values, _) in CALLS.items() for value in values]


@pytest.mark.parametrize(("call", "value", "words"), WRONG, ids=NAMES)
def test_a_value_of_the_wrong_kind_is_a_type_error_that_names_the_argument(client, call, value, words):
    client.add("t", [1])
    with pytest.raises(TypeError, match=words):
        call(client, value)


TOO_LARGE = {
    "insert": lambda c: c.insert([1], {"t": 10**400}),
    "add": lambda c: c.add("t", [1], 10**400),
    "create_item": lambda c: (w := writer(c)).create_item("t", 10**400, [w.history[0][-1:]]),
    "Writer.create_item": lambda c: steps(c).create_item("t", 1, 10**400),
    "mutate_priorities": lambda c: c.mutate_priorities("t", {1: 10**400}),
    "add_batch": lambda c: c.add_batch("t", [np.zeros(2)], [1.0, 10**400]),
    "update_priorities": lambda c: c.update_priorities("t", [1], [10**400]),
    "transitions": lambda c: c.transitions("t", 2).add([np.zeros(2)], priority=[10**400, 1]),
    "constant_priority_fn": lambda c: reverie.structured.constant_priority_fn(10**400),
}


@pytest.mark.parametrize("call", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_priority_beyond_all_floats_is_a_value_error_that_says_so(client, call):
    with pytest.raises(ValueError, match=r"priorit.* is too large for a float"):
        call(client)


COMPLEX = {
    "insert": lambda c, x: c.insert([1], {"t": x}),
    "add": lambda c, x: c.add("t", [1], x),
    "create_item": lambda c, x: (w := writer(c)).create_item("t", x, [w.history[0][-1:]]),
    "Writer.create_item": lambda c, x: steps(c).create_item("t", 1, x),
    "mutate_priorities": lambda c, x: c.mutate_priorities("t", {1: x}),
    "transitions": lambda c, x: c.transitions("t", 2).add([np.zeros(2)], priority=x),
}


@pytest.mark.parametrize("given", [1 + 2j, np.complex128(1 + 2j), np.complex64(1), np.array(1 + 2j), np.array([1 + 2j])])
@pytest.mark.parametrize("call", COMPLEX.values(), ids=COMPLEX)
def test_a_complex_priority_is_refused(client, call, given):
    with pytest.raises(TypeError, match=r"priorit.* must be (a number|real numbers)"):
        call(client, given)


COMPLEX_PRIORITIES = {
    "add_batch": lambda c, x: c.add_batch("t", [np.zeros(2)], x),
    "update_priorities": lambda c, x: c.update_priorities("t", [1, 2], x),
    "transitions": lambda c, x: c.transitions("t", 2).add([np.zeros(2)], priority=x),
}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.array([1 + 2j, 3]), "real numbers, .* got dtype complex128; give numpy.real or numpy.abs"),
        (np.array([1, 3], np.complex64), "real numbers, .* got dtype complex64"),
        ([1.0, np.complex64(2j)], "real numbers, .* got dtype complex128"),
        (np.array([1.0, np.complex64(2j)], object), "numbers, "),
        (["1.5", "2.5"], "numbers, "),
        (np.array([b"1", b"2"]), "numbers, "),
        (np.array([1, 2], "datetime64[s]"), "numbers, "),
        (np.array([1, 2], "timedelta64[s]"), "numbers, "),
    ],
)
@pytest.mark.parametrize("call", COMPLEX_PRIORITIES.values(), ids=COMPLEX_PRIORITIES)
def test_priorities_that_are_no_real_numbers_are_refused(client, call, given, words):
    with pytest.raises(TypeError, match=f"priorities must be {words}"):
        call(client, given)


@pytest.mark.parametrize(
    "given",
    [
        [1, 2.5],
        [True, np.float32(2.5)],
        np.array([1, 2], np.int8),
        np.array([1.0, 2.5], np.float16),
        np.array([1.0, 2.5]).astype("bfloat16"),
        np.array([1.0, 2.5], np.longdouble),
        np.array([1, np.float32(2.5)], object),
        [fractions.Fraction(1), fractions.Fraction(5, 2)],
        np.array([[1.0, 9.0], [2.5, 9.0]])[:, 0],
    ],
)
def test_priorities_may_be_real_numbers_of_any_kind(client, given):
    assert client.add_batch("t", [np.zeros(2)], given) == 2
    assert [item.priority for item in client.items("t")][-2:] == [1.0, float(given[1])]


def test_a_complex_timeout_is_refused(client):
    with pytest.raises(TypeError, match="timeout must be a number"):
        client.sample_batch("t", 1, timeout=np.complex128(1 + 2j))
    with pytest.raises(TypeError, match="timeout must be a number"):
        client.server_info(np.complex128(1 + 2j))


def made(**wrong):
    given = {"name": "t", "sampler": reverie.selectors.Fifo(), "remover": reverie.selectors.Fifo(), "max_size": 1}
    return reverie.Table(**{**given, "rate_limiter": reverie.rate_limiters.MinSize(1), **wrong})


def served(**wrong):
    reverie.Server([make_table()], **{"address": "127.0.0.1:0", **wrong}).stop()


CONSTRUCTIONS = {
    "tables": (lambda: reverie.Server(3), "tables must be a sequence of reverie.Table"),
    "address": (lambda: served(address=8000), "address must be a sequence of str"),
    "io_threads": (lambda: served(io_threads="2"), "io_threads must be an integer"),
    "gather_threads": (lambda: served(gather_threads="2"), "gather_threads must be an integer"),
    "max_connections": (lambda: served(max_connections=None), "max_connections must be an integer"),
    "extensions": (lambda: made(extensions=3), "extensions must be a sequence"),
    "max_size": (lambda: made(max_size="1"), "max_size must be an integer"),
    "shape": (lambda: reverie.TensorSpec(3, np.float32), "shape must be a sequence of sizes"),
    "a size": (lambda: reverie.TensorSpec((1.5,), np.float32), "a size of shape must be an integer"),
    "dtype": (lambda: reverie.TensorSpec((), {"float": None}), "names no dtype"),
    "minimum": (lambda: reverie.BoundedTensorSpec((), np.float32, "a", 1.0), "minimum must be of the spec's dtype"),
    "priority_exponent": (lambda: reverie.selectors.Prioritized(None), "priority_exponent must be a number"),
    "samples_per_insert": (lambda: reverie.rate_limiters.RateLimiter(None, 1, 0, 1), "samples_per_insert must be a number"),
    "error_buffer": (lambda: reverie.rate_limiters.SampleToInsertRatio(1.0, 1, None), "error_buffer must be a sequence of two"),
    "a bound": (lambda: reverie.rate_limiters.SampleToInsertRatio(1.0, 1, (None, 1)), "a bound of error_buffer must be a number"),
}


def pattern():
    return reverie.structured.pattern_from_transform({"x": 1}, lambda ref: {"x": ref["x"][-1:]})


NAMES = {
    "TensorSpec": (lambda x: reverie.TensorSpec((), np.float32, x), "a spec's name"),
    "BoundedTensorSpec": (lambda x: reverie.BoundedTensorSpec((), np.float32, 0, 1, x), "a spec's name"),
    "Table": (lambda x: made(name=x), "a table's name"),
    "Extension": (reverie.extensions.Extension, "an extension's name"),
    "Extension, options": (lambda x: reverie.extensions.Extension("diffusion", x), "the options of extension 'diffusion'"),
    "create_config": (lambda x: reverie.structured.create_config(pattern(), x), "table"),
    "DefaultCheckpointer": (lambda x: reverie.checkpointers.DefaultCheckpointer("there", group=x), "group"),
    "Client": (reverie.Client, "server_address"),
    "Server": (lambda x: reverie.Server([made()], in_process=True, name=x), "name"),
    "Identity": (lambda x: reverie.Identity(name=x, rights={}), "an identity's name"),
    "Identity, certificate_name": (
        lambda x: reverie.Identity(name="a", certificate_name=x, rights={}),
        "the certificate_name of identity 'a'",
    ),
    "TLS, server_name": (lambda x: reverie.TLS(server_name=x), "server_name"),
}


@pytest.mark.parametrize(("call", "what"), NAMES.values(), ids=NAMES)
def test_a_name_that_the_library_cannot_have_is_refused_at_once(call, what):
    with pytest.raises(ValueError, match=rf"{what} must not contain a NUL character, got 'a\\x00b'; take it out"):
        call("a\0b")
    with pytest.raises(ValueError, match=rf"{what} must be text that UTF-8 can encode, got '\\udcff'"):
        call("\udcff")
    with pytest.raises(TypeError, match=rf"{what} must be a str"):
        call(3)


def test_a_listening_server_refuses_an_address_with_a_nul_before_it_makes_anything(tmp_path):
    there = reverie.checkpointers.DefaultCheckpointer(tmp_path / "there")
    with pytest.raises(ValueError, match=r"an address must not contain a NUL character, got 'unix:/tmp/a\\x00b'; take it out"):
        reverie.Server([made()], address="unix:/tmp/a\0b", checkpointer=there)
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("token", ["0123456789abcdef\0", "0123456789abcdef\xe9", "0123456789abcdef\udcff"])
def test_a_token_with_other_than_ascii_is_refused_at_once_and_shown_nowhere(token, monkeypatch):
    with pytest.raises(ValueError, match="^the token of identity 'a' has characters other than visible ASCII$"):
        reverie.Identity(name="a", token=token, rights={})
    for address in ("127.0.0.1:1", "unix:/tmp/nobody"):
        with pytest.raises(ValueError, match="^token has characters other than visible ASCII$"):
            reverie.Client(address, token=token)
    with pytest.raises(TypeError, match="^token must be a str, got one of type bytes$"):
        reverie.Client("127.0.0.1:1", token=b"0123456789abcdef")
    if "\0" not in token:  # no environment has one
        monkeypatch.setenv("REVERIE_TOKEN", token)
        with pytest.raises(ValueError, match="^REVERIE_TOKEN has characters other than visible ASCII$"):
            reverie.Client("127.0.0.1:1")


def test_a_token_with_the_end_of_its_line_is_refused_with_where_it_is_from_and_the_remedy(monkeypatch):
    monkeypatch.setenv("REVERIE_TOKEN", "0123456789abcdef\n")
    with pytest.raises(ValueError, match=r"^REVERIE_TOKEN has characters .*the end of its line.*: strip\(\) them$"):
        reverie.Client("127.0.0.1:1")
    with pytest.raises(ValueError, match=r"^the token of identity 'a' has characters .*: strip\(\) them$"):
        reverie.Identity(name="a", token="0123456789abcdef\r\n", rights={})


def test_an_empty_token_is_refused_before_anybody_is_called():
    with pytest.raises(ValueError, match="^the token is empty; give one, or none at all$"):
        reverie.Client("127.0.0.1:1", token="")


def test_a_right_on_a_table_that_cannot_be_is_refused():
    identity = reverie.Identity(name="a", token="0123456789abcdef", rights={"t\0": "read"})
    with pytest.raises(ValueError, match="a table in the rights of identity 'a' must not contain a NUL character"):
        reverie.Server([made()], address="127.0.0.1:0", identities=[identity])


PATHS = {
    "DefaultCheckpointer": (reverie.checkpointers.DefaultCheckpointer, "path"),
    "DefaultCheckpointer, fallback": (
        lambda x: reverie.checkpointers.DefaultCheckpointer("there", fallback_checkpoint_path=x),
        "fallback_checkpoint_path",
    ),
    "export": (lambda x: reverie.checkpointers.export(x, "there"), "checkpoint"),
    "export, path": (lambda x: reverie.checkpointers.export("there", x), "path"),
    "Journal": (reverie.Journal, "path"),
    "Server, spill": (lambda x: reverie.Server([made()], in_process=True, spill=x), "spill"),
    "TLS, certificate": (lambda x: reverie.TLS(certificate=x), "certificate"),
    "TLS, key": (lambda x: reverie.TLS(key=x), "key"),
    "TLS, authority": (lambda x: reverie.TLS(authority=x), "authority"),
    "TLS, revocation_list": (lambda x: reverie.TLS(revocation_list=x), "revocation_list"),
}


@pytest.mark.parametrize(("call", "what"), PATHS.values(), ids=PATHS)
def test_a_path_that_no_file_can_have_is_refused_at_once(call, what):
    for value in ("a\0b", b"a\0b", pathlib.Path("a\0b")):
        with pytest.raises(ValueError, match=rf"^{what} must not contain a NUL character, got .*a\\x00b.*; take it out"):
            call(value)
    with pytest.raises(ValueError, match=rf"^{what} must be a path that a file can have, got '\\ud800'"):
        call("\ud800")
    with pytest.raises(TypeError, match=rf"^{what} must be a str or a path, got 3"):
        call(3)


@pytest.mark.parametrize("extension", ["stat\0", "diffusion:steps=5\0"])
def test_an_extension_whose_text_has_a_nul_is_refused_by_its_table(extension):
    with pytest.raises(ValueError, match=r"of? extension.* must not contain a NUL character|extension's name must not contain"):
        made(extensions=[extension])


def test_a_config_of_a_table_that_cannot_be_is_refused_by_its_writer(client):
    config = reverie.structured.create_config(pattern(), "t")
    config.table = "t\0"
    with pytest.raises(ValueError, match="a config's table must not contain a NUL character"):
        client.structured_writer([config])


def test_a_spec_whose_name_another_wrote_with_a_nul_is_shown_without():
    encode, decode = reverie._structured_value.encode, reverie._structured_value.decode
    theirs = encode({"x": reverie.TensorSpec((), np.float32, "a b")}).replace(b"a b", b"a\0b")
    assert decode(theirs) == {"x": reverie.TensorSpec((), np.float32, "a?b")}


def test_a_key_with_a_nul_names_its_column_whole(connect):
    client = connect(make_table("signed", signature={"a\0b": reverie.TensorSpec((), np.float32)}), make_table("t"))
    client.add("signed", {"a\0b": np.float32(1)})
    assert client.sample_batch("signed", 1).data == {"a\0b": [1]}
    with pytest.raises(ValueError, match=r'"a\?b".* has 2 rows'):
        client.add_batch("t", {"a\0b": np.zeros(2), "\0": np.zeros(3)})


@pytest.mark.parametrize(("call", "words"), CONSTRUCTIONS.values(), ids=CONSTRUCTIONS)
def test_a_part_of_the_wrong_kind_is_a_type_error_that_names_it(call, words):
    with pytest.raises(TypeError, match=words):
        call()


# ---- nests ----


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"obs": {"image": [1, [2]]}}, r"data\['obs'\]\['image'\]\[1\] is of type list, .* of type dict"),
        ({"obs": {"image": 3}}, r"data\['obs'\]\['image'\] is of type int, .* of type list"),
        ({"pair": Pair([1], 2)}, r"data\['pair'\].left is of type list, .* a single value"),
        ({"pair": (1, 2, 3)}, r"data\['pair'\] is of type tuple with 3 elements, .* of type Pair with 2"),
    ],
)
def test_a_step_of_another_structure_is_told_where(client, step, words):
    trajectories = client.trajectory_writer(2)
    trajectories.append({"obs": {"image": [1, {"x": 2}]}, "pair": Pair(1, 2)})
    with pytest.raises(StructureError, match=words):
        trajectories.append(step)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"a": [1, 2, 3], "b": {"x": 1}}, r"data\['a'\] has 3 elements, but should have 2"),
        ({"a": [1, 2], "b": {"x": 1, "y": 2}}, r"data\['b'\] has 'y', but should not have"),
        ({"a": [1, 2], "b": {}}, r"data\['b'\] has no 'x', but should have"),
    ],
)
def test_a_legacy_step_with_other_leaves_is_told_where(client, step, words):
    legacy = client.writer(2)
    legacy.append({"a": [1, 2], "b": {"x": 1}})
    with pytest.raises(InvalidArgumentError, match=words):
        legacy.append(step)


@pytest.mark.parametrize(
    ("obs", "words", "of_a_batch"),
    [
        ({"image": np.zeros(2, np.float32)}, *[r"data\['obs'\] has no 'speed', but should have"] * 2),
        (
            {"image": [1, 2], "speed": 1.0},
            r"data\['obs'\]\['image'\] is of type list, but should be a single value",
            r'signature of column 0 "obs/image" is float32\[2\], got int64\[2\]',  # numpy.asarray takes a list of arrays
        ),
    ],
)
def test_a_row_with_other_leaves_than_the_signature_is_told_where(client, obs, words, of_a_batch):
    with pytest.raises(InvalidArgumentError, match=words):
        client.add("signed", {"obs": obs})
    rows = reverie.nest.map_structure(lambda leaf: np.stack([leaf, leaf]), {"obs": obs})
    with pytest.raises(InvalidArgumentError, match=of_a_batch):
        client.add_batch("signed", rows)


# ---- what a value itself says ----


class Raising:
    """Raises this whatever it is asked for: its array, its number, its elements."""

    def __init__(self, error):
        self.error = error

    def raising(self, *arguments, **options):
        raise self.error

    __array__ = __float__ = __index__ = __iter__ = raising


ASKED = {
    "insert": lambda client, x: client.insert({"x": x}, {"t": 1.0}),
    "add": lambda client, x: client.add("t", {"x": x}),
    "add_batch": lambda client, x: client.add_batch("t", {"x": x}),
    "append": lambda client, x: client.trajectory_writer(1).append({"x": x}),
    "a priority": lambda client, x: client.add("t", 1, x),
    "priorities": lambda client, x: client.update_priorities("t", [1], x),
    "keys": lambda client, x: client.update_priorities("t", x, [1.0]),
    "a key": lambda client, x: client.update_priorities("t", [x], [1.0]),
    "batch_size": lambda client, x: client.sample_batch("t", x),
    "timeout": lambda client, x: client.sample_batch("t", 1, timeout=x),
}


@pytest.mark.parametrize("call", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), RuntimeError("use detach()")], ids=repr)
def test_what_a_value_raises_when_it_is_asked_reaches_the_caller(call, error):
    with reverie.Server([make_table("t")], in_process=True) as server:
        client = reverie.Client(server)
        with pytest.raises(type(error)) as raised:
            call(client, Raising(error))
        assert raised.value is error


@pytest.mark.parametrize("name", ["insert", "add", "add_batch", "append"])
@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_why_a_value_cannot_be_made_an_array_of_is_told(name, error):
    with (
        reverie.Server([make_table("t")], in_process=True) as server,
        pytest.raises(TypeError, match=r"Raising.* cannot be made an array of: use \.cpu\(\)"),
    ):
        ASKED[name](reverie.Client(server), Raising(error("use .cpu()")))


def test_a_tensor_that_numpy_makes_no_array_of_is_told_of_what_does():
    tensor = type("Tensor", (Raising,), {"__module__": "torch"})(TypeError("Got unsupported ScalarType BFloat16"))
    with (
        reverie.Server([make_table("t")], in_process=True) as server,
        pytest.raises(TypeError, match=r"BFloat16; reverie\.torch\.as_array makes one of a tensor on the host$"),
    ):
        reverie.Client(server).add("t", {"x": tensor})


def tensor_that_requires_grad(kind="Tensor"):
    """As PyTorch's are, for NumPy: what it refuses it refuses by a RuntimeError, and makes lists all the same."""
    base = type("Tensor", (Raising,), {"__module__": "torch", "tolist": lambda self: [2.0]})
    return type(kind, (base,), {})(RuntimeError("use detach()"))


@pytest.mark.parametrize("kind", ["Tensor", "Parameter"])
@pytest.mark.parametrize("name", ["insert", "add", "add_batch", "append"])
def test_a_tensor_that_requires_grad_is_refused_with_its_place_and_the_remedy(name, kind):
    with (
        reverie.Server([make_table("t")], in_process=True) as server,
        pytest.raises(
            TypeError, match=r"^\('x',\): .* cannot be made an array of: use detach\(\); reverie\.torch\.as_array makes one"
        ),
    ):
        ASKED[name](reverie.Client(server), tensor_that_requires_grad(kind))


def test_a_list_of_tensors_that_require_grad_is_refused_with_its_place():
    table = make_table("t", signature={"x": reverie.TensorSpec((), np.float32)})
    with (
        reverie.Server([table], in_process=True) as server,
        pytest.raises(TypeError, match=r"^\('x',\): a list cannot be made an array of: use detach\(\)"),
    ):
        reverie.Client(server).add_batch("t", {"x": [tensor_that_requires_grad()]})


def test_priorities_that_require_grad_are_taken_as_those_on_a_device_are():
    with reverie.Server([make_table("t")], in_process=True) as server:
        client = reverie.Client(server)
        client.add_batch("t", [np.zeros(1)], tensor_that_requires_grad())
        assert [item.priority for item in client.items("t")] == [2.0]


def test_ctrl_c_while_a_signature_is_read_ends_the_call_and_costs_no_nest(monkeypatch):
    def interrupt(data):
        raise KeyboardInterrupt

    with reverie.Server([make_table("t", signature={"x": reverie.TensorSpec((), np.float32)})], in_process=True) as server:
        client = reverie.Client(server)
        with monkeypatch.context() as patched:
            patched.setattr("reverie._structured_value.decode", interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.add("t", {"x": 1.0})
        client.add("t", {"x": 1.0})
        assert client.sample_batch("t", 1).data["x"].tolist() == [1.0]


def test_ports_are_integers_of_any_kind():
    with reverie.Server([make_table("t")], port=np.int64(0)) as server:
        assert server.port > 0
    for wrong in (True, 1.5, "8000"):
        with pytest.raises(TypeError, match="port must be an integer, got"):
            reverie.Server([make_table("t")], port=wrong)


def test_too_few_samples_are_told_as_they_were_given(client):
    for given in (-2, -7, 0):
        with pytest.raises(ValueError, match=rf"must be at least 1, got {given}$"):
            next(client.sample("t", given))


class OnADevice:
    """As a tensor of PyTorch's on a GPU: NumPy cannot make an array of it, and it says how it could."""

    def __array__(self, *_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")


class WithNumbers(OnADevice):
    def tolist(self):
        return [0.5, 2.0]


@pytest.mark.parametrize("call", ["add_batch", "update_priorities", "transitions"])
def test_priorities_on_a_device_are_taken_or_their_own_words_are_told(connect, call):
    client = connect()
    client.add_batch("t", {"x": np.zeros(2)})

    def give(priorities):
        if call == "add_batch":
            client.reset("t")
            client.add_batch("t", {"x": np.zeros(2)}, priorities)
        elif call == "update_priorities":
            client.update_priorities("t", client.keys("t"), priorities)
        else:
            client.reset("t")
            with client.transitions("t", 2) as writer:
                writer.add({"x": np.zeros(2)}, priorities)

    give(WithNumbers())
    assert [item.priority for item in client.items("t")] == [0.5, 2.0]
    with pytest.raises(TypeError, match=r"priorities must be numbers.*Use Tensor\.cpu\(\) first"):
        give(OnADevice())
