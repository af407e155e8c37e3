"""Reverb's messages as Python's users have them: the fields of proto/, and protocol buffers' rules, checked against protocol buffers."""

from __future__ import annotations

import copy
import importlib
import pickle
import random
import re

import pytest
import reverie
import server_program
from reverie._messages import Message, Opaque
from reverie._text_format import ParseError, parse
from reverie.cc import patterns_pb2, schema_pb2
from reverie.cc.checkpointing import checkpoint_pb2
from reverie.server_executable.reverb_config_pb2 import ReverbServerConfig

MODULES = {schema_pb2: "schema_pb2", checkpoint_pb2: "checkpoint_pb2"}


def messages(owner, prefix=""):
    """Names and classes, those inside others behind them."""
    for name in owner.__all__ if not isinstance(owner, type) else vars(owner):
        found = getattr(owner, name)
        if isinstance(found, type) and issubclass(found, Message):
            yield prefix + name, found
            yield from messages(found, f"{prefix}{name}.")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """compiled("schema_pb2"): the module that protoc makes of proto/deepmind/reverb/schema.proto."""
    server_program.generate_stubs(tmp_path_factory.mktemp("stubs"))
    return lambda name: importlib.import_module(f"deepmind.reverb.{name}")


def of_descriptor(descriptor):
    """{number: (name, kind, repeated, oneof)} without Reverie's own fields."""
    kinds = {1: "double", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 11: "message"}
    return {
        field.number: (
            field.name,
            kinds[field.type],
            field.is_repeated,
            field.containing_oneof.name if field.containing_oneof else None,
        )
        for field in descriptor.fields
        if field.number < 1000
    }


def of_class(kind):
    return {
        field.number: (field.name, "message" if field.message else field.kind, field.repeated, field.oneof)
        for field in kind.FIELDS
        if field.number < 1000
    }


@pytest.mark.parametrize(
    ("name", "kind", "module"),
    [(name, kind, where) for owner, where in MODULES.items() for name, kind in messages(owner)]
    + [("ReverbServerConfig", ReverbServerConfig, "checkpoint_pb2")],
)
def test_messages_have_the_fields_that_are_on_the_wire(compiled, name, kind, module):
    theirs = compiled(module)
    for part in name.split("."):
        theirs = getattr(theirs, part)
    assert of_class(kind) == of_descriptor(theirs.DESCRIPTOR)
    assert kind.DESCRIPTOR.full_name == theirs.DESCRIPTOR.full_name


def filled(kind, random_, depth=3):
    """A message with random fields."""
    message = kind()
    values = {
        "int32": lambda: random_.choice([0, 1, -1, 2**31 - 1, -(2**31)]),
        "int64": lambda: random_.choice([0, 1, -1, 2**63 - 1, -(2**63)]),
        "uint64": lambda: random_.choice([0, 1, 2**64 - 1]),
        "bool": lambda: random_.random() < 0.5,
        "double": lambda: random_.choice([0.0, -0.0, 1.0, -0.1, 1 / 3, 1e300, float("inf"), 5e-324]),
        "string": lambda: random_.choice(["", "table", 'a "b"\n\\c', "ä\x00€"]),
    }
    for field in kind.FIELDS:
        if random_.random() < 0.4 or field.number >= 1000:
            continue
        if field.message is not None and (depth == 0 or issubclass(field.message, Opaque)):
            continue
        for _ in range(random_.randint(0, 3) if field.repeated else 1):
            if field.message is not None:
                made = filled(field.message, random_, depth - 1)
                if field.repeated:
                    getattr(message, field.name).append(made)
                else:
                    getattr(message, field.name).CopyFrom(made)
                    getattr(message, field.name).SetInParent()
            elif field.repeated:
                getattr(message, field.name).append(values[field.kind]())
            else:
                setattr(message, field.name, values[field.kind]())
    return message


