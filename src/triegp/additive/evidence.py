"""Log marginal likelihood of a forest: exact for few rows, by stochastic Lanczos for many.

log det(K + noise) = log det M + tr log(M^-1/2 (K + noise) M^-1/2), with M the preconditioner. The
first term is exact and contains most of the value. The trace is estimated as an average over probes
z ~ N(0, M), each by Gauss quadrature with the tridiagonal matrix that conjugate gradients produce.
The spread over the probes gives the standard error.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.exact import EXACT_ROWS, factor_rows
from triegp.additive.forest import Forest
from triegp.additive.preconditioner import Preconditioner, check_noise, make_preconditioner
from triegp.additive.solve import NotConverged, solve_held
from triegp.checks import finite_vector, whole_number
from triegp.engines import Engine
from triegp.imports import scipy

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
        Standard error of `log_likelihood`, from the spread over the probes; 0 if it is exact.
    log_det, square : float
        log det(K + noise) and y' (K + noise)^-1 y.
    exact : bool
        Whether the value is exact instead of an estimate.
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
    preconditioner: Preconditioner | None = None,
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
    exact_rows : int, default=2000
        Up to this many rows the value is exact, at a cost of O(n^2 T + n^3).
    rank : int, default=300
        Rank of the preconditioner, if none is given.
    preconditioner : Preconditioner, optional
        Made by `make_preconditioner`, for this noise or a similar one.
    n_probes : int, default=16
        Number of probes, at least 2.
    n_steps : int, default=100
        Largest number of Lanczos steps per probe.
    tolerance : float, default=1e-6
        Relative residual at which the solve for y and the probes have converged.

    Returns
    -------
    Evidence
        With a `NotConverged` warning if the solve for y or a probe did not converge.

    Notes
    -----
    About n_probes * (steps + 1) products of O(n T) each, in addition to the preconditioner. The
    extra product per probe is needed to see that the step before it was enough.
    """
    targets = finite_vector("y", y, forest.n_rows, forest.engine.hold)
    variance = check_noise(noise, forest.n_rows)
    n_probes = whole_number("n_probes", n_probes, 2)
    n_steps = whole_number("n_steps", n_steps)
    if forest.n_rows <= exact_rows:
        return exact_evidence(factor_rows(forest, variance), targets[:, None], forest.engine)[0]
    made = preconditioner or make_preconditioner(forest, variance, rank, rng)
    probes = (rng, n_probes, n_steps, tolerance)
    return evidence_of_targets(forest, variance, targets[:, None], made, *probes)[0]


def evidence_of_targets(
    forest: Forest,
    variance: Floats,
    targets: Floats,
    made: Preconditioner,
    rng: np.random.Generator,
    n_probes: int = 16,
    n_steps: int = 100,
    tolerance: float = 1e-6,
) -> tuple[Evidence, ...]:
    """Estimates for each target (n, k), which share the log determinant and its error.

    made: the preconditioner. Otherwise as `forest_evidence`.
    """
    found, n_short = estimate_evidence(
        forest, variance, targets, made, rng, n_probes, n_steps, tolerance
    )
    if n_short:
        n_solves = n_probes + targets.shape[1]
        warnings.warn(
            f"{n_short} of {n_solves} solves for the likelihood ended above the tolerance of "
            f"{tolerance:.2g}; its true error may exceed the reported standard error",
            NotConverged,
            stacklevel=3,
        )
    return found


def estimate_evidence(
    forest: Forest,
    variance: Floats,
    targets: Floats,
    made: Preconditioner,
    rng: np.random.Generator,
    n_probes: int,
    n_steps: int,
    tolerance: float,
) -> tuple[tuple[Evidence, ...], int]:
    """Estimates for targets (n, k), and the number of solves above the tolerance; no warning."""
    targets = forest.engine.hold(targets)
    found = solve_held(
        forest,
        variance,
        targets,
        preconditioner=made,
        tolerance=tolerance,
        max_steps=MAX_SOLVE_STEPS,
    )
    traces, n_short = _log_traces(forest, variance, made, n_probes, n_steps, tolerance, rng)
    log_det = made.log_det + float(traces.mean())
    error = 0.5 * float(traces.std(ddof=1)) / np.sqrt(n_probes)
    n_short += int((found.residual > tolerance).sum())
    columns = range(targets.shape[1])
    squares = [float(targets[:, c].copy() @ found.x[:, c].copy()) for c in columns]
    given = (forest.n_rows, float(error), False)
    return tuple(_evidence(log_det, square, *given) for square in squares), n_short


def exact_evidence(root: Floats, targets: Floats, engine: Engine) -> tuple[Evidence, ...]:
    """Exact log marginal likelihood of targets (n, k), given the factor of K + noise. O(n^2 k)."""
    white = engine.solve_lower(root, engine.hold(targets))
    log_det = 2.0 * float(np.log(np.diag(root)).sum())
    columns = (white[:, c].copy() for c in range(targets.shape[1]))
    squares = [float(column @ column) for column in columns]
    return tuple(_evidence(log_det, square, root.shape[0], 0.0, True) for square in squares)


def _evidence(log_det: float, square: float, n: int, error: float, exact: bool) -> Evidence:
    value = -0.5 * (n * math.log(2.0 * math.pi) + log_det + square)
    return Evidence(value, error, log_det, square, exact)


def _log_traces(
    forest: Forest,
    variance: Floats,
    made: Preconditioner,
    n_probes: int,
    n_steps: int,
    tolerance: float,
    rng: np.random.Generator,
) -> tuple[Floats, int]:
    """One estimate of tr log(M^-1/2 (K + noise) M^-1/2) per probe, and how many did not converge.

    A probe on which the matrix is not positive definite to rounding gives NaN.
    """
    engine = forest.engine
    r = made.draw(n_probes, rng)
    x, columns = np.zeros_like(r), engine.hold(np.arange(n_probes))
    smooth = None if forest.smooth is None else forest.smooth.multiply
    given = (forest.trees, engine.hold(variance), x, columns, r, made.inverse, smooth)
    descent = engine.descend(*given)
    strides, squares = np.zeros((n_steps, n_probes)), np.zeros((n_steps + 1, n_probes))
    lengths = np.zeros(n_probes, np.int64)
    lost = np.zeros(n_probes, np.bool_)  # probes on which the matrix is not positive definite
    go = np.arange(n_probes)  # probes not done
    for step in range(n_steps + 1):  # the last one only checks convergence
        _, stride, square = descent.advance()
        squares[step, go] = np.maximum(square, 0.0)
        if step == 0:
            more = square > 0  # False for NaN
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
    """e' log(T) e, with T the tridiagonal matrix of conjugate gradients and e = (1, 0, ..., 0)."""
    diagonal = 1.0 / stride
    diagonal[1:] += ratio / stride[:-1]
    values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, np.sqrt(ratio) / stride[:-1])
    return float(np.square(vectors[0]) @ np.log(values))
