"""What a fitted forest answers: the same questions as any trained model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.additive.evidence import EXACT_ROWS, Evidence, forest_evidence
from triegp.additive.model import ForestModel, forest_mean
from triegp.additive.tails import first_moment, second_moment, spread_out
from triegp.additive.train import add_rows, check_measured
from triegp.additive.variance import (
    draw_forest,
    forest_covariance,
    forest_variance,
    leave_out,
    with_diagonal,
)
from triegp.engines.blas import one_blas_thread
from triegp.models.distribution import Mixture
from triegp.models.rows import Rows
from triegp.tree.observations import Measured, measure

Floats = npt.NDArray[np.float64]
Data = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class FittedForest:
    """A forest for one target, as estimators see it; a `Fitted`.

    Attributes
    ----------
    model : ForestModel
        The forest and its rows.
    nll_per_row : tuple of float
        Looks at the likelihood while it was trained.
    n_steps : int
        Steps that training took.
    diverged : bool
        Whether training was given up and the best state before was kept.
    """

    model: ForestModel
    nll_per_row: tuple[float, ...]
    n_steps: int
    diverged: bool

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along: not what can be worked out again."""
        names = {field.name for field in fields(self)}
        return {name: value for name, value in self.__dict__.items() if name in names}

    @cached_property
    def complete(self) -> ForestModel:
        """The model with the diagonal of the inverse, found when first needed."""
        with one_blas_thread():
            return with_diagonal(self.model)

    @property
    def n_targets(self) -> int:
        """One."""
        return 1

    @property
    def n_rows(self) -> int:
        """Number of rows, those of weight 0 included."""
        return self.model.n_rows

    def predict_mixture(self, X: Data, column: int, *, var: bool, latent: bool) -> Mixture:
        """Prediction at each of the rows."""
        mean = forest_mean(self.model, X)
        if not var:
            return Mixture(np.ones(1), mean[None], np.zeros((1, mean.size)))
        model = self.complete if self.model.manner.variance == "cheap" else self.model
        with one_blas_thread():
            own = forest_variance(model, X)
        if latent:
            return Mixture(np.ones(1), mean[None], own[None])
        return spread_out(self.model.tails, mean, own + self.model.new_noise)

    def predict_covariance(self, X: Data, column: int, *, latent: bool) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m), by solves: that of `draw`."""
        with one_blas_thread():
            cov = forest_covariance(self.model, X)
        if not latent:  # every observation's deviation has a factor of its own
            own = np.diag(cov) + self.model.new_noise
            cov *= first_moment(self.model.tails) ** 2
            np.fill_diagonal(cov, second_moment(self.model.tails) * own)
        return forest_mean(self.model, X), cov

    def draw(
        self, X: Data, column: int, n_samples: int, rng: np.random.Generator, *, latent: bool
    ) -> Floats:
        """Joint samples, (m, n_samples); each observation's deviation has a factor of its own."""
        with one_blas_thread():
            draws = draw_forest(self.model, X, n_samples, rng)
        if latent:
            return draws
        mean = forest_mean(self.model, X)[:, None]
        noise = np.sqrt(self.model.new_noise) * rng.standard_normal(draws.shape)
        tails = self.model.tails
        factor = rng.choice(tails.factor, size=draws.shape, p=tails.weight)
        return np.asarray(mean + factor * (draws - mean + noise))

    def loo_mixture(self, column: int) -> Mixture:
        """Prediction of each training target given all others; NaN for rows of weight 0."""
        mean, var = leave_out(self.complete)
        present = self.model.present
        full = np.full((2, present.size), np.nan)
        full[:, present] = mean, var
        return spread_out(self.model.tails, *full)

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,) and their weights; NaN and 0 for rows of weight 0."""
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
        """Log marginal likelihood, with the error of its estimate."""
        model = self.model
        rng = np.random.default_rng(model.manner.seed)
        made = model.preconditioner if model.forest.n_rows > EXACT_ROWS else None
        with one_blas_thread():
            return forest_evidence(
                model.forest, model.variance, model.rows.y, rng, preconditioner=made
            )

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets."""
        return self.evidence.log_likelihood - self.model.rows.constant

    def check(self, X: Data, rows: Rows) -> None:
        """Raise ValueError for rows that could not be added."""
        check_measured(_measured(rows))

    def grow(self, X: Data, rows: Rows) -> Self:
        """The forest with more rows: tries grow, and the solve goes on from where it was."""
        with one_blas_thread():
            model = add_rows(self.model, X, _measured(rows))
        return type(self)(model, self.nll_per_row, self.n_steps, self.diverged)


def _measured(rows: Rows) -> Measured:
    (column,) = rows.columns()
    return measure(n_rows=rows.targets.shape[0], **column)