@pytest.mark.parametrize("seed", range(20))
def test_protocol_buffers_read_what_is_written_and_the_other_way_round(compiled, seed):
    random_ = random.Random(seed)
    for owner, where in MODULES.items():
        for name in owner.__all__:
            ours = filled(getattr(owner, name), random_)
            theirs = getattr(compiled(where), name).FromString(ours.SerializeToString())
            assert theirs.SerializeToString(deterministic=True) == ours.SerializeToString()
            assert type(ours).FromString(theirs.SerializeToString()) == ours
            assert copy.deepcopy(ours) == ours == pickle.loads(pickle.dumps(ours))


@pytest.mark.parametrize("seed", range(20))
def test_protocol_buffers_read_the_text_of_a_message_and_so_do_we(compiled, seed):
    from google.protobuf import text_format

    random_ = random.Random(seed)
    for owner, where in MODULES.items():
        for name in owner.__all__:
            ours = filled(getattr(owner, name), random_)
            theirs = text_format.Parse(repr(ours), getattr(compiled(where), name)())
            assert theirs.SerializeToString(deterministic=True) == ours.SerializeToString()
            back = type(ours)()
            parse(text_format.MessageToString(theirs, as_one_line=random_.random() < 0.5), back)
            assert back == ours


CONFIG = """
port: 8000  # a comment
tables: {
  table_name: "my" ' table\\n\\303\\244\\x41\\u20ac' ;
  sampler { prioritized: { priority_exponent: .5e-1f } },
  remover < heap { min_heap: t } > max_size: 0x10
  max_times_sampled: -017
  rate_limiter { samples_per_insert: 1. min_diff: -inf max_diff: 1.7976931348623157e+308 min_size_to_sample: 9223372036854775807 }
}
tables [ { table_name: 'x' sampler { fifo: false } }, < > ]
"""


def test_the_text_format_is_read_as_protocol_buffers_read_it(compiled):
    from google.protobuf import text_format

    ours = ReverbServerConfig()
    parse(CONFIG, ours)
    theirs = text_format.Parse(CONFIG, compiled("checkpoint_pb2").ReverbServerConfig())
    assert ours.SerializeToString() == theirs.SerializeToString(deterministic=True)
    assert ours.tables[0].table_name == "my table\nä" + "A€"


def test_a_negative_zero_is_no_default_and_is_written(compiled):
    ours, theirs = (
        kind(min_diff=-0.0) for kind in (checkpoint_pb2.RateLimiterCheckpoint, compiled("checkpoint_pb2").RateLimiterCheckpoint)
    )
    assert ours.SerializeToString() == theirs.SerializeToString() != b""
    assert repr(ours) == str(theirs) == "min_diff: -0\n"
    assert checkpoint_pb2.RateLimiterCheckpoint(min_diff=0.0).SerializeToString() == b""


def test_texts_with_random_changes_are_taken_or_refused_as_protocol_buffers_do(compiled):
    from google.protobuf import text_format

    seed = random.randrange(2**32)
    random_ = random.Random(seed)
    pieces = [*"{}<>[]:;,.-'\"# \n01789aex", "true", "inf", "nan", "port", "tables", "fifo", "0x", "1e", "''", "ä"]
    taken = refused = 0
    for _ in range(3000):
        text = re.sub(r"\\.", "", CONFIG)  # of escapes, theirs takes more than the language has
        for _ in range(random_.randint(1, 2)):
            begin = random_.randrange(len(text))
            end = begin + random_.choice([0, 0, 1, 1, 3, 30])
            text = text[:begin] + random_.choice([*pieces, ""]) + text[end:]
        if re.search(r"-\s", text):
            continue  # theirs in Python refuses it; the language does not
        try:
            message = ReverbServerConfig()
            parse(text, message, "config")
            ours = message.SerializeToString()
        except ParseError as error:
            assert str(error).startswith("config:"), (seed, text)
            ours = None
        try:
            expected = text_format.Parse(text, compiled("checkpoint_pb2").ReverbServerConfig())
            theirs = expected.SerializeToString(deterministic=True)
        except (text_format.ParseError, UnicodeDecodeError):
            theirs = None
        assert ours == theirs, f"seed {seed}: {text}"
        taken, refused = taken + (ours is not None), refused + (ours is None)
    assert min(taken, refused) > 100


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("port 3", r'config:1:6: expected ":" after "port"'),
        ("\n  tabels {}", r'config:2:3: .*ReverbServerConfig has no field "tabels"; did you mean "tables"\?'),
        ("zzz: 1", r"config:1:1: .* it has tables, port"),
        ("port: 1\nport: 2", r'config:2:1: the field "port" .* a second time'),
        ("tables { sampler { fifo: true\n lifo: true } }", r'config:2:2: "lifo" stands beside "fifo"'),
        ("port: 99999999999", r"config:1:7: .* from -2147483648 to 2147483647, got 99999999999"),
        ("tables {", r"config:1:9: .* got the end of the text"),
        ("tables { table_name: 'a\n' }", r"config:1:22: .* a string that does not end"),
        ("tables { table_name: '\\xff' }", r"config:1:22: .* not UTF-8"),
        ("tables { table_name: '\\q' }", r"config:1:22: a string has no escape"),
        ("tables { sampler { fifo: 2 } }", r'config:1:26: expected true or false for "fifo"'),
        ("tables { rate_limiter { min_diff: abc } }", r"config:1:35: expected a number"),
        ("tables { signature { a { } > } }", r"config:1:28: expected '}'"),
        ("tables { signature { " + "{" * 100_000, r"nested more than 64 deep"),
        ("tables: 3", r"config:1:9: expected '{' after \"tables\""),
        ("@", r"config:1:1: "),
        ("\ud800: 1", r"config:1:1: "),
    ],
)
def test_what_is_wrong_in_a_text_is_said_with_its_line_and_column(text, sentence):
    with pytest.raises(ParseError, match=sentence):
        parse(text, ReverbServerConfig(), "config")


