"""The command line of the server program, with the flags of Reverb's."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Sequence

from reverie import _text_format
from reverie.errors import InvalidArgumentError
from reverie.server_executable.reverb_config_pb2 import ReverbServerConfig

__all__ = ["get_server_config_proto"]

USAGE = """\
Serves the tables of a configuration in protocol buffers' text format, as dm-reverb's reverb_server does.

  python -m reverie.server_executable.server_main --config='
    port: 8000
    tables {
      table_name: "replay"
      sampler { uniform: true }
      remover { fifo: true }
      max_size: 100000
      rate_limiter { samples_per_insert: 1 min_size_to_sample: 1 min_diff: -1e300 max_diff: 1e300 }
    }'

  --config TEXT        the configuration; --config @FILE reads it from a file. Required.
  --flagfile FILE      more flags, one a line
  --undefok NAMES      flags, separated by commas, that may be unknown
  --only_check_args    says whether the configuration is right, and exits
  --help
  --verbosity N, -v N, --stderrthreshold LEVEL, --logtostderr, --alsologtostderr, --showprefixforinfo
                       taken for Reverb's sake: warnings and errors go to stderr in any case

It listens on all interfaces, as Reverb's does, on any free port where the configuration has none, and writes one line to stdout when it
can be called. SIGTERM and SIGINT end it. reverie-server has more to set: where to listen, limits, checkpoints, signatures (docs/server.md).
"""

_WITH_VALUE = ("config", "flagfile", "undefok", "verbosity", "v", "stderrthreshold")
_SWITCHES = ("only_check_args", "logtostderr", "alsologtostderr", "showprefixforinfo")
_HELP = ("help", "helpfull", "helpshort", "h", "?")
MAX_FLAG_FILES = 100


@dataclasses.dataclass
class Arguments:
    """What the command line says.

    Attributes
    ----------
    config : ReverbServerConfig
    source : reverie._text_format.Source
        Where its fields stand.
    only_check : bool
    """

    config: ReverbServerConfig
    source: _text_format.Source
    only_check: bool


def get_server_config_proto() -> ReverbServerConfig:
    """The configuration that this process's command line gives.

    Raises
    ------
    ValueError
        No --config, an unknown flag, a file that cannot be read, a text that is no configuration; the sentence says where.
    SystemExit
        After --help.
    """
    return read(sys.argv[1:]).config


def read(arguments: Sequence[str]) -> Arguments:
    """What these arguments, those behind the program's name, say. Errors as those of `get_server_config_proto`."""
    flags = _flags(arguments)
    if any(name in flags for name in _HELP):
        print(USAGE, end="")
        raise SystemExit(0)
    if "config" not in flags:
        raise InvalidArgumentError("Flag --config must have a value other than None: the tables to serve; see --help")
    text, name = flags["config"], "--config"
    if text.startswith("@"):
        name = text[1:]
        text = _read_file("--config", name)
    config = ReverbServerConfig()
    return Arguments(config, _text_format.parse(text, config, name), flags.get("only_check_args") == "true")


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """Flags and their values; of a flag that is given twice the last one counts. A switch is "true" or "false"."""
    found: dict[str, str] = {}
    unknown: list[str] = []
    left, files = list(arguments), 0
    while left:
        word = left.pop(0)
        if word == "--" and not left:
            break
        if not word.startswith("-") or word in ("-", "--"):
            raise InvalidArgumentError(f"no argument is expected but flags, got {word!r}; see --help")
        name, equals, value = word.lstrip("-").partition("=")
        if name in _WITH_VALUE:
            if not equals:
                if not left:
                    raise InvalidArgumentError(f"--{name} needs a value; see --help")
                value = left.pop(0)
            if name == "flagfile":
                files += 1
                if files > MAX_FLAG_FILES:
                    raise InvalidArgumentError(f"--flagfile: more than {MAX_FLAG_FILES} files; does one name itself?")
                lines = [line.strip() for line in _read_file("--flagfile", value).splitlines()]
                left[:0] = [line for line in lines if line and not line.startswith(("#", "//"))]
            else:
                found[name] = value
        elif name in _HELP and not equals:
            found[name] = "true"
        elif name in _SWITCHES and value in ("", "true", "false"):
            found[name] = value or "true"
        elif name.startswith("no") and name[2:] in _SWITCHES and not equals:
            found[name[2:]] = "false"
        else:
            unknown.append(name)
    allowed = [name for each in found.get("undefok", "").split(",") for name in (each, f"no{each}")]
    for name in unknown:
        if name not in allowed:
            raise InvalidArgumentError(f"Unknown command line flag '{name}'; see --help")
    return found


def _read_file(flag: str, path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidArgumentError(f"{flag}: {path!r} cannot be read: {why}") from None
