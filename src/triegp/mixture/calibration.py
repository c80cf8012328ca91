"""Calibration of a mixture: weights, shrinkage, scale and outlier component."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from triegp.models.distribution import LOG_2PI, PredictiveDistribution

Floats = npt.NDArray[np.float64]

CALIBRATION_ROWS = 10_000  # at most
BLOCK_ROWS = 512  # arrays of this many rows fit in the cache
SCALE_RANGE = (0.1, 10.0)  # without it, repeated targets would drive the variances to 0
STEPS = {"ftol": 1e-6, "gtol": 1e-4, "maxcor": 20}  # far below the sampling error of 10,000 rows
MOST_OUTLIERS = 0.5
OUTLIER_VAR_RANGE = (0.01, 1e4)  # 0.1 to 100 standard deviations of y
SMALLEST_WEIGHT = 1e-3  # members of smaller weight are left out


@dataclass(frozen=True, eq=False)
class Calibration:
    """How the members are combined into a mixture.

    Attributes
    ----------
    weight : float64 (K,)
        Weights of the members, sum 1.
    shrink : float
        Factor of the difference between each member's mean and their weighted average: 1 leaves
        the means as they are, 0 replaces them by the average. 1 by default.
    scale : float
        Factor of the members' variances; 1 by default.
    outlier : float
        Probability that an observation comes from the outlier component, whose mean is the weighted
        average of the members' means; 0 by default.
    outlier_var : float
        Variance of the outlier component, in addition to the weighted average of the members'
        scaled variances; 1 by default.
    """

    weight: Floats
    shrink: float = 1.0
    scale: float = 1.0
    outlier: float = 0.0
    outlier_var: float = 1.0


def temper(
    calibration: Calibration, mean: Floats, var: Floats, *, latent: bool = False
) -> PredictiveDistribution:
    """The calibrated mixture of the members' means and variances, (K, m) each.

    The outlier component, if its probability is not 0, is the last one. With `latent` there is
    none.
    """
    average = calibration.weight @ mean
    around = average + calibration.shrink * (mean - average)
    scaled = calibration.scale * var
    if latent or calibration.outlier == 0:
        return PredictiveDistribution(calibration.weight, around, scaled)
    return PredictiveDistribution(
        np.append((1.0 - calibration.outlier) * calibration.weight, calibration.outlier),
        np.vstack([around, average]),
        np.vstack([scaled, calibration.weight @ scaled + calibration.outlier_var]),
    )


def calibrate(
    mean: Floats, var: Floats, y: Floats, row_weight: Floats | None = None
) -> Calibration:
    """Find the calibration that maximises the mean log density of held-out rows.

    A mixture of weak members is too wide. The average of their means is better than any single
    mean, but the variance of the mixture includes the differences between the means. Shrinking the
    means towards their average and scaling the variances corrects that.

    The outlier component covers targets that differ from those of their neighbours. Its probability
    is at least 1 / (n + 2). Its variance is the smallest whose log likelihood is within 1 nat of
    the optimum, so that outliers that were never observed do not widen the predicted deviations.

    Parameters
    ----------
    mean, var : float64 (K, n)
        Leave-one-out predictions of the rows by each member, noise included.
    y : float64 (n,)
        Standardised targets.
    row_weight : float64 (n,), optional
        How often each row counts; 1 by default.

    Notes
    -----
    O(K n) per step, on at most 10,000 evenly spaced rows. For the spacing, a row of weight c counts
    as c rows.
    """
    n_members, n_rows = mean.shape
    count = np.ones(n_rows) if row_weight is None else row_weight
    if count.sum() < 2:  # without the left-out row there are no data
        return Calibration(np.full(n_members, 1.0 / n_members))
    fewest = 1.0 / (float(count.sum()) + 2.0)
    rows, count = _evenly(count, CALIBRATION_ROWS)
    mean, var, y = mean[:, rows], var[:, rows], y[rows]
    share = count / count.sum()

    starts = range(0, rows.size, BLOCK_ROWS)
    blocks = [_block(mean, var, y, share, slice(k, k + BLOCK_ROWS)) for k in starts]

    def objective(z: Floats) -> tuple[float, Floats]:
        calibration = _unpack(z)
        weight = calibration.weight
        sums = np.sum([_terms(block, calibration) for block in blocks], axis=0)
        by_weight = sums[5 : 5 + n_members] + sums[5 + n_members :] / weight
        by_logit = weight * (by_weight - weight @ by_weight)
        return -float(sums[0]), -np.concatenate([by_logit, sums[1:5]])

    bounds = [
        *[(None, None)] * n_members,
        (0.0, 1.0),
        np.log(SCALE_RANGE),
        (_logit(fewest), _logit(MOST_OUTLIERS)),
        np.log(OUTLIER_VAR_RANGE),
    ]
    begin = [1.0, 0.0, _logit(max(0.01, fewest)), np.log(4.0)]
    found = minimize(
        objective,
        np.append(np.zeros(n_members), begin),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options=STEPS,
    )
    z = found.x
    z[-1] = _least(
        lambda log_var: objective(np.append(z[:-1], log_var))[0] <= found.fun + 1.0 / count.sum(),
        float(np.log(OUTLIER_VAR_RANGE[0])),
        float(z[-1]),
    )
    best = _unpack(z)
    weight = np.where(best.weight < SMALLEST_WEIGHT, 0.0, best.weight)
    return replace(best, weight=weight / weight.sum())


def _evenly(count: Floats, most: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """At most `most` rows, evenly spaced if row i is repeated count[i] times, and their counts."""
    rows = np.flatnonzero(count)
    total = np.cumsum(count[rows])
    if max(rows.size, total[-1]) <= most:
        return rows, count[rows]
    places = (np.arange(most) + 0.5) * (total[-1] / most)
    chosen, times = np.unique(np.searchsorted(total, places), return_counts=True)
    return rows[chosen], times.astype(np.float64)


class _Block(NamedTuple):
    """Some of the rows: arrays (K, m), except for target and share, (m,)."""

    mean: Floats
    var: Floats
    precision: Floats
    half_log_var: Floats
    target: Floats
    share: Floats


def _block(mean: Floats, var: Floats, y: Floats, share: Floats, rows: slice) -> _Block:
    own, v = np.ascontiguousarray(mean[:, rows]), np.ascontiguousarray(var[:, rows])
    return _Block(own, v, 1.0 / v, 0.5 * np.log(v), y[rows], share[rows])


def _terms(block: _Block, mixed: Calibration) -> Floats:
    """Contribution of a block to the mean log density and its derivatives, one vector (5 + 2 K,).

    In this order: the value; its derivatives by shrink, log scale, logit of outlier and log
    outlier_var; by the weights in the averages of means and variances, (K,); by the logarithms of
    the weights of the mixture components, (K,).
    """
    share = block.share
    base = (np.log((1.0 - mixed.outlier) * mixed.weight) - 0.5 * (LOG_2PI + np.log(mixed.scale)))[
        :, None
    ]
    average = mixed.weight @ block.mean
    apart = block.mean - average
    off = block.target - average
    error = off - mixed.shrink * apart
    pull = error * block.precision
    pull /= mixed.scale
    square = pull * error
    terms = base - block.half_log_var - 0.5 * square
    own_var = mixed.scale * (mixed.weight @ block.var)
    far = own_var + mixed.outlier_var
    outlier_pull = off / far
    outlier_term = np.log(mixed.outlier) - 0.5 * (LOG_2PI + np.log(far) + outlier_pull * off)
    top = np.maximum(terms.max(axis=0), outlier_term)
    duty = np.exp(terms - top)  # responsibilities of the members, not normalised yet
    outliers = np.exp(outlier_term - top)
    total = duty.sum(axis=0) + outliers
    value = share @ (top + np.log(total))
    duty *= share / total
    outliers *= share / total
    pull *= duty
    by_far = 0.5 * outliers * (outlier_pull**2 - 1.0 / far)
    by_average = (1.0 - mixed.shrink) * pull.sum(axis=0) + outliers * outlier_pull
    return np.concatenate(
        [
            [
                value,
                np.vdot(pull, apart),
                0.5 * (np.vdot(duty, square) - duty.sum()) + by_far @ own_var,
                outliers.sum() - mixed.outlier * share.sum(),
                mixed.outlier_var * by_far.sum(),
            ],
            block.mean @ by_average + mixed.scale * (block.var @ by_far),
            duty.sum(axis=1),
        ]
    )


def _least(good: Callable[[float], bool], low: float, high: float) -> float:
    """Smallest number in [low, high] that is good, to 0.01, by bisection.

    Assumes that all numbers between it and high are good.
    """
    if good(low):
        return low
    while high - low > 0.01:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def _unpack(z: Floats) -> Calibration:
    """The calibration at a point z (K + 4,): logits of the weights, then the other parameters."""
    weight = np.exp(z[:-4] - z[:-4].max())
    weight = np.maximum(weight / weight.sum(), 1e-12)
    shrink, log_scale, logit, log_outlier_var = z[-4:].tolist()
    outlier = 1.0 / (1.0 + math.exp(-logit))
    return Calibration(
        weight / weight.sum(), shrink, math.exp(log_scale), outlier, math.exp(log_outlier_var)
    )


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