def test_fields_that_a_message_does_not_know_are_kept():
    raw = reverie.cc.schema_pb2.Timeout(milliseconds=5).SerializeToString() + b"\xc2>\x03abc\xc8>\x07\xd1>12345678\xdd>1234"
    message = schema_pb2.Timeout.FromString(raw)
    assert message.milliseconds == 5
    assert message.SerializeToString() == raw
    assert copy.deepcopy(message).SerializeToString() == raw
    assert message != schema_pb2.Timeout(milliseconds=5)
    message.DiscardUnknownFields()
    assert message == schema_pb2.Timeout(milliseconds=5)


def test_repeated_numbers_come_packed_or_one_by_one():
    item = schema_pb2.PrioritizedItem(deprecated_chunk_keys=[1, 2**64 - 1])
    assert schema_pb2.PrioritizedItem.FromString(item.SerializeToString()).deprecated_chunk_keys == [1, 2**64 - 1]
    assert schema_pb2.PrioritizedItem.FromString(b"\x18\x01\x18\x02").deprecated_chunk_keys == [1, 2]
    with pytest.raises(ValueError, match="out of range"):
        item.deprecated_chunk_keys.append(-1)
    with pytest.raises(TypeError):
        item.deprecated_chunk_keys.append(1.5)
    with pytest.raises(AttributeError, match="cannot be assigned"):
        item.deprecated_chunk_keys = [1]
    del item.deprecated_chunk_keys[0]
    assert list(item.deprecated_chunk_keys) == [2**64 - 1]


def test_what_a_table_says_of_itself_is_made_of_reverbs_messages(serve):
    _, client = serve(reverie.Table.queue("queue", 5))
    client.add("queue", 1)
    info = client.server_info()["queue"]
    assert info.sampler_options == schema_pb2.KeyDistributionOptions(fifo=True, is_deterministic=True)
    assert isinstance(info.rate_limiter_info, schema_pb2.RateLimiterInfo)
    assert isinstance(info.table_worker_time, schema_pb2.TableWorkerTime)
    assert pickle.loads(pickle.dumps(info)) == info


def test_a_structure_in_a_message_is_a_nest():
    info = schema_pb2.TableInfo()
    assert not info.HasField("signature")
    config = reverie.structured.create_config({"a": reverie.structured.create_reference_step([0])[0][-1]}, "t")
    info.signature.CopyFrom(config.pattern_structure)
    assert info.signature.WhichOneof("kind") == "dict_value"
    assert patterns_pb2.StructuredWriterConfig.FromString(config.SerializeToString()) == config
