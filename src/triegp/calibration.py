"""From members to a mixture that knows how good it is: weights, shrinkage and scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from triegp.mixture import LOG_2PI, Mixture

Floats = npt.NDArray[np.float64]

CALIBRATION_ROWS = 10_000
BLOCK_ROWS = 512  # rows whose arrays stay in the cache while a step is taken
SCALE_RANGE = (0.1, 10.0)  # targets that repeat would otherwise be met by ever narrower spikes
STEPS = {"ftol": 1e-6, "gtol": 1e-4, "maxcor": 20}  # far below what so many rows can tell
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
    """

    weight: Floats
    shrink: float = 1.0
    scale: float = 1.0


def temper(calibration: Calibration, mean: Floats, var: Floats) -> Mixture:
    """The mixture of members' means and variances, (K, m) each, as a calibration says."""
    average = calibration.weight @ mean
    around = average + calibration.shrink * (mean - average)
    return Mixture(calibration.weight, around, calibration.scale * var)


def calibrate(
    mean: Floats, var: Floats, y: Floats, row_weight: Floats | None = None
) -> Calibration:
    """Weights, shrinkage and scale that maximise the mean log density of held-out rows.

    Averaging densities of members that each know little is too cautious: the average of their means
    is better than any of them, and the mixture does not know it. Pulling the means together and
    scaling the variances, both judged by leave-one-out, repairs that.

    Parameters
    ----------
    mean, var : float64 (K, n)
        Leave-one-out predictions of the rows by every member, noise included.
    y : float64 (n,)
        What was observed.
    row_weight : float64 (n,), optional
        How often each row counts.

    Notes
    -----
    O(K n) a step, on at most 10,000 rows, evenly spaced where a row of weight c stands for c rows.
    """
    n_members, n_rows = mean.shape
    count = np.ones(n_rows) if row_weight is None else row_weight
    if not count.any() or n_rows < 2:
        return Calibration(np.full(n_members, 1.0 / n_members))
    rows, count = _evenly(count, CALIBRATION_ROWS)
    mean, var, y = mean[:, rows], var[:, rows], y[rows]
    share = count / count.sum()

    blocks = [
        _block(mean[:, k : k + BLOCK_ROWS], var[:, k : k + BLOCK_ROWS], y[k : k + BLOCK_ROWS])
        for k in range(0, rows.size, BLOCK_ROWS)
    ]
    shares = [share[k : k + BLOCK_ROWS] for k in range(0, rows.size, BLOCK_ROWS)]

    def objective(z: Floats) -> tuple[float, Floats]:
        weight, shrink, scale = _unpack(z)
        base = (np.log(weight) - 0.5 * (LOG_2PI + np.log(scale)))[:, None]
        value, by_shrink, by_log_scale = 0.0, 0.0, 0.0
        by_weight, by_average = np.zeros(n_members), np.zeros(n_members)
        for (m, precision, half_log_var, target), part in zip(blocks, shares, strict=True):
            average = weight @ m
            apart = m - average
            error = (target - average) - shrink * apart
            pull = error * precision
            pull /= scale
            square = pull * error
            terms = base - half_log_var - 0.5 * square
            top = terms.max(axis=0)
            duty = np.exp(terms - top)  # times a factor: what each member answers for of the row
            total = duty.sum(axis=0)
            value += float(part @ (top + np.log(total)))
            duty *= part / total
            pull *= duty
            by_shrink += float(np.vdot(pull, apart))
            by_log_scale += 0.5 * float(np.vdot(duty, square) - duty.sum())
            by_weight += duty.sum(axis=1)
            by_average += m @ pull.sum(axis=0)
        by_weight = by_weight / weight + (1.0 - shrink) * by_average
        by_logit = weight * (by_weight - weight @ by_weight)
        return -value, -np.concatenate([by_logit, [by_shrink, by_log_scale]])

    bounds = [(None, None)] * n_members + [(0.0, 1.0), np.log(SCALE_RANGE)]
    z = np.append(np.zeros(n_members), [1.0, 0.0])
    found = minimize(objective, z, jac=True, method="L-BFGS-B", bounds=bounds, options=STEPS)
    weight, shrink, scale = _unpack(found.x)
    weight = np.where(weight < SMALLEST_WEIGHT, 0.0, weight)
    return Calibration(weight / weight.sum(), shrink, scale)


def _evenly(count: Floats, most: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """At most so many rows, evenly spaced among rows that count as often as given; their counts."""
    rows = np.flatnonzero(count)
    total = np.cumsum(count[rows])
    if max(rows.size, total[-1]) <= most:
        return rows, count[rows]
    places = (np.arange(most) + 0.5) * (total[-1] / most)
    chosen, times = np.unique(np.searchsorted(total, places), return_counts=True)
    return rows[chosen], times.astype(np.float64)


def _block(mean: Floats, var: Floats, y: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Means, precisions, half log variances and targets of rows that fit in the cache."""
    own = np.ascontiguousarray(mean)
    return own, 1.0 / var, 0.5 * np.log(var), y


def _unpack(z: Floats) -> tuple[Floats, float, float]:
    weight = np.exp(z[:-2] - z[:-2].max())
    weight = np.maximum(weight / weight.sum(), 1e-12)
    return weight / weight.sum(), float(z[-2]), float(np.exp(z[-1]))
