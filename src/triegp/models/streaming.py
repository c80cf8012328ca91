"""Rows that come later: checked when they come, added when someone asks.

Adding rows is a merge of sorted keys and a sweep of every trie, O(n) whatever comes. Batches
therefore wait, and all that wait are added together before the next question is answered: k new
rows cost O(k) each and one O(n) a question, never O(n) each.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.encoding.encoder import BitEncoder
from triegp.models.contract import Fitted
from triegp.models.rows import TrainingRows, join_rows, select_targets, standardise

Floats = npt.NDArray[np.float64]

MOST_BATCHES = 256  # that wait one by one; then they become one

changing = threading.Lock()  # of any model's rows: questions may come from many threads


@dataclass(frozen=True, eq=False)
class Stream:
    """What a model has learned, the rows it learned from if they are kept, and rows that wait.

    An estimator holds one at a time and replaces it whole, `changing` locked: who reads it sees all
    of a change or none.

    Attributes
    ----------
    fitted : tuple of Fitted
        One for all targets, or one each.
    kept : TrainingRows or None
        All rows that it has learned from, without those that wait.
    waiting : tuple of TrainingRows
        Batches, checked.
    """

    fitted: tuple[Fitted, ...]
    kept: TrainingRows | None
    waiting: tuple[TrainingRows, ...] = ()


def queue_batch(stream: Stream, batch: TrainingRows) -> Stream:
    """Let rows wait."""
    waiting = (*stream.waiting, batch)
    if len(waiting) > MOST_BATCHES:
        waiting = (join_rows(waiting),)
    return replace(stream, waiting=waiting)


def settle(stream: Stream, mean: Floats, scale: Floats) -> Stream:
    """Add the rows that wait. O(n + k log k) a tree for k rows in all.

    mean, scale: float64 (n_targets,), how targets are standardised.
    """
    if not stream.waiting:
        return stream
    kept = None if stream.kept is None else join_rows([stream.kept, *stream.waiting])
    return Stream(add_batches(stream.waiting, stream.fitted, mean, scale), kept)


def check_batch(
    batch: TrainingRows,
    fitted: Sequence[Fitted],
    encoders: Sequence[BitEncoder],
    mean: Floats,
    scale: Floats,
) -> None:
    """Refuse rows that could not be added. O(k) a tree for k rows.

    mean, scale: float64 (n_targets,), how targets are standardised.
    """
    codes = encoders[0].encode_array(batch.X)  # whether a row is outside is the same for all
    if codes.outside is not None and codes.outside.any():
        row = int(np.argmax(codes.outside))
        raise ValueError(f"X of added rows must lie inside the box, row {row} does not")
    rows = standardise(batch, mean, scale)
    for part, group in zip(fitted, _groups(fitted), strict=True):
        part.check(batch.X, select_targets(rows, group))


def add_batches(
    batches: Sequence[TrainingRows], fitted: Sequence[Fitted], mean: Floats, scale: Floats
) -> tuple[Fitted, ...]:
    """The same with all rows of the batches. O(n + k log k) a tree for k rows in all."""
    batch = join_rows(batches)
    rows = standardise(batch, mean, scale)
    return tuple(
        part.grow(batch.X, select_targets(rows, group))
        for part, group in zip(fitted, _groups(fitted), strict=True)
    )


def _groups(fitted: Sequence[Fitted]) -> list[list[int]]:
    """Which targets each holds: one each, or one for all."""
    if len(fitted) == 1:
        return [list(range(fitted[0].n_targets))]
    return [[k] for k in range(len(fitted))]
