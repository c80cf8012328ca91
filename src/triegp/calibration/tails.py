"""Tails of a predictive distribution, learned by leave-one-out.

A Gaussian process with one noise variance assumes Gaussian residuals. Real residuals often have
heavier tails and a sharper peak. The predictive distribution is therefore a mixture of Gaussians
with the same mean. Their standard deviations are the predicted one times fixed factors. The mixture
weights maximise the leave-one-out density, which is a concave problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from triegp.mixture.weights import stack
from triegp.models.distribution import LOG_2PI, PredictiveDistribution

Floats = npt.NDArray[np.float64]

FACTORS: Floats = np.exp2(0.5 * np.arange(-10, 15))  # of the predicted deviation: 1/32 to 128
UNSEEN = np.where(FACTORS >= 1.0, FACTORS**-2.0, 0.0)  # prior counts of the factors, up to scale
CALIBRATION_ROWS = 20_000  # at most


@dataclass(frozen=True, eq=False)
class Tails:
    """A scale mixture of Gaussians.

    Attributes
    ----------
    weight : float64 (J,)
        Weights of the components, sum 1.
    factor : float64 (J,)
        Standard deviation of each component, relative to the predicted one.
    """

    weight: Floats
    factor: Floats


GAUSSIAN = Tails(np.ones(1), np.ones(1))


def learn_tails(score: Floats, row_weight: Floats | None = None) -> Tails:
    """Mixture weights that maximise the density of leave-one-out residuals.

    Parameters
    ----------
    score : float64 (n,)
        (y - mean) / standard deviation of each row, given all other rows.
    row_weight : float64 (n,), optional
        How often each row counts; 1 by default.

    Notes
    -----
    One pseudo-observation is added, spread over all factors >= 1 in proportion to factor^-2. So no
    tail has weight 0, and tails that were never observed hardly change the predicted deviation.
    O(J^2 n) per step, on at most 20,000 evenly spaced rows.
    """
    if score.size < 2:
        return GAUSSIAN
    count = np.ones(score.size) if row_weight is None else row_weight
    total = float(count.sum())
    some = np.linspace(0, score.size - 1, min(score.size, CALIBRATION_ROWS)).astype(np.int64)
    z = np.abs(score[some]) / FACTORS[:, None]
    with np.errstate(over="ignore"):
        log_density = -0.5 * (LOG_2PI + np.square(z)) - np.log(FACTORS)[:, None]
    found = stack(log_density, count[some])
    weight = (total * found + UNSEEN / UNSEEN.sum()) / (total + 1.0)
    return Tails(weight, FACTORS)


def log_densities(tails: Tails, score: Floats) -> Floats:
    """Log density of standardised residuals, (n,)."""
    used = tails.weight > 0
    factor = tails.factor[used][:, None]
    with np.errstate(over="ignore"):
        each = -0.5 * (LOG_2PI + np.square(score / factor)) - np.log(factor)
    return np.asarray(logsumexp(each + np.log(tails.weight[used])[:, None], axis=0))


def spread_out(tails: Tails, mean: Floats, var: Floats) -> PredictiveDistribution:
    """Predictive distribution with these tails around mean (m,), for predicted variance (m,)."""
    used = tails.weight > 0
    factor = np.square(tails.factor[used])[:, None]
    means = np.broadcast_to(mean, (factor.size, mean.size))
    return PredictiveDistribution(tails.weight[used], means, factor * var)


def spread_classes(
    tails: tuple[Tails, Tails], mean: Floats, var: Floats, second: npt.NDArray[np.bool_]
) -> PredictiveDistribution:
    """Predictive distribution with the first tails, or the second at the rows `second`, (m,)."""
    parts = [spread_out(own, mean, var) for own in tails]
    columns = (~second, second)
    return PredictiveDistribution(
        np.vstack([p.weights[:, None] * own for p, own in zip(parts, columns, strict=True)]),
        np.vstack([part.means for part in parts]),
        np.vstack([part.variances for part in parts]),
    )


def second_moment(tails: Tails) -> float:
    """Weighted mean of the squared factors."""
    return float(tails.weight @ np.square(tails.factor))


def first_moment(tails: Tails) -> float:
    """Weighted mean of the factors."""
    return float(tails.weight @ tails.factor)
