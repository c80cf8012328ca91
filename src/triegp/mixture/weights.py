"""Weights of a mixture's members: by stacking, or by the softmax of their nll."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

Floats = npt.NDArray[np.float64]

STACK_TOLERANCE = 1e-9  # of the mean log density that stacking reaches
MAX_STACK_STEPS = 500


def stack(log_densities: Floats, row_weight: Floats | None = None) -> Floats:
    """Mixture weights that maximise the mean log density of held-out rows.

    The maximum of mean log density - sum of weights over all weights >= 0, by Newton steps (a small
    non-negative least-squares problem each) that must gain, and steps of EM where they do not. It
    is concave, and its maximum is at most the largest derivative - 1 away, which says when to stop.
    Rows of weight 0, and rows that no member gives any density, do not count.

    Parameters
    ----------
    log_densities : float64 (K, n)
        Of every row under every member, the row held out (leave-one-out).
    row_weight : float64 (n,), optional
        How often each row counts.

    Returns
    -------
    float64 (K,)
        Sum 1; members that do not help have weight 0. O(K^2 n) a step, seldom more than ten.
    """
    n_members, n_rows = log_densities.shape
    top = log_densities.max(axis=0)
    share = np.ones(n_rows) if row_weight is None else row_weight
    counts = (share > 0) & np.isfinite(top)
    weight = np.full(n_members, 1.0 / n_members)
    if not counts.any():
        return weight
    relative = np.exp(log_densities[:, counts] - top[counts])  # (K, n), a column's largest is 1
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
    """Where the second-order model of the objective is largest, on the simplex.

    root: float64 (K, n), minus its Hessian is root root'; slope: float64 (K,), its derivatives.
    """
    curvature = root @ root.T
    curvature[np.diag_indices_from(curvature)] *= 1.0 + 1e-10  # members may be copies
    try:
        lower = np.linalg.cholesky(curvature)
        weight, _ = nnls(lower.T, np.linalg.solve(lower, 2.0 * slope - 1.0))
    except (np.linalg.LinAlgError, RuntimeError):  # the caller takes a step of EM
        return np.zeros(slope.size)
    return np.asarray(weight / max(weight.sum(), np.finfo(float).tiny))


def soften(nll_per_row: Floats, temperature: float) -> Floats:
    """Softmax of minus the nll a row over a temperature: the paper's mixture weights."""
    z = -np.asarray(nll_per_row) / temperature
    weight = np.exp(z - z.max())
    return np.asarray(weight / weight.sum())
