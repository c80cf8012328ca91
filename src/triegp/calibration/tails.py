"""Tails of a predictive distribution, learned by leave-one-out.

A Gaussian process with one noise variance assumes Gaussian residuals. Real residuals often have
heavier tails and a sharper peak, one tail is often longer than the other, and some have edges. The
predictive distribution is therefore a mixture of Gaussians. Their standard deviations are the
predicted one times fixed factors. Their means are the predicted mean, or, if that describes the
residuals better, a grid of places around it. The mixture weights maximise the density of residuals,
which is a concave problem. All components are then moved together, so that the mean of the mixture
is the predicted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.devices import like, to_host
from triegp.imports import scipy
from triegp.mixture.weights import stack
from triegp.models.distribution import LOG_2PI, PredictiveDistribution

Floats = npt.NDArray[np.float64]

FACTORS: Floats = np.exp2(0.5 * np.arange(-10, 15))  # of the predicted deviation: 1/32 to 128
UNSEEN = np.where(FACTORS >= 1.0, FACTORS**-2.0, 0.0)  # prior counts of the factors, up to scale
CALIBRATION_ROWS = 20_000  # at most
SHAPE_FEWEST, SHAPE_ROWS = 20, 2_500  # rows that a shape is learned from: fewest, and most
LEAST_GAIN = 3.0  # nats in all, beside those that its parameters cost, for another shape
MOST_STEPS = 60  # for the weights: most residuals need 20 to 40
LEAST_WEIGHT = 1e-6  # of a component that counts as a parameter
BLOCK_ROWS = 1 << 14  # whose densities under all components are computed at a time


@dataclass(frozen=True, eq=False)
class Tails:
    """A mixture of Gaussians of mean 0.

    Attributes
    ----------
    weight : float64 (J,)
        Weights of the components, sum 1.
    factor : float64 (J,)
        Standard deviation of each component, relative to the predicted one.
    offset : float64 (J,)
        Mean of each component, in predicted deviations; weight @ offset is 0.
    """

    weight: Floats
    factor: Floats
    offset: Floats


GAUSSIAN = Tails(np.ones(1), np.ones(1), np.zeros(1))


def learn_tails(score: Floats, row_weight: Floats | None = None) -> Tails:
    """Symmetric tails that maximise the density of leave-one-out residuals.

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
    some = _some(score.size, CALIBRATION_ROWS)
    return _most_likely(score[some], count[some], float(count.sum()), FACTORS, 0.0 * FACTORS)


def learn_shape(tails: Tails, score: Floats, row_weight: Floats | None = None) -> Tails:
    """Tails of any shape, skewed or flat, if they describe residuals better than `tails` do.

    They are kept if they gain more than 3 nats in all, and log(n) / 2 nats for each component of
    another mean that gets weight, as the Bayesian information criterion has it.

    tails, score, row_weight: result and parameters of `learn_tails`. The components are chosen by
    at most 2,500 evenly spaced rows.
    """
    if score.size < SHAPE_FEWEST:
        return tails
    count = np.ones(score.size) if row_weight is None else row_weight
    some = _some(score.size, SHAPE_ROWS)
    shaped = _most_likely(score[some], count[some], float(count[some].sum()), *SHAPES)
    better = log_densities(shaped, score[some]) - log_densities(tails, score[some])
    used = shaped.weight > LEAST_WEIGHT
    n_more, gain = int(used[FACTORS.size :].sum()), float(count[some] @ better)
    if gain <= LEAST_GAIN + 0.5 * n_more * np.log(count[some].sum()):
        return tails
    if some.size == score.size:
        return shaped
    used[: FACTORS.size] = True
    some = _some(score.size, CALIBRATION_ROWS)
    parts = (part[used] for part in SHAPES)
    return _most_likely(score[some], count[some], float(count.sum()), *parts)


