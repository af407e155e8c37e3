"""What the matrix does, in words that Reverb and Reverie share: each operation is run with every mix of their clients and servers.

An operation has tables, and steps: each is done by a client, the first by the one that writes, the second (if there is one) by the one
that reads. What steps return is compared, so it must not depend on chance or time; keys are written as `matrix_values.key`. `cells` says
with which parameters it runs: (parameters, whether the short form has it). Imported by both packages' processes; imports neither package.

A step returns everything that the reference promises about what it did. Where Reverb does not do what it promises, a step does not go
there: matrix_differences.py says what both do then.
"""

from __future__ import annotations

from matrix_bulk import Insert, LegacyWriter, LongRun, Trajectory
from matrix_changes import Mutate, Reset
from matrix_checkpoint import Checkpoint
from matrix_differences import Differences
from matrix_errors import Errors
from matrix_info import Info
from matrix_limits import Limiter, Selector, Timeouts
from matrix_random import RandomCheckpoints, RandomPrograms
from matrix_shapes import SharedChunks, Structured, TrajectoryShapes
from matrix_tensorflow import Dataset, TensorFlowClient

OPERATIONS = {
    operation.name: operation
    for operation in (
        Insert,
        LegacyWriter,
        Trajectory,
        TrajectoryShapes,
        Structured,
        SharedChunks,
        LongRun,
        Dataset,
        TensorFlowClient,
        Selector,
        Limiter,
        Timeouts,
        Mutate,
        Reset,
        Info,
        Errors,
        Checkpoint,
        Differences,
        RandomPrograms,
        RandomCheckpoints,
    )
}
