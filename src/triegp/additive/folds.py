"""Predictions of training rows by a model that was not given them nor the rows of their fold.

Few rows (`is_exact`): with A = K + noise and alpha = A^-1 y, the rows F of a fold are predicted
from all others by

    mean = y_F - B alpha_F,    covariance of an observation = B,    B = ((A^-1)_FF)^-1.

Beyond, only the last rows are predicted so, those that were held out of training: conjugate
gradients solve A_RR x = y_R for the rest R of the rows, and the mean is K_FR x. The solution is
where the solve with all rows begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest, multiply
from triegp.additive.model import ForestModel
from triegp.additive.neighbours import Neighbours
from triegp.additive.preconditioner import Preconditioner
from triegp.engines import one_blas_thread
from triegp.imports import scipy
from triegp.models.folds import find_folds
from triegp.models.jobs import Stopwatch

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_STEPS = 500  # without noise more may be needed; what is missing widens the intervals
TINY = 1e-300


def predict_folds(model: ForestModel) -> tuple[Floats, Floats]:
    """Mean (n,) or (n, k) and variance (n,) of f at the rows, without their folds, exactly.

    O(n^3) for n rows.
    """
    columns, y = model.alpha.reshape(model.forest.n_rows, -1), model.rows.y
    inverse = np.eye(model.forest.n_rows)
    mean, var = np.empty_like(columns), np.empty(columns.shape[0])
    with one_blas_thread():
        inverse = scipy.linalg.cho_solve((model.root, True), inverse, overwrite_b=True)
        for fold in find_folds(model.forest.n_rows):
            covariance = np.linalg.inv(inverse[np.ix_(fold, fold)])
            mean[fold] = y.reshape(columns.shape)[fold] - covariance @ columns[fold]
            var[fold] = np.diag(covariance)
    return mean.reshape(y.shape), np.maximum(var - model.variance, 0.0)


def predict_last(
    forest: Forest,
    variance: Floats,
    y: Floats,
    n_held: int,
    made: Preconditioner | None,
    tolerance: float,
    watch: Stopwatch | None = None,
) -> tuple[Floats, Floats] | None:
    """Solution with all rows but the last, 0 there, (n,) or (n, k), and the mean at these.

    None if the watch stops.

    Parameters
    ----------
    forest : Forest
        K.
    variance, y : float64 (n,) and (n,) or (n, k)
        Noise and targets.
    n_held : int
        Number of the last rows.
    made : Preconditioner or None
        Of all rows.
    tolerance : float
        Of the relative residual.
    watch : Stopwatch, optional
        Ends the solve.

    Notes
    -----
    O(n T) per step, as for all rows.
    """
    n, engine = forest.n_rows, forest.engine
    rest, columns = slice(n - n_held), y.reshape(n, -1)
    r = columns[rest]
    least, x, p = tolerance * engine.norms(r), 0.0 * r, 0.0 * r
    gain: Any = 1.0

    def fill(part: Floats) -> Floats:
        filled = 0.0 * columns
        filled[rest] = part
        return filled

    less = made.without_last(n_held) if isinstance(made, Neighbours) else None

    def divide(part: Floats) -> Floats:
        if less is not None:
            return less.apply(part)
        return part if made is None else made.apply(fill(part))[rest]

    for _ in range(MAX_STEPS):
        if watch is not None and watch.stop:
            return None
        z = divide(r)
        last, gain = gain, np.maximum(_dots(r, z), TINY)
        p = z + (gain / last) * p
        q = multiply(forest, fill(p), variance)[rest]
        stride = gain / np.maximum(_dots(p, q), TINY)
        x, r = x + stride * p, r - stride * q
        if (engine.norms(r) <= least).all():
            break
    start = fill(x)
    mean = multiply(forest, start)[n - n_held :]
    return start.reshape(y.shape), mean.reshape((n_held, *y.shape[1:]))


def _dots(x: Floats, z: Floats) -> Floats:
    """Scalar products of the columns of x and z, (k,)."""
    found: Floats = np.einsum("nk,nk->k", x, z)
    return found
