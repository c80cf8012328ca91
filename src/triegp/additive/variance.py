"""Posterior variances, covariances and samples of f, and leave-one-out.

Up to 2,000 rows variances are exact, v(x) = k(x, x) - k_x' (K + noise)^-1 k_x, by a dense Cholesky
factor that the model keeps. With more rows they come from the training rows near a row
(`triegp.additive.nearby`), without solves, or exactly, by one solve per row. Covariances are exact.

Samples: draw f from the prior at training and new rows and noise e at training rows, and solve
u = (K + noise)^-1 (f + e). Then f(x) - k_x' u is an exact draw of the posterior deviation of f(x)
from its mean; it does not depend on y.

Leave-one-out needs the variance v_i of f at a training row given all other rows. It is exact up to
2,000 rows, otherwise from nearby rows. The diagonal of (K + noise)^-1 is 1 / (v_i + noise_i). The
mean is (K alpha)_i - alpha_i v_i. If a solve left y = (K + noise) alpha + r, all predictions are
those of targets y - r, and so is this mean: errors of a solve show in it as in those of new rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.additive.exact import draw_correlated
from triegp.additive.forest import Forest, forest_product
from triegp.additive.model import ForestModel, column_of, run_variances, solve_rows
from triegp.additive.nearby import (
    learn_factor,
    left_out_variance,
    nearby_variance,
    rows_of_cells,
    tree_covariances,
)
from triegp.additive.points import Points, find_rows, forest_mean, joint_trees, new_keys
from triegp.additive.sampling import draw_prior
from triegp.additive.settings import VARIANCES
from triegp.checks import one_of
from triegp.imports import scipy

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COLUMNS = 16  # right-hand sides solved at a time
DENSE_COLUMNS = 256  # the same by a dense factor
EXACT_TOLERANCE = 1e-6  # of |r| / |b|, r = b - A x; the error of the variance is r' A^-1 r
SAMPLE_TOLERANCE = 1e-2  # smaller if the noise is small: see `sample_tolerance`
FACTOR_ROWS = 20_000  # values, rows times probes, from which the factor is learned, and more


def forest_variance(model: ForestModel, points: Points, kind: str) -> Floats:
    """Posterior variance of f at new rows, (m,); that of y without noise outside the box.

    kind: "nearby" or "exact". A row's variance does not depend on the other rows.
    """
    one_of("variance", kind, VARIANCES)
    inner = points.inner
    variance = np.full(points.n_rows, unrelated_variance(model))
    if not inner.size:
        return variance
    if model.exact:
        variance[inner] = _dense_variance(model, points)
    elif kind == "exact":
        variance[inner] = _exact_variance(model, points)
    else:
        scaled, anchors = (model.scale_inputs(part) for part in (points.inputs, points.anchors))
        given = (scaled, new_keys(model, points), points.fade, anchors)
        found = nearby_variance(model.nearby, *given, n_threads=model.n_threads)
        lost = 1.0 - np.square(points.fade)
        # Far from all rows the variance is the prior one, which needs no factor.
        factor = model.factor + lost * max(1.0 - model.factor, 0.0)
        variance[inner] = factor * np.maximum(found, 0.0) + lost * unseen_variance(model)
    return variance


class Known(NamedTuple):
    """What is known of the diagonal of (K + noise)^-1.

    Attributes
    ----------
    rows : int64 (r,)
        Rows.
    inverse : float64 (r,) or (r, k)
        The diagonal at these rows. If `drawn`, squares of (K + noise)^-1 z for k draws z of
        N(0, K + noise), whose expectation it is.
    drawn : bool
        Whether these are draws.
    """

    rows: Ints
    inverse: Floats
    drawn: bool


def with_factor(model: ForestModel, known: Known) -> ForestModel:
    """The model with the factor of variances from nearby rows."""
    near = model.nearby
    some, inverse = known.rows, known.inverse
    enough = FACTOR_ROWS // inverse[0].size
    if some.size > enough:
        some = some_blocks(model, enough, np.zeros(0, np.int64))
        inverse = inverse[some]  # all rows are known
    v = left_out_variance(near, some, n_threads=model.n_threads)
    factor = learn_factor(v, model.variance[some], inverse, drawn=known.drawn)
    return replace(model, factor=factor, known_nearby=near)


def some_blocks(model: ForestModel, n_rows: int, rows: Ints) -> Ints:
    """At least n_rows rows, all those of some cells, and also the given rows."""
    rng = np.random.default_rng(model.seed)
    return np.union1d(rows_of_cells(model.nearby, n_rows, rng, rows), rows)


def forest_covariance(model: ForestModel, points: Points) -> Floats:
    """Posterior covariance of f at new rows, (m, m), by one solve per row if there are many rows.

    Rows outside the box have the variance of y without noise, and covariance 0 with all others.
    """
    inner = points.inner
    cov: Floats = np.zeros((points.n_rows, points.n_rows))
    np.fill_diagonal(cov, unrelated_variance(model))
    if inner.size:
        joint = joint_trees(model, points)
        part = _own_covariance(model, joint, points)
        if model.exact:
            white = _whitened(model, points, np.arange(inner.size))
            part -= white.T @ white
        else:
            for first in range(0, inner.size, COLUMNS):
                some = np.arange(first, min(first + COLUMNS, inner.size))
                part[:, some] -= _explained(model, joint, points, some)
        part = 0.5 * (part + part.T)
        np.fill_diagonal(part, np.maximum(np.diag(part), 0.0))
        cov[np.ix_(inner, inner)] = part
    return cov


def draw_forest(
    model: ForestModel, points: Points, n_samples: int, rng: np.random.Generator, column: int = 0
) -> Floats:
    """Joint posterior samples of f at new rows, (m, n_samples); column: index of the target.

    By the joint covariance if there are more samples than rows: one solve per row. Otherwise one
    solve per sample, with products of O((n + m) T).
    """
    if points.n_rows <= n_samples:
        out = draw_correlated(forest_covariance(model, points), n_samples, rng)
    else:
        out = np.sqrt(unrelated_variance(model)) * rng.standard_normal((points.n_rows, n_samples))
        if points.inner.size:
            out[points.inner] = np.hstack(list(_deviations(model, points, n_samples, rng)))
    mean = column_of(points.once("mean", lambda: forest_mean(model, points)), column)
    return np.asarray(mean[:, None] + out)


def sample_tolerance(model: ForestModel) -> float:
    """Relative residual at which solves for samples end.

    Observations of almost equal rows differ by little more than their noise, so a small noise needs
    an accurate solve.
    """
    ratio = float(model.variance.min()) / max(model.forest.prior_variance, 1e-300)
    return min(SAMPLE_TOLERANCE, max(0.1 * float(np.sqrt(ratio)), 1e-6))


def left_out(model: ForestModel, rows: Ints | None = None) -> Floats:
    """Variance of f at training rows given all other rows, (n,), or of some rows.

    Between 0 and the prior variance. A row is left out with all of its copies.
    """
    if model.exact:
        every = 1.0 / model.exact_diagonal - model.variance
        found = every if rows is None else every[rows]
    elif rows is None:
        found = model.factor * model.left_out_bound
    else:
        found = model.factor * left_out_variance(model.nearby, rows, n_threads=model.n_threads)
    return np.clip(found, 0.0, model.forest.prior_variance)


def leave_out(
    model: ForestModel, rows: Ints | None = None, *, solve: bool = False
) -> tuple[Floats, Floats]:
    """Mean and variance of f at each training row given all other rows, (n,) each, or some rows.

    Rows of weight 0 are not included. A row is left out with all of its copies. Several targets
    have means (n, k). rows: increasing. solve: with the variances of `left_out_solved`.
    """
    every = np.arange(model.forest.n_rows) if rows is None else rows
    var = left_out(model, rows)
    if solve:
        solved, better = model.left_out_solved
        at = np.minimum(np.searchsorted(every, solved), every.size - 1)
        known = every[at] == solved
        var[at[known]] = better[known]
    mean = model.fitted[every] - (model.alpha[every].T * var).T
    return mean, var


class Apart(NamedTuple):
    """f at points that coincide with training rows, if these rows' runs count as noise.

    Attributes
    ----------
    points : int64 (r,)
        Indices of these points.
    mean : float64 (r,) or (r, k)
        Mean of f, with a new run.
    var : float64 (r,)
        Variance of f, with a new run.
    extra : float64 (r,)
        Excess of `var` over the posterior variance of f with the run of the training row.
    """

    points: npt.NDArray[np.int64]
    mean: Floats
    var: Floats
    extra: Floats


def stand_apart(model: ForestModel, points: Points, *, var: bool) -> Apart:
    """Predictions at points that coincide with a training row in all trees (`docs/notation.md`).

    Write f = g + r at such a row, with r the sum of its runs. The target is g + r + noise, so that
    r is noise as far as the data can tell, and a new observation has its own. Variances are
    computed if `var`, from nearby rows if there are more than 2,000.
    """
    rows = find_rows(model, points)
    near = np.flatnonzero((rows >= 0) & (points.fade == 1.0))
    row = rows[near]
    if not row.size:
        return no_points(model)
    own, runs = model.variance[row], run_variances(model)[row]
    noise = own + runs
    mean = model.fitted[row] - (runs * model.alpha[row].T).T
    if not var:
        nothing = np.zeros(row.size)
        return Apart(points.inner[near], mean, nothing, nothing)
    inverse = 1.0 / (left_out(model, row) + own)
    total = np.maximum(noise - noise * noise * inverse, 0.0) + runs
    extra = np.maximum(total - (own - own * own * inverse), 0.0)
    return Apart(points.inner[near], mean, total, extra)


def no_points(model: ForestModel) -> Apart:
    """No point coincides with a training row."""
    nothing = np.zeros(0)
    return Apart(np.zeros(0, np.int64), np.zeros((0, *model.alpha.shape[1:])), nothing, nothing)


def unrelated_variance(model: ForestModel) -> float:
    """Variance of f at rows that are unrelated to the data: an observation has that of y, 1.

    The prior variance of the forest is not a guide. It is learned for differences inside the box,
    and its level, which one draw of y shows, hardly enters the likelihood.
    """
    return max(1.0 - model.new_noise, 0.0)


def unseen_variance(model: ForestModel) -> float:
    """What the prior variance of f lacks far outside, where a row is unrelated to the data."""
    return max(unrelated_variance(model) - model.forest.prior_variance, 0.0)


def _exact_variance(model: ForestModel, points: Points) -> Floats:
    joint = joint_trees(model, points)
    out = np.empty(points.inner.size)
    for first in range(0, out.size, COLUMNS):
        some = np.arange(first, min(first + COLUMNS, out.size))
        cross, prior = _cross(model, joint, points, some), _prior(model, points, some)
        x = solve_rows(model, cross, EXACT_TOLERANCE)
        # Unlike b'x, the error of 2 b'x - x'Ax is quadratic in the error of x.
        image = forest_product(model.forest, x) + model.variance[:, None] * x
        out[some] = prior - np.einsum("nk,nk->k", x, 2.0 * cross - image)
    return np.maximum(out, 0.0)


def _dense_variance(model: ForestModel, points: Points) -> Floats:
    """By the Cholesky factor of all rows. O(n T + n^2) per row."""
    out = np.empty(points.inner.size)
    for first in range(0, out.size, DENSE_COLUMNS):
        some = np.arange(first, min(first + DENSE_COLUMNS, out.size))
        white = _whitened(model, points, some)
        out[some] = _prior(model, points, some) - np.square(white).sum(axis=0)
    return np.maximum(out, 0.0)


def _whitened(model: ForestModel, points: Points, some: Ints) -> Floats:
    """L^-1 k for the Cholesky factor L of all rows and their covariance k with new rows, (n, k)."""
    smooth, keys = model.smooth, new_keys(model, points)
    cross = tree_covariances(model.nearby, keys[some], points.fade[some])
    if smooth is not None:
        cross += smooth.cross(smooth.read(points.inputs[some]))
    return np.asarray(
        scipy.linalg.solve_triangular(model.root, cross, lower=True, check_finite=False)
    )


def _prior(model: ForestModel, points: Points, some: Ints) -> Floats:
    """Prior variance of f at some new rows, (k,)."""
    prior = np.full(some.size, model.forest.tree_variance)
    smooth = model.smooth
    if smooth is not None:
        prior += np.diag(smooth.own(smooth.read(points.inputs[some])))
    return prior + (1.0 - np.square(points.fade[some])) * unseen_variance(model)


def _cross(model: ForestModel, joint: Forest, points: Points, some: Ints) -> Floats:
    """Prior covariance of training rows with some new rows, (n, k)."""
    n, smooth = model.forest.n_rows, model.smooth
    found = _tree_columns(joint, n, some)[:n] * points.fade[some]
    if smooth is not None:
        found += smooth.cross(smooth.read(points.inputs[some]))
    return found


def _own_covariance(model: ForestModel, joint: Forest, points: Points) -> Floats:
    """Prior covariance of f among all new rows, (m, m)."""
    n, m, fade = model.forest.n_rows, points.inner.size, points.fade
    own = np.hstack(
        [
            _tree_columns(joint, n, np.arange(first, min(first + COLUMNS, m)))[n:]
            for first in range(0, m, COLUMNS)
        ]
    )
    own *= fade[:, None] * fade
    unseen = (1.0 - np.square(fade)) * unseen_variance(model)
    np.fill_diagonal(own, model.forest.tree_variance + unseen)
    if model.smooth is not None:
        own += model.smooth.own(points.smooth)
    return own


def _explained(model: ForestModel, joint: Forest, points: Points, some: Ints) -> Floats:
    """Covariance of all new rows with some of them that the data explain, (m, k)."""
    n = model.forest.n_rows
    weights = solve_rows(model, _cross(model, joint, points, some), EXACT_TOLERANCE)
    return _transpose_product(model, joint, points, weights, n)


def _transpose_product(
    model: ForestModel, joint: Forest, points: Points, weights: Floats, n: int
) -> Floats:
    """K(new rows, training rows) times weights (n, k): (m, k)."""
    padded: Floats = np.zeros((joint.n_rows, weights.shape[1]))
    padded[:n] = weights
    found = points.fade[:, None] * forest_product(joint, padded)[n:]
    smooth = model.smooth
    if smooth is not None:
        for k in range(weights.shape[1]):
            found[:, k] += smooth.mean(points.smooth, smooth.prepare(weights[:, k].copy()))
    return found


def _tree_columns(joint: Forest, n: int, rows: Ints) -> Floats:
    """Prior covariance of the trees at k new rows with all rows, (n + m, k)."""
    units: Floats = np.zeros((joint.n_rows, rows.size))
    units[n + rows, np.arange(rows.size)] = 1.0
    return forest_product(joint, units)


def _deviations(
    model: ForestModel, points: Points, n_samples: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Posterior draws of f - mean at new rows inside the box, in blocks (m, k)."""
    joint, n, fade = joint_trees(model, points), model.forest.n_rows, points.fade[:, None]
    root, tolerance = np.sqrt(model.variance)[:, None], sample_tolerance(model)
    rest = model.forest.tree_variance + unseen_variance(model)
    fresh = np.sqrt((1.0 - np.square(fade)) * rest)
    for first in range(0, n_samples, COLUMNS):
        k = min(COLUMNS, n_samples - first)
        prior = draw_prior(joint, k, rng)
        seen, new = prior[:n], fade * prior[n:]
        if (fade < 1.0).any():
            new += fresh * rng.standard_normal(new.shape)
        if model.smooth is not None:
            more, more_new = model.smooth.draw(k, rng, points.smooth)
            seen, new = seen + more, new + more_new
        seen = seen + root * rng.standard_normal((n, k))
        weights = solve_rows(model, seen, tolerance)
        yield new - _transpose_product(model, joint, points, weights, n)
