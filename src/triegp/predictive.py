"""The predictive distribution of one target, in the units of y: everything predicted comes from it.

The model itself works on standardised targets. Units are put on last, so that no square of a scale
appears where it need not: targets of size 1e-300 or 1e300 are predicted like any others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.ensemble import Ensemble, loo_mixture, predict_mixture
from triegp.joint import Joint, dense_covariance, draw_samples, joint_mean, joint_posterior
from triegp.mixture import Mixture, log_density, mixture_mean, mixture_var, quantiles
from triegp.posterior import log_evidence

Floats = npt.NDArray[np.float64]
Data = npt.NDArray[Any]  # what `real_array` gives
BLOCK_ROWS = 1 << 16  # rows predicted at a time


@dataclass(frozen=True, eq=False)
class Target:
    """One target of a fitted model: its ensemble, its column there, and its units.

    y = mean + scale * standardised y.
    """

    ensemble: Ensemble
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
    """Mean (m,) and covariance (m, m): the members' own, and that of their means."""
    joints, noise = _joints(target, X)
    mixed = target.ensemble.calibrations[target.column]
    means = np.stack([joint_mean(joint) for joint in joints])
    mean = mixed.weight @ means
    cov, within = np.zeros((mean.size, mean.size)), np.zeros(mean.size)
    for weight, eps, joint, own in zip(mixed.weight, noise, joints, means, strict=True):
        apart = mixed.shrink * (own - mean)
        part = mixed.scale * dense_covariance(joint)
        if not latent:
            part[np.diag_indices_from(part)] += mixed.scale * eps
        cov += weight * (part + np.outer(apart, apart))
        within += weight * np.diag(part)
    if not latent:  # a stray is independent of everything else
        own = (1.0 - mixed.stray) * np.diag(cov) + mixed.stray * (within + mixed.stray_var)
        cov *= (1.0 - mixed.stray) ** 2
        np.fill_diagonal(cov, own)
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
    mixture = predict_mixture(target.ensemble, X, target.column, var=True, latent=latent)
    mean = target.mean + target.scale * mixture.mean
    return Mixture(mixture.weight, mean, squared_scale(target) * mixture.var)


def draw(
    target: Target, X: Data, n_samples: int, rng: np.random.Generator, *, latent: bool
) -> Floats:
    """Joint samples, (m, n_samples): each from one member, drawn by weight; strays by the row."""
    joints, noise = _joints(target, X)
    mixed = target.ensemble.calibrations[target.column]
    means = np.stack([joint_mean(joint) for joint in joints])
    mean = mixed.weight @ means
    chosen = rng.choice(noise.size, size=n_samples, p=mixed.weight)
    out = np.empty((mean.size, n_samples))
    for k, (joint, eps, own) in enumerate(zip(joints, noise, means, strict=True)):
        mine = np.flatnonzero(chosen == k)
        if not mine.size:
            continue
        draws = draw_samples(joint, mine.size, rng) - own[:, None]
        if not latent:
            draws += np.sqrt(eps) * rng.standard_normal(draws.shape)
        centre = mean + mixed.shrink * (own - mean)
        out[:, mine] = centre[:, None] + np.sqrt(mixed.scale) * draws
    if not latent and mixed.stray:
        var = predict_mixture(target.ensemble, X, target.column, var=True, latent=False).var[-1]
        row, sample = np.nonzero(rng.random(out.shape) < mixed.stray)
        out[row, sample] = mean[row] + np.sqrt(var[row]) * rng.standard_normal(row.size)
    return np.asarray(target.mean + target.scale * out)


def loo_moments(target: Target) -> tuple[Floats, Floats]:
    """Leave-one-out mean and deviation of the training targets, (n,) each."""
    return _moments(target, loo_mixture(target.ensemble, target.column))


def loo_log_density(target: Target) -> Floats:
    """Leave-one-out log density of the training targets, (n,)."""
    y = target.ensemble.members[0].posteriors[target.column].rows.y
    return _log_density(target, loo_mixture(target.ensemble, target.column), y)


def log_marginal_likelihood(target: Target) -> float:
    """Of the training targets, averaged over the members by weight."""
    members = target.ensemble.members
    values = np.array([log_evidence(member.posteriors[target.column]) for member in members])
    posterior = members[0].posteriors[target.column]
    weight = posterior.rows.weight
    count = posterior.n_rows if weight is None else float(weight.sum())
    mixed = target.ensemble.calibrations[target.column]
    return float(mixed.weight @ values) - count * float(np.log(target.scale))


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
        yield (
            rows,
            predict_mixture(target.ensemble, X[rows], target.column, var=var, latent=latent),
        )


def _moments(target: Target, mixture: Mixture) -> tuple[Floats, Floats]:
    mean = target.mean + target.scale * mixture_mean(mixture)
    return mean, target.scale * np.sqrt(mixture_var(mixture))


def _log_density(target: Target, mixture: Mixture, standard: Floats) -> Floats:
    return log_density(mixture, standard) - float(np.log(target.scale))


def _joints(target: Target, X: Data) -> tuple[list[Joint], Floats]:
    """Joint distributions of the members, and their noise."""
    members = target.ensemble.members
    posteriors = [member.posteriors[target.column] for member in members]
    joints = [
        joint_posterior(posterior, member.encoder.encode_array(X))
        for member, posterior in zip(members, posteriors, strict=True)
    ]
    return joints, np.array([posterior.new_noise for posterior in posteriors])
