"""Trained trees and their mixture: what an ensemble says of new rows, and how rows are added."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.encoding.encoder import BitEncoder
from triegp.mixture.calibration import Calibration, temper
from triegp.mixture.optimise import Fit
from triegp.models.contract import Data
from triegp.models.distribution import Mixture
from triegp.models.rows import Rows
from triegp.tree.joint import Joint, dense_covariance, draw_samples, joint_mean, joint_posterior
from triegp.tree.observations import measure, observe
from triegp.tree.order import BitOrder
from triegp.tree.posterior import Posterior, insert, leave_one_out, log_evidence, predict

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Member:
    """One trained tree, with the posterior of each target."""

    encoder: BitEncoder
    fit: Fit
    posteriors: tuple[Posterior, ...]

    @property
    def order(self) -> BitOrder:
        """Bits, weights and scale."""
        return self.fit.order


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Members, and for each target how they are mixed; a `Fitted`.

    Its methods are the functions of this module, which say what each does.
    """

    members: tuple[Member, ...]
    calibrations: tuple[Calibration, ...]

    @property
    def n_targets(self) -> int:
        """How many targets it predicts."""
        return len(self.calibrations)

    @property
    def n_rows(self) -> int:
        """How many rows every member has seen."""
        return self.members[0].posteriors[0].n_rows

    def predict_mixture(self, X: Data, column: int, *, var: bool, latent: bool) -> Mixture:
        """Prediction at each of the rows."""
        return predict_mixture(self, X, column, var=var, latent=latent)

    def predict_covariance(self, X: Data, column: int, *, latent: bool) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the rows together."""
        return predict_covariance(self, X, column, latent=latent)

    def draw(
        self, X: Data, column: int, n_samples: int, rng: np.random.Generator, *, latent: bool
    ) -> Floats:
        """Samples of the rows together, (m, n_samples)."""
        return draw(self, X, column, n_samples, rng, latent=latent)

    def loo_mixture(self, column: int) -> Mixture:
        """Prediction of each training target given all other rows."""
        return loo_mixture(self, column)

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,) and their sample weights (n,), None where all are 1."""
        rows = self.members[0].posteriors[column].rows
        return rows.y, rows.weight

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets, averaged over the members by weight."""
        values = np.array([log_evidence(member.posteriors[column]) for member in self.members])
        return float(self.calibrations[column].weight @ values)

    def check(self, X: Data, rows: Rows) -> None:
        """Refuse rows that could not be added."""
        check_rows(self, rows)

    def grow(self, X: Data, rows: Rows) -> Ensemble:
        """The same ensemble with more rows."""
        return grow(self, X, rows)


def predict_mixture(
    ensemble: Ensemble, X: Data, target: int, *, var: bool, latent: bool
) -> Mixture:
    """Predictions at m new rows as a mixture, in standardised units; var is 0 if not wanted.

    X as `real_array` gives it. O(K m).
    """
    means, variances = [], []
    for member in ensemble.members:
        posterior = member.posteriors[target]
        part = predict(posterior, member.encoder.encode_array(X), var=var)
        noise = 0.0 if latent else posterior.new_noise
        means.append(part.mean)
        variances.append(np.zeros_like(part.mean) if part.var is None else part.var + noise)
    mixed = ensemble.calibrations[target]
    return temper(mixed, np.stack(means), np.stack(variances), latent=latent)


def predict_covariance(
    ensemble: Ensemble, X: Data, target: int, *, latent: bool
) -> tuple[Floats, Floats]:
    """Mean (m,) and covariance (m, m): the members' own, and that of their means.

    In standardised units; O(K (n + m^2)).
    """
    joints, noise = _joints(ensemble, X, target)
    mixed = ensemble.calibrations[target]
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
    return mean, cov


def draw(
    ensemble: Ensemble,
    X: Data,
    target: int,
    n_samples: int,
    rng: np.random.Generator,
    *,
    latent: bool,
) -> Floats:
    """Joint samples, (m, n_samples): each from one member, drawn by weight; strays by the row.

    In standardised units; O(K (n + m) + m n_samples).
    """
    joints, noise = _joints(ensemble, X, target)
    mixed = ensemble.calibrations[target]
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
        var = predict_mixture(ensemble, X, target, var=True, latent=False).var[-1]
        row, sample = np.nonzero(rng.random(out.shape) < mixed.stray)
        out[row, sample] = mean[row] + np.sqrt(var[row]) * rng.standard_normal(row.size)
    return out


def loo_members(members: tuple[Member, ...], target: int) -> tuple[Floats, Floats]:
    """Leave-one-out means and variances of all rows, (K, n) each, noise included. O(K n)."""
    parts = [leave_one_out(member.posteriors[target]) for member in members]
    noise = [member.posteriors[target].rows.noise for member in members]  # (n,) or (1,) each
    mean = np.stack([part.mean for part in parts])
    return mean, np.stack([np.asarray(part.var) for part in parts]) + np.stack(noise)


def loo_mixture(ensemble: Ensemble, target: int) -> Mixture:
    """Leave-one-out predictions of all training rows, as a mixture; noise included. O(K n)."""
    return temper(ensemble.calibrations[target], *loo_members(ensemble.members, target))


def check_rows(ensemble: Ensemble, rows: Rows) -> None:
    """Refuse rows that could not be added; O(K k) for k rows."""
    for column in rows.columns():
        measured = measure(n_rows=rows.targets.shape[0], **column)
        for member in ensemble.members:
            observe(member.order, measured, member.posteriors[0].noise)


def grow(ensemble: Ensemble, X: Data, rows: Rows) -> Ensemble:
    """Add rows to all members, exactly; orders, weights and mixture stay.

    X as `real_array` gives it. O(n + k log k) a member for k rows.
    """
    members = []
    for member in ensemble.members:
        codes = member.encoder.encode_array(X)
        parts = zip(member.posteriors, rows.columns(), strict=True)
        grown = [insert(posterior, codes, **column) for posterior, column in parts]
        first = grown[0]  # all targets go on sharing one trie
        shared = tuple(replace(p, trie=first.trie, keys=first.keys) for p in grown)
        members.append(replace(member, posteriors=shared))
    return replace(ensemble, members=tuple(members))


def _joints(ensemble: Ensemble, X: Data, target: int) -> tuple[list[Joint], Floats]:
    """Joint distributions of the members, and their noise."""
    posteriors = [member.posteriors[target] for member in ensemble.members]
    joints = [
        joint_posterior(posterior, member.encoder.encode_array(X))
        for member, posterior in zip(ensemble.members, posteriors, strict=True)
    ]
    return joints, np.array([posterior.new_noise for posterior in posteriors])
