"""Likelihood of a forest, with an error bar: exact for few rows, by stochastic Lanczos for many.

log det(K + noise) = log det M + tr log(M^-1/2 (K + noise) M^-1/2), M being the preconditioner. The
first term is exact and takes most of it; the trace is an average over probes z ~ N(0, M), each by
Gauss quadrature from the tridiagonal matrix that conjugate gradients make on the way. The spread
of the probes says how far off the average may be.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh_tridiagonal

from triegp.additive.forest import Forest, multiply
from triegp.additive.preconditioner import Nystrom, check_noise, draw_like, fit_nystrom
from triegp.additive.solve import NotConverged, solve_held
from triegp.checks import finite_vector, whole_number

EXACT_ROWS = 2_000  # up to so many, a dense Cholesky factor is cheap
MAX_SOLVE_STEPS = 1_000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """Log marginal likelihood of a forest.

    Attributes
    ----------
    log_likelihood : float
        log p(y).
    error : float
        Standard error of it over the probes; 0 where it is exact. Probes that did not converge come
        with a `NotConverged` warning.
    log_det, square : float
        log det(K + noise) and y' (K + noise)^-1 y.
    exact : bool
        Whether it is.
    """

    log_likelihood: float
    error: float
    log_det: float
    square: float
    exact: bool


def forest_evidence(
    forest: Forest,
    noise: Any,
    y: Any,
    rng: np.random.Generator,
    *,
    exact_rows: int = EXACT_ROWS,
    rank: int = 300,
    preconditioner: Nystrom | None = None,
    n_probes: int = 16,
    n_steps: int = 100,
    tolerance: float = 1e-6,
) -> Evidence:
    """Log marginal likelihood of y = f + noise.

    Parameters
    ----------
    forest : Forest
        Prior of f.
    noise : float or array (n,)
        Variances, > 0.
    y : array (n,)
        Targets.
    rng : numpy.random.Generator
        Draws the preconditioner's rows and the probes.
    exact_rows : int
        Up to so many rows the answer is exact, at O(n^2 T + n^3).
    rank : int
        Of the preconditioner, if none is given.
    preconditioner : Nystrom, optional
        Made by `fit_nystrom`, for this noise or one like it.
    n_probes, n_steps : int
        Probes, at least 2; Lanczos steps of each at most.
    tolerance : float
        Of the solve for y, and where a probe has converged.

    Notes
    -----
    O(n T) for each of about n_probes * (steps + 1) products, beside the preconditioner: that a step
    was enough is seen in the next.
    """
    targets = finite_vector("y", y, forest.n_rows, forest.engine.hold)
    variance = check_noise(noise, forest.n_rows)
    n_probes = whole_number("n_probes", n_probes, 2)
    n_steps = whole_number("n_steps", n_steps)
    if forest.n_rows <= exact_rows:
        return exact_evidence(forest, variance, targets)
    nystrom = preconditioner or fit_nystrom(forest, variance, rank, rng)
    found, n_short = estimate_evidence(
        forest, variance, targets, nystrom, rng, n_probes, n_steps, tolerance
    )
    if n_short:
        warnings.warn(
            f"{n_short} of {n_probes + 1} solves for the likelihood ended above the tolerance of "
            f"{tolerance:.2g}: its error may exceed the error bar",
            NotConverged,
            stacklevel=2,
        )
    return found


def estimate_evidence(
    forest: Forest,
    variance: Floats,
    targets: Floats,
    nystrom: Nystrom,
    rng: np.random.Generator,
    n_probes: int,
    n_steps: int,
    tolerance: float,
) -> tuple[Evidence, int]:
    """The estimate, and how many of its solves did not reach the tolerance; without a warning."""
    targets = forest.engine.hold(targets)
    found = solve_held(
        forest,
        variance,
        targets,
        preconditioner=nystrom,
        tolerance=tolerance,
        max_steps=MAX_SOLVE_STEPS,
    )
    traces, n_short = _log_traces(forest, variance, nystrom, n_probes, n_steps, tolerance, rng)
    log_det = nystrom.log_det + float(traces.mean())
    error = 0.5 * float(traces.std(ddof=1)) / np.sqrt(n_probes)
    square = float(targets @ found.x)
    n_short += 0 if found.converged else 1
    return _evidence(log_det, square, forest.n_rows, float(error), False), n_short


def exact_evidence(forest: Forest, variance: Floats, y: Floats) -> Evidence:
    """By a dense Cholesky factor. O(n^2 T + n^3)."""
    engine = forest.engine
    dense = multiply(forest, engine.hold(np.eye(forest.n_rows)))
    diagonal = engine.hold(np.arange(forest.n_rows))
    dense[diagonal, diagonal] += engine.hold(variance)
    lower = engine.cholesky(dense)
    white = engine.solve_lower(lower, engine.hold(y))
    log_det = 2.0 * float(np.log(np.diag(lower)).sum())
    return _evidence(log_det, float(white @ white), forest.n_rows, 0.0, True)


def _evidence(log_det: float, square: float, n: int, error: float, exact: bool) -> Evidence:
    value = -0.5 * (n * math.log(2.0 * math.pi) + log_det + square)
    return Evidence(value, error, log_det, square, exact)


def _log_traces(
    forest: Forest,
    variance: Floats,
    nystrom: Nystrom,
    n_probes: int,
    n_steps: int,
    tolerance: float,
    rng: np.random.Generator,
) -> tuple[Floats, int]:
    """One estimate of tr log(M^-1/2 (K + noise) M^-1/2) a probe; how many did not converge."""
    engine = forest.engine
    r = draw_like(nystrom, n_probes, rng)
    x, columns = np.zeros_like(r), engine.hold(np.arange(n_probes))
    given = (forest.trees, engine.hold(variance), x, columns, r, nystrom.inverse)
    descent = engine.descend(*given)
    strides, squares = np.zeros((n_steps, n_probes)), np.zeros((n_steps + 1, n_probes))
    lengths = np.zeros(n_probes, np.int64)
    lost = np.zeros(n_probes, np.bool_)  # where the matrix does not look positive
    go = np.arange(n_probes)  # those not done
    for step in range(n_steps + 1):  # the last only to see whether the one before was enough
        _, stride, square = descent.advance()
        squares[step, go] = np.maximum(square, 0.0)
        if step == 0:
            more = square > 0  # not where it is not a number
            lost[go] = ~more
        else:
            more = ~(np.sqrt(squares[step, go] / squares[0, go]) <= tolerance)
        lost[go] |= more & ~(np.abs(stride) > 0)
        more &= ~lost[go]
        go = go[more]
        if not go.size or step == n_steps:
            break
        strides[step, go] = stride[more]
        lengths[go] += 1
        if not more.all():
            descent.keep(more)
        descent.turn()
    values = np.full(n_probes, np.nan)
    for k in np.flatnonzero(~lost).tolist():
        m = int(lengths[k])
        ratios = squares[1:m, k] / squares[: m - 1, k]
        values[k] = squares[0, k] * _log_quadrature(strides[:m, k], ratios)
    return values, int(go.size + lost.sum())


def _log_quadrature(stride: Floats, ratio: Floats) -> float:
    """e' log(T) e of the tridiagonal matrix of conjugate gradients, e the first unit vector."""
    diagonal = 1.0 / stride
    diagonal[1:] += ratio / stride[:-1]
    values, vectors = eigh_tridiagonal(diagonal, np.sqrt(ratio) / stride[:-1])
    return float(np.square(vectors[0]) @ np.log(values))
