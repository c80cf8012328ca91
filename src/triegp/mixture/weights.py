"""Weights of the members of a mixture: by stacking, or by a softmax of their nll."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

Floats = npt.NDArray[np.float64]

STACK_TOLERANCE = 1e-9  # of the mean log density
MAX_STACK_STEPS = 500


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
