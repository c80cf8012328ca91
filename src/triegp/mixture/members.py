"""Trained trees and their mixture: predictions, leave-one-out, samples, adding rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.devices import like, to_host
from triegp.encoding.codes import Codes, select_codes
from triegp.encoding.grids import Grids, encode_grids, prepare_grids
from triegp.encoding.quantiser import Quantiser
from triegp.engines import (
    CpuEngine,
    Engine,
    PlainEngine,
    computed_once,
    mix_means,
    mix_moments,
    return_memory,
    threads_of,
)
from triegp.mixture.calibration import Calibration, temper
from triegp.mixture.cells import add_rows, leave_out_rows
from triegp.mixture.draws import MemberDraws, evaluate_member
from triegp.mixture.optimise import TrainedOrder
from triegp.models.distribution import PredictiveDistribution, average, fetch_distribution
from triegp.models.draws import Stream, choose_by_weight, seeds_for
from triegp.models.folds import find_folds, held_rows
from triegp.models.interface import Residuals
from triegp.models.repeats import Observations, add_others, find_others
from triegp.tree.joint import (
    Joint,
    dense_covariance,
    draw_samples,
    group_covariance,
    joint_mean,
    joint_posterior,
)
from triegp.tree.order import BitOrder
from triegp.tree.posterior import (
    Posterior,
    insert_sorted,
    leave_one_out,
    lend_posterior,
    log_evidence,
    predict,
    reweigh_posterior,
    run_variance,
)
from triegp.tree.rows import Rows, add_noise, check_range, join_rows, move_rows
from triegp.tree.trie import insert_rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MIXED_ROWS = 1 << 14  # rows whose mixture is computed at a time
FEWEST_APIECE = 1 << 10  # new rows for which members are asked in parallel
DEVICE_ROWS = 1 << 22  # the same on a device


@dataclass(frozen=True, eq=False)
class Member:
    """One trained tree, with one posterior per target."""

    encoder: Quantiser
    trained: TrainedOrder
    posteriors: tuple[Posterior, ...]

    @property
    def order(self) -> BitOrder:
        """Bits, weights and scale."""
        return self.trained.order


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Members, and one calibration of their mixture per target; implements `Fitted`.

    All members are conditioned on the same rows. Their leaves are these rows, or cells that sum up
    more rows than a model can hold (`triegp.mixture.cells`). Their tries and messages lie in the
    memory of one engine. Predictions at new rows lie there, too; everything else that methods
    return lies on the host.

    Attributes
    ----------
    members : tuple of Member
        The trees.
    calibrations : tuple of Calibration
        One per target.
    apart : bool
        Whether the unbranched run above a row that was observed once counts as noise, so that a
        new observation at the same key has it anew (`docs/notation.md`). The paper counts it as
        function.
    averaged : bool
        Whether predictions are made around the average of the members' means, as calibration
        does. The paper predicts a mixture.
    held : Rows or None
        With cells, the rows of the model: some of those in the cells, with their features.
        Leave-one-out and residuals are about these. None if the leaves are the rows.
    n_summed : int
        Rows that are in the cells only; 0 without cells.
    """

    members: tuple[Member, ...]
    calibrations: tuple[Calibration, ...]
    apart: bool = False
    averaged: bool = False
    held: Rows | None = None
    n_summed: int = 0

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return len(self.calibrations)

    @property
    def n_rows(self) -> int:
        """Number of rows of the model."""
        return self.rows(0).n_rows

    def rows(self, column: int) -> Rows:
        """The rows of the model, with one target."""
        if self.held is not None:
            return self.held.target(column)
        return self.members[0].posteriors[column].rows

    @property
    def n_observations(self) -> float:
        """Number of observations in the likelihood of one target."""
        return self.members[0].posteriors[0].rows.count

    @property
    def goes_on(self) -> bool:
        """Whether the function goes on outside the training box: never, it ends at the border."""
        return False

    @property
    def engine(self) -> Engine:
        """The engine that computes predictions, and in whose memory the members lie."""
        return self.members[0].posteriors[0].trie.engine

    @property
    def on_host(self) -> bool:
        """Whether the members lie in the host's memory."""
        return self.engine.on_host

    @computed_once
    def grids(self) -> Grids:
        """The members' encoders, prepared for new rows."""
        return prepare_grids([member.encoder for member in self.members])

    @computed_once
    def alone(self) -> tuple[tuple[Posterior, ...], ...]:
        """The members' posteriors on one thread each, by target; they share all arrays."""
        self.hold_messages()
        single = CpuEngine(n_threads=1)
        return tuple(
            tuple(lend_posterior(member.posteriors[column], single) for member in self.members)
            for column in range(self.n_targets)
        )

    def hold_messages(self) -> None:
        """Compute the messages of all members, if they are not known; members in parallel."""
        posteriors = [part for member in self.members for part in member.posteriors]
        self.engine.each(lambda _, posterior: posterior.messages, posteriors)

    def read(self, X: Array, *, var: bool) -> list[Codes]:
        """Codes of rows on every member's grid, in one pass."""
        return encode_grids(self.grids, X, self.engine)

    def predict(
        self, points: list[Codes], column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """Predictive distribution at m new rows; variances are 0 without `var`. O(K m).

        Members are asked in parallel. Without `var` there is one component. If `averaged`, the
        distribution is one Gaussian around the average of the means. For an observation, its
        variance is that of the mixture. For the function, it is the error: by the ambiguity
        decomposition, the squared error of an average is the mean squared error of the members
        less the spread of their means, here at least a third of it.
        """
        if not self.on_host or isinstance(self.engine, PlainEngine):
            return self._predict_there(points, column, var=var, latent=latent)
        posteriors = self.alone[column]
        shape = (len(posteriors), points[0].n_rows)
        with_run = self.without_run(column, var=var, latent=latent)
        mean, total = np.empty(shape), np.zeros(shape)

        def ask(_: Engine, k: int) -> None:
            part = predict(posteriors[k], points[k], var=var, apart=self.apart, run=with_run)
            mean[k] = part.mean
            if part.var is not None:
                total[k] = part.var
            if part.run is not None:
                total[k] -= part.run

        engine = self.engine if shape[1] >= FEWEST_APIECE else CpuEngine(n_threads=1)
        engine.each(ask, range(len(posteriors)))
        return self.mix_members(column, mean, total, var=var, latent=latent)

    def without_run(self, column: int, *, var: bool, latent: bool) -> bool:
        """Whether the variances that are mixed are those of f without its run."""
        plain = self.averaged and self.calibrations[column].plain
        return var and latent and plain and self.apart

    def mix_members(
        self, column: int, mean: Floats, total: Floats, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """The distribution of `predict`, given what each member predicts, (K, m), on the host.

        total: variances of f, without its run if `without_run`; 0 without `var`.
        """
        mixed, n_new = self.calibrations[column], mean.shape[1]
        engine = self.engine if n_new >= FEWEST_APIECE else CpuEngine(n_threads=1)
        if not var and mixed.plain:
            centre = np.empty(n_new)
            mix_means(mixed.weight, mean, centre, 0, centre.size)
            return PredictiveDistribution(np.ones(1), centre[None], np.zeros((1, centre.size)))
        posteriors = [member.posteriors[column] for member in self.members]
        noise = np.array([[0.0 if latent else posterior.new_noise] for posterior in posteriors])
        if not (self.averaged and mixed.plain):
            return temper(mixed, mean, total + noise if var else total, latent=latent)
        centre, own, spread = mix(engine, mixed.weight, mean, total, noise)
        found = np.maximum(own - spread, own / 3.0) if latent else own + spread
        return PredictiveDistribution(np.ones(1), centre[None], found[None])

    def _predict_there(
        self, points: list[Codes], column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """`predict` by numpy, or in the memory of a device, one member after another."""
        posteriors = [member.posteriors[column] for member in self.members]
        parts = [
            predict(posterior, own, var=var, apart=self.apart, run=self.apart and latent)
            for posterior, own in zip(posteriors, points, strict=True)
        ]
        mean = np.stack([part.mean for part in parts])
        mixed = _held(self.calibrations[column], mean)
        one = like(np.ones(1), mean)
        if not var and mixed.plain:
            found = average(mixed.weight, mean)[None]
            return PredictiveDistribution(one, found, np.zeros_like(found))
        if not var:
            return temper(mixed, mean, np.zeros_like(mean), latent=latent)
        total = np.stack([part.variance for part in parts])
        if not latent:
            noise = like(np.array([posterior.new_noise for posterior in posteriors]), mean)
            total = total + noise[:, None]
        if not (self.averaged and mixed.plain):
            return temper(mixed, mean, total, latent=latent)
        if latent and self.apart:
            total = total - np.stack([part.run for part in parts])  # type: ignore[misc]
        centre, own = average(mixed.weight, mean), average(mixed.weight, total)
        spread = average(mixed.weight, np.square(mean - centre))
        error = np.maximum(own - spread, own / 3.0) if latent else own + spread
        return PredictiveDistribution(one, centre[None], error[None])

    def predict_covariance(
        self, points: list[Codes], column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the mixture, by the law of total covariance.

        O(K (n + m^2)).
        """
        joints, noise = self._joints(points, column)
        mixed = self.calibrations[column]
        means = np.stack([joint.mean for joint in joints])
        mean = mixed.weight @ means
        cov, within = np.zeros((mean.size, mean.size)), np.zeros(mean.size)
        for weight, eps, joint, own in zip(mixed.weight, noise, joints, means, strict=True):
            apart = mixed.shrink * (own - mean)
            part = mixed.scale * to_host(dense_covariance(joint.points))
            part[np.diag_indices_from(part)] += mixed.scale * joint.extra
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

    def group_covariance(
        self, points: list[Codes], column: int, groups: npt.NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Mean (m,) of f, and covariances within groups of rows, (g, q, q), on the host.

        As `predict_covariance` has them. O(K (n + m + g q^2)).
        """
        joints, _ = self._joints(points, column)
        mixed = self.calibrations[column]
        means = np.stack([joint.mean for joint in joints])
        mean = mixed.weight @ means
        same = groups[:, :, None] == groups[:, None, :]
        cov = np.zeros(same.shape)
        for weight, joint, own in zip(mixed.weight, joints, means, strict=True):
            apart = (mixed.shrink * (own - mean))[groups]
            part = group_covariance(joint.points, groups)
            part += np.where(same, joint.extra[groups][:, :, None], 0.0)
            cov += weight * (mixed.scale * part + apart[:, :, None] * apart[:, None, :])
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
        means = np.stack([joint.mean for joint in joints])
        mean = mixed.weight @ means
        chosen = rng.choice(noise.size, size=n_samples, p=mixed.weight)
        out = np.empty((mean.size, n_samples))
        for k, (joint, eps, own) in enumerate(zip(joints, noise, means, strict=True)):
            mine = np.flatnonzero(chosen == k)
            if not mine.size:
                continue
            draws = draw_samples(joint.points, mine.size, rng) - joint_mean(joint.points)[:, None]
            draws = to_host(draws)
            more = joint.extra + (0.0 if latent else eps)
            if more.any():
                draws += np.sqrt(more)[:, None] * rng.standard_normal(draws.shape)
            centre = mean + mixed.shrink * (own - mean)
            out[:, mine] = centre[:, None] + np.sqrt(mixed.scale) * draws
        if not latent and mixed.outlier:
            told = self.predict(points, column, var=True, latent=False)
            var = fetch_distribution(told).variances[-1]
            row, sample = np.nonzero(rng.random(out.shape) < mixed.outlier)
            out[row, sample] = mean[row] + np.sqrt(var[row]) * rng.standard_normal(row.size)
        return out

    @property
    def draw_rows(self) -> int:
        """Rows that `evaluate_draws` takes at a time: any number."""
        return 0

    def prepare_draws(self, column: int, seeds: npt.NDArray[np.uint64]) -> MemberDraws:
        """Functions with these seeds (k,); each comes from one member, drawn by weight. O(k)."""
        weight = self.calibrations[column].weight
        return MemberDraws(seeds, choose_by_weight(seeds, Stream.MEMBER, weight))

    def evaluate_draws(
        self,
        points: list[Codes],
        column: int,
        draws: MemberDraws,
        names: npt.NDArray[np.uint64],
    ) -> Floats:
        """Functions at m rows, (m, k), jointly distributed as `sample` is, on the host.

        names: hashes of the rows, (m,). O(m (D k + K)): members are asked that a function comes
        from.
        """
        mixed = self.calibrations[column]
        out = np.empty((points[0].n_rows, draws.seeds.size))
        for k in np.unique(draws.chosen).tolist():
            mine = np.flatnonzero(draws.chosen == k)
            seeds = draws.seeds[mine]
            given = (self.members[k].posteriors[column], points[k])
            own = seeds_for(seeds, Stream.TREE, k)
            out[:, mine] = evaluate_member(*given, seeds, own, names, apart=self.apart)
        if mixed.plain:
            return out
        pairs = zip(self.members, points, strict=True)
        each = [
            predict(one.posteriors[column], codes, var=False, apart=self.apart).mean
            for one, codes in pairs
        ]
        means = np.stack(each)
        mean, own_mean = average(mixed.weight, means), means[draws.chosen].T
        centre = mean[:, None] + mixed.shrink * (own_mean - mean[:, None])
        return np.asarray(centre + np.sqrt(mixed.scale) * (out - own_mean))

    def leave_one_out(
        self, column: int, observations: Observations | None = None
    ) -> PredictiveDistribution:
        """Prediction of each training target given all other rows; noise included. O(K n)."""
        left = self.leave_out(column, run=self.apart).fetch()
        weight = to_host(self.rows(column).weight)
        if weight is not None and not weight.all():
            unused = np.where(weight > 0, 0.0, np.nan)
            left = left._replace(mean=left.mean + unused, var=left.var + unused)
        if observations is None:
            return temper(self.calibrations[column], left.mean, left.observed_var())
        row = np.maximum(observations.index, 0)
        noise, run = (
            np.broadcast_to(part, left.mean.shape)[:, row] for part in (left.noise, left.run)
        )
        others = find_others(observations, column)
        mean, var = add_others(left.mean[:, row], left.var[:, row], run, noise, others)
        unused = np.where(observations.index >= 0, 0.0, np.nan)
        return temper(self.calibrations[column], mean + unused, var + noise + unused)

    @property
    def quick_residuals(self) -> bool:
        """Whether `residuals` is cheap compared with training; always."""
        return True

    def residuals(self, column: int) -> Residuals:
        """Predictions of the rows without the observations at these rows, on the host. O(K n)."""
        return self.mix_residuals(column, self.leave_out(column))

    def fold_residuals(self) -> tuple[Residuals, ...]:
        """Predictions of the rows of each fold without that fold, on the host. O(K n) per fold.

        With cells, of each row without itself: few of the rows in a cell are rows of the model.
        """
        if self.held is not None:
            return tuple(self.residuals(column) for column in range(self.n_targets))
        folds, fresh = find_folds(self.n_rows), np.zeros(self.n_rows, bool)
        fresh[held_rows(self.n_rows)] = True
        found = []
        for column in range(self.n_targets):
            mean, var = np.empty((2, self.n_rows))
            for fold in folds:
                left = leave_out_members(self.members, column, fold=fold)
                mean[fold], var[fold] = self._mix_left(column, left)
            found.append(replace(self._residuals(column, mean, var), fresh=fresh))
        return tuple(found)

    def leave_out(self, column: int, *, run: bool = False) -> LeftOut:
        """Leave out every row of the model, with all of its copies, in every member. O(K n)."""
        if self.held is not None:
            return leave_out_held(self.members, column, self.held)
        return leave_out_members(self.members, column, run=run)

    def mix_residuals(self, column: int, left: LeftOut) -> Residuals:
        """`residuals`, given what the members predict."""
        return self._residuals(column, *self._mix_left(column, left))

    def _residuals(self, column: int, mean: Floats, var: Floats) -> Residuals:
        y, weight = self.observed(column)
        return Residuals(np.arange(y.size), mean, var, y, weight, np.zeros(y.size, bool))

    def _mix_left(self, column: int, left: LeftOut) -> tuple[Floats, Floats]:
        """Mean and variance of observations at m rows that were left out, on the host."""
        mixed, n_rows = self.calibrations[column], left.mean.shape[1]
        if mixed.plain and self.on_host:
            mean, within, spread = mix(self.engine, mixed.weight, left.mean, left.var, left.noise)
            return mean, within + spread
        mixed = _held(mixed, left.mean)
        mean, var = np.empty((2, n_rows))
        step = MIXED_ROWS if self.on_host else DEVICE_ROWS
        for some in (slice(k, k + step) for k in range(0, n_rows, step)):
            found = temper(mixed, left.mean[:, some], left.observed_var(some))
            mean[some], var[some] = to_host(found.mean()), to_host(found.var())
        return mean, var

    def stand(self, *, apart: bool) -> Ensemble:
        """The model with the unbranched runs of rows observed once counted as noise, or not."""
        return replace(self, apart=apart)

    def noise(self, column: int) -> float:
        """Noise variance of a new observation, averaged over the members."""
        each = [member.posteriors[column].new_noise for member in self.members]
        return float(self.calibrations[column].weight @ np.array(each))

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,) and their sample weights (n,), None if all are 1."""
        rows = self.rows(column)
        return to_host(rows.y), to_host(rows.weight)

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets, averaged over the members by weight."""
        values = np.array([log_evidence(member.posteriors[column]) for member in self.members])
        return float(self.calibrations[column].weight @ values)

    def check(self, rows: Rows) -> None:
        """Raise ValueError if these rows cannot be added. O(K k) for k rows."""
        if self.held is not None and rows.known_noise is not None:
            raise ValueError(
                "known_noise is not possible here: the model holds sums of its rows, which have "
                "one noise; fit with a larger max_cells"
            )
        dtype = self.members[0].posteriors[0].dtype
        check_range(rows, dtype)
        for j in range(rows.n_targets):
            for member in self.members:
                noise = member.posteriors[0].noise
                add_noise(rows.target(j), member.order, noise, dtype=dtype)

    def insert(self, rows: Rows) -> Ensemble:
        """The mixture conditioned on more rows, with the same orders, weights and calibration.

        O(n + k log k) per member for k rows, in the memory of the members.
        """
        own = [replace(rows.target(j), X=None) for j in range(rows.n_targets)]
        targets = [move_rows(one, self.engine.hold) for one in own]
        pairs = zip(self.members, self.read(rows.features, var=False), strict=True)
        if self.held is None:
            return replace(
                self, members=tuple(_insert(one, codes, targets) for one, codes in pairs)
            )
        grown = replace(self, held=join_rows([self.held, rows]))
        used = np.arange(rows.n_rows) if rows.weight is None else np.flatnonzero(rows.weight)
        if not used.size:
            return grown
        some = [one.select(used) for one in targets]
        members = (_add(one, select_codes(codes, used), some) for one, codes in pairs)
        return replace(grown, members=tuple(members))

    def _joints(self, codes: list[Codes], column: int) -> tuple[list[_JointMember], Floats]:
        """Joint distributions of the members, and their noise."""
        posteriors = [member.posteriors[column] for member in self.members]
        joints = []
        for posterior, own in zip(posteriors, codes, strict=True):
            points = joint_posterior(posterior, own)
            mean, extra = joint_mean(points), np.zeros(points.n_points)
            if self.apart:
                # Marginally as `predict`: the run of a training row is drawn anew at each point.
                together, alone = predict(posterior, own), predict(posterior, own, apart=True)
                mean, extra = alone.mean, np.maximum(alone.variance - together.variance, 0.0)
            joints.append(_JointMember(points, to_host(mean), to_host(extra)))
        return joints, np.array([posterior.new_noise for posterior in posteriors])


class _JointMember(NamedTuple):
    """Joint distribution of f at points, its mean (m,) and further independent variance (m,).

    mean and extra are on the host.
    """

    points: Joint
    mean: Floats
    extra: Floats


class LeftOut(NamedTuple):
    """Each member's f at each row given all other rows, (K, n) each, in the members' memory.

    run: variance of the row's unbranched run, or 0. noise: (K, n) or (K, 1), of an observation.
    """

    mean: Floats
    var: Floats
    run: Floats
    noise: Floats

    def observed_var(self, rows: slice = slice(None)) -> Floats:
        """Variance of an observation at some of the rows, (K, m)."""
        noise = self.noise if self.noise.shape[1] == 1 else self.noise[:, rows]
        return self.var[:, rows] + noise

    def fetch(self) -> LeftOut:
        """The same on the host."""
        return LeftOut(*map(to_host, self))


def mix(
    engine: Engine, weight: Floats, mean: Floats, var: Floats, noise: Floats
) -> tuple[Floats, Floats, Floats]:
    """Mean, mean variance and spread of the members' means at m rows; see `mix_moments`."""
    found = np.empty((3, mean.shape[1]))

    def mix_some(_: Engine, first: int) -> None:
        last = min(first + MIXED_ROWS, mean.shape[1])
        mix_moments(weight, mean, var, noise, *found, first, last)

    engine.each(mix_some, range(0, mean.shape[1], MIXED_ROWS))
    mixed, within, spread = found
    return mixed, within, spread


def leave_out_members(
    members: Sequence[Member], target: int, *, run: bool = False, fold: Ints | None = None
) -> LeftOut:
    """Leave out every row, with all of its copies, in every member. O(K n), on all cores.

    Without `run`, the variances of runs are (1, 1) zeros.

    fold: int64 (m,), rows that are left out together instead; the result is about these only. They
    get weight 0.

    Messages that a member does not hold are computed, and dropped as soon as it is done.
    """
    posteriors = [member.posteriors[target] for member in members]
    rows = posteriors[0].rows
    shape = (len(posteriors), rows.n_rows if fold is None else fold.size)
    mean, var = np.empty_like(rows.y, shape=shape), np.empty_like(rows.y, shape=shape)
    runs = np.empty_like(rows.y, shape=shape) if run else like(np.zeros((1, 1)), rows.y)
    some: Any = slice(None)
    if fold is not None:
        some = like(fold, rows.y)
        weight = np.ones_like(rows.y) if rows.weight is None else rows.weight.copy()
        weight[some] = 0.0

    def leave_out(alone: Engine, k: int) -> None:
        posterior = lend_posterior(posteriors[k], alone)
        if fold is not None:
            posterior = reweigh_posterior(posterior, weight)
        part = leave_one_out(posterior, whole=True)
        mean[k], var[k] = part.mean[some], part.variance[some]
        if run:
            runs[k] = np.minimum(run_variance(posterior)[some], var[k])
        del part, posterior
        return_memory()  # the heaps of threads keep what the messages took

    posteriors[0].trie.engine.each(leave_out, range(len(posteriors)))
    noise = np.stack([like(posterior.rows.total_noise, rows.y) for posterior in posteriors])
    return LeftOut(mean, var, runs, noise if noise.shape[1] == 1 else noise[:, some])


def average_left_out(members: Sequence[Member], target: int) -> LeftOut:
    """`leave_out_members` with var (1, n), the average over the members.

    It holds the variances of as many members as there are threads.
    """
    posterior = members[0].posteriors[target]
    rows, at_once = posterior.rows, threads_of(posterior.trie.engine)
    mean, total = np.empty_like(rows.y, shape=(len(members), rows.n_rows)), np.zeros_like(rows.y)
    noise = []
    for first in range(0, len(members), at_once):
        some = slice(first, first + at_once)
        left = leave_out_members(members[some], target)
        mean[some] = left.mean
        for var in left.var:  # in the order of the members, however many threads there are
            total += var
        noise.append(left.noise)
    return LeftOut(mean, total[None] / len(members), left.run, np.concatenate(noise))


def leave_out_held(members: Sequence[Member], target: int, held: Rows) -> LeftOut:
    """Leave out rows that are in the cells of every member. O(K m log c) for m rows."""
    rows = held.target(target)
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    used = np.flatnonzero(weight)  # others are in no cell, and have mean 0 and the prior variance
    mean, var, run = np.zeros((3, len(members), rows.n_rows))
    noise = np.stack([member.posteriors[target].rows.total_noise for member in members])

    def leave_out(alone: Engine, k: int) -> None:
        (codes,) = encode_grids([members[k].encoder], held.features, alone)
        posterior = members[k].posteriors[target]
        single = lend_posterior(posterior, alone)
        left = leave_out_rows(single, select_codes(codes, used), rows.y[used], weight[used])
        var[k] = posterior.order.prior_variance
        mean[k, used], var[k, used], run[k, used] = left.mean, left.var, left.run

    members[0].posteriors[0].trie.engine.each(leave_out, range(len(members)))
    return LeftOut(mean, var, run, noise)


def _add(member: Member, codes: Codes, targets: list[Rows]) -> Member:
    """A member with more rows in its cells; all targets share one trie."""
    pairs = zip(member.posteriors, targets, strict=True)
    grown = [add_rows(posterior, codes, rows) for posterior, rows in pairs]
    shared = tuple(replace(one, trie=grown[0].trie, keys=grown[0].keys) for one in grown)
    return replace(member, posteriors=shared)


def _held(calibration: Calibration, values: Floats) -> Calibration:
    """The calibration with its weights in the memory of the values."""
    return replace(calibration, weight=like(calibration.weight, values))


def _insert(member: Member, codes: Codes, targets: list[Rows]) -> Member:
    """A member conditioned on more rows; all targets still share one trie."""
    first = member.posteriors[0]
    trie, keys = insert_rows(first.trie, first.keys, codes)
    pairs = zip(member.posteriors, targets, strict=True)
    grown = tuple(insert_sorted(posterior, trie, keys, rows) for posterior, rows in pairs)
    return replace(member, posteriors=grown)
