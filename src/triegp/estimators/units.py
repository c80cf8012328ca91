"""Predictions of one target in the units of y.

Models work on standardised targets. Units are applied last, so that the square of the scale is
computed only if the result is a variance. So targets of size 1e-300 or 1e300 can be predicted, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.models.distribution import PredictiveDistribution, log_density, quantiles
from triegp.models.interface import Array, Fitted

Floats = npt.NDArray[np.float64]
BLOCK_ROWS = 1 << 16  # rows predicted at a time


@dataclass(frozen=True, eq=False)
class Target:
    """One target of an estimator: its model, its column in that model, and its units.

    y = mean + scale * standardised y.
    """

    fitted: Fitted
    column: int
    mean: float
    scale: float


def predict_mean(target: Target, X: Array, *, latent: bool) -> Floats:
    """Mean, (m,); variances are not computed."""
    parts = [part.mean() for _, part in _blocks(target, X, latent=latent, var=False)]
    return target.mean + target.scale * np.concatenate(parts)


def predict_moments(target: Target, X: Array, *, latent: bool) -> tuple[Floats, Floats]:
    """Mean and standard deviation, (m,) each."""
    parts = [_moments(target, part) for _, part in _blocks(target, X, latent=latent)]
    mean, std = (np.concatenate(column) for column in zip(*parts, strict=True))
    return mean, std


def predict_covariance(target: Target, X: Array, *, latent: bool) -> tuple[Floats, Floats]:
    """Mean (m,) and covariance (m, m)."""
    mean, cov = target.fitted.predict_covariance(X, target.column, latent=latent)
    return target.mean + target.scale * mean, squared_scale(target) * cov


def predict_quantiles(target: Target, X: Array, q: Floats, *, latent: bool) -> Floats:
    """Quantiles, (m, len(q))."""
    parts = [quantiles(part, q) for _, part in _blocks(target, X, latent=latent)]
    return target.mean + target.scale * np.concatenate(parts)


def predict_log_density(target: Target, X: Array, y: Floats) -> Floats:
    """Log density of new observations y (m,), (m,)."""
    standard = (y - target.mean) / target.scale
    parts = [
        _log_density(target, part, standard[rows])
        for rows, part in _blocks(target, X, latent=False)
    ]
    return np.concatenate(parts)


def predict_distribution(target: Target, X: Array, *, latent: bool) -> PredictiveDistribution:
    """Predictive distribution, in the units of y."""
    found = target.fitted.predict(X, target.column, var=True, latent=latent)
    means = target.mean + target.scale * found.means
    return PredictiveDistribution(found.weights, means, squared_scale(target) * found.variances)


def sample(
    target: Target, X: Array, n_samples: int, rng: np.random.Generator, *, latent: bool
) -> Floats:
    """Joint samples, (m, n_samples)."""
    out = target.fitted.sample(X, target.column, n_samples, rng, latent=latent)
    return np.asarray(target.mean + target.scale * out)


def loo_moments(target: Target) -> tuple[Floats, Floats]:
    """Leave-one-out mean and standard deviation of the training targets, (n,) each."""
    return _moments(target, target.fitted.leave_one_out(target.column))


def loo_log_density(target: Target) -> Floats:
    """Leave-one-out log density of the training targets, (n,)."""
    y, _ = target.fitted.observed(target.column)
    return _log_density(target, target.fitted.leave_one_out(target.column), y)


def log_marginal_likelihood(target: Target) -> float:
    """Log marginal likelihood of the training targets."""
    y, weight = target.fitted.observed(target.column)
    count = y.size if weight is None else float(weight.sum())
    return target.fitted.log_evidence(target.column) - count * float(np.log(target.scale))


def squared_scale(target: Target) -> float:
    """Square of the scale; raises ValueError if it is outside the range of float64."""
    with np.errstate(over="ignore", under="ignore"):
        unit = float(np.square(target.scale))
    if not np.finfo(np.float64).tiny <= unit <= 1e300:
        raise ValueError(
            "variances of y must lie within float64, got a standard deviation of "
            f"{target.scale:.3g}: rescale y, or use return_std=True"
        )
    return unit


def _blocks(
    target: Target, X: Array, *, latent: bool, var: bool = True
) -> Iterator[tuple[slice, PredictiveDistribution]]:
    """Predictions in blocks of 65,536 rows, so that memory for components is not O(K m)."""
    for start in range(0, max(X.shape[0], 1), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        yield rows, target.fitted.predict(X[rows], target.column, var=var, latent=latent)


def _moments(target: Target, mixture: PredictiveDistribution) -> tuple[Floats, Floats]:
    mean = target.mean + target.scale * mixture.mean()
    return mean, target.scale * mixture.std()


def _log_density(target: Target, mixture: PredictiveDistribution, standard: Floats) -> Floats:
    return log_density(mixture, standard) - float(np.log(target.scale))
