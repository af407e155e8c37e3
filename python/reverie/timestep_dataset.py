"""`TimestepDataset`: the steps of sampled items for `tf.data`. Importing this imports TensorFlow."""

from __future__ import annotations

from reverie._tensorflow import SampleDataset

__all__ = ["TimestepDataset"]


class TimestepDataset(SampleDataset):
    """As `reverie.TrajectoryDataset`, but the steps of each item one by one, without a mark where an item ends.

    `dtypes` and `shapes` are those of a step; `max_samples` counts items.
    """

    _timesteps = True
