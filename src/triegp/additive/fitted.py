"""A trained forest with the interface that the estimators use."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.additive.conditioning import check_extremes, residuals_of
from triegp.additive.draws import ForestDraws, evaluate_forest, prepare_forest
from triegp.additive.evidence import Evidence
from triegp.additive.insertion import insert_into_forest
from triegp.additive.model import ForestModel, column_of, run_variances
from triegp.additive.points import Points, forest_mean, read_points
from triegp.additive.start import joint_rows
from triegp.additive.variance import (
    Apart,
    draw_forest,
    forest_covariance,
    forest_variance,
    leave_out,
    no_points,
    stand_apart,
)
from triegp.engines import one_blas_thread
from triegp.models.distribution import PredictiveDistribution
from triegp.models.draws import Stream, normals_of
from triegp.models.interface import Residuals
from triegp.models.repeats import Observations, add_others, find_others
from triegp.smooth.dense import Dense
from triegp.tree.rows import Rows, check_range

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

QUICK_ROWS = 20_000
DRAW_ROWS = 64  # rows at which functions are evaluated together, if algebra is dense


@dataclass(frozen=True, eq=False)
class FittedForest:
    """A trained forest for one target, or for several that share it; implements `Fitted`.

    Targets that share a forest have the same variances, which are computed once for all of them, as
    is whatever else does not depend on the targets.

    Attributes
    ----------
    model : ForestModel
        The forest and its rows.
    nll_per_row : tuple of float
        Nll per row and target, recorded during training.
    n_steps : int
        Training steps taken.
    diverged : bool
        Whether training was stopped because the likelihood fell or solves failed; the best
        parameters before are kept.
    apart : bool
        Whether the unbranched runs above a row that was observed once count as noise
        (`docs/notation.md`).
    variance : {"nearby", "exact"}
        How variances are computed.
    """

    model: ForestModel
    nll_per_row: tuple[float, ...]
    n_steps: int
    diverged: bool
    apart: bool = True
    variance: str = "nearby"

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        names = {field.name for field in fields(self)}
        return {name: value for name, value in self.__dict__.items() if name in names}

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.model.n_targets

    @property
    def n_rows(self) -> int:
        """Number of rows, those of weight 0 included."""
        return self.model.n_rows

    @property
    def n_summed(self) -> int:
        """Number of training rows of which the model keeps sums only: none."""
        return 0

    @property
    def n_observations(self) -> float:
        """Number of observations in the likelihood of one target."""
        return self.model.rows.count

    @property
    def on_host(self) -> bool:
        """Whether the model lies in the host's memory: always."""
        return True

    @property
    def goes_on(self) -> bool:
        """Whether there is a smooth part that goes on outside the training box."""
        return self.model.goes_on and self.model.smooth is not None

    def read(self, X: Array, *, var: bool) -> Points:
        """Encode new rows for all trees, and sort them if variances will follow."""
        return read_points(self.model, X, sort=var)

    def predict(
        self, points: Points, column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """Predictive distribution at m new rows; variances are 0 if `var` is False."""
        mean = self._mean(points, column, var=var)
        if not var:
            return PredictiveDistribution(np.ones(1), mean[None], np.zeros((1, mean.size)))
        own = points.once(f"{self.variance} variance", lambda: self._variance(points)).copy()
        apart = self._apart(points, var=True)
        own[apart.points] = apart.var
        noise = 0.0 if latent else self.model.new_noise
        return PredictiveDistribution(np.ones(1), mean[None], own[None] + noise)

    def predict_covariance(
        self, points: Points, column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the distribution of `sample`; one solve per row."""
        if self.n_targets == 1:
            cov = self._covariance(points)
        else:
            cov = points.once("covariance", lambda: self._covariance(points)).copy()
        mean, apart = self._mean(points, column, var=True), self._apart(points, var=True)
        cov[apart.points, apart.points] += apart.extra
        if not latent:
            cov[np.diag_indices_from(cov)] += self.model.new_noise
        return mean, cov

    def group_covariance(
        self, points: Points, column: int, groups: npt.NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Mean (m,) of f, and covariances within groups of rows, (g, q, q); one solve per row."""
        mean, cov = self.predict_covariance(points, column, latent=True)
        return mean, cov[groups[:, :, None], groups[:, None, :]]

    def sample(
        self, points: Points, column: int, n_samples: int, rng: np.random.Generator, *, latent: bool
    ) -> Floats:
        """Joint samples, (m, n_samples)."""
        with one_blas_thread():
            draws = draw_forest(self.model, points, n_samples, rng, column)
        apart = self._apart(points, var=True)
        if apart.points.size:
            shift = self._shift(points, column, apart)
            more = np.sqrt(apart.extra)[:, None] * rng.standard_normal((shift.size, n_samples))
            draws[apart.points] += shift[:, None] + more
        if not latent:
            draws += np.sqrt(self.model.new_noise) * rng.standard_normal(draws.shape)
        return draws

    @property
    def draw_rows(self) -> int:
        """Rows that `evaluate_draws` takes at a time, for values that do not depend on the others.

        Dense algebra rounds by the shapes of its matrices. 0: any number.
        """
        dense = self.model.exact or isinstance(self.model.smooth, Dense)
        return DRAW_ROWS if dense else 0

    def prepare_draws(self, column: int, seeds: npt.NDArray[np.uint64]) -> ForestDraws:
        """Functions with these seeds, (k,): one solve each."""
        with one_blas_thread():
            return prepare_forest(self.model, seeds, column)

    def evaluate_draws(
        self, points: Points, column: int, draws: ForestDraws, names: npt.NDArray[np.uint64]
    ) -> Floats:
        """Functions at m rows, (m, k), jointly distributed as `sample` with latent=True."""
        with one_blas_thread():
            found = evaluate_forest(self.model, points, draws, names)
        apart = self._apart(points, var=True)
        if apart.points.size:
            some = apart.points
            shift = self._shift(points, column, apart)
            fresh = normals_of(draws.seeds, Stream.RUN, names[some])
            found[some] += shift[:, None] + np.sqrt(apart.extra)[:, None] * fresh
        return found

    def leave_one_out(
        self, column: int, observations: Observations | None = None
    ) -> PredictiveDistribution:
        """Prediction of each training target given all other rows; NaN for rows of weight 0."""
        model, present = self.model, self.model.present
        mean, var, noise, runs = np.full((4, present.size), np.nan)
        asked, rows = present, None
        if observations is not None:
            asked = np.zeros(present.size, bool)
            asked[observations.index[observations.index >= 0]] = True
            asked &= present
        if not asked[present].all():
            rows = np.flatnonzero(asked[present])
        every, var[asked] = leave_out(model, rows, solve=rows is None or self.quick_residuals)
        mean[asked] = column_of(every, column)
        noise[present] = model.rows.total_noise
        if observations is not None:
            runs[present] = run_variances(model) if self.apart else 0.0
            row, others = np.maximum(observations.index, 0), find_others(observations, column)
            runs, noise = np.minimum(runs, var)[row], noise[row]
            mean, var = add_others(mean[row], var[row], runs, noise, others)
            unused = np.where(observations.index >= 0, 0.0, np.nan)
            mean, var = mean + unused, var + unused
        return PredictiveDistribution(np.ones(1), mean[None], (var + noise)[None])

    @property
    def quick_residuals(self) -> bool:
        """Whether `residuals` is cheap compared with training: for at most 20,000 rows."""
        return self.model.forest.n_rows <= QUICK_ROWS

    def residuals(self, column: int) -> Residuals:
        """Predictions of the rows without the observations at these rows."""
        with one_blas_thread():
            nothing = np.zeros(self.model.rows.n_rows, bool)
            return residuals_of(self.model, leave_out(self.model), nothing)[column]

    def _means(self, points: Points) -> Floats:
        """Mean of f at the points, (m,) or (m, k), runs of training rows included."""
        return points.once("mean", lambda: forest_mean(self.model, points))

    def _mean(self, points: Points, column: int, *, var: bool) -> Floats:
        """Mean of f at the points, (m,); var: as for `_apart`."""
        apart = self._apart(points, var=var)
        mean = column_of(self._means(points), column).copy()
        mean[apart.points] = column_of(apart.mean, column)
        return mean

    def _shift(self, points: Points, column: int, apart: Apart) -> Floats:
        """What a new run adds to the mean of the points that coincide with a training row, (r,)."""
        return np.asarray(column_of(apart.mean - self._means(points)[apart.points], column))

    def _variance(self, points: Points) -> Floats:
        with one_blas_thread():
            return forest_variance(self.model, points, self.variance)

    def _covariance(self, points: Points) -> Floats:
        with one_blas_thread():
            return forest_covariance(self.model, points)

    def _apart(self, points: Points, *, var: bool) -> Apart:
        """Points that coincide with a training row; var: whether their variances are needed."""
        if not self.apart:
            return no_points(self.model)
        if "apart" in points.known:  # with variances
            var = True
        return points.once("apart" if var else "apart mean", lambda: self._stand(points, var=var))

    def _stand(self, points: Points, *, var: bool) -> Apart:
        with one_blas_thread():
            return stand_apart(self.model, points, var=var)

    def stand(self, *, apart: bool) -> Self:
        """The model with the unbranched runs of rows observed once counted as noise, or not."""
        return replace(self, apart=apart)

    def noise(self, column: int) -> float:
        """Noise variance of a new observation."""
        return self.model.new_noise

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,), NaN for rows of weight 0, and weights (n,), None if all are 1."""
        present, rows = self.model.present, self.model.rows
        y = np.full(present.size, np.nan)
        y[present] = column_of(rows.y, column)
        if rows.weight is None and present.all():
            return y, None
        weight = np.zeros(present.size)
        weight[present] = 1.0 if rows.weight is None else rows.weight
        return y, weight

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Log marginal likelihood of each target, with the standard error of its estimate."""
        return self.model.evidence

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets."""
        rows = self.model.rows
        own = rows if rows.y.ndim == 1 else rows.target(column)
        return self.evidence[column].log_likelihood - own.constant

    def check(self, rows: Rows) -> None:
        """Raise ValueError if these rows cannot be added."""
        check_range(rows)
        check_extremes(joint_rows(rows))

    def insert(self, rows: Rows) -> Self:
        """The forest conditioned on more rows; see `insert_into_forest`."""
        with one_blas_thread():
            return replace(self, model=insert_into_forest(self.model, joint_rows(rows)))
