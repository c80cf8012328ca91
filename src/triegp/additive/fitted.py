"""A trained forest with the interface that the estimators use."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.additive.cheap import Cheap
from triegp.additive.conditioning import check_extremes, insert_into_forest
from triegp.additive.evidence import EXACT_ROWS, Evidence, forest_evidence
from triegp.additive.model import ForestModel, Points, forest_mean, read_points
from triegp.additive.tails import first_moment, second_moment, spread_out
from triegp.additive.variance import (
    cheap_of,
    draw_forest,
    forest_covariance,
    forest_variance,
    leave_out,
    with_diagonal,
)
from triegp.engines import one_blas_thread
from triegp.models.distribution import PredictiveDistribution
from triegp.tree.rows import Rows, check_range

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FittedForest:
    """A trained forest for one target; implements `Fitted`.

    Attributes
    ----------
    model : ForestModel
        The forest and its rows.
    nll_per_row : tuple of float
        Nll per row, recorded during training.
    n_steps : int
        Training steps taken.
    diverged : bool
        Whether training was stopped because the likelihood fell or solves failed; the best
        parameters before are kept.
    """

    model: ForestModel
    nll_per_row: tuple[float, ...]
    n_steps: int
    diverged: bool

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        names = {field.name for field in fields(self)}
        return {name: value for name, value in self.__dict__.items() if name in names}

    @cached_property
    def complete(self) -> ForestModel:
        """The model with the diagonal of the inverse, computed on first use."""
        with one_blas_thread():
            return with_diagonal(self.model)

    @cached_property
    def cheap(self) -> Cheap:
        """What variance="cheap" needs, computed on first use."""
        return cheap_of(self.complete)

    @property
    def n_targets(self) -> int:
        """Number of targets, always 1."""
        return 1

    @property
    def n_rows(self) -> int:
        """Number of rows, those of weight 0 included."""
        return self.model.n_rows

    def read(self, X: Array, *, var: bool) -> Points:
        """Encode new rows for all trees, and sort them if variances will follow."""
        return read_points(self.model, X, sort=var)

    def predict(
        self, points: Points, column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """Predictive distribution at m new rows; variances are 0 if `var` is False."""
        mean = forest_mean(self.model, points)
        if not var:
            return PredictiveDistribution(np.ones(1), mean[None], np.zeros((1, mean.size)))
        is_cheap = self.model.variance_by == "cheap"
        model = self.complete if is_cheap else self.model
        with one_blas_thread():
            own = forest_variance(model, points, self.cheap if is_cheap else None)
        if latent:
            return PredictiveDistribution(np.ones(1), mean[None], own[None])
        return spread_out(self.model.tails, mean, own + self.model.new_noise)

    def predict_covariance(
        self, points: Points, column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the distribution of `sample`; one solve per row."""
        with one_blas_thread():
            cov = forest_covariance(self.model, points)
        if not latent:  # each observation has its own tail factor
            own = np.diag(cov) + self.model.new_noise
            cov *= first_moment(self.model.tails) ** 2
            np.fill_diagonal(cov, second_moment(self.model.tails) * own)
        return forest_mean(self.model, points), cov

    def sample(
        self, points: Points, column: int, n_samples: int, rng: np.random.Generator, *, latent: bool
    ) -> Floats:
        """Joint samples, (m, n_samples); each observation draws its own tail factor."""
        with one_blas_thread():
            draws = draw_forest(self.model, points, n_samples, rng)
        if latent:
            return draws
        mean = forest_mean(self.model, points)[:, None]
        noise = np.sqrt(self.model.new_noise) * rng.standard_normal(draws.shape)
        tails = self.model.tails
        factor = rng.choice(tails.factor, size=draws.shape, p=tails.weight)
        return np.asarray(mean + factor * (draws - mean + noise))

    def leave_one_out(self, column: int) -> PredictiveDistribution:
        """Prediction of each training target given all other rows; NaN for rows of weight 0."""
        mean, var = leave_out(self.complete)
        present = self.model.present
        full = np.full((2, present.size), np.nan)
        full[:, present] = mean, var
        return spread_out(self.model.tails, *full)

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,), NaN for rows of weight 0, and weights (n,), None if all are 1."""
        present, rows = self.model.present, self.model.rows
        y = np.full(present.size, np.nan)
        y[present] = rows.y
        if rows.weight is None and present.all():
            return y, None
        weight = np.zeros(present.size)
        weight[present] = 1.0 if rows.weight is None else rows.weight
        return y, weight

    @cached_property
    def evidence(self) -> Evidence:
        """Log marginal likelihood, with the standard error of its estimate."""
        model = self.model
        rng = np.random.default_rng(model.seed)
        made = model.preconditioner if model.forest.n_rows > EXACT_ROWS else None
        with one_blas_thread():
            return forest_evidence(
                model.forest, model.variance, model.rows.y, rng, preconditioner=made
            )

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets."""
        return self.evidence.log_likelihood - self.model.rows.constant

    def check(self, rows: Rows) -> None:
        """Raise ValueError if these rows cannot be added."""
        check_range(rows)
        check_extremes(rows.target(0))

    def insert(self, rows: Rows) -> Self:
        """The forest conditioned on more rows; the solve starts from the current alpha."""
        with one_blas_thread():
            return replace(self, model=insert_into_forest(self.model, rows.target(0)))
