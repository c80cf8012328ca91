"""From members to a calibrated mixture: weights, shrinkage, scale and outliers."""

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

CALIBRATION_ROWS = 10_000
BLOCK_ROWS = 512  # rows whose arrays stay in the cache while a step is taken
SCALE_RANGE = (0.1, 10.0)  # targets that repeat would otherwise be met by ever narrower spikes
STEPS = {"ftol": 1e-6, "gtol": 1e-4, "maxcor": 20}  # far below what so many rows can tell
MOST_OUTLIERS = 0.5
OUTLIER_VAR_RANGE = (0.01, 1e4)  # from a tenth to a hundred deviations of y
SMALLEST_WEIGHT = 1e-3  # members with less are left out


@dataclass(frozen=True, eq=False)
class Calibration:
    """How members become a mixture.

    Attributes
    ----------
    weight : float64 (K,)
        Sum 1.
    shrink : float
        How far the members' means stay from their average: 1 leaves them, 0 puts all on it.
    scale : float
        Factor of the members' variances.
    outlier : float
        Probability that an observation comes from the outlier component, which shares nothing with
        the members except the average of their means.
    outlier_var : float
        Variance of the outlier component around that average, beyond the members' (scaled) own.
    """

    weight: Floats
    shrink: float = 1.0
    scale: float = 1.0
    outlier: float = 0.0
    outlier_var: float = 1.0


def temper(
    calibration: Calibration, mean: Floats, var: Floats, *, latent: bool = False
) -> PredictiveDistribution:
    """The calibrated mixture of members' means and variances, (K, m) each.

    Outliers, if there are any, are one more component. The latent function has none.
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
    """Weights, shrinkage, scale and outliers that maximise the mean log density of held-out rows.

    A mixture of weak members is too wide: the average of their means is better than any one of
    them, but the mixture's variance still counts how far they lie apart. Shrinking the means
    towards their average and scaling the variances, both by leave-one-out, corrects that. Targets
    that have nothing in common with their neighbours come from an outlier component, with a
    probability of at least 1 / (n + 2). Its variance is the smallest whose log likelihood is within
    1 nat of the optimum, so that outliers that were never seen do not widen the deviations.

    Parameters
    ----------
    mean, var : float64 (K, n)
        Leave-one-out predictions of the rows by every member, noise included.
    y : float64 (n,)
        What was observed, standardised.
    row_weight : float64 (n,), optional
        How often each row counts.

    Notes
    -----
    O(K n) a step, on at most 10,000 rows, evenly spaced where a row of weight c stands for c rows.
    """
    n_members, n_rows = mean.shape
    count = np.ones(n_rows) if row_weight is None else row_weight
    if count.sum() < 2:  # leaving one out leaves nothing
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
    """At most so many rows, evenly spaced among rows that count as often as given; their counts."""
    rows = np.flatnonzero(count)
    total = np.cumsum(count[rows])
    if max(rows.size, total[-1]) <= most:
        return rows, count[rows]
    places = (np.arange(most) + 0.5) * (total[-1] / most)
    chosen, times = np.unique(np.searchsorted(total, places), return_counts=True)
    return rows[chosen], times.astype(np.float64)


class _Block(NamedTuple):
    """Rows whose arrays stay in the cache: (K, m) each but for target and share, (m,)."""

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
    """What a block adds to the mean log density, and to its derivatives.

    In turn: the value; its derivatives by shrink, log scale, logit of stray and log stray_var; by
    the weights, (K,); by the logarithms of the weights where they are shares, (K,).
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
    duty = np.exp(terms - top)  # times a factor: what each member answers for of the row
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
    """Smallest number in [low, high] that is good, to a hundredth, if all above it are."""
    if good(low):
        return low
    while high - low > 0.01:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def _unpack(z: Floats) -> Calibration:
    """The calibration at a point of the optimiser's."""
    weight = np.exp(z[:-4] - z[:-4].max())
    weight = np.maximum(weight / weight.sum(), 1e-12)
    shrink, log_scale, logit, log_outlier_var = z[-4:].tolist()
    outlier = 1.0 / (1.0 + math.exp(-logit))
    return Calibration(
        weight / weight.sum(), shrink, math.exp(log_scale), outlier, math.exp(log_outlier_var)
    )


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
