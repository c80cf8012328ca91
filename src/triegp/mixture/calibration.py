"""From members to a mixture that knows how good it is: weights, shrinkage, scale and strays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from triegp.models.distribution import LOG_2PI, Mixture

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
    base = (np.log((1.0 - mixed.stray) * mixed.weight) - 0.5 * (LOG_2PI + np.log(mixed.scale)))[
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
    far = own_var + mixed.stray_var
    stray_pull = off / far
    stray_term = np.log(mixed.stray) - 0.5 * (LOG_2PI + np.log(far) + stray_pull * off)
    top = np.maximum(terms.max(axis=0), stray_term)
    duty = np.exp(terms - top)  # times a factor: what each member answers for of the row
    strays = np.exp(stray_term - top)
    total = duty.sum(axis=0) + strays
    value = share @ (top + np.log(total))
    duty *= share / total
    strays *= share / total
    pull *= duty
    by_far = 0.5 * strays * (stray_pull**2 - 1.0 / far)
    by_average = (1.0 - mixed.shrink) * pull.sum(axis=0) + strays * stray_pull
    return np.concatenate(
        [
            [
                value,
                np.vdot(pull, apart),
                0.5 * (np.vdot(duty, square) - duty.sum()) + by_far @ own_var,
                strays.sum() - mixed.stray * share.sum(),
                mixed.stray_var * by_far.sum(),
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
    shrink, log_scale, logit, log_stray_var = z[-4:].tolist()
    stray = 1.0 / (1.0 + math.exp(-logit))
    return Calibration(
        weight / weight.sum(), shrink, math.exp(log_scale), stray, math.exp(log_stray_var)
    )


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
