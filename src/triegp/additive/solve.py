"""Solves with K + noise of a forest: preconditioned conjugate gradients, many right-hand sides."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest, multiply
from triegp.additive.preconditioner import Nystrom, check_noise
from triegp.checks import finite_columns, positive_number, whole_number
from triegp.devices import like

Floats = npt.NDArray[np.float64]


class NotConverged(RuntimeWarning):
    """An iteration ended before its tolerance was reached; the message says where."""


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solve found.

    Attributes
    ----------
    x : float64 (n,) or (n, k)
        Solutions, an array as b is.
    residual : float64 (k,)
        |b - A x| / |b| of each right-hand side, recomputed from x; in the host's memory.
    n_steps : int
        Steps that the longest took.
    converged : bool
        Whether all residuals are within the tolerance.
    """

    x: Floats
    residual: Floats
    n_steps: int
    converged: bool


def solve_forest(
    forest: Forest,
    noise: Any,
    b: Any,
    *,
    preconditioner: Nystrom | None = None,
    start: Any = None,
    tolerance: float = 1e-6,
    max_steps: int = 1000,
) -> Solution:
    """Solve (K + noise) x = b by conjugate gradients.

    Parameters
    ----------
    forest : Forest
        Whose K.
    noise : float or array (n,)
        Variances, > 0.
    b : array (n,) or (n, k)
        Right-hand sides; each has its own steps, those that are done wait no longer.
    preconditioner : Nystrom, optional
        Made by `fit_nystrom`, for this noise or one like it.
    start : array like b, optional
        Where to begin, for a warm start.
    tolerance : float
        Of |b - A x| / |b|.
    max_steps : int
        Steps at most; each is a product with K, and so is every look at the true residual.

    Returns
    -------
    Solution
        With a `NotConverged` warning where the tolerance was not reached.

    Notes
    -----
    O(n T k) a step. The residual is recomputed at the end, and the steps go on from there if the
    one that was kept up to date had drifted from it.
    """
    engine, n = forest.engine, forest.n_rows
    found = solve_held(
        forest,
        noise,
        finite_columns("b", b, n, engine.hold),
        preconditioner=preconditioner,
        start=None if start is None else finite_columns("start", start, n, engine.hold),
        tolerance=tolerance,
        max_steps=max_steps,
    )
    if not found.converged:
        warnings.warn(
            f"conjugate gradients ended after {found.n_steps} steps at a relative residual of "
            f"{found.residual.max():.2g}, above the tolerance of {tolerance:.2g}",
            NotConverged,
            stacklevel=2,
        )
    return replace(found, x=like(found.x, b))


def solve_held(
    forest: Forest,
    noise: Any,
    b: Floats,
    *,
    preconditioner: Nystrom | None,
    start: Floats | None = None,
    tolerance: float,
    max_steps: int,
) -> Solution:
    """As `solve_forest`, for a caller who looks at the residual: without a warning.

    b, start and the solution lie in the engine's memory; nobody looks whether they are finite.
    """
    engine = forest.engine
    variance = engine.hold(check_noise(noise, forest.n_rows))
    tolerance = positive_number("tolerance", tolerance)
    max_steps = whole_number("max_steps", max_steps)
    if preconditioner is not None and preconditioner.rows.size != forest.n_rows:
        raise ValueError(
            f"preconditioner must be for {forest.n_rows} rows, got {preconditioner.rows.size}"
        )
    target = b.reshape(forest.n_rows, -1)
    x = np.zeros_like(target)
    if start is not None:
        if start.shape != b.shape:
            raise ValueError(f"start must have the shape of b, {b.shape}, got {start.shape}")
        x = start.reshape(target.shape).copy()
    size = engine.norms(target)
    size = np.where(size > 0, size, 1.0)

    def residual_of(x: Floats) -> Floats:
        return target - multiply(forest, x, variance)

    n_steps = 0
    error = residual_of(x) if x.any() else target.copy()
    relative = engine.norms(error) / size
    best = x.copy(), relative.copy()
    while n_steps < max_steps and (relative > tolerance).any():
        active = np.flatnonzero(relative > tolerance)
        took = _descend(
            forest, variance, x, error, size, active, preconditioner, tolerance, max_steps - n_steps
        )
        n_steps += took
        error = residual_of(x)
        relative = engine.norms(error) / size
        better = relative < best[1]
        if better.any():
            columns = engine.hold(np.flatnonzero(better))
            best[0][:, columns], best[1][better] = x[:, columns], relative[better]
        if not better[active].any():  # rounding allows no more
            break
    x, relative = best
    converged = bool((relative <= tolerance).all())
    return Solution(x.reshape(b.shape), relative, n_steps, converged)


def _descend(
    forest: Forest,
    variance: Floats,
    x: Floats,
    error: Floats,
    size: Floats,
    active: npt.NDArray[np.int64],
    preconditioner: Nystrom | None,
    tolerance: float,
    max_steps: int,
) -> int:
    """Conjugate gradients on the active columns of x, in place; return the steps taken.

    x and error lie in the engine's memory, size and active in the host's: one decision per step.
    """
    engine = forest.engine
    columns = engine.hold(active)
    r = engine.hold(error[:, columns])
    inverse = None if preconditioner is None else preconditioner.inverse
    descent = engine.descend(forest.trees, variance, x, columns, r, inverse)
    for step in range(1, max_steps + 1):
        left, stride, _ = descent.advance()
        go = (left / size[active] > tolerance) & (stride != 0)
        if not go.any():
            return step
        if not go.all():
            active = active[go]
            descent.keep(go)
        descent.turn()
    return max_steps
