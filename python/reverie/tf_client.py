"""`TFClient`: a client whose calls are TensorFlow operations, eager or inside `tf.function`. Importing this imports TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from reverie import _arguments
from reverie._graph import call, operation, tf_dtype
from reverie._tensorflow import first_step
from reverie._unmade import set_by_init
from reverie.client import Client
from reverie.errors import InvalidArgumentError, NotFoundError
from reverie.samples import ReplaySample, SampleInfo

__all__ = ["TFClient"]


class TFClient:
    """Samples, inserts and updates from within a graph.

    Parameters
    ----------
    server_address : str
        Nothing is connected before the first call.
    shared_name : str, optional
        Taken for Reverb's sake; every call uses the one connection of this object.
    name : str
        Scope of the operations.

    Notes
    -----
    Each call takes a `timeout` in seconds, after which it fails with `tf.errors.DeadlineExceededError`, eagerly or in a graph; the text
    says what was waited for. None, the default, waits for ever, and logs what for after 10 s.

    Ctrl-C ends a call, in a graph too, where TensorFlow may make a RuntimeError of KeyboardInterrupt (its text names it), and where the
    program handles SIGINT without an exception it is `tf.errors.CancelledError`. Closing a session does not end a call that waits in it,
    since TensorFlow does not tell operations of Python's: its timeout does.
    """

    _server_address: str = set_by_init()
    _shared_name: str | None = set_by_init()
    _name: str = set_by_init()
    _client: Client = set_by_init()

    def __init__(self, server_address: str, shared_name: str | None = None, name: str = "reverb") -> None:
        self._server_address = server_address
        self._shared_name = shared_name
        self._name = name
        self._client = Client(server_address)

    @property
    def server_address(self) -> str:
        return self._server_address

    @tf.autograph.experimental.do_not_convert
    def sample(self, table: Any, data_dtypes: Any, name: str | None = None, *, timeout: float | None = None) -> ReplaySample:
        """One item's first step; waits as long as the rate limiter wants, or the time is up.

        Parameters
        ----------
        table : str or string tensor
        data_dtypes : nest of dtypes
            Of a step; the data has this nest.
        name : str, optional
            Scope of the operation.
        timeout : float, optional
            Seconds; None waits for ever.

        Returns
        -------
        ReplaySample of tensors

        Raises
        ------
        tf.errors.DeadlineExceededError
            Nothing could be sampled in time.
        tf.errors.NotFoundError
            No such table.
        tf.errors.InvalidArgumentError
            The item has another number of columns, or other dtypes.
        """
        wanted = [tf.as_dtype(dtype) for dtype in tf.nest.flatten(data_dtypes)]
        seconds = _arguments.timeout(timeout)

        def draw(table: bytes) -> list[Any]:
            infos, columns = first_step(self._client, _text(table), seconds)
            if len(columns) != len(wanted):
                raise InvalidArgumentError(
                    f"the number of columns of the item, {len(columns)}, did not match the number of dtypes, {len(wanted)}"
                )
            for i, (column, dtype) in enumerate(zip(columns, wanted, strict=True)):
                if tf_dtype(column.dtype) != dtype:
                    raise InvalidArgumentError(
                        f"Type mismatch: column {i} of the item is {column.dtype}, {dtype.name} was asked for"
                    )
            return [*infos, *columns]

        with tf.name_scope(name or f"{self._name}_sample"):
            specs = [tf.TensorSpec([], dtype) for dtype in SampleInfo.dtypes()] + [tf.TensorSpec(None, dtype) for dtype in wanted]
            leaves = call(draw, [table], specs)
        return ReplaySample(SampleInfo(*leaves[:5]), tf.nest.pack_sequence_as(data_dtypes, leaves[5:]))

    @tf.autograph.experimental.do_not_convert
    def insert(
        self, data: Sequence[Any], tables: Any, priorities: Any, name: str | None = None, *, timeout: float | None = None
    ) -> Any:
        """Inserts one step as an item into each table; returns once they have it.

        Parameters
        ----------
        data : sequence of tensors
            The step's columns.
        tables : string tensor [n]
        priorities : float64 tensor [n]
        name : str, optional
            Scope of the operation.
        timeout : float, optional
            Seconds; None waits for ever. When it runs out, items may be in some of the tables, as for `Client.insert`.

        Raises
        ------
        tf.errors.DeadlineExceededError
            Not all tables have their items yet.
        tf.errors.InvalidArgumentError
            No such table, a NaN priority, data that does not fit a signature.
        """
        if tables.dtype != tf.string or tables.shape.rank != 1:
            raise ValueError(f"tables must be a string tensor of rank 1, got {tables.dtype} {tables.shape}")
        if priorities.dtype != tf.float64 or priorities.shape.rank != 1:
            raise ValueError(f"priorities must be a float64 tensor of rank 1, got {priorities.dtype} {priorities.shape}")
        if not tables.shape.is_compatible_with(priorities.shape):
            raise ValueError(f"tables and priorities must have the same shape, got {tables.shape} and {priorities.shape}")

        seconds = _arguments.timeout(timeout)

        def put(tables: Any, priorities: Any, *columns: Any) -> None:
            given = [(_text(table), float(priority)) for table, priority in zip(tables, priorities, strict=True)]
            try:
                self._client._insert(list(columns), given, seconds)
            except NotFoundError as error:  # a table that is not there has no signature to fit
                raise InvalidArgumentError(str(error)) from None

        with tf.name_scope(name or f"{self._name}_insert"):
            return operation(put, [tables, priorities, *map(tf.convert_to_tensor, data)])

    @tf.autograph.experimental.do_not_convert
    def update_priorities(
        self, table: Any, keys: Any, priorities: Any, name: str | None = None, *, timeout: float | None = None
    ) -> Any:
        """Sets the priorities of items by key. Keys that are not in the table are passed over.

        Parameters
        ----------
        table : str or string tensor
        keys : uint64 tensor [n]
        priorities : float64 tensor [n]
        name : str, optional
            Scope of the operation.
        timeout : float, optional
            Seconds; None waits for ever.

        Raises
        ------
        tf.errors.DeadlineExceededError
            The server did not answer in time.
        tf.errors.NotFoundError
            No such table.
        tf.errors.InvalidArgumentError
            Keys and priorities of other ranks or lengths, a priority that the table refuses.
        """
        keys = tf.convert_to_tensor(keys, tf.uint64)
        priorities = tf.convert_to_tensor(priorities, tf.float64)
        seconds = _arguments.timeout(timeout)

        def update(table: bytes, keys: Any, priorities: Any) -> None:
            if keys.ndim != 1 or keys.shape != priorities.shape:
                raise InvalidArgumentError(
                    f"keys and priorities must be of rank 1 and equally long, got {list(keys.shape)} and {list(priorities.shape)}"
                )
            self._client.update_priorities(_text(table), keys, priorities, timeout=seconds)

        with tf.name_scope(name or f"{self._name}_update_priorities"):
            return operation(update, [table, keys, priorities])


def _text(table: Any) -> str:
    return _arguments.name("table", table if isinstance(table, bytes) else str(table))
