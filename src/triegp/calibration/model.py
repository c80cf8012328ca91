"""A model with its calibration; implements `Fitted`, as the model does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from triegp.calibration.local import predict_local
from triegp.calibration.stage import Stage
from triegp.calibration.tails import first_moment, second_moment, spread_out
from triegp.models.distribution import PredictiveDistribution
from triegp.models.interface import Fitted, Residuals
from triegp.models.repeats import Observations
from triegp.tree.rows import Rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


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
    """

    base: Fitted
    stages: tuple[Stage, ...]

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
        if latent:
            return raw
        if not var:  # the mean of the same components, to the same bits
            return spread_out(self.stages[column].tails, raw.mean(), np.zeros(raw.n_rows))
        mean, total = raw.mean(), raw.var()
        factor = self._factor(points, column, mean, total)
        return spread_out(self.stages[column].tails, mean, factor * total)

    def predict_covariance(
        self, points: CalibratedPoints, column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the distribution of `sample`."""
        mean, cov = self.base.predict_covariance(points.base, column, latent=True)
        scale = self._scale(points, column, mean, np.diag(cov), latent=latent)
        if latent:
            return mean, scale[:, None] * cov * scale
        # Each observation has its own tail factor.
        tails, total = self.stages[column].tails, np.diag(cov) + self.noise(column)
        cov = first_moment(tails) ** 2 * (scale[:, None] * cov * scale)
        np.fill_diagonal(cov, second_moment(tails) * np.square(scale) * total)
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
        if latent:
            return np.asarray(mean[:, None] + scale * draws)
        tails = self.stages[column].tails
        factor = rng.choice(tails.factor, size=draws.shape, p=tails.weight)
        return np.asarray(mean[:, None] + factor * scale * draws)

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
