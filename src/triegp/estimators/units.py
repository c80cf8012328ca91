"""The predictive distribution of one target, in the units of y: everything predicted comes from it.

The model itself works on standardised targets. Units are put on last, so that no square of a scale
appears where it need not: targets of size 1e-300 or 1e300 are predicted like any others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.models.contract import Data, Fitted
from triegp.models.distribution import Mixture, log_density, mixture_mean, mixture_var, quantiles

Floats = npt.NDArray[np.float64]
BLOCK_ROWS = 1 << 16  # rows predicted at a time


@dataclass(frozen=True, eq=False)
class Target:
    """One target of an estimator: the model that holds it, its column there, and its units.

    y = mean + scale * standardised y.
    """

    fitted: Fitted
    column: int
    mean: float
    scale: float


def predict_mean(target: Target, X: Data, *, latent: bool) -> Floats:
    """Mean, (m,); no work for variances."""
    parts = [mixture_mean(part) for _, part in _blocks(target, X, latent=latent, var=False)]
    return target.mean + target.scale * np.concatenate(parts)


def predict_moments(target: Target, X: Data, *, latent: bool) -> tuple[Floats, Floats]:
    """Mean and standard deviation, (m,) each."""
    parts = [_moments(target, part) for _, part in _blocks(target, X, latent=latent)]
    mean, std = (np.concatenate(column) for column in zip(*parts, strict=True))
    return mean, std


def predict_covariance(target: Target, X: Data, *, latent: bool) -> tuple[Floats, Floats]:
    """Mean (m,) and covariance (m, m)."""
    mean, cov = target.fitted.predict_covariance(X, target.column, latent=latent)
    return target.mean + target.scale * mean, squared_scale(target) * cov


def predict_quantiles(target: Target, X: Data, levels: Floats, *, latent: bool) -> Floats:
    """Quantiles, (m, len(levels))."""
    parts = [quantiles(part, levels) for _, part in _blocks(target, X, latent=latent)]
    return target.mean + target.scale * np.concatenate(parts)


def predict_log_density(target: Target, X: Data, y: Floats) -> Floats:
    """Log density of new observations y (m,), (m,)."""
    standard = (y - target.mean) / target.scale
    parts = [
        _log_density(target, part, standard[rows])
        for rows, part in _blocks(target, X, latent=False)
    ]
    return np.concatenate(parts)


def predict_units(target: Target, X: Data, *, latent: bool) -> Mixture:
    """The distribution itself, as a mixture in the units of y."""
    mixture = target.fitted.predict_mixture(X, target.column, var=True, latent=latent)
    mean = target.mean + target.scale * mixture.mean
    return Mixture(mixture.weight, mean, squared_scale(target) * mixture.var)


def draw(
    target: Target, X: Data, n_samples: int, rng: np.random.Generator, *, latent: bool
) -> Floats:
    """Joint samples, (m, n_samples)."""
    out = target.fitted.draw(X, target.column, n_samples, rng, latent=latent)
    return np.asarray(target.mean + target.scale * out)


def loo_moments(target: Target) -> tuple[Floats, Floats]:
    """Leave-one-out mean and deviation of the training targets, (n,) each."""
    return _moments(target, target.fitted.loo_mixture(target.column))


def loo_log_density(target: Target) -> Floats:
    """Leave-one-out log density of the training targets, (n,)."""
    y, _ = target.fitted.observed(target.column)
    return _log_density(target, target.fitted.loo_mixture(target.column), y)


def log_marginal_likelihood(target: Target) -> float:
    """Of the training targets."""
    y, weight = target.fitted.observed(target.column)
    count = y.size if weight is None else float(weight.sum())
    return target.fitted.log_evidence(target.column) - count * float(np.log(target.scale))


def squared_scale(target: Target) -> float:
    """Unit of a variance; refused where float64 does not hold it."""
    with np.errstate(over="ignore", under="ignore"):
        unit = float(np.square(target.scale))
    if not np.finfo(np.float64).tiny <= unit <= 1e300:
        raise ValueError(
            "variances of y must lie within float64, got a standard deviation of "
            f"{target.scale:.3g}: rescale y, or ask for return_std"
        )
    return unit


def _blocks(
    target: Target, X: Data, *, latent: bool, var: bool = True
) -> Iterator[tuple[slice, Mixture]]:
    """Mixtures block by block of the rows: what they take is O(K) a block, not O(K m)."""
    for start in range(0, max(X.shape[0], 1), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        yield rows, target.fitted.predict_mixture(X[rows], target.column, var=var, latent=latent)


def _moments(target: Target, mixture: Mixture) -> tuple[Floats, Floats]:
    mean = target.mean + target.scale * mixture_mean(mixture)
    return mean, target.scale * np.sqrt(mixture_var(mixture))


def _log_density(target: Target, mixture: Mixture, standard: Floats) -> Floats:
    return log_density(mixture, standard) - float(np.log(target.scale))
