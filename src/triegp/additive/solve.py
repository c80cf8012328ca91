"""Solves with K + noise: preconditioned conjugate gradients for many right-hand sides at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest, multiply
from triegp.additive.preconditioner import Preconditioner, check_noise
from triegp.checks import finite_columns, positive_number, whole_number
from triegp.devices import like
from triegp.models.jobs import Stopwatch

Floats = npt.NDArray[np.float64]
Tell = Callable[[float], None]  # progress: the share that is done, from 0 to 1

LEAST_STEPS, LEAST_MORE_STEPS = 10, 2  # of a solve that a watch ends, without and with a start


class NotConverged(RuntimeWarning):
    """An iterative solve ended before it reached its tolerance."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of a solve.

    Attributes
    ----------
    x : float64 (n,) or (n, k)
        Solutions, the same kind of array as b.
    residual : float64 (k,)
        `|b - A x| / |b|` of each right-hand side, recomputed from x; in the host's memory.
    n_steps : int
        Steps taken, for the right-hand side that took most.
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
    preconditioner: Preconditioner | None = None,
    start: Any = None,
    tolerance: float | Floats = 1e-6,
    max_steps: int = 1000,
    n_told: int | None = None,
    watch: Stopwatch | None = None,
    tell: Tell | None = None,
) -> Solution:
    """Solve (K + noise) x = b by conjugate gradients.

    Parameters
    ----------
    forest : Forest
        Its kernel matrix is K.
    noise : float or array (n,)
        Variances, > 0.
    b : array (n,) or (n, k)
        Right-hand sides. Each has its own step lengths and leaves the iteration once it converged.
    preconditioner : Preconditioner, optional
        Made by `make_preconditioner`, for this noise or a similar one; none by default.
    start : array of the shape of b, optional
        Initial x, for a warm start; 0 by default.
    tolerance : float or array (k,), default=1e-6
        Largest `|b - A x| / |b|`, with A = K + noise; of each right-hand side.
    max_steps : int, default=1000
        Largest number of steps. Each step takes one product with K, and so does each recomputed
        residual.
    n_told : int, optional
        Only the first so many right-hand sides are warned about; by default all.
    watch : Stopwatch, optional
        If it stops, the solve ends, without a warning. It takes at least 10 steps, or 2 if it has a
        start.
    tell : callable, optional
        Called after every step with the share of the work that is done, from 0 to 1: by how much
        the logarithm of the residual has fallen.

    Returns
    -------
    Solution
        With a `NotConverged` warning if the tolerance was not reached.

    Notes
    -----
    O(n T k) per step. At the end the residual is recomputed from x. If rounding made the updated
    residual drift from it, the iteration restarts from x.
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
        watch=watch,
        tell=tell,
        least_steps=LEAST_STEPS if start is None else LEAST_MORE_STEPS,
    )
    missed = found.residual / np.broadcast_to(tolerance, found.residual.shape)
    worst = int(np.argmax(missed[:n_told]))
    if missed[worst] > 1.0 and not (watch is not None and watch.stop):
        wanted = found.residual[worst] / missed[worst]
        warnings.warn(
            f"conjugate gradients ended after {found.n_steps} steps at a relative residual of "
            f"{found.residual[worst]:.2g}, above the tolerance of {wanted:.2g}",
            NotConverged,
            stacklevel=2,
        )
    return replace(found, x=like(found.x, b))


def solve_held(
    forest: Forest,
    noise: Any,
    b: Floats,
    *,
    preconditioner: Preconditioner | None,
    start: Floats | None = None,
    tolerance: float | Floats,
    max_steps: int,
    watch: Stopwatch | None = None,
    tell: Tell | None = None,
    least_steps: int = 0,
) -> Solution:
    """As `solve_forest`, but without a warning: the caller checks `converged` or the residual.

    b, start and the solution lie in the engine's memory. It is not checked that they are finite.
    """
    engine = forest.engine
    variance = engine.hold(check_noise(noise, forest.n_rows))
    for least in np.unique(tolerance).tolist():
        positive_number("tolerance", least)
    max_steps = whole_number("max_steps", max_steps)
    if preconditioner is not None and preconditioner.n_rows != forest.n_rows:
        raise ValueError(
            f"preconditioner must be for {forest.n_rows} rows, got {preconditioner.n_rows}"
        )
    target = b.reshape(forest.n_rows, -1)
    x = np.zeros_like(target)
    if start is not None:
        if start.shape != b.shape:
            raise ValueError(f"start must have the shape of b, {b.shape}, got {start.shape}")
        x = start.reshape(target.shape).copy()
    size = engine.norms(target)
    size = np.where(size > 0, size, 1.0)
    wanted: Floats = np.broadcast_to(tolerance, size.shape)

    def residual_of(x: Floats) -> Floats:
        return target - multiply(forest, x, variance)

    done = 0.0

    def go_on(steps: int, largest: float) -> bool:
        """Report progress; return False if the watch has stopped."""
        nonlocal done
        if tell is not None and largest > 0:
            done = max(done, min(float(np.log(largest) / np.log(wanted.min())), 1.0))
            tell(done)
        return watch is None or n_steps + steps < least_steps or not watch.stop

    n_steps = 0
    error = residual_of(x) if x.any() else target.copy()
    relative = engine.norms(error) / size
    best = x.copy(), relative.copy()
    while n_steps < max_steps and (relative > wanted).any():
        active = np.flatnonzero(relative > wanted)
        took = _descend(
            forest,
            variance,
            x,
            error,
            size,
            active,
            preconditioner,
            wanted,
            max_steps - n_steps,
            go_on,
        )
        n_steps += took
        error = residual_of(x)
        relative = engine.norms(error) / size
        better = relative < best[1]
        if better.any():
            columns = engine.hold(np.flatnonzero(better))
            best[0][:, columns], best[1][better] = x[:, columns], relative[better]
        if not better[active].any():  # rounding allows no further gain
            break
        if not go_on(0, float(relative.max())):
            break
    if tell is not None:
        tell(1.0)
    x, relative = best
    converged = bool((relative <= wanted).all())
    return Solution(x.reshape(b.shape), relative, n_steps, converged)


def _descend(
    forest: Forest,
    variance: Floats,
    x: Floats,
    error: Floats,
    size: Floats,
    active: npt.NDArray[np.int64],
    preconditioner: Preconditioner | None,
    wanted: Floats,
    max_steps: int,
    go_on: Callable[[int, float], bool],
) -> int:
    """Conjugate gradients on the active columns of x, in place; returns the steps taken.

    x and error lie in the engine's memory, size and active in the host's. Each step fetches only
    one residual norm and one step length per column. go_on(step, largest relative residual): False
    ends it.
    """
    engine = forest.engine
    columns = engine.hold(active)
    r = engine.hold(error[:, columns])
    inverse = None if preconditioner is None else preconditioner.inverse
    more = None if forest.smooth is None else forest.smooth.multiply
    descent = engine.descend(forest.trees, variance, x, columns, r, inverse, more)
    for step in range(1, max_steps + 1):
        left, stride, _ = descent.advance()
        go = (left / size[active] > wanted[active]) & (stride != 0)
        if not go.any() or not go_on(step, float((left / size[active]).max())):
            return step
        if not go.all():
            active = active[go]
            descent.keep(go)
        descent.turn()
    return max_steps
