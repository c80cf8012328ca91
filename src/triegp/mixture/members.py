"""Trained trees and their mixture: predictions, leave-one-out, samples, adding rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.mixture.calibration import Calibration, temper
from triegp.mixture.optimise import TrainedOrder
from triegp.models.distribution import PredictiveDistribution
from triegp.tree.joint import Joint, dense_covariance, draw_samples, joint_mean, joint_posterior
from triegp.tree.order import BitOrder
from triegp.tree.posterior import Posterior, insert_sorted, leave_one_out, log_evidence, predict
from triegp.tree.rows import Rows, add_noise, check_range
from triegp.tree.trie import insert_rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Member:
    """One trained tree, with one posterior per target."""

    encoder: BitEncoder
    trained: TrainedOrder
    posteriors: tuple[Posterior, ...]

    @property
    def order(self) -> BitOrder:
        """Bits, weights and scale."""
        return self.trained.order


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Members, and one calibration of their mixture per target; implements `Fitted`.

    All members are conditioned on the same rows.
    """

    members: tuple[Member, ...]
    calibrations: tuple[Calibration, ...]

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return len(self.calibrations)

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.members[0].posteriors[0].n_rows

    def read(self, X: Array, *, var: bool) -> list[Codes]:
        """Codes of rows on every member's grid, in one pass."""
        engine = self.members[0].posteriors[0].trie.engine
        return encode_grids([member.encoder for member in self.members], X, engine)

    def predict(
        self, points: list[Codes], column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """Predictive distribution at m new rows; variances are 0 without `var`. O(K m)."""
        means, variances = [], []
        for member, own in zip(self.members, points, strict=True):
            posterior = member.posteriors[column]
            part = predict(posterior, own, var=var)
            noise = 0.0 if latent else posterior.new_noise
            means.append(part.mean)
            variances.append(np.zeros_like(part.mean) if part.var is None else part.var + noise)
        mixed = self.calibrations[column]
        return temper(mixed, np.stack(means), np.stack(variances), latent=latent)

    def predict_covariance(
        self, points: list[Codes], column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the mixture, by the law of total covariance.

        O(K (n + m^2)).
        """
        joints, noise = self._joints(points, column)
        mixed = self.calibrations[column]
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
        if not latent:  # an outlier is independent of everything else
            inlier = 1.0 - mixed.outlier
            own = inlier * np.diag(cov) + mixed.outlier * (within + mixed.outlier_var)
            cov *= inlier**2
            np.fill_diagonal(cov, own)
        return mean, cov

    def sample(
        self,
        points: list[Codes],
        column: int,
        n_samples: int,
        rng: np.random.Generator,
        *,
        latent: bool,
    ) -> Floats:
        """Joint samples, (m, n_samples). O(K (n + m) + m n_samples).

        Each sample comes from one member, drawn by weight. Outliers are drawn independently for
        each row.
        """
        joints, noise = self._joints(points, column)
        mixed = self.calibrations[column]
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
        if not latent and mixed.outlier:
            var = self.predict(points, column, var=True, latent=False).variances[-1]
            row, sample = np.nonzero(rng.random(out.shape) < mixed.outlier)
            out[row, sample] = mean[row] + np.sqrt(var[row]) * rng.standard_normal(row.size)
        return out

    def leave_one_out(self, column: int) -> PredictiveDistribution:
        """Prediction of each training target given all other rows; noise included. O(K n)."""
        return temper(self.calibrations[column], *loo_members(self.members, column))

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,) and their sample weights (n,), None if all are 1."""
        rows = self.members[0].posteriors[column].rows
        return rows.y, rows.weight

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets, averaged over the members by weight."""
        values = np.array([log_evidence(member.posteriors[column]) for member in self.members])
        return float(self.calibrations[column].weight @ values)

    def check(self, rows: Rows) -> None:
        """Raise ValueError if these rows cannot be added. O(K k) for k rows."""
        check_range(rows)
        for j in range(rows.n_targets):
            for member in self.members:
                add_noise(rows.target(j), member.order, member.posteriors[0].noise)

    def insert(self, rows: Rows) -> Ensemble:
        """The mixture conditioned on more rows, with the same orders, weights and calibration.

        O(n + k log k) per member for k rows.
        """
        targets = [replace(rows.target(j), X=None) for j in range(rows.n_targets)]
        pairs = zip(self.members, self.read(rows.features, var=False), strict=True)
        members = tuple(_insert(member, codes, targets) for member, codes in pairs)
        return replace(self, members=members)

    def _joints(self, codes: list[Codes], column: int) -> tuple[list[Joint], Floats]:
        """Joint distributions of the members, and their noise."""
        posteriors = [member.posteriors[column] for member in self.members]
        pairs = zip(posteriors, codes, strict=True)
        joints = [joint_posterior(posterior, own) for posterior, own in pairs]
        return joints, np.array([posterior.new_noise for posterior in posteriors])


def loo_members(members: tuple[Member, ...], target: int) -> tuple[Floats, Floats]:
    """Leave-one-out means and variances of all rows, (K, n) each, noise included. O(K n)."""
    parts = [leave_one_out(member.posteriors[target]) for member in members]
    noise = [member.posteriors[target].rows.total_noise for member in members]  # (n,) or (1,) each
    mean = np.stack([part.mean for part in parts])
    return mean, np.stack([np.asarray(part.var) for part in parts]) + np.stack(noise)


def _insert(member: Member, codes: Codes, targets: list[Rows]) -> Member:
    """A member conditioned on more rows; all targets still share one trie."""
    first = member.posteriors[0]
    trie, keys = insert_rows(first.trie, first.keys, codes)
    pairs = zip(member.posteriors, targets, strict=True)
    grown = tuple(insert_sorted(posterior, trie, keys, rows) for posterior, rows in pairs)
    return replace(member, posteriors=grown)
