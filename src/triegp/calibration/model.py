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
    widen_samples,
)
from triegp.calibration.local import predict_local
from triegp.calibration.stage import Stage, learn_again
from triegp.calibration.tails import first_moment, second_moment, spread_out
from triegp.models.distribution import PredictiveDistribution
from triegp.models.interface import Fitted, Residuals
from triegp.models.repeats import Observations
from triegp.tree.rows import Rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


FEWEST_FRESH = 20  # rows that the parameters have not seen, for a new calibration


class CalibratedPoints(NamedTuple):
    """New rows as the model reads them, and their features."""

    X: Array
    base: Any


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
    """

    base: Fitted
    stages: tuple[Stage, ...]
    border: Border | None = None

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return int(self.base.n_targets)

    @property
    def n_rows(self) -> int:
        """Number of rows of the model."""
        return int(self.base.n_rows)

    @property
    def n_observations(self) -> float:
        """Number of observations in the likelihood of one target."""
        return float(self.base.n_observations)

    def read(self, X: Array, *, var: bool) -> CalibratedPoints:
        """Encode new rows for the model, and keep their features for the local noise."""
        return CalibratedPoints(X, self.base.read(X, var=var))

    def predict(
        self, points: CalibratedPoints, column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """Predictive distribution at new rows; variances are 0 without `var`."""
        raw = self.base.predict(points.base, column, var=var, latent=latent)
        if not var:
            mean = raw.mean()
            return PredictiveDistribution(np.ones(1), mean[None], np.zeros((1, mean.size)))
        found = raw
        if not latent:
            mean, total = raw.mean(), raw.var()
            factor = self._factor(points, column, mean, total)
            found = spread_out(self.stages[column].tails, mean, factor * total)
        beyond = find_beyond(self.border, points.X, column)
        return widen(found, beyond, self._prior(column, latent=latent))

    def predict_covariance(
        self, points: CalibratedPoints, column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the distribution of `sample`."""
        mean, cov = self.base.predict_covariance(points.base, column, latent=True)
        scale = self._scale(points, column, mean, np.diag(cov), latent=latent)
        total = np.diag(cov) + self.noise(column)
        cov = scale[:, None] * cov * scale
        if not latent:  # each observation has its own tail factor
            tails = self.stages[column].tails
            cov *= first_moment(tails) ** 2
            np.fill_diagonal(cov, second_moment(tails) * np.square(scale) * total)
        beyond = find_beyond(self.border, points.X, column)
        widen_covariance(cov, beyond, self._prior(column, latent=latent))
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
        """Joint samples, (m, n_samples); each observation draws its own tail factor."""
        raw = self.base.predict(points.base, column, var=True, latent=False)
        mean = raw.mean()
        own = np.maximum(raw.var() - self.noise(column), 0.0)
        scale = self._scale(points, column, mean, own, latent=latent)[:, None]
        draws = self.base.sample(points.base, column, n_samples, rng, latent=latent)
        draws -= mean[:, None]
        draws *= scale
        if not latent:
            tails = self.stages[column].tails
            draws *= rng.choice(tails.factor, size=draws.shape, p=tails.weight)
        beyond = find_beyond(self.border, points.X, column)
        widen_samples(draws, beyond, self._prior(column, latent=latent), rng)
        return np.asarray(mean[:, None] + draws)

    def leave_one_out(
        self, column: int, observations: Observations | None = None
    ) -> PredictiveDistribution:
        """Prediction of each training target given all other rows, noise included."""
        stage = self.stages[column]
        raw = self.base.leave_one_out(column, observations)
        logs = stage.logs
        if observations is not None:
            logs = logs[np.maximum(observations.index, 0)]
        factor = stage.scale * np.exp(stage.slope * logs)
        return spread_out(stage.tails, raw.mean(), factor * raw.var())

    @property
    def quick_residuals(self) -> bool:
        """Whether `residuals` is cheap compared with training."""
        return bool(self.base.quick_residuals)

    def residuals(self, column: int) -> Residuals:
        """Predictions of the rows by the model, before calibration."""
        return self.base.residuals(column)

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
                raw = self.base.predict(points.base, column, var=stage.local.by_var, latent=False)
                more = predict_local(stage.local, rows.features, raw.mean(), raw.var())
            stages.append(replace(stage, logs=np.append(stage.logs, more)))
        return replace(self, base=self.base.insert(rows), stages=tuple(stages))

    def recalibrate(self, n_seen: int, X: Array | None) -> Self:
        """Scale and tails learned again from the rows added since training; local noise stays.

        n_seen: number of rows that the parameters were trained on, the first ones of the model. X:
        features of the rows after these, None if they are not known. With them the result does not
        depend on how the rows were divided when they were inserted.
        """
        stages = []
        for column, stage in enumerate(self.stages):
            residuals = self.base.residuals(column)
            fresh = residuals.rows >= n_seen
            if fresh.sum() >= FEWEST_FRESH:
                if stage.local is not None and X is not None:
                    rows, logs = residuals.rows[fresh], stage.logs.copy()
                    mean, var = residuals.mean[fresh], residuals.var[fresh]
                    logs[rows] = predict_local(stage.local, X[rows - n_seen], mean, var)
                    stage = replace(stage, logs=logs)
                stage = learn_again(stage, replace(residuals, fresh=fresh))
            stages.append(stage)
        return replace(self, stages=tuple(stages))

    def _prior(self, column: int, *, latent: bool) -> float:
        """Variance of rows that are unrelated to the data: that of y."""
        return max(1.0 - self.noise(column), 0.0) if latent else 1.0

    def _scale(
        self, points: CalibratedPoints, column: int, mean: Floats, own: Floats, *, latent: bool
    ) -> Floats:
        """Factor of joint deviations from the mean, (m,), so that they agree with `predict`.

        own: variance of f under the joint distribution of the model.
        """
        if latent:
            error = self.base.predict(points.base, column, var=True, latent=True).var()
            return np.sqrt(error / np.maximum(own, 1e-300))
        return np.sqrt(self._factor(points, column, mean, own + self.noise(column)))

    def _factor(self, points: CalibratedPoints, column: int, mean: Floats, total: Floats) -> Floats:
        """Factor of the predicted variance at new rows, (m,)."""
        stage = self.stages[column]
        if stage.local is None:
            return np.full(mean.size, stage.scale)
        logs = predict_local(stage.local, points.X, mean, total)
        return stage.scale * np.exp(stage.slope * logs)


def base_of(fitted: Fitted) -> Any:
    """The model without its calibration."""
    return fitted.base if isinstance(fitted, CalibratedModel) else fitted
