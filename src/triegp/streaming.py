"""Rows that come later: checked when they come, added when someone asks.

Adding rows to a trie is a merge of sorted keys and a sweep, O(n) whatever comes. Batches therefore
wait, and all that wait are added together before the next question is answered: k new rows cost
O(k) each and one O(n) a question, never O(n) each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.encoding import BitEncoder
from triegp.ensemble import Ensemble, grow
from triegp.observations import measure, observe
from triegp.targets import TrainingRows, join_rows, select_targets, standardise

Floats = npt.NDArray[np.float64]

MOST_BATCHES = 256  # that wait one by one; then they become one


@dataclass(frozen=True, eq=False)
class Stream:
    """What a model has learned, the rows it learned from if they are kept, and rows that wait.

    A model holds one at a time and replaces it whole: who reads it sees all of a change or none.
    """

    ensembles: tuple[Ensemble, ...]
    kept: TrainingRows | None
    waiting: tuple[TrainingRows, ...] = ()


def queue_batch(stream: Stream, batch: TrainingRows) -> Stream:
    """Let rows wait."""
    waiting = (*stream.waiting, batch)
    if len(waiting) > MOST_BATCHES:
        waiting = (join_rows(waiting),)
    return replace(stream, waiting=waiting)


def settle(stream: Stream, mean: Floats, scale: Floats) -> Stream:
    """Add the rows that wait. O(n + k log k) a member for k rows in all.

    mean, scale: float64 (n_targets,), how targets are standardised.
    """
    if not stream.waiting:
        return stream
    kept = None if stream.kept is None else join_rows([stream.kept, *stream.waiting])
    return Stream(add_batches(stream.waiting, stream.ensembles, mean, scale), kept)


def check_batch(
    batch: TrainingRows,
    ensembles: Sequence[Ensemble],
    encoders: Sequence[BitEncoder],
    mean: Floats,
    scale: Floats,
) -> None:
    """Refuse rows that could not be added. O(k K) for k rows and K members.

    mean, scale: float64 (n_targets,), how targets are standardised.
    """
    codes = encoders[0].encode_array(batch.X)  # whether a row is outside is the same for all
    if codes.outside is not None and codes.outside.any():
        row = int(np.argmax(codes.outside))
        raise ValueError(f"X of added rows must lie inside the box, row {row} does not")
    rows = standardise(batch, mean, scale)
    for ensemble, group in zip(ensembles, _groups(ensembles), strict=True):
        part = select_targets(rows, group)
        for column in part.columns():
            measured = measure(n_rows=codes.n_rows, **column)
            for member in ensemble.members:
                observe(member.order, measured, member.posteriors[0].noise)


def add_batches(
    batches: Sequence[TrainingRows], ensembles: Sequence[Ensemble], mean: Floats, scale: Floats
) -> tuple[Ensemble, ...]:
    """The ensembles with all rows of the batches. O(n + k log k) a member for k rows in all."""
    batch = join_rows(batches)
    rows = standardise(batch, mean, scale)
    return tuple(
        grow(ensemble, batch.X, select_targets(rows, group))
        for ensemble, group in zip(ensembles, _groups(ensembles), strict=True)
    )


def _groups(ensembles: Sequence[Ensemble]) -> list[list[int]]:
    """Which targets each ensemble holds: one each, or one for all."""
    if len(ensembles) == 1:
        return [list(range(len(ensembles[0].calibrations)))]
    return [[k] for k in range(len(ensembles))]
