"""dm-reverb's writers against its own server, returning when what they wrote is in.

That server ends a writer's stream when it has read the stream's end, be the last items in their tables or still in their queues: what is
read after `close`, or after `Client.insert`, may lack them. Where one program writes and another reads at once, that is chance.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from unittest import mock

PATIENCE = 10  # seconds; who waits longer (a full table) goes on as before


@contextlib.contextmanager
def waiting_for_items(reverb: object) -> Iterator[None]:
    """Within it `close` of dm-reverb's writers, and so `Client.insert`, waits until the tables have counted the items that were made."""
    make, create_item, close = reverb.Client.writer, reverb.Writer.create_item, reverb.Writer.close

    def inserted(writer: object) -> dict[str, int]:
        return {name: table.rate_limiter_info.insert_stats.completed for name, table in writer.of_client.server_info().items()}

    def writer(client: object, *arguments: object, **options: object) -> object:
        made = make(client, *arguments, **options)
        made.of_client, made.awaited = client, {}
        return made

    def create_item_and_count(writer: object, table: str, *arguments: object, **options: object) -> None:
        before = writer.awaited[table] if table in writer.awaited else inserted(writer).get(table, 0)
        create_item(writer, table, *arguments, **options)
        writer.awaited[table] = before + 1

    def close_and_wait(writer: object, *arguments: object, **options: object) -> None:
        close(writer, *arguments, **options)
        end = time.monotonic() + PATIENCE
        while writer.awaited and time.monotonic() < end:
            now = inserted(writer)
            writer.awaited = {name: count for name, count in writer.awaited.items() if now.get(name, count) < count}

    with (
        mock.patch.object(reverb.Client, "writer", writer),
        mock.patch.object(reverb.Writer, "create_item", create_item_and_count),
        mock.patch.object(reverb.Writer, "close", close_and_wait),
    ):
        yield
