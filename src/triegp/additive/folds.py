"""Predictions of training rows by the model given all rows but those of their fold.

With A = K + noise and alpha = A^-1 y, the rows F of a fold are predicted from all others by

    mean = y_F - B alpha_F,    covariance of an observation = B,    B = ((A^-1)_FF)^-1.

For few rows (`is_exact`) this is dense algebra. Beyond, conjugate gradients solve A_RR x = y_R for
the rest R of the rows, for all folds at once. With E the columns of the identity at F, the
preconditioner M of all rows gives that of the rest,

    (M_RR)^-1 r = M^-1 (r - E u),    (M^-1)_FF u = (M^-1 r)_F,

by a few steps of conjugate gradients for u: (M^-1)_FF is the inverse of a covariance given all
other rows, and so well conditioned. The same correction of alpha is where the solve begins. The
mean is K_FR x then. Variances are those without the row alone, which are a little smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
MAX_STEPS = 50  # without noise more would be needed; what is missing widens the intervals
INNER_ERROR, INNER_STEPS = 0.03, 20  # relative residual of u, and the most steps for it
TINY = 1e-300


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
    n, norms = model.forest.n_rows, model.forest.engine.norms
    alpha, y = model.alpha.reshape(n, -1), model.rows.y.reshape(n, -1)
    k, made = alpha.shape[1], model.preconditioner
    left_out: npt.NDArray[np.bool_] = np.zeros((n, len(folds) * k), bool)
    for f, fold in enumerate(folds):
        left_out[fold, f * k : f * k + k] = True
    rest = ~left_out

    def divide(r: Floats, z: Floats) -> Floats:
        """(M_RR)^-1 r for r that is 0 at the folds; z = M^-1 r."""
        u = _solve(lambda x: left_out * made.apply(x), left_out * z, norms)
        return np.asarray(rest * (z - made.apply(u)))

    x = divide(rest * alpha, np.tile(alpha, len(folds)))
    left = rest * (np.tile(y, len(folds)) - multiply(model.forest, x, model.variance))
    alone = y - leave_out(model)[0].reshape(n, -1)
    least = ERROR_SHARE * np.tile(norms(alone), len(folds))
    step, gain = np.zeros_like(x), np.ones(x.shape[1])
    last = left
    for number in range(MAX_STEPS):
        if (norms(left) <= least).all():
            break
        if watch.stop:
            return None
        way = divide(left, made.apply(left))
        # u is not exact, so that the directions are made conjugate as for a changing preconditioner
        share = _dots(way, left - last) / gain if number else np.zeros_like(gain)
        gain, step = np.maximum(_dots(way, left), TINY), way + share * step
        image = rest * multiply(model.forest, step, model.variance)
        length = _dots(step, left) / np.maximum(_dots(step, image), TINY)
        x += length * step
        last, left = left, left - length * image
    image = multiply(model.forest, x).reshape(n, len(folds), k)
    mean = np.empty((n, k))
    for f, fold in enumerate(folds):
        mean[fold] = image[fold, f]
    return mean.reshape(model.alpha.shape)


def _solve(
    product: Callable[[Floats], Floats], b: Floats, norms: Callable[[Floats], Floats]
) -> Floats:
    """Roughly A^-1 b for a well conditioned A, by conjugate gradients for all columns at once."""
    x, left, step = np.zeros_like(b), b, b
    gain, least = _dots(b, b), INNER_ERROR * norms(b)
    for _ in range(INNER_STEPS):
        image = product(step)
        length = gain / np.maximum(_dots(step, image), TINY)
        x = x + length * step
        left = left - length * image
        if (norms(left) <= least).all():
            break
        last, gain = gain, _dots(left, left)
        step = left + gain / np.maximum(last, TINY) * step
    return x


def _dots(x: Floats, z: Floats) -> Floats:
    """Scalar products of the columns of x and z, (k,)."""
    return np.asarray(np.einsum("nk,nk->k", x, z))
