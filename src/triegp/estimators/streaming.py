"""Rows that come later: checked when they come, inserted before the next question is answered.

Inserting rows is a merge of sorted keys and a sweep over every trie, O(n) for any number of rows.
Batches therefore wait, and all that wait are inserted together: k new rows cost O(k), and each
question O(n) if rows wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.encoding.encoder import BitEncoder
from triegp.estimators.inputs import standardise
from triegp.models.contract import Fitted
from triegp.tree.rows import Rows, join_rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_BATCHES = 256  # that wait one by one; then they are joined


@dataclass(frozen=True, eq=False)
class Stream:
    """Trained models, the rows they have seen if they are kept, and rows that wait.

    An estimator holds one at a time and replaces it as a whole while it holds its lock: readers see
    all of a change or none.

    Attributes
    ----------
    fitted : tuple of Fitted
        One for all targets, or one for each.
    kept : Rows or None
        All rows seen, as they came, without those that wait.
    index : int64 (n,) or None
        Row of the models that each row seen became, -1 for none; None if they are the same.
    waiting : tuple of Rows
        Batches as they came, checked.
    """

    fitted: tuple[Fitted, ...]
    kept: Rows | None
    index: Ints | None = None
    waiting: tuple[Rows, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of rows seen, without those that wait."""
        return self.fitted[0].n_rows if self.index is None else int(self.index.size)


def queue_rows(stream: Stream, batch: Rows) -> Stream:
    """The stream with one more batch that waits."""
    waiting = (*stream.waiting, batch)
    if len(waiting) > MAX_BATCHES:
        waiting = (join_rows(waiting),)
    return replace(stream, waiting=waiting)


def insert_waiting(stream: Stream, mean: Floats, scale: Floats) -> Stream:
    """Insert the rows that wait. O(n + k log k) per tree for k rows in all.

    mean, scale: float64 (n_targets,), how targets are standardised.
    """
    if not stream.waiting:
        return stream
    batch = join_rows(stream.waiting)
    kept = None if stream.kept is None else join_rows([stream.kept, batch])
    index = stream.index
    if index is not None:
        first = stream.fitted[0].n_rows
        index = np.append(index, np.arange(first, first + batch.n_rows))
    rows = standardise(batch, mean, scale)
    pairs = zip(stream.fitted, _groups(stream.fitted), strict=True)
    return Stream(tuple(part.insert(rows.targets(group)) for part, group in pairs), kept, index)


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
    codes = encoders[0].encode_array(batch.features)  # a row is outside for all encoders, or none
    if codes.unrelated is not None and codes.unrelated.any():
        row = int(np.argmax(codes.unrelated))
        raise ValueError(f"X of added rows must lie inside the box, row {row} does not")
    rows = standardise(batch, mean, scale)
    for part, group in zip(fitted, _groups(fitted), strict=True):
        part.check(rows.targets(group))


def _groups(fitted: Sequence[Fitted]) -> list[list[int]]:
    """Targets of each model: one each, or all in one."""
    if len(fitted) == 1:
        return [list(range(fitted[0].n_targets))]
    return [[k] for k in range(len(fitted))]
