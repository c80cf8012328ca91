"""Predictions of training rows by the model given all rows but those of their fold.

With A = K + noise and alpha = A^-1 y, the rows F of a fold are predicted from all others by

    mean = y_F - B alpha_F,    covariance of an observation = B,    B = ((A^-1)_FF)^-1.

For few rows (`is_exact`) this is dense algebra. Beyond, conjugate gradients solve A_RR x = y_R for
the rest R of the rows, for all folds at once: they move in the vectors that are 0 at F, from alpha,
with the preconditioner of all rows. The mean is K_FR x then. Variances are those without the row
alone, which are a little smaller.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from triegp.additive.exact import is_exact
from triegp.additive.forest import multiply
from triegp.additive.model import ForestModel
from triegp.additive.variance import leave_out, left_out
from triegp.engines import one_blas_thread
from triegp.imports import scipy
from triegp.models.folds import find_folds
from triegp.models.jobs import Stopwatch

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ERROR_SHARE = 0.1  # of the residuals' root mean square: error of the means that a solve may leave
MAX_STEPS = 100  # without noise more would be needed; what is missing widens the intervals


def predict_folds(model: ForestModel, rows: Ints, watch: Stopwatch) -> tuple[Floats, Floats] | None:
    """Mean (k,) or (k, n_targets) and variance (k,) of f at some rows, without their fold.

    None if the watch stops it. O(n^3) by dense algebra; otherwise the products of a solve with as
    many right-hand sides as there are folds, of which the last steps only correct means by less
    than a tenth of the residuals.
    """
    folds = find_folds(model.forest.n_rows)
    with one_blas_thread():
        if is_exact(model.forest.n_rows):
            mean, var = _divide(model, folds)
            return mean[rows], var[rows]
        every = _descend(model, folds, watch)
        return None if every is None else (every[rows], left_out(model, rows))


def _divide(model: ForestModel, folds: Sequence[Ints]) -> tuple[Floats, Floats]:
    """Means and variances at all rows, by the inverse of A."""
    n = model.forest.n_rows
    inverse = scipy.linalg.cho_solve((model.root, True), np.eye(n), check_finite=False)
    mean, var = model.rows.y.copy(), np.empty(n)
    for fold in folds:
        block = scipy.linalg.inv(inverse[np.ix_(fold, fold)], check_finite=False)
        mean[fold] -= block @ model.alpha[fold]
        var[fold] = np.diag(block)
    return mean, np.maximum(var - model.variance, 0.0)


def _descend(model: ForestModel, folds: Sequence[Ints], watch: Stopwatch) -> Floats | None:
    """Means at all rows, by conjugate gradients; None if the watch stops."""
    n, engine, variance = model.forest.n_rows, model.forest.engine, model.variance
    alpha, y = model.alpha.reshape(n, -1), model.rows.y.reshape(n, -1)
    k = alpha.shape[1]
    stays = np.ones((n, len(folds) * k))
    for f, fold in enumerate(folds):
        stays[fold, f * k : f * k + k] = 0.0
    x = stays * np.tile(alpha, len(folds))
    left = stays * (np.tile(y, len(folds)) - multiply(model.forest, x, variance))
    alone = y - leave_out(model)[0].reshape(n, -1)
    least = ERROR_SHARE * np.tile(engine.norms(alone), len(folds))
    way = stays * model.preconditioner.apply(left)
    gain, step = np.einsum("nk,nk->k", left, way), way.copy()
    for _ in range(MAX_STEPS):
        if (engine.norms(left) <= least).all():
            break
        if watch.stop:
            return None
        image = stays * multiply(model.forest, step, variance)
        length = gain / np.maximum(np.einsum("nk,nk->k", step, image), 1e-300)
        x += length * step
        left -= length * image
        way = stays * model.preconditioner.apply(left)
        last, gain = gain, np.einsum("nk,nk->k", left, way)
        step = way + gain / np.maximum(last, 1e-300) * step
    image = multiply(model.forest, x).reshape(n, len(folds), k)
    mean = np.empty((n, k))
    for f, fold in enumerate(folds):
        mean[fold] = image[fold, f]
    return mean.reshape(model.alpha.shape)
