"""A mixture of Gaussians at every row: what an ensemble of trees predicts.

Its density is the log-sum-exp of its members', its variance the law of total variance, its
quantiles the inverse of its own distribution function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, ndtr, ndtri

Floats = npt.NDArray[np.float64]

LOG_2PI = float(np.log(2.0 * np.pi))
QUANTILE_TOLERANCE = 1e-12  # of a quantile, relative to the spread of the mixture
MAX_STEPS = 200
EM_TOLERANCE = 1e-9  # gain in mean log density at which stacking stops
MAX_EM_STEPS = 2_000


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
    square: Floats = (y - mixture.mean) ** 2 / mixture.var
    return -0.5 * (LOG_2PI + np.log(mixture.var) + square)


def distribution(mixture: Mixture, y: Any) -> Floats:
    """Distribution function at y (m,), (m,)."""
    return np.asarray(mixture.weight @ ndtr((y - mixture.mean) / np.sqrt(mixture.var)))


def quantiles(mixture: Mixture, levels: Any) -> Floats:
    """Quantiles of the mixture, (m, len(levels)), for levels in (0, 1).

    Newton's method on the distribution function, kept inside a bracket that halves where a step
    leaves it: the quantile lies between the smallest and the largest of the members' own. All rows
    at once; O(K m) a step, seldom more than ten steps.
    """
    levels = np.asarray(levels, dtype=np.float64)
    return np.stack([_quantile(mixture, float(level)) for level in levels], axis=1)


def _quantile(mixture: Mixture, level: float) -> Floats:
    sd = np.sqrt(mixture.var)
    of_members = mixture.mean + float(ndtri(level)) * sd
    used = mixture.weight > 0
    low, high = of_members[used].min(axis=0), of_members[used].max(axis=0)
    tolerance = QUANTILE_TOLERANCE * (sd[used].max(axis=0) + np.ptp(mixture.mean[used], axis=0))
    x = np.clip(mixture.weight @ of_members, low, high)
    for _ in range(MAX_STEPS):
        z = (x - mixture.mean) / sd
        excess = mixture.weight @ ndtr(z) - level
        high = np.where(excess > 0, x, high)
        low = np.where(excess <= 0, x, low)
        density = mixture.weight @ (np.exp(-0.5 * z**2) / sd) / np.sqrt(2.0 * np.pi)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = excess / density
        new = x - step
        outside = ~((new >= low) & (new <= high))
        new = np.where(outside, 0.5 * (low + high), new)
        done = np.abs(new - x) <= tolerance
        x = new
        if done.all():
            break
    return x


def stack(log_densities: Floats, row_weight: Floats | None = None) -> Floats:
    """Mixture weights that maximise the mean log density of held-out rows.

    EM from uniform weights; the objective is concave, so it finds the maximum.

    Parameters
    ----------
    log_densities : float64 (K, n)
        Of every row under every member, the row held out (leave-one-out).
    row_weight : float64 (n,), optional
        How often each row counts.

    Returns
    -------
    float64 (K,)
        Sum 1. O(K n) a step.
    """
    n_members, n_rows = log_densities.shape
    top = log_densities.max(axis=0)
    relative = np.exp(log_densities - top)  # (K, n), at least one entry of a column is 1
    share = np.full(n_rows, 1.0 / n_rows) if row_weight is None else row_weight / row_weight.sum()
    weight = np.full(n_members, 1.0 / n_members)
    last = -np.inf
    for _ in range(MAX_EM_STEPS):
        total = weight @ relative
        value = float(share @ np.log(total))
        if value - last < EM_TOLERANCE:
            break
        last = value
        weight = weight * (relative @ (share / total))
        weight /= weight.sum()
    return weight


def soften(nll_per_row: Floats, temperature: float) -> Floats:
    """Softmax of minus the nll a row over a temperature: the paper's mixture weights."""
    z = -np.asarray(nll_per_row) / temperature
    weight = np.exp(z - z.max())
    return np.asarray(weight / weight.sum())


def crps(mixture: Mixture, y: Any) -> Floats:
    """Continuous ranked probability score of y (m,), (m,); lower is better. O(K^2 m)."""

    def mean_abs(mu: Floats, var: Floats) -> Floats:
        """E |N(mu, var)|."""
        sd = np.sqrt(var)
        z = mu / sd
        out: Floats = sd * (2 * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)) + mu * (2 * ndtr(z) - 1)
        return out

    w = mixture.weight
    out = w @ mean_abs(y - mixture.mean, mixture.var)
    for k in range(w.size):
        spread = mean_abs(mixture.mean - mixture.mean[k], mixture.var + mixture.var[k])
        out -= 0.5 * w[k] * (w @ spread)
    return np.asarray(out)
