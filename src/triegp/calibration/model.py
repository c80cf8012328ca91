"""A model with its calibration; implements `Fitted`, as the model does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from triegp.calibration.border import (
    Border,
    find_beyond,
    widen,
    widen_covariance,
    widen_functions,
    widen_groups,
    widen_samples,
)
from triegp.calibration.local import place_local, predict_local
from triegp.calibration.stage import Stage, learn_again, learn_repeats, repeat_factors
from triegp.calibration.tails import (
    Tails,
    first_moment,
    offset_variance,
    second_moment,
    spread_kinds,
)
from triegp.calibration.trend import add_trend, line_at
from triegp.devices import like, on_device, to_host
from triegp.engines import Engine
from triegp.imports import import_once
from triegp.mixture.forgetting import reweigh_ensemble
from triegp.mixture.members import Ensemble
from triegp.mixture.placing import place_ensemble
from triegp.models.distribution import PredictiveDistribution, fetch_distribution
from triegp.models.interface import Fitted, Residuals, divide_noise, repeated_residuals
from triegp.models.repeats import (
    NO_OTHERS,
    Hashes,
    Observations,
    Others,
    append_others,
    find_inputs,
    find_observed,
    find_others,
    hash_inputs,
    sort_inputs,
)
from triegp.tree.rows import Rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FEWEST_LEFT = 20  # rows that the parameters have not seen, of other inputs than all others
LIKE_NEW = (0.5, 2.0)  # precisions of rows from which error bars of new ones, of 1, are learned


class CalibratedPoints(NamedTuple):
    """New rows as the model reads them, their features, and which training inputs they repeat.

    X: on a device, or on the host, where the calibration is then computed. place: int64 (m,), on
    the host, place of each row among the sorted training inputs, which late ones follow; -1 for new
    inputs. near: the nearest rows of the box to those outside, if the model goes on there and
    variances follow; None if there are none.
    """

    X: Array
    base: Any
    place: npt.NDArray[np.int64]
    near: CalibratedPoints | None = None

    @property
    def repeated(self) -> npt.NDArray[np.bool_]:
        """Whether each row repeats a training input, (m,)."""
        return self.place >= 0


class LateInputs(NamedTuple):
    """Some training inputs, with all observations there.

    hashes: uint64 (k,), sorted. seen: the observations at these inputs, one record per target.
    """

    hashes: Hashes
    seen: tuple[Others, ...]


@dataclass(frozen=True, eq=False)
class CalibratedDraws:
    """Functions drawn from a calibrated model.

    seeds: uint64 (k,), one per function. base: the functions of the model without calibration.
    """

    seeds: npt.NDArray[np.uint64]
    base: Any

    def select(self, some: npt.NDArray[Any]) -> CalibratedDraws:
        """Some of the functions."""
        return CalibratedDraws(self.seeds[some], self.base.select(some))


@dataclass(frozen=True, eq=False)
class CalibratedModel:
    """A model and one calibration per target; implements `Fitted`.

    Attributes
    ----------
    base : Fitted
        The model, which knows nothing of its calibration.
    stages : tuple of Stage
        One per target.
    border : Border or None
        What happens beyond the training box; None if rows outside are those of the border.
    inputs : uint64 (n,) or None
        Sorted hashes of the distinct training inputs, if repeated inputs have a calibration of
        their own.
    late : LateInputs or None
        Training inputs that were added or observed again since; only of a model that grows.
    """

    base: Fitted
    stages: tuple[Stage, ...]
    border: Border | None = None
    inputs: npt.NDArray[np.uint64] | None = None
    late: LateInputs | None = None

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return int(self.base.n_targets)

    @property
    def n_rows(self) -> int:
        """Number of rows of the model."""
        return int(self.base.n_rows)

    @property
    def n_summed(self) -> int:
        """Number of training rows of which the model keeps sums only."""
        return int(self.base.n_summed)

    @property
    def n_observations(self) -> float:
        """Number of observations in the likelihood of one target."""
        return float(self.base.n_observations)

    @property
    def on_host(self) -> bool:
        """Whether the model lies in the host's memory, and predicts there."""
        return self.base.on_host

    @property
    def goes_on(self) -> bool:
        """Whether the function goes on outside the training box."""
        return self.base.goes_on

    def read(self, X: Array, *, var: bool) -> CalibratedPoints:
        """Encode new rows for the model, and keep their features for the local noise.

        Trends and repeated inputs are computed on the host.
        """
        place = np.full(X.shape[0], -1, np.int64)
        base = self.base.read(X, var=var)
        if self.inputs is not None or any(stage.trend is not None for stage in self.stages):
            X = to_host(X)
        if self.inputs is not None:
            place = find_inputs(self.inputs, X)
            if self.late is not None:
                late = find_inputs(self.late.hashes, X)
                place = np.where(late >= 0, self.inputs.size + late, place)
        near = self._read_near(X) if var and self.goes_on else None
        return CalibratedPoints(X, base, place, near)

    def _read_near(self, X: Array) -> CalibratedPoints | None:
        """The nearest rows of the box to those outside; None if there are none."""
        beyond = find_beyond(self.border, X, 0)
        if self.border is None or beyond is None:
            return None
        return self.read(np.clip(X[beyond.rows], self.border.low, self.border.high), var=True)

    def predict(
        self, points: CalibratedPoints, column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """Predictive distribution at new rows; variances are 0 without `var`."""
        stage = self.stages[column]
        raw = self._raw(points, column, var=var, latent=False)
        mean, total = self._mean(points, column, raw.mean()), raw.var()
        one = like(np.ones(1), mean)
        if not var:
            return PredictiveDistribution(one, mean[None], np.zeros_like(mean)[None])
        factor, kind = self._factor(points, column, mean, total)
        total = factor * total
        if latent:
            total = self._error(points, column, total, kind)
            found = PredictiveDistribution(one, mean[None], total[None])
        else:
            found = spread_kinds(stage.kinds, mean, total, kind)
        beyond = find_beyond(self.border, points.X, column)
        return widen(found, beyond, self._prior(column, latent=latent))

    def predict_covariance(
        self, points: CalibratedPoints, column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the distribution of `sample`, on the host."""
        points = points._replace(X=to_host(points.X))
        mean, cov = self.base.predict_covariance(points.base, column, latent=True)
        mean = self._mean(points, column, mean)
        raw = self._raw(points, column, var=True, latent=False).var()
        scale, kind = self._scale(points, column, mean, raw, latent=latent)
        total = np.diag(cov) + self.noise(column)
        cov = scale[:, None] * cov * scale
        if not latent:  # each observation has its own component of the tails
            first, second, apart = _moments(self.stages[column], kind)
            cov *= first[:, None] * first
            np.fill_diagonal(cov, np.square(scale) * (second * total + apart * raw))
        beyond = find_beyond(self.border, points.X, column)
        widen_covariance(cov, beyond, self._prior(column, latent=latent))
        return mean, cov

    def group_covariance(
        self, points: CalibratedPoints, column: int, groups: npt.NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Mean (m,) of f, and covariances within groups of rows, (g, q, q), on the host."""
        points = points._replace(X=to_host(points.X))
        mean, cov = self.base.group_covariance(points.base, column, groups)
        mean = self._mean(points, column, mean)
        raw = self._raw(points, column, var=True, latent=False).var()
        scale = self._scale(points, column, mean, raw, latent=True)[0][groups]
        cov *= scale[:, :, None] * scale[:, None, :]
        beyond = find_beyond(self.border, points.X, column)
        widen_groups(cov, beyond, self._prior(column, latent=True), groups, mean.size)
        return mean, cov

    def sample(
        self,
        points: CalibratedPoints,
        column: int,
        n_samples: int,
        rng: np.random.Generator,
        *,
        latent: bool,
    ) -> Floats:
        """Joint samples, (m, n_samples); each observation draws its own component of the tails."""
        points = points._replace(X=to_host(points.X))
        raw = self._raw(points, column, var=True, latent=False)
        mean = self._mean(points, column, raw.mean())
        scale, kind = self._scale(points, column, mean, raw.var(), latent=latent)
        scale = scale[:, None]
        draws = self.base.sample(points.base, column, n_samples, rng, latent=latent)
        draws -= raw.mean()[:, None]
        draws *= scale
        if not latent:
            sd = scale * np.sqrt(raw.var())[:, None]
            for tails, rows in _rows_of_kinds(self.stages[column], kind):
                size = (rows.size, n_samples)
                chosen = rng.choice(tails.weight.size, size=size, p=tails.weight)
                draws[rows] = tails.factor[chosen] * draws[rows] + tails.offset[chosen] * sd[rows]
        beyond = find_beyond(self.border, points.X, column)
        widen_samples(draws, beyond, self._prior(column, latent=latent), rng)
        return np.asarray(mean[:, None] + draws)

    @property
    def draw_rows(self) -> int:
        """Rows that `evaluate_draws` takes at a time; 0: any number."""
        return self.base.draw_rows

    def prepare_draws(self, column: int, seeds: npt.NDArray[np.uint64]) -> CalibratedDraws:
        """Functions with these seeds, (k,)."""
        return CalibratedDraws(seeds, self.base.prepare_draws(column, seeds))

    def evaluate_draws(
        self,
        points: CalibratedPoints,
        column: int,
        draws: CalibratedDraws,
        names: npt.NDArray[np.uint64],
    ) -> Floats:
        """Functions at m rows, (m, k), jointly distributed as `sample` with latent=True."""
        raw = self._raw(points, column, var=True, latent=False)
        mean = self._mean(points, column, raw.mean())
        scale = self._scale(points, column, mean, raw.var(), latent=True)[0][:, None]
        found = self.base.evaluate_draws(points.base, column, draws.base, names)
        found -= raw.mean()[:, None]
        found *= scale
        beyond = find_beyond(self.border, points.X, column)
        prior = self._prior(column, latent=True)
        widen_functions(found, beyond, prior, draws.seeds, names)
        return np.asarray(mean[:, None] + found)

    def leave_one_out(
        self, column: int, observations: Observations | None = None
    ) -> PredictiveDistribution:
        """Prediction of each training target given all other rows, noise included."""
        stage = self.stages[column]
        raw = self.base.leave_one_out(column, observations)
        logs, repeated = stage.logs, np.zeros(stage.logs.size, bool)
        others = None
        line = None if stage.trend is None else stage.trend.left
        if observations is not None:
            row = np.maximum(observations.index, 0)
            logs, line = logs[row], None if line is None else line[row]
            others = find_others(observations, column)
            repeated = others.count > 0
        mean, var = add_trend(stage.trend, raw.mean(), line), raw.var()
        factor = stage.factors(logs, var)
        if stage.repeats is not None and others is not None:
            own = repeat_factors(stage.repeats, logs, mean, var, others)
            factor = np.where(repeated, own, factor)
        return spread_kinds(stage.kinds, mean, factor * var, stage.find_kinds(logs, repeated))

    @property
    def quick_residuals(self) -> bool:
        """Whether `residuals` is cheap compared with training."""
        return bool(self.base.quick_residuals)

    def residuals(self, column: int) -> Residuals:
        """Predictions of the rows, before calibration but with the trend."""
        found, trend = self.base.residuals(column), self.stages[column].trend
        if trend is None:
            return found
        return replace(found, mean=add_trend(trend, found.mean, trend.left[found.rows]))

    def stand(self, *, apart: bool) -> Self:
        """The model with the unbranched runs of rows observed once counted as noise, or not."""
        return replace(self, base=self.base.stand(apart=apart))

    def noise(self, column: int) -> float:
        """Noise variance of a new observation under the model."""
        return self.base.noise(column)

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,) and their sample weights (n,), None if all are 1."""
        return self.base.observed(column)

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets under the model."""
        return float(self.base.log_evidence(column))

    def check(self, rows: Rows) -> None:
        """Raise ValueError if these rows cannot be added."""
        self.base.check(rows)

    def insert(self, rows: Rows) -> Self:
        """The model conditioned on more rows, with the same calibration."""
        points = self.read(rows.features, var=any(s.local is not None for s in self.stages))
        stages = []
        for column, stage in enumerate(self.stages):
            more = np.zeros(rows.n_rows)
            if stage.local is not None:
                raw = self._raw(points, column, var=stage.local.by_var, latent=False)
                mean = self._mean(points, column, raw.mean())
                more = predict_local(stage.local, rows.features, mean, raw.var())
            trend = stage.trend
            if trend is not None:
                added = line_at(trend, rows.features)
                trend = replace(trend, left=np.append(trend.left, added))
            stages.append(replace(stage, logs=np.append(stage.logs, more), trend=trend))
        found = replace(self, base=self.base.insert(rows), stages=tuple(stages))
        return found if self.inputs is None else found._add_inputs(self.inputs, rows)

    def recalibrate(
        self,
        n_seen: int,
        X: Array | None,
        repeated: npt.NDArray[np.bool_] | None = None,
        *,
        divided: bool = False,
    ) -> Self:
        """Scale and tails learned again from the rows added since training; local noise stays.

        n_seen: number of rows that the parameters were trained on, the first ones of the model. X:
        features of the rows after these, None if they are not known. With them the result does not
        depend on how the rows were divided when they were inserted. repeated: which of these rows
        repeat the input of another row. They are not learned from: a copy of a row that is left out
        would say that the model is certain. divided: whether weights divide the noise variance of
        an observation. Rows of another weight than about 1 then say little about new ones, and are
        not learned from.
        """
        stages = []
        for column, stage in enumerate(self.stages):
            residuals = self.residuals(column)
            fresh = residuals.rows >= n_seen
            if repeated is not None:
                fresh[fresh] = ~repeated[residuals.rows[fresh] - n_seen]
            if divided and residuals.weight is not None:
                fresh &= (residuals.weight >= LIKE_NEW[0]) & (residuals.weight <= LIKE_NEW[1])
                residuals = divide_noise(residuals, self.noise(column))
            if fresh.sum() >= FEWEST_LEFT:
                if stage.local is not None and X is not None:
                    rows, logs = residuals.rows[fresh], stage.logs.copy()
                    mean, var = residuals.mean[fresh], residuals.var[fresh]
                    logs[rows] = predict_local(stage.local, X[rows - n_seen], mean, var)
                    stage = replace(stage, logs=logs)
                stage = learn_again(stage, replace(residuals, fresh=fresh))
            stages.append(stage)
        return replace(self, stages=tuple(stages))

    def _with_inputs(self, inputs: Hashes, seen: tuple[Others, ...]) -> Self:
        """The model with other training inputs; seen: the observations there, per target."""
        stages = []
        for stage, own in zip(self.stages, seen, strict=True):
            assert stage.repeats is not None  # all targets have repeats, or none
            stages.append(replace(stage, repeats=replace(stage.repeats, seen=own)))
        return replace(self, inputs=inputs, stages=tuple(stages))

    def _add_inputs(self, inputs: Hashes, rows: Rows) -> Self:
        """The model with the inputs of more rows beside `inputs`."""
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        used = np.flatnonzero(weight > 0)
        ones, zeros = np.ones(used.size), np.zeros(used.size)
        seen = []
        for column, stage in enumerate(self.stages):
            more = Others(rows.y[used, column], weight[used], ones, zeros)
            assert stage.repeats is not None
            seen.append(append_others(stage.repeats.seen, more))
        hashes = np.append(inputs, hash_inputs(rows.features[used]))
        return self._with_inputs(*sort_inputs(hashes, tuple(seen)))

    def _add_late(self, rows: Rows) -> Self:
        """The model with the inputs of more rows among the late ones. O(k) for k late inputs."""
        assert self.inputs is not None
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        used = np.flatnonzero(weight > 0)
        if not used.size:
            return self
        late = self.late or LateInputs(self.inputs[:0], (NO_OTHERS,) * len(self.stages))
        hashes = hash_inputs(rows.features[used])
        before = np.setdiff1d(hashes, late.hashes)  # inputs that become late ones now
        place = np.searchsorted(self.inputs, before)
        known = self.inputs[np.minimum(place, self.inputs.size - 1)] == before
        before, place = before[known], place[known]
        ones, zeros = np.ones(used.size), np.zeros(used.size)
        seen = []
        for column, (own, stage) in enumerate(zip(late.seen, self.stages, strict=True)):
            assert stage.repeats is not None
            more = Others(rows.y[used, column], weight[used], ones, zeros)
            own = append_others(own, stage.repeats.seen.select(place))
            seen.append(append_others(own, more))
        together = np.concatenate([late.hashes, before, hashes])
        return replace(self, late=LateInputs(*sort_inputs(together, tuple(seen))))

    def _seen_at(self, place: npt.NDArray[np.int64], column: int) -> Others:
        """The observations at training inputs, late ones included, by their place."""
        repeats = self.stages[column].repeats
        assert repeats is not None
        if self.late is None or not place.size:
            return repeats.seen.select(place)
        early = place < repeats.seen.mean.size
        found = append_others(
            repeats.seen.select(place[early]),
            self.late.seen[column].select(place[~early] - repeats.seen.mean.size),
        )
        return found.select(np.argsort(np.argsort(~early, kind="stable")))

    def _raw(
        self, points: CalibratedPoints, column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """What the model predicts, in the memory of the features."""
        found = self.base.predict(points.base, column, var=var, latent=latent)
        return found if on_device(points.X) else fetch_distribution(found)

    def _mean(self, points: CalibratedPoints, column: int, mean: Floats) -> Floats:
        """Means of the model at new rows, averaged with the trend, (m,).

        Rows that are unrelated to the data have no trend.
        """
        trend = self.stages[column].trend
        if trend is None:
            return mean
        found = add_trend(trend, mean, line_at(trend, points.X))
        beyond = find_beyond(self.border, points.X, column)
        if beyond is not None and beyond.lines is None:
            found[beyond.rows] = mean[beyond.rows]
        return found

    def _prior(self, column: int, *, latent: bool) -> float:
        """Variance of rows that are unrelated to the data: that of y."""
        return max(1.0 - self.noise(column), 0.0) if latent else 1.0

    def _scale(
        self, points: CalibratedPoints, column: int, mean: Floats, total: Floats, *, latent: bool
    ) -> tuple[Floats, Ints]:
        """Factor of joint deviations from the mean, as in `predict`, and kind of each row, (m,).

        total: variance of an observation that the model predicts.
        """
        factor, kind = self._factor(points, column, mean, total)
        if latent:
            own = np.maximum(total - self.noise(column), 1e-300)
            return np.sqrt(self._error(points, column, factor * total, kind) / own), kind
        return np.sqrt(factor), kind

    def _error(self, points: CalibratedPoints, column: int, total: Floats, kind: Ints) -> Floats:
        """Variance of the function, (m,): the model's, at most that of an observation.

        It is at least that over n + 1: no mean of n observations is more certain.

        total: calibrated variance of an observation, tails not included.
        """
        raw = self._raw(points, column, var=True, latent=True).var()
        _, second, apart = _moments(self.stages[column], kind)
        total = like(second + apart, total) * total
        return np.clip(raw, total / (self.n_rows + 1.0), total)

    def _factor(
        self, points: CalibratedPoints, column: int, mean: Floats, total: Floats
    ) -> tuple[Floats, Ints]:
        """Factor of the predicted variance, and kind of the tails, at new rows, (m,) each.

        If the model goes on beyond the box, the factor is that of the nearest row of the box, and
        multiplies the variance there. What is added on the way out is not scaled.
        """
        near = points.near
        beyond = None if near is None else find_beyond(self.border, points.X, column)
        if near is None or beyond is None:
            return self._factor_inside(points, column, mean, total)
        rows = beyond.rows
        raw = self._raw(near, column, var=True, latent=False)
        inner, mean = raw.var(), mean.copy()
        mean[rows] = self._mean(near, column, raw.mean())
        factor, kind = self._factor_inside(points, column, mean, total)
        added = np.maximum(total[rows] - inner, 0.0)
        factor[rows] = (factor[rows] * inner + added) / (inner + added)
        return factor, kind

    def _factor_inside(
        self, points: CalibratedPoints, column: int, mean: Floats, total: Floats
    ) -> tuple[Floats, Ints]:
        stage = self.stages[column]
        logs = np.zeros_like(mean)
        if stage.local is not None:
            logs = predict_local(stage.local, points.X, mean, total)
        factor = stage.factors(logs, total)
        if stage.repeats is not None:
            again = np.flatnonzero(points.repeated)
            others = self._seen_at(points.place[again], column)
            own = (logs[again], mean[again], total[again])
            factor[again] = repeat_factors(stage.repeats, *own, others)
        return factor, stage.find_kinds(logs, points.repeated)


def calibrate_repeats(
    model: CalibratedModel, X: Array, observations: Observations
) -> CalibratedModel:
    """The model with a calibration of its own for new observations at training inputs.

    Observations at the same input teach how much of a run is noise: all of it, or what the noise
    of the model says. The one under which they are more likely is chosen, for all targets.

    X: features of the model's rows. observations: not copies of each other.
    """
    found = []
    for apart in (True, False):
        base = model.base.stand(apart=apart)
        parts = [
            learn_repeats(stage, *repeated_residuals(base, observations, column))
            for column, stage in enumerate(model.stages)
        ]
        stages = tuple(stage for stage, _ in parts)
        found.append(
            (sum(density for _, density in parts), replace(model, base=base, stages=stages))
        )
    best = max(found, key=lambda pair: pair[0])[1]
    if any(stage.repeats is None for stage in best.stages):
        return model
    columns = range(len(best.stages))
    seen = tuple(find_observed(observations, column, X.shape[0]) for column in columns)
    return best._with_inputs(*sort_inputs(hash_inputs(X), seen))


def place_model(fitted: Fitted, engine: Engine) -> Fitted:
    """The model in the memory of an engine, if it is a mixture; other models stay on the host.

    O(n) per member. The local noise moves with the mixture.
    """
    if isinstance(fitted, Ensemble):
        return place_ensemble(fitted, engine)
    if not isinstance(fitted, CalibratedModel):
        return fitted
    base = place_model(fitted.base, engine)
    if base is fitted.base and fitted.on_host == engine.on_host:
        return fitted
    stages = tuple(
        stage if stage.local is None else replace(stage, local=place_local(stage.local, engine))
        for stage in fitted.stages
    )
    return replace(fitted, base=base, stages=stages)


def grow_model(fitted: Fitted, rows: Rows) -> Fitted | None:
    """The model given more rows, for predictions at new rows; None if it can only insert them.

    Only a mixture grows. O(K k D) for k rows and K members. Leave-one-out of the result lacks the
    local noise of these rows.
    """
    growing = import_once("triegp.mixture.growing")  # needs numba
    base = base_of(fitted)
    if isinstance(base, Ensemble):
        base = growing.grow_ensemble(base)
    if not isinstance(base, growing.GrowingEnsemble):
        return None
    larger: Fitted = base.insert(rows)
    if not isinstance(fitted, CalibratedModel):
        return larger
    grown = replace(fitted, base=larger)
    return grown if grown.inputs is None else grown._add_late(rows)


def reweigh_model(
    fitted: Fitted,
    rows: Rows,
    source: npt.NDArray[np.int64],
    observations: Observations | None,
    host: Engine,
) -> Fitted:
    """The model given m rows instead of its own, with the same parameters and calibration.

    rows: with features; source: as for `reweigh_ensemble`. observations: those of the m rows, None
    if each is one. O(n) per member.
    """
    base = base_of(fitted)
    if not isinstance(base, Ensemble):
        raise TypeError(f"only a mixture of trees can forget rows, got {type(base).__name__}")
    base = reweigh_ensemble(base, rows, source, host)
    if not isinstance(fitted, CalibratedModel):
        return base
    stages = []
    for stage in fitted.stages:
        trend = stage.trend
        if trend is not None:
            trend = replace(trend, left=trend.left[source])
        stages.append(replace(stage, logs=stage.logs[source], trend=trend))
    found = replace(fitted, base=base, stages=tuple(stages))
    if found.inputs is None:
        return found
    assert observations is not None  # there are repeated inputs
    seen = (find_observed(observations, j, source.size) for j in range(found.n_targets))
    return found._with_inputs(*sort_inputs(hash_inputs(rows.features), tuple(seen)))


def optimism_of(fitted: Fitted, column: int) -> float:
    """What parameters gained, per row, in the log density of left-out rows that they have seen."""
    return fitted.stages[column].optimism if isinstance(fitted, CalibratedModel) else 0.0


def base_of(fitted: Fitted) -> Any:
    """The model without its calibration."""
    return fitted.base if isinstance(fitted, CalibratedModel) else fitted


def with_base(fitted: Fitted, base: Fitted) -> Fitted:
    """Another model with the calibration of `fitted`, if it has one."""
    return replace(fitted, base=base) if isinstance(fitted, CalibratedModel) else base


def _rows_of_kinds(stage: Stage, kind: Ints) -> list[tuple[Tails, Ints]]:
    """The tails in use, each with its rows."""
    return [(tails, np.flatnonzero(kind == k)) for k, tails in enumerate(stage.kinds)]


def _moments(stage: Stage, kind: Ints) -> tuple[Floats, Floats, Floats]:
    """Mean and mean square of the tail factor, and variance of the offset, at each row, (m,)."""
    first, second, apart = np.empty((3, kind.size))
    for tails, rows in _rows_of_kinds(stage, to_host(kind)):
        first[rows], second[rows] = first_moment(tails), second_moment(tails)
        apart[rows] = offset_variance(tails)
    return first, second, apart
