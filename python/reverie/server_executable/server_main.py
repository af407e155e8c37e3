"""The server program of Reverb's command line: ``python -m reverie.server_executable.server_main --config=TEXTPROTO``.

It is there for scripts that start dm-reverb's ``reverb_server``. ``reverie-server`` (docs/server.md) has more to set.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Sequence

from reverie.errors import OpenPortWarning, ReverieError
from reverie.platform.default.server_main_command_line_args import Arguments, read
from reverie.server import Server
from reverie.server_executable.server_from_proto import table_from_proto
from reverie.table import Table

__all__ = ["app_run_main", "main"]

DRAIN_SECONDS = 10.0
_IGNORED = ("deprecated_items", "num_deleted_episodes", "num_unique_samples")


def main(unused_argv: Sequence[str]) -> None:
    """Serves what this process's command line asks for, until SIGTERM or SIGINT. Belongs to the main thread.

    Raises
    ------
    SystemExit
        The configuration is wrong, or the port cannot be had; the sentence says where and why.
    """
    try:
        arguments = read(sys.argv[1:])
        tables = _tables(arguments)
    except (ReverieError, ValueError, TypeError, NotImplementedError) as error:
        sys.exit(f"server_main: {error}")
    if arguments.only_check:
        print(f"the configuration is right: {_count(tables)}")
        return
    ended = threading.Event()
    server = _serve(arguments, tables)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    print(f"listening on port {server.port} of all interfaces, {_count(tables)}", flush=True)
    ended.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    _say(f"finishing calls in progress for up to {DRAIN_SECONDS:g} s; a second signal ends them")
    server.stop(DRAIN_SECONDS)


def app_run_main() -> None:
    """As `main`, for a console script."""
    main(sys.argv)


def _say(sentence: str) -> None:
    print(f"server_main: {sentence}", file=sys.stderr, flush=True)


def _count(tables: Sequence[Table]) -> str:
    return f"{len(tables)} table{'' if len(tables) == 1 else 's'}"


def _tables(arguments: Arguments) -> list[Table]:
    source = arguments.source
    if not arguments.config.tables:
        raise ValueError(f"{source.at()}: At least one table is needed: tables {{ table_name: ... }}")
    tables: dict[str, Table] = {}
    for i, config in enumerate(arguments.config.tables):
        table = table_from_proto(config, lambda field, i=i: f"{source.at('tables', i, field)}: {field}")  # type: ignore[misc]
        if table.name in tables:
            raise ValueError(f"{source.at('tables', i, 'table_name')}: two tables have the same name: {table.name!r}")
        tables[table.name] = table
        for field in _IGNORED:
            if ("tables", i, field) in source.places:
                _say(f"{source.at('tables', i, field)}: {field} is passed over: a server begins empty")
    for path in source.passed_over:
        if path[-1] == "signature":
            _say(f"{source.at(*path)}: the signature is passed over, as in Reverb; reverie-server's YAML takes signatures")
    if not 0 <= arguments.config.port < 65536:
        raise ValueError(f"{source.at('port')}: port must be from 0 to 65535, got {arguments.config.port}")
    return list(tables.values())


def _serve(arguments: Arguments, tables: Sequence[Table]) -> Server:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OpenPortWarning)
        try:
            server = Server(tables, arguments.config.port)
        except (ReverieError, ValueError) as error:
            sys.exit(f"server_main: {error}")
    _say("everybody who reaches the port may read and change the tables: there is no encryption, and there are no passwords")
    return server


if __name__ == "__main__":
    app_run_main()
