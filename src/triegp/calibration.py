"""From members to a mixture that knows how good it is: weights, shrinkage, scale and strays."""

from __future__ import annotations

import math
from collections.abc import Callable
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
MOST_STRAYS = 0.5
STRAY_VAR_RANGE = (0.01, 1e4)  # from a tenth to a hundred deviations of y
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
    stray : float
        Probability that an observation strays: that it has nothing to do with what the members say
        of it but where its centre is.
    stray_var : float
        How much more than the members' (scaled) variance strays have around their average.
    """

    weight: Floats
    shrink: float = 1.0
    scale: float = 1.0
    stray: float = 0.0
    stray_var: float = 1.0


def temper(calibration: Calibration, mean: Floats, var: Floats, *, latent: bool = False) -> Mixture:
    """The mixture of members' means and variances, (K, m) each, as a calibration says.

    Strays, if there are any, are one more Gaussian. The latent function has none.
    """
    average = calibration.weight @ mean
    around = average + calibration.shrink * (mean - average)
    scaled = calibration.scale * var
    if latent or calibration.stray == 0:
        return Mixture(calibration.weight, around, scaled)
    return Mixture(
        np.append((1.0 - calibration.stray) * calibration.weight, calibration.stray),
        np.vstack([around, average]),
        np.vstack([scaled, calibration.weight @ scaled + calibration.stray_var]),
    )


def calibrate(
    mean: Floats, var: Floats, y: Floats, row_weight: Floats | None = None
) -> Calibration:
    """Weights, shrinkage, scale and strays that maximise the mean log density of held-out rows.

    Averaging densities of members that each know little is too cautious: the average of their means
    is better than any of them, and the mixture does not know it. Pulling the means together and
    scaling the variances, both judged by leave-one-out, repairs that. And some targets have nothing
    to do with their neighbours': a Gaussian gives them no density to speak of. They are counted as
    strays; as often as one in n + 2 rows if there are none among the n. Their variance is the least
    that costs the rows together no more than a nat, so that strays which did not come do not
    show in the deviations.

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

    blocks = [
        _block(mean[:, k : k + BLOCK_ROWS], var[:, k : k + BLOCK_ROWS], y[k : k + BLOCK_ROWS])
        for k in range(0, rows.size, BLOCK_ROWS)
    ]
    shares = [share[k : k + BLOCK_ROWS] for k in range(0, rows.size, BLOCK_ROWS)]

    def objective(z: Floats) -> tuple[float, Floats]:
        weight, shrink, scale, stray, stray_var = _unpack(z)
        base = (np.log((1.0 - stray) * weight) - 0.5 * (LOG_2PI + np.log(scale)))[:, None]
        stray_base = np.log(stray) - 0.5 * LOG_2PI
        value, by_weight, by_log_weight = 0.0, np.zeros(n_members), np.zeros(n_members)
        by_shrink, by_log_scale, by_stray, by_log_stray_var = 0.0, 0.0, 0.0, 0.0
        for (m, v, precision, half_log_var, target), part in zip(blocks, shares, strict=True):
            average = weight @ m
            apart = m - average
            off = target - average
            error = off - shrink * apart
            pull = error * precision
            pull /= scale
            square = pull * error
            terms = base - half_log_var - 0.5 * square
            own_var = scale * (weight @ v)
            far = own_var + stray_var
            stray_pull = off / far
            stray_term = stray_base - 0.5 * (np.log(far) + stray_pull * off)
            top = np.maximum(terms.max(axis=0), stray_term)
            duty = np.exp(terms - top)  # times a factor: what each member answers for of the row
            strays = np.exp(stray_term - top)
            total = duty.sum(axis=0) + strays
            value += float(part @ (top + np.log(total)))
            duty *= part / total
            strays *= part / total
            pull *= duty
            by_far = 0.5 * strays * (stray_pull**2 - 1.0 / far)
            stray_pull *= strays
            by_shrink += float(np.vdot(pull, apart))
            by_log_scale += 0.5 * float(np.vdot(duty, square) - duty.sum()) + by_far @ own_var
            by_stray += float(strays.sum() - stray * part.sum())
            by_log_stray_var += stray_var * float(by_far.sum())
            by_log_weight += duty.sum(axis=1)
            by_weight += m @ ((1.0 - shrink) * pull.sum(axis=0) + stray_pull)
            by_weight += scale * (v @ by_far)
        by_weight += by_log_weight / weight
        by_logit = weight * (by_weight - weight @ by_weight)
        rest = [by_shrink, by_log_scale, by_stray, by_log_stray_var]
        return -value, -np.concatenate([by_logit, rest])

    bounds = [
        *[(None, None)] * n_members,
        (0.0, 1.0),
        np.log(SCALE_RANGE),
        (_logit(fewest), _logit(MOST_STRAYS)),
        np.log(STRAY_VAR_RANGE),
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
        float(np.log(STRAY_VAR_RANGE[0])),
        float(z[-1]),
    )
    weight, *rest = _unpack(z)
    weight = np.where(weight < SMALLEST_WEIGHT, 0.0, weight)
    return Calibration(weight / weight.sum(), *rest)


def _evenly(count: Floats, most: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """At most so many rows, evenly spaced among rows that count as often as given; their counts."""
    rows = np.flatnonzero(count)
    total = np.cumsum(count[rows])
    if max(rows.size, total[-1]) <= most:
        return rows, count[rows]
    places = (np.arange(most) + 0.5) * (total[-1] / most)
    chosen, times = np.unique(np.searchsorted(total, places), return_counts=True)
    return rows[chosen], times.astype(np.float64)


def _block(mean: Floats, var: Floats, y: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Means, variances, precisions, half log variances and targets of rows that fit the cache."""
    own, var = np.ascontiguousarray(mean), np.ascontiguousarray(var)
    return own, var, 1.0 / var, 0.5 * np.log(var), y


def _least(good: Callable[[float], bool], low: float, high: float) -> float:
    """Smallest number in [low, high] that is good, to a hundredth, if all above it are."""
    if good(low):
        return low
    while high - low > 0.01:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def _unpack(z: Floats) -> tuple[Floats, float, float, float, float]:
    """Weights, shrink, scale, stray and stray_var."""
    weight = np.exp(z[:-4] - z[:-4].max())
    weight = np.maximum(weight / weight.sum(), 1e-12)
    shrink, log_scale, logit, log_stray_var = z[-4:].tolist()
    stray = 1.0 / (1.0 + math.exp(-logit))
    return weight / weight.sum(), shrink, math.exp(log_scale), stray, math.exp(log_stray_var)


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
