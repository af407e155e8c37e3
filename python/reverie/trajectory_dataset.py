"""`TrajectoryDataset`: sampled items for `tf.data`. Importing this imports TensorFlow."""

from __future__ import annotations

from reverie._tensorflow import SampleDataset

__all__ = ["TrajectoryDataset"]


class TrajectoryDataset(SampleDataset):
    """One sampled item after another, as `ReplaySample` of tensors: columns [T, ...], squeezed ones [...].

    Parameters
    ----------
    server_address, table : str or string tensor
    dtypes, shapes : nest
        Of what an item holds: dtypes, and `tf.TensorShape` with None for what varies.
    max_in_flight_samples_per_worker : int
        Samples fetched ahead by each stream; they count as sampled.
    num_workers_per_iterator : int
        Streams that fetch side by side; with more than one the order is lost. -1: one.
    max_samples_per_stream : int
        Then a stream is opened anew, which spreads load behind a balancer. -1: 10,000.
    rate_limiter_timeout_ms : int
        The sequence ends when the rate limiter lets nothing through for so long. -1: it waits for ever; 0: at once.
    max_samples : int
        Items in all. -1: no bound.
    timeout : float, optional
        Seconds to wait for an item, whether the rate limiter holds it back or no server is there; then iteration raises
        `tf.errors.DeadlineExceededError`, which says what was waited for, and may go on. None waits for ever.

    Raises
    ------
    ValueError
        An argument out of range, or dtypes and shapes of different structure.

    Notes
    -----
    When an iterator begins, dtypes and shapes are compared with the table's signature, if it has one, before an item is asked for:
    what cannot fit is a `tf.errors.InvalidArgumentError`. Without a signature, or an answer within 2 s, the first item shows it.

    ``dataset.batch(n)`` on items of fixed shapes is gathered as batches and takes nothing apart in the graph.

    What is waited for longer than 10 s is logged. Ctrl-C ends a wait as it ends one of `TFClient`: where the
    program handles SIGINT by a function that raises nothing, say one that sets a flag, the element that is waited for raises
    `tf.errors.CancelledError`; look at the flag there, and go on with the iterator if you like.
    """

    _timesteps = False
