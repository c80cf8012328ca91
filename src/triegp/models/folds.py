"""Folds of the rows that a model is trained on; what calibrates it follows from them.

Whatever is learned about error bars at a training row comes from a prediction by a model that was
not given the rows of its fold. Leave-one-out will not do: where all rows share a sum, the mean
without row i is (S - y_i) / (n - 1), one falling function of y_i for all rows, and whoever is given
this mean can read y_i off it. Within a fold, one function predicts all rows.

Rows come in the order of a hash of their features (`triegp.estimators.repeats`), so that blocks of
them are random, and the same however the table was ordered.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

FEW_ROWS = 1_000  # from this many rows on, the last fold is held out when parameters are trained
FEW_FOLDS = 4  # with fewer rows: each is held out of training in turn
HELD_ROWS = 2_000  # at most, and at most a fifth of the rows, are held out of training
MORE_FOLDS, MANY_FOLDS = 8, 4  # of the other rows; with many rows
MANY_ROWS = 5_000  # from so many rows on, a row hardly misses a quarter of the others


def find_folds(n_rows: int) -> tuple[Ints, ...]:
    """Rows of each fold of a model of n_rows rows; from 1,000 rows on, the last is `held_rows`."""
    if n_rows < FEW_ROWS:
        return tuple(np.array_split(np.arange(n_rows), max(1, min(FEW_FOLDS, n_rows // 2))))
    held = held_rows(n_rows)
    n_folds = MORE_FOLDS if n_rows < MANY_ROWS else MANY_FOLDS
    return (*np.array_split(np.arange(n_rows - held.size), n_folds), held)


def halve_folds(n_rows: int) -> npt.NDArray[np.bool_]:
    """Mark the rows of every other fold, (n_rows,)."""
    marked = np.zeros(n_rows, bool)
    marked[np.concatenate(find_folds(n_rows)[::2])] = True
    return marked


def held_rows(n_rows: int) -> Ints:
    """Rows that are held out when parameters are trained, the last ones; none below 1,000 rows."""
    n_held = min(HELD_ROWS, n_rows // 5) if n_rows >= FEW_ROWS else 0
    return np.arange(n_rows - n_held, n_rows)
