"""Weights of the members of a mixture: by the error of their average, by stacking, by softmax.

BLAS runs on one thread: its sums depend on the number of threads, and for matrices of this shape
threads cost more than they save.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from triegp.devices import on_device, to_host
from triegp.engines import one_blas_thread
from triegp.imports import scipy

Floats = npt.NDArray[np.float64]

STACK_TOLERANCE = 1e-9  # of the mean log density
MAX_STACK_STEPS = 500
LEAST_RISE = 0.1  # of the increase that the slope promises, for a step to be taken
SHORTEST_STEP = 1e-6  # of a Newton step
SMALLEST_RATIO = 1e-30  # of a member's density and the largest of all members
BLOCK_ROWS = 1 << 13  # rows whose errors are summed at a time
DEVICE_ROWS = 1 << 22  # the same on a device
SMALLEST_WEIGHT = 1e-3  # members of smaller weight in an average are left out


@one_blas_thread()
def average(
    mean: Floats,
    var: Floats,
    y: Floats,
    row_weight: Floats | None = None,
    noise: Floats | None = None,
) -> Floats:
    """Weights >= 0, sum 1, whose average of the members' means has the least squared error.

    Parameters
    ----------
    mean, var : float64 (K, n)
        Predictions of each row by each member, without the row itself. Squared errors are divided
        by the mean variance of the row.
    y : float64 (n,)
        Targets.
    row_weight : float64 (n,), optional
        How often each row counts; 1 by default.
    noise : float64 (K, 1) or (K, n), optional
        Noise variances that are added to `var`; 0 by default.

    All arrays may lie on a device. The weights lie on the host.

    Notes
    -----
    O(K^2 n), a non-negative least-squares problem. Its K x K matrix has 1 / n of its mean diagonal
    added to the diagonal, which pulls the weights of equally good members together. Rows are read
    in blocks, so nothing of size K n is allocated.
    """
    n_members, n_rows = mean.shape
    even = np.full(n_members, 1.0 / n_members)
    if n_members == 1 or (n_rows if row_weight is None else row_weight.sum()) < 2:
        return even
    gram = np.zeros((n_members, n_members))
    step = DEVICE_ROWS if on_device(mean) else BLOCK_ROWS
    for start in range(0, n_rows, step):
        some = slice(start, start + step)
        total = var[:, some].mean(axis=0)
        if noise is not None:
            total += (noise if noise.shape[1] == 1 else noise[:, some]).mean(axis=0)
        root = np.sqrt((1.0 if row_weight is None else row_weight[some]) / total)
        error = (mean[:, some] - y[some]) * root  # of the average with weights w: w @ error
        gram += to_host(error @ error.T)
    size = float(np.trace(gram)) / n_members
    if not np.isfinite(size) or size <= 0:
        return even
    gram[np.diag_indices_from(gram)] += size / n_rows
    lower = np.linalg.cholesky(gram)
    # min w' gram w with sum 1 is min |lower' w|^2 + (penalty (sum w - 1))^2 up to the scale of w.
    stacked = np.vstack([lower.T, np.full((1, n_members), np.sqrt(size))])
    weight, _ = scipy.optimize.nnls(stacked, np.append(np.zeros(n_members), np.sqrt(size)))
    weight = np.where(weight < SMALLEST_WEIGHT * weight.sum(), 0.0, weight)
    return np.asarray(weight / weight.sum())


@one_blas_thread()
def stack(
    log_densities: Floats, row_weight: Floats | None = None, most_steps: int = MAX_STACK_STEPS
) -> Floats:
    """Mixture weights that maximise the mean log density of held-out rows.

    Maximises (mean log density - sum of weights) over all weights >= 0, which is concave and has
    the same solution. Each iteration is a Newton step, a small non-negative least-squares problem
    of the members that have weight or would gain by some. It is halved until the objective rises by
    a tenth of what its slope promises: a full step may give weight 0 to the only member that
    explains an outlier. An EM step is taken if the problem cannot be solved. The objective is at
    most (largest derivative of the mean log density) - 1 below its maximum, which gives the
    stopping rule. Rows of weight 0, and rows with density 0 under all members, do not count.

    Parameters
    ----------
    log_densities : float64 (K, n)
        Leave-one-out log density of each row under each member.
    row_weight : float64 (n,), optional
        How often each row counts; 1 by default.
    most_steps : int, default=500
        Largest number of steps. The objective rises in each of them.

    Returns
    -------
    float64 (K,)
        Weights, sum 1; members that do not help have weight 0.

    Notes
    -----
    O(K^2 n) per step, seldom more than twenty steps.
    """
    n_members, n_rows = log_densities.shape
    top = log_densities.max(axis=0)
    share = np.ones(n_rows) if row_weight is None else row_weight
    counts = (share > 0) & np.isfinite(top)
    weight = np.full(n_members, 1.0 / n_members)
    if not counts.any():
        return weight
    relative = np.exp(log_densities[:, counts] - top[counts])  # (K, n), each column's largest is 1
    relative = np.maximum(relative, SMALLEST_RATIO)  # so that no weight can make a density 0
    share = share[counts] / share[counts].sum()
    total = weight @ relative
    for _ in range(most_steps):
        slope = relative @ (share / total)
        if slope.max() - 1.0 <= STACK_TOLERANCE:
            break
        # Members without weight whose slope promises nothing stay out of this step.
        active = np.flatnonzero((weight > 0) | (slope > 1.0))
        some, own = relative[active], slope[active]
        goal = _newton_weight(some * (np.sqrt(share) / total), own)
        moved = _rise(some, share, weight[active], goal, own)
        weight = np.zeros(n_members)
        weight[active] = moved
        total = moved @ some
    return weight


def _newton_weight(root: Floats, slope: Floats) -> Floats | None:
    """Weights >= 0 that maximise the second-order model of the objective; None if that fails.

    root: float64 (K, n), the Hessian is -root root'. slope: float64 (K,), derivatives of the mean
    log density.
    """
    curvature = root @ root.T
    curvature[np.diag_indices_from(curvature)] *= 1.0 + 1e-10  # nonsingular if members are equal
    try:
        lower = np.linalg.cholesky(curvature)
        weight, _ = scipy.optimize.nnls(lower.T, np.linalg.solve(lower, 2.0 * slope - 1.0))
    except (np.linalg.LinAlgError, RuntimeError):
        return None
    return np.asarray(weight)


def _rise(
    relative: Floats, share: Floats, weight: Floats, goal: Floats | None, slope: Floats
) -> Floats:
    """Weights of sum 1 between `weight` and `goal` that are better; those of an EM step if none."""
    if goal is not None:
        total, way, step = weight @ relative, goal - weight, 1.0
        promised = float((slope - 1.0) @ way)
        while step > SHORTEST_STEP and promised > 0:
            new = weight + step * way
            size = float(new.sum())
            if size > 0:
                new /= size  # the best multiple
                gain = float(share @ np.log(np.maximum(new @ relative, SMALLEST_RATIO) / total))
                if gain >= LEAST_RISE * step * promised:
                    return new
            step *= 0.5
    new = weight * slope
    return np.asarray(new / new.sum())


def soften(nll_per_row: Floats, temperature: float) -> Floats:
    """Softmax of -nll_per_row / temperature, the paper's mixture weights, (K,)."""
    z = -np.asarray(nll_per_row) / temperature
    weight = np.exp(z - z.max())
    return np.asarray(weight / weight.sum())
