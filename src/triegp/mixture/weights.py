"""Weights of the members of a mixture: by the error of their average, by stacking, by softmax."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

Floats = npt.NDArray[np.float64]

STACK_TOLERANCE = 1e-9  # of the mean log density
MAX_STACK_STEPS = 500
SMALLEST_RATIO = 1e-30  # of a member's density and the largest of all members


SMALLEST_WEIGHT = 1e-3  # members of smaller weight in an average are left out


def average(mean: Floats, var: Floats, y: Floats, row_weight: Floats | None = None) -> Floats:
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

    Notes
    -----
    O(K^2 n), a non-negative least-squares problem. Its K x K matrix has 1 / n of its mean diagonal
    added to the diagonal, which pulls the weights of equally good members together.
    """
    n_members, n_rows = mean.shape
    even = np.full(n_members, 1.0 / n_members)
    count = np.ones(n_rows) if row_weight is None else row_weight
    if n_members == 1 or count.sum() < 2:
        return even
    root = np.sqrt(count / var.mean(axis=0))
    error = (mean - y) * root  # with weights w of sum 1, the error of the average is w @ error
    gram = error @ error.T
    size = float(np.trace(gram)) / n_members
    if not np.isfinite(size) or size <= 0:
        return even
    gram[np.diag_indices_from(gram)] += size / n_rows
    lower = np.linalg.cholesky(gram)
    # min w' gram w with sum 1 is min |lower' w|^2 + (penalty (sum w - 1))^2 up to the scale of w.
    stacked = np.vstack([lower.T, np.full((1, n_members), np.sqrt(size))])
    weight, _ = nnls(stacked, np.append(np.zeros(n_members), np.sqrt(size)))
    weight = np.where(weight < SMALLEST_WEIGHT * weight.sum(), 0.0, weight)
    return np.asarray(weight / weight.sum())


def stack(log_densities: Floats, row_weight: Floats | None = None) -> Floats:
    """Mixture weights that maximise the mean log density of held-out rows.

    Maximises (mean log density - sum of weights) over all weights >= 0, which is concave and has
    the same solution. Each iteration is a Newton step, a small non-negative least-squares problem;
    if it does not improve the objective, an EM step is taken instead. The objective is at most
    (largest derivative of the mean log density) - 1 below its maximum, which gives the stopping
    rule. Rows of weight 0, and rows with density 0 under all members, do not count.

    Parameters
    ----------
    log_densities : float64 (K, n)
        Leave-one-out log density of each row under each member.
    row_weight : float64 (n,), optional
        How often each row counts; 1 by default.

    Returns
    -------
    float64 (K,)
        Weights, sum 1; members that do not help have weight 0.

    Notes
    -----
    O(K^2 n) per step, seldom more than ten steps.
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
    for _ in range(MAX_STACK_STEPS):
        slope = relative @ (share / total)
        if slope.max() - 1.0 <= STACK_TOLERANCE:
            break
        new = _newton_weight(relative * (np.sqrt(share) / total), slope)
        new_total = new @ relative
        if not (new_total > 0).all() or share @ np.log(new_total / total) <= 0:
            new = weight * slope
            new /= new.sum()
            new_total = new @ relative
        weight, total = new, new_total
    return weight


def _newton_weight(root: Floats, slope: Floats) -> Floats:
    """Weights >= 0 that maximise the second-order model of the objective, scaled to sum 1.

    root: float64 (K, n), the Hessian is -root root'. slope: float64 (K,), derivatives of the mean
    log density.
    """
    curvature = root @ root.T
    curvature[np.diag_indices_from(curvature)] *= 1.0 + 1e-10  # nonsingular if members are equal
    try:
        lower = np.linalg.cholesky(curvature)
        weight, _ = nnls(lower.T, np.linalg.solve(lower, 2.0 * slope - 1.0))
    except (np.linalg.LinAlgError, RuntimeError):  # the caller takes an EM step
        return np.zeros(slope.size)
    return np.asarray(weight / max(weight.sum(), np.finfo(float).tiny))


def soften(nll_per_row: Floats, temperature: float) -> Floats:
    """Softmax of -nll_per_row / temperature, the paper's mixture weights, (K,)."""
    z = -np.asarray(nll_per_row) / temperature
    weight = np.exp(z - z.max())
    return np.asarray(weight / weight.sum())
