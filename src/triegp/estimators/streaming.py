"""Rows added by `partial_fit`: checked at once, inserted before the next prediction.

Inserting rows merges sorted keys and sweeps over every trie, which is O(n) for any number of rows.
So batches wait, and all waiting batches are inserted together. `partial_fit` then costs O(k) for k
rows, and the next prediction costs O(n) more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.encoding.encoder import BitEncoder
from triegp.estimators.inputs import standardise
from triegp.models.interface import Fitted
from triegp.models.repeats import Observations
from triegp.tree.rows import Rows, join_rows

Floats = npt.NDArray[np.float64]

MAX_BATCHES = 256  # waiting batches beyond this number are joined into one


@dataclass(frozen=True, eq=False)
class Stream:
    """Trained models, their training rows if they are kept, and batches that wait.

    An estimator replaces its stream as a whole, while it holds its lock. So readers in other
    threads see all of a change or none.

    Attributes
    ----------
    fitted : tuple of Fitted
        One for all targets, or one for each.
    kept : Rows or None
        All rows inserted so far, as they were passed; None if they are not kept.
    observations : Observations or None
        These rows as they were passed, if several may share a row of the models; None if they are
        the rows of the models.
    waiting : tuple of Rows
        Batches that are checked but not inserted yet, as they were passed.
    """

    fitted: tuple[Fitted, ...]
    kept: Rows | None
    observations: Observations | None = None
    waiting: tuple[Rows, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of rows passed, without those that wait."""
        return self.fitted[0].n_rows if self.observations is None else self.observations.n_rows


def queue_rows(stream: Stream, batch: Rows) -> Stream:
    """The stream with one more waiting batch."""
    waiting = (*stream.waiting, batch)
    if len(waiting) > MAX_BATCHES:
        waiting = (join_rows(waiting),)
    return replace(stream, waiting=waiting)


def insert_waiting(stream: Stream, mean: Floats, scale: Floats) -> Stream:
    """Insert all waiting rows. O(n + k log k) per tree for k rows in all.

    mean, scale: float64 (n_targets,), how targets are standardised.
    """
    if not stream.waiting:
        return stream
    batch = join_rows(stream.waiting)
    kept = None if stream.kept is None else join_rows([stream.kept, batch])
    rows = standardise(batch, mean, scale)
    observations = stream.observations
    if observations is not None:
        observations = _append(observations, rows, stream.fitted[0].n_rows)
    pairs = zip(stream.fitted, _groups(stream.fitted), strict=True)
    fitted = tuple(part.insert(rows.targets(group)) for part, group in pairs)
    return Stream(fitted, kept, observations)


def check_batch(
    batch: Rows,
    fitted: Sequence[Fitted],
    encoders: Sequence[BitEncoder],
    mean: Floats,
    scale: Floats,
) -> None:
    """Raise ValueError if rows cannot be inserted. O(k) per tree for k rows.

    mean, scale: float64 (n_targets,), how targets are standardised.
    """
    outside = encoders[0].find_outside(batch.features)  # the box is the same for all encoders
    if outside.any():
        raise ValueError(
            f"X of added rows must lie inside the box, row {int(np.argmax(outside))} does not"
        )
    rows = standardise(batch, mean, scale)
    for part, group in zip(fitted, _groups(fitted), strict=True):
        part.check(rows.targets(group))


def _append(observations: Observations, rows: Rows, first: int) -> Observations:
    """Observations followed by new rows, each of which is a row of the models from `first` on."""
    weight = observations.weight
    if weight is not None or rows.weight is not None:
        old = np.ones(observations.n_rows) if weight is None else weight
        weight = np.append(old, np.ones(rows.n_rows) if rows.weight is None else rows.weight)
    return replace(
        observations,
        index=np.append(observations.index, np.arange(first, first + rows.n_rows)),
        y=np.concatenate([observations.y, rows.y]),
        weight=weight,
    )


def _groups(fitted: Sequence[Fitted]) -> list[list[int]]:
    """Targets of each model: one target per model, or all targets in one model."""
    if len(fitted) == 1:
        return [list(range(fitted[0].n_targets))]
    return [[k] for k in range(len(fitted))]
