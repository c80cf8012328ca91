"""A mixture of Gaussians at every row: what an ensemble of trees predicts.

Its density is the log-sum-exp of its members', its variance the law of total variance, its
quantiles the inverse of its own distribution function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls
from scipy.special import logsumexp, ndtr, ndtri

Floats = npt.NDArray[np.float64]

LOG_2PI = float(np.log(2.0 * np.pi))
LEVEL_TOLERANCE = 1e-14  # of a quantile's level, relative
MAX_STEPS = 3_000  # the float64 range can be halved 2,100 times
STACK_TOLERANCE = 1e-9  # of the mean log density that stacking reaches
MAX_STACK_STEPS = 500


@dataclass(frozen=True, eq=False)
class Mixture:
    """K Gaussians at each of m rows.

    Attributes
    ----------
    weight : float64 (K,)
        Sum 1.
    mean, var : float64 (K, m)
        Of the members.
    """

    weight: Floats
    mean: Floats
    var: Floats


def mixture_mean(mixture: Mixture) -> Floats:
    """Mean, (m,)."""
    return mixture.weight @ mixture.mean


def mixture_var(mixture: Mixture) -> Floats:
    """Variance, (m,): mean of the variances plus variance of the means."""
    spread = mixture.mean - mixture_mean(mixture)
    return mixture.weight @ (mixture.var + spread**2)


def log_density(mixture: Mixture, y: Any) -> Floats:
    """Log density of y (m,) at its row, (m,)."""
    with np.errstate(divide="ignore"):
        return np.asarray(
            logsumexp(member_log_density(mixture, y) + np.log(mixture.weight)[:, None], axis=0)
        )


def member_log_density(mixture: Mixture, y: Any) -> Floats:
    """Log density of y (m,) under each member, (K, m)."""
    with np.errstate(over="ignore"):  # further than float64 can say: -inf
        square: Floats = ((y - mixture.mean) / np.sqrt(mixture.var)) ** 2
    return -0.5 * (LOG_2PI + np.log(mixture.var) + square)


def distribution(mixture: Mixture, y: Any) -> Floats:
    """Distribution function at y (m,), (m,)."""
    return np.asarray(mixture.weight @ ndtr(_standard(y - mixture.mean, np.sqrt(mixture.var))))


def quantiles(mixture: Mixture, levels: Any) -> Floats:
    """Quantiles of the mixture, (m, len(levels)), for levels in (0, 1).

    Newton's method on the logarithm of the distribution function, kept inside a bracket that halves
    where a step leaves it or does not shrink: the quantile lies between the smallest and the
    largest of the members' own. All rows at once; O(K m) a step, seldom more than ten steps.
    Variances of 0 are point masses.
    """
    levels = np.asarray(levels, dtype=np.float64).ravel()
    out = np.empty((mixture.mean.shape[1], levels.size))
    mirrored = Mixture(mixture.weight, -mixture.mean, mixture.var)
    for j, level in enumerate(levels.tolist()):  # always from the side of the thinner tail
        out[:, j] = _quantile(mixture, level) if level <= 0.5 else -_quantile(mirrored, 1.0 - level)
    return out


def _quantile(mixture: Mixture, level: float) -> Floats:
    used = mixture.weight > 0
    weight, mean, sd = mixture.weight[used], mixture.mean[used], np.sqrt(mixture.var[used])
    of_members = mean + float(ndtri(level)) * sd
    low, high = of_members.min(axis=0), of_members.max(axis=0)
    x = np.clip(weight @ of_members, low, high)
    out = x.copy()
    rows = np.arange(x.size)  # those not done
    move = high - low
    for _ in range(MAX_STEPS):
        z = _standard(x - mean, sd)
        below = weight @ ndtr(z)
        high = np.where(below > level, x, high)
        low = np.where(below > level, low, x)
        with np.errstate(all="ignore"):
            density = weight @ (np.exp(-0.5 * z**2) / sd) / np.sqrt(2.0 * np.pi)
            new = x - np.log(below / level) * below / density
        newton = (new >= low) & (new <= high) & (np.abs(new - x) <= 0.5 * move)
        new = np.where(newton, new, 0.5 * low + 0.5 * high)
        move = np.abs(new - x)
        done = (np.abs(below - level) <= LEVEL_TOLERANCE * level) | (new == x)
        out[rows] = x
        if done.all():
            break
        go = ~done
        rows, x, low, high, move = rows[go], new[go], low[go], high[go], move[go]
        mean, sd = mean[:, go], sd[:, go]
    return out


def _standard(distance: Floats, sd: Floats) -> Floats:
    """Distance in deviations, without complaint of 0 or overflow: what is 0 / 0 counts as +inf."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        z: Floats = distance / sd
    z[(distance == 0) & (sd == 0)] = np.inf
    return z


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
