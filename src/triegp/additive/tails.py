"""How far observations scatter around a forest's prediction, learned by leave-one-out.

A Gaussian process with one noise believes in Gaussian residuals. Real ones have tails, and many
are far smaller than the typical one. The predictive distribution is therefore a mixture of
Gaussians around the same mean, whose deviations are the predicted one times fixed factors; the
weights maximise the leave-one-out density, which is a concave problem with one answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.mixture.weights import stack
from triegp.models.distribution import LOG_2PI, PredictiveDistribution

Floats = npt.NDArray[np.float64]

FACTORS: Floats = np.exp2(0.5 * np.arange(-10, 15))  # of the predicted deviation
UNSEEN = np.where(FACTORS >= 1.0, FACTORS**-2.0, 0.0)  # where one more observation could be
CALIBRATION_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class Tails:
    """A mixture of deviations.

    Attributes
    ----------
    weight : float64 (J,)
        Sum 1.
    factor : float64 (J,)
        By which each multiplies the predicted deviation.
    """

    weight: Floats
    factor: Floats


GAUSSIAN = Tails(np.ones(1), np.ones(1))


def learn_tails(score: Floats, row_weight: Floats | None = None) -> Tails:
    """The tails of standardised leave-one-out residuals.

    Parameters
    ----------
    score : float64 (n,)
        (y - mean) / deviation, of every row given all others.
    row_weight : float64 (n,), optional
        How often each row counts.

    Notes
    -----
    One more observation than there were is counted, which could have come from any factor from 1
    on, with a share that falls as its square: no tail is ever without weight, and none that did not
    come shows in the deviations. O(J^2 n) a step, on at most 20,000 rows, evenly spaced.
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


def spread_out(tails: Tails, mean: Floats, var: Floats) -> PredictiveDistribution:
    """The mixture around means (m,) of predicted variances (m,)."""
    used = tails.weight > 0
    factor = np.square(tails.factor[used])[:, None]
    means = np.broadcast_to(mean, (factor.size, mean.size))
    return PredictiveDistribution(tails.weight[used], means, factor * var)


def second_moment(tails: Tails) -> float:
    """Mean square of the factors."""
    return float(tails.weight @ np.square(tails.factor))


def first_moment(tails: Tails) -> float:
    """Mean of the factors."""
    return float(tails.weight @ tails.factor)