def _shapes() -> tuple[Floats, Floats]:
    """Factors and offsets of all components: those of mean 0, a grid of narrow ones, wide ones."""
    narrow, wide = FACTORS[(FACTORS >= 0.125) & (FACTORS <= 1.0)], FACTORS[FACTORS > 1.0]
    places = np.append(np.arange(0.25, 1.51, 0.25), (2.0, 2.5, 3.0, 4.0))
    factor, offset = np.meshgrid(narrow, np.concatenate([-places, [0.0], places]))
    return (
        np.concatenate([FACTORS, factor.ravel(), wide, wide]),
        np.concatenate([0.0 * FACTORS, offset.ravel(), -wide, wide]),
    )


SHAPES = _shapes()


def _some(n: int, most: int) -> npt.NDArray[np.int64]:
    """At most so many of n rows, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)


def _most_likely(
    score: Floats, count: Floats, total: float, factor: Floats, offset: Floats
) -> Tails:
    """The weights of highest density, with the pseudo-observation; the mean is then moved to 0.

    total: number of residuals that the pseudo-observation is weighed against.
    """
    found = stack(_each_density(factor, offset, score), count, MOST_STEPS)
    unseen = np.zeros(factor.size)
    unseen[: FACTORS.size] = UNSEEN / UNSEEN.sum()
    weight = (total * found + unseen) / (total + 1.0)
    return Tails(weight, factor, offset - weight @ offset)


def _each_density(factor: Floats, offset: Floats, score: Floats) -> Floats:
    """Log density of each component at each residual, (J, n)."""
    with np.errstate(over="ignore"):
        square = np.square((score - offset[:, None]) / factor[:, None])
        return np.asarray(-0.5 * (LOG_2PI + square) - np.log(factor)[:, None])


def log_densities(tails: Tails, score: Floats) -> Floats:
    """Log density of standardised residuals, (n,)."""
    used = tails.weight > 0
    factor, offset, share = tails.factor[used], tails.offset[used], np.log(tails.weight[used])
    blocks = np.array_split(score, -(-score.size // BLOCK_ROWS) or 1)
    each = (_each_density(factor, offset, block) + share[:, None] for block in blocks)
    return np.concatenate([scipy.special.logsumexp(block, axis=0) for block in each])


def spread_out(tails: Tails, mean: Floats, var: Floats) -> PredictiveDistribution:
    """Predictive distribution with these tails around mean (m,), for predicted variance (m,)."""
    used = tails.weight > 0
    weight, factor, offset = (
        like(part[used], mean) for part in (tails.weight, tails.factor, tails.offset)
    )
    means = np.broadcast_to(mean, (factor.size, mean.size))
    if tails.offset[used].any():
        means = means + offset[:, None] * np.sqrt(var)
    return PredictiveDistribution(weight, means, np.square(factor)[:, None] * var)


def spread_kinds(
    kinds: Sequence[Tails], mean: Floats, var: Floats, kind: npt.NDArray[np.int64]
) -> PredictiveDistribution:
    """Predictive distribution with the tails of each row's kind, (m,)."""
    used = np.unique(to_host(kind)).tolist() or [0]
    if len(used) == 1:
        return spread_out(kinds[used[0]], mean, var)
    parts = [spread_out(kinds[k], mean, var) for k in used]
    variances = np.vstack([part.variances for part in parts])
    if any(kinds[k].offset.any() for k in used):
        means = np.vstack([part.means for part in parts])
    else:
        means = np.broadcast_to(mean, variances.shape)
    return PredictiveDistribution(
        np.vstack([p.weights[:, None] * (kind == k) for p, k in zip(parts, used, strict=True)]),
        means,
        variances,
    )


def second_moment(tails: Tails) -> float:
    """Weighted mean of the squared factors."""
    return float(tails.weight @ np.square(tails.factor))


def offset_variance(tails: Tails) -> float:
    """Variance of the components' means, in predicted variances."""
    return float(tails.weight @ np.square(tails.offset))


def first_moment(tails: Tails) -> float:
    """Weighted mean of the factors."""
    return float(tails.weight @ tails.factor)
