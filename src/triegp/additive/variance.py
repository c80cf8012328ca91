"""Posterior variances, covariances and samples of a forest, and leave-one-out. All need solves.

Exact: v(x) = k(x, x) - k_x' (K + noise)^-1 k_x, one solve per row.

By samples: draw f from the prior at training and new rows and noise e at training rows, and solve
u = (K + noise)^-1 (f + e). Then f(x) - k_x' u is a draw of the posterior deviation of f(x) from its
mean; it does not depend on y. The mean square of S draws is the variance times chi-square(S) / S,
so its relative standard error is sqrt(2 / S) at every row.

Leave-one-out needs only the diagonal of (K + noise)^-1. That matrix is the covariance of u, so its
diagonal is the mean square of u.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from triegp.additive.cheap import Cheap, cheap_variance, learn_cheap
from triegp.additive.evidence import EXACT_ROWS
from triegp.additive.forest import Forest, forest_product
from triegp.additive.model import (
    ForestModel,
    Points,
    find_rows,
    forest_mean,
    joint_forest,
    precondition,
    run_variances,
    solve_rows,
)
from triegp.additive.sampling import draw_prior
from triegp.additive.solve import Tell
from triegp.models.jobs import Stopwatch

Floats = npt.NDArray[np.float64]

COLUMNS = 16  # right-hand sides solved at a time
EXACT_TOLERANCE = 1e-6  # of |r| / |b|, r = b - A x; the error of the variance is r' A^-1 r
SAMPLE_TOLERANCE = 1e-2  # smaller if the noise is small: see `sample_tolerance`
DIAGONAL_SAMPLES = 64
PRECONDITIONER_SHARE = 0.3  # of the time for the diagonal, for progress
LARGE_ROWS = (10_000, 60_000)  # at each of these numbers of rows the samples are halved


def forest_variance(model: ForestModel, points: Points, cheap: Cheap | None = None) -> Floats:
    """Posterior variance of f at new rows, (m,); that of y without noise outside the box.

    "auto" does one solve per row if there are at most as many rows as samples, and samples
    otherwise. cheap: the result of `learn_cheap`, required for "cheap".
    """
    inner = points.inner
    variance = np.full(points.n_rows, _unrelated_variance(model))
    if not inner.size:
        return variance
    kind, n_samples = model.variance_by, model.n_samples
    if kind == "cheap":
        assert cheap is not None
        variance[inner] = cheap_variance(model, cheap, points)
    elif kind == "exact" or (kind == "auto" and inner.size <= n_samples):
        variance[inner] = _exact_variance(model, points)
    else:
        draws = _deviations(model, points, n_samples, np.random.default_rng(model.seed))
        variance[inner] = sum(np.square(part).sum(axis=1) for part in draws) / n_samples
    return variance


def cheap_of(model: ForestModel) -> Cheap:
    """Cheap variances of a model, calibrated on its leave-one-out variances."""
    known = with_diagonal(model).known_diagonal
    assert known is not None
    return learn_cheap(model, 1.0 / known - model.variance)


def forest_covariance(model: ForestModel, points: Points) -> Floats:
    """Posterior covariance of f at new rows, (m, m), by one solve per row.

    Rows outside the box have the variance of y without noise, and covariance 0 with all others.
    """
    inner = points.inner
    cov: Floats = np.zeros((points.n_rows, points.n_rows))
    np.fill_diagonal(cov, _unrelated_variance(model))
    if inner.size:
        joint, n = joint_forest(model, points), model.forest.n_rows
        part = np.empty((inner.size, inner.size))
        for first in range(0, inner.size, COLUMNS):
            some = np.arange(first, min(first + COLUMNS, inner.size))
            own, cross = _kernel_columns(joint, n, some)
            weights: Floats = np.zeros((joint.n_rows, some.size))
            weights[:n] = solve_rows(model, cross, EXACT_TOLERANCE).x
            part[:, some] = own - forest_product(joint, weights)[n:]
        part = 0.5 * (part + part.T)
        np.fill_diagonal(part, np.maximum(np.diag(part), 0.0))
        cov[np.ix_(inner, inner)] = part
    return cov


def draw_forest(
    model: ForestModel, points: Points, n_samples: int, rng: np.random.Generator
) -> Floats:
    """Joint posterior samples of f at new rows, (m, n_samples).

    One solve per sample, with products of O((n + m) T).
    """
    out = np.sqrt(_unrelated_variance(model)) * rng.standard_normal((points.n_rows, n_samples))
    if points.inner.size:
        out[points.inner] = np.hstack(list(_deviations(model, points, n_samples, rng)))
    return np.asarray(forest_mean(model, points)[:, None] + out)


def with_diagonal(
    model: ForestModel,
    solver: ForestModel | None = None,
    watch: Stopwatch | None = None,
    tell: Tell | None = None,
) -> ForestModel:
    """The model with the diagonal of (K + noise)^-1: exact up to 2,000 rows, else by samples.

    solver: the same model in the memory of the engine that solves; by default `model` itself. If
    the watch stops, the model is returned as it is. tell: progress, from 0 to 1.
    """
    if model.known_diagonal is not None:
        return model
    n = model.forest.n_rows
    if n <= EXACT_ROWS:
        dense = forest_product(model.forest, np.eye(n))
        dense[np.diag_indices_from(dense)] += model.variance
        inverse = cho_solve(cho_factor(dense, lower=True), np.eye(n))
        return replace(model, known_diagonal=np.diag(inverse).copy())
    rng = np.random.default_rng(model.seed)
    total: Floats = np.zeros(n)
    n_samples, tolerance = diagonal_samples(n), sample_tolerance(model)
    on, begun = solver or model, 0.0
    if watch is not None and on.known_preconditioner is None:
        begun = PRECONDITIONER_SHARE
        part = _part(tell, 0.0, begun)
        made = precondition(on.forest, on.variance, on.seed, watch, part)
        if watch.stop:
            return model
        on = replace(on, known_preconditioner=made)
    for first in range(0, n_samples, COLUMNS):
        k = min(COLUMNS, n_samples - first)
        prior = draw_prior(model.forest, k, rng)
        prior += np.sqrt(model.variance)[:, None] * rng.standard_normal(prior.shape)
        share = (1.0 - begun) / n_samples
        part = _part(tell, begun + first * share, begun + (first + k) * share)
        solution = solve_rows(on, prior, tolerance, watch, part)
        if watch is not None and watch.stop and not solution.converged:
            return model
        total += on.forest.engine.fetch(np.square(solution.x).sum(axis=1))
    # Leave-one-out uses 1 / diagonal, which S - 2 makes unbiased: E[S / chi-square] = S / (S - 2).
    return replace(
        model,
        known_diagonal=total / (n_samples - 2),
        known_preconditioner=model.known_preconditioner if solver else on.preconditioner,
    )


def _part(tell: Tell | None, begin: float, end: float) -> Tell | None:
    """Progress of a part that goes from begin to end of the whole."""
    return None if tell is None else lambda share: tell(begin + share * (end - begin))


def diagonal_samples(n_rows: int) -> int:
    """Number of samples for the diagonal of the inverse: 64, 32 or 16; 0 if it is exact."""
    if n_rows <= EXACT_ROWS:
        return 0
    return DIAGONAL_SAMPLES >> sum(n_rows >= limit for limit in LARGE_ROWS)


def sample_tolerance(model: ForestModel) -> float:
    """Relative residual at which solves for samples end.

    Observations of almost equal rows differ by little more than their noise, so a small noise needs
    an accurate solve.
    """
    ratio = float(model.variance.min()) / max(model.forest.prior_variance, 1e-300)
    return min(SAMPLE_TOLERANCE, max(0.1 * float(np.sqrt(ratio)), 1e-6))


def leave_out(model: ForestModel) -> tuple[Floats, Floats]:
    """Mean and variance of f at each training row given all other rows, (n,) each.

    Rows of weight 0 are not included. A row is left out with all of its copies.
    """
    known = with_diagonal(model).known_diagonal
    assert known is not None
    own = model.variance
    # Given the other rows, the variance of f lies between 0 and the prior variance.
    inverse = np.clip(known, 1.0 / (own + model.forest.prior_variance), 1.0 / own)
    return model.rows.y - model.alpha / inverse, np.maximum(1.0 / inverse - own, 0.0)


class Apart(NamedTuple):
    """f at points that coincide with training rows, if these rows' runs count as noise.

    Attributes
    ----------
    points : int64 (r,)
        Indices of these points.
    mean, var : float64 (r,)
        Mean and variance of f, with a new run.
    extra : float64 (r,)
        Excess of `var` over the posterior variance of f with the run of the training row.
    """

    points: npt.NDArray[np.int64]
    mean: Floats
    var: Floats
    extra: Floats


def stand_apart(model: ForestModel, points: Points) -> Apart:
    """Predictions at points that coincide with a training row in all trees (`docs/notation.md`).

    Write f = g + r at such a row, with r the sum of its runs. The target is g + r + noise, so that
    r is noise as far as the data can tell, and a new observation has its own.
    """
    rows = find_rows(model, points)
    near = np.flatnonzero(rows >= 0)
    row = rows[near]
    known = with_diagonal(model).known_diagonal
    assert known is not None
    own, runs = model.variance[row], run_variances(model)[row]
    inverse = np.clip(known[row], 1.0 / (own + model.forest.prior_variance), 1.0 / own)
    noise = own + runs
    mean = model.rows.y[row] - noise * model.alpha[row]
    var = np.maximum(noise - noise * noise * inverse, 0.0) + runs
    extra = np.maximum(var - (own - own * own * inverse), 0.0)
    return Apart(points.inner[near], mean, var, extra)


def _unrelated_variance(model: ForestModel) -> float:
    """Variance of f at rows that are unrelated to the data: an observation has that of y, 1.

    The prior variance of the forest is not a guide. It is learned for differences inside the box,
    and its level, which one draw of y shows, hardly enters the likelihood.
    """
    return max(1.0 - model.new_noise, 0.0)


def _exact_variance(model: ForestModel, points: Points) -> Floats:
    joint, n = joint_forest(model, points), model.forest.n_rows
    out = np.empty(points.inner.size)
    for first in range(0, out.size, COLUMNS):
        some = np.arange(first, min(first + COLUMNS, out.size))
        _, cross = _kernel_columns(joint, n, some)
        x = solve_rows(model, cross, EXACT_TOLERANCE).x
        # Unlike b'x, the error of 2 b'x - x'Ax is quadratic in the error of x.
        image = forest_product(model.forest, x) + model.variance[:, None] * x
        explained = np.einsum("nk,nk->k", x, 2.0 * cross - image)
        out[some] = model.forest.prior_variance - explained
    return np.maximum(out, 0.0)


def _kernel_columns(joint: Forest, n: int, rows: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Prior covariance of k new rows with all new rows (m, k) and with training rows (n, k)."""
    units: Floats = np.zeros((joint.n_rows, rows.size))
    units[n + rows, np.arange(rows.size)] = 1.0
    columns = forest_product(joint, units)
    return columns[n:], columns[:n]


def _deviations(
    model: ForestModel, points: Points, n_samples: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Posterior draws of f - mean at new rows inside the box, in blocks (m, k)."""
    joint, n = joint_forest(model, points), model.forest.n_rows
    root, tolerance = np.sqrt(model.variance)[:, None], sample_tolerance(model)
    for first in range(0, n_samples, COLUMNS):
        k = min(COLUMNS, n_samples - first)
        prior = draw_prior(joint, k, rng)
        seen = prior[:n] + root * rng.standard_normal((n, k))
        weights: Floats = np.zeros_like(prior)
        weights[:n] = solve_rows(model, seen, tolerance).x
        yield prior[n:] - forest_product(joint, weights)[n:]
