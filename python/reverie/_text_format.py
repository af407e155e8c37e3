"""Protocol buffers' text format, read into messages; errors say line and column.

The language: https://protobuf.dev/reference/protobuf/textformat-spec. What is kept as it stands on the wire (`Opaque` messages) is
checked for its syntax and passed over, and the reader is told.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import Any

from reverie._messages import INTEGERS, Field, Message, Opaque
from reverie.errors import InvalidArgumentError

__all__ = ["ParseError", "Source", "parse"]

MAX_DEPTH = 64

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\v\f]+|\#[^\n]*)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>(?:0[xX][0-9A-Fa-f]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)(?![A-Za-z0-9_.]))
      | (?P<text>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
      | (?P<sign>[-:{}<>\[\],;/.])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    rb"\\(?:([abfnrtv\\'\"?])|([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))", re.DOTALL
)
_SIMPLE = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))
_TRUE, _FALSE = ("true", "True", "t"), ("false", "False", "f")


class ParseError(InvalidArgumentError):
    """The text is not what it should be; the sentence says where."""


@dataclasses.dataclass
class Source:
    """A text, and where things stand in it.

    Attributes
    ----------
    name : str
        The file's, or what else says where the text came from.
    text : str
    places : dict
        Offsets of fields in the text by their path: ``("tables", 0, "max_size")``.
    passed_over : list of tuple
        Paths of what has no place in the messages.
    """

    name: str
    text: str
    places: dict[tuple[str | int, ...], int] = dataclasses.field(default_factory=dict)
    passed_over: list[tuple[str | int, ...]] = dataclasses.field(default_factory=list)

    def at(self, *path: str | int) -> str:
        """ "name:line:column" of the field, or of the nearest one around it that is written."""
        while path and path not in self.places:
            path = path[:-1]
        return self.place(self.places.get(path, 0))

    def place(self, offset: int) -> str:
        line, column = self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)
        return f"{self.name}:{line}:{column}"

    def error(self, offset: int, sentence: str) -> ParseError:
        return ParseError(f"{self.place(offset)}: {sentence}")


@dataclasses.dataclass(frozen=True)
class _Token:
    kind: str  # "name", "number", "text", "sign" or "end"
    text: str
    begin: int


def _tokens(source: Source) -> list[_Token]:
    text = source.text
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            what = "a string that does not end on its line" if text[at] in "\"'" else f"{text[at : at + 20].split()[0]!r}"
            raise source.error(at, f"expected a field, got {what}")
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(_Token(kind, match.group(), at))
        at = match.end()
    found.append(_Token("end", "the end of the text", len(text)))
    return found


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens = _tokens(source)
        self._next = 0

    # ---- tokens ----

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _taken(self, sign: str) -> bool:
        token = self._peek()
        if token.kind != "sign" or token.text != sign:
            return False
        self._next += 1
        return True

    def _fail(self, token: _Token, sentence: str) -> ParseError:
        return self._source.error(token.begin, sentence)

    def _expected(self, what: str) -> ParseError:
        token = self._peek()
        return self._fail(token, f"expected {what}, got {token.text if token.kind == 'end' else repr(token.text)}")

    # ---- messages ----

    def read(self, message: Message, path: tuple[str | int, ...], end: str | None) -> None:
        """The fields up to the sign that ends the message, or to the end of the text."""
        while True:
            token = self._peek()
            if end is None and token.kind == "end":
                return
            if end is not None and self._taken(end):
                return
            if token.kind != "name":
                raise self._expected("a field's name" if end is None else f"a field's name or {end!r}")
            self._field(message, path)
            if not self._taken(","):
                self._taken(";")

    def _field(self, message: Message, path: tuple[str | int, ...]) -> None:
        token = self._take()
        field = next((each for each in message.FIELDS if each.name == token.text), None)
        if field is None:
            raise self._fail(token, _no_field(message, token.text))
        here = (*path, field.name)
        if not field.repeated:
            if here in self._source.places:
                raise self._fail(token, f'the field "{field.name}" of {message.DESCRIPTOR.name} stands here a second time')
            other = None if field.oneof is None else message.WhichOneof(field.oneof)
            if other is not None:
                raise self._fail(token, f'"{field.name}" stands beside "{other}": a {message.DESCRIPTOR.name} has one of them')
        self._source.places.setdefault(here, token.begin)
        colon = self._taken(":")
        if not colon and field.message is None:
            raise self._expected(f'":" after "{field.name}"')
        if field.repeated and self._taken("["):
            if self._taken("]"):
                return
            while True:
                self._value(message, field, here, self._peek())
                if self._taken("]"):
                    return
                if not self._taken(","):
                    raise self._expected("',' or ']'")
        self._value(message, field, here, token)

    def _value(self, message: Message, field: Field, here: tuple[str | int, ...], begin: _Token) -> None:
        if field.repeated:
            here = (*here, len(getattr(message, field.name)))
            self._source.places[here] = begin.begin
        if field.message is None:
            value = self._scalar(message, field)
            if field.repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
            return
        token = self._peek()
        end = "}" if self._taken("{") else ">" if self._taken("<") else None
        if end is None:
            raise self._expected(f"'{{' after \"{field.name}\"")
        child = getattr(message, field.name).add() if field.repeated else getattr(message, field.name)
        if isinstance(child, Opaque):
            self._source.passed_over.append(here)
            self._skip(token, end)
        else:
            child.SetInParent()
            self.read(child, here, end)

    def _skip(self, begin: _Token, end: str) -> None:
        """To behind the end of what began with the token: brackets must match, the rest is not looked at."""
        ends = [end]
        closing = {"{": "}", "<": ">", "[": "]"}
        while ends:
            token = self._peek()
            if token.kind == "end":
                raise self._fail(begin, f"what begins here is not ended by {end!r}")
            if token.kind == "sign" and token.text in closing:
                if len(ends) == MAX_DEPTH:
                    raise self._fail(token, f"messages are nested more than {MAX_DEPTH} deep")
                ends.append(closing[token.text])
            elif token.kind == "sign" and token.text in closing.values():
                if token.text != ends[-1]:
                    raise self._expected(repr(ends[-1]))
                ends.pop()
            self._next += 1

    # ---- values ----

    def _scalar(self, message: Message, field: Field) -> Any:
        if field.kind == "string":
            return self._string(field)
        begin = self._peek()
        minus = self._taken("-")
        token = self._peek()
        if field.kind == "bool":
            value: Any = _boolean(token) if not minus else None
        elif field.kind == "double":
            value = _double(token)
        else:
            value = _integer(token)
        if value is None:
            kind = {"bool": "true or false", "double": "a number"}.get(field.kind, "a whole number")
            self._next -= minus
            raise self._expected(f'{kind} for "{field.name}"')
        self._next += 1
        value = -value if minus else value
        if field.kind in INTEGERS:
            least, most = INTEGERS[field.kind]
            if not least <= value <= most:
                raise self._fail(begin, f'"{field.name}" of {message.DESCRIPTOR.name} is from {least} to {most}, got {value}')
        return value

    def _string(self, field: Field) -> str:
        begin = self._peek()
        if begin.kind != "text":
            raise self._expected(f'a string in quotes for "{field.name}"')
        parts = []
        while self._peek().kind == "text":
            token = self._take()
            try:
                parts.append(_ESCAPE.sub(_unescaped, token.text[1:-1].encode("utf-8", "surrogateescape")))
            except ValueError as error:
                raise self._fail(token, str(error)) from None
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError:
            raise self._fail(begin, f'"{field.name}" is text, and these bytes are not UTF-8') from None


def _no_field(message: Message, name: str) -> str:
    names = [field.name for field in message.FIELDS]
    near = difflib.get_close_matches(name, names, 1)
    hint = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(names)}"
    return f'{message.DESCRIPTOR.full_name} has no field "{name}"; {hint}'


def _unescaped(match: re.Match[bytes]) -> bytes:
    simple, octal, hexadecimal, short, long, other = match.groups()
    if simple is not None:
        return bytes([_SIMPLE[simple[0]]])
    if octal is not None and int(octal, 8) < 256:
        return bytes([int(octal, 8)])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    code = int(short or long or b"110000", 16)
    if other is not None or octal is not None or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError(f"a string has no escape {match.group().decode('utf-8', 'replace')!r}")
    return chr(code).encode()


def _boolean(token: _Token) -> bool | None:
    if token.kind == "number":
        number = _integer(token)
        return None if number not in (0, 1) else bool(number)
    if token.kind != "name" or token.text not in (*_TRUE, *_FALSE):
        return None
    return token.text in _TRUE


def _integer(token: _Token) -> int | None:
    if token.kind != "number":
        return None
    try:
        if token.text[:2] in ("0x", "0X"):
            return int(token.text, 16)
        return int(token.text, 8 if token.text[0] == "0" else 10)
    except ValueError:
        return None


def _double(token: _Token) -> float | None:
    if token.kind == "name":
        word = token.text.lower().removesuffix("f") if token.text.lower() != "inf" else "inf"
        return float(word) if word in ("inf", "infinity", "nan") else None
    if token.kind != "number" or (token.text[0] == "0" and token.text[1:2].isalnum() and token.text[1] not in "eEfF"):
        return None  # hexadecimal and octal numbers are whole
    return float(token.text.rstrip("fF"))


def parse(text: str, message: Message, name: str = "<text>") -> Source:
    """Reads the text into the message, which should be empty.

    Parameters
    ----------
    text : str
    message : Message
    name : str
        What errors call the text.

    Raises
    ------
    ParseError
        Another syntax than the text format's, a field that the message does not have or that stands there twice, a value of another
        kind or out of range.
    """
    source = Source(name, text)
    _Reader(source).read(message, (), None)
    return source
