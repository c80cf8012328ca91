"""The interface between models and estimators.

Models work in standardised units. The estimators convert to the units of y.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from triegp.models.curve import TrainingCurve
from triegp.models.distribution import PredictiveDistribution
from triegp.models.repeats import Observations, Others, find_others
from triegp.tree.rows import Rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


class Fitted(Protocol):
    """A model trained on n rows for one or several targets; immutable.

    X is a float array (m, n_features), as `real_array` returns it. `column` is the index of a
    target, from 0.
    """

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        ...

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        ...

    @property
    def n_summed(self) -> int:
        """Number of training rows, as passed, of which the model keeps sums only."""
        ...

    @property
    def n_observations(self) -> float:
        """Number of observations in the likelihood of one target."""
        ...

    @property
    def on_host(self) -> bool:
        """Whether the model lies in the host's memory, and predicts there.

        If not, `predict` may return arrays of its device. Everything else is on the host.
        """
        ...

    @property
    def goes_on(self) -> bool:
        """Whether the function goes on outside the training box, with growing variance.

        Otherwise a row outside is predicted as the nearest row of the box.
        """
        ...

    def read(self, X: Array, *, var: bool) -> Any:
        """Encode new rows once for all predictions at them; var: whether variances will follow."""
        ...

    def predict(
        self, points: Any, column: int, *, var: bool, latent: bool
    ) -> PredictiveDistribution:
        """Predictive distribution at each row.

        If `var` is False, variances are not computed and are 0. If `latent`, the distribution is
        that of the function; otherwise that of new observations, noise included.
        """
        ...

    def predict_covariance(
        self, points: Any, column: int, *, latent: bool
    ) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the joint distribution at the rows."""
        ...

    def group_covariance(
        self, points: Any, column: int, groups: npt.NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Mean (m,) of the function, and covariances within groups of rows, (g, q, q).

        groups: int64 (g, q), indices of rows. As `predict_covariance` with latent=True, without a
        matrix of all rows if the model can.
        """
        ...

    def sample(
        self, points: Any, column: int, n_samples: int, rng: np.random.Generator, *, latent: bool
    ) -> Floats:
        """Joint samples at the rows, (m, n_samples)."""
        ...

    @property
    def draw_rows(self) -> int:
        """Rows that `evaluate_draws` takes at a time; 0: any number.

        With any other number, values would depend on the other rows by rounding errors.
        """
        ...

    def prepare_draws(self, column: int, seeds: npt.NDArray[np.uint64]) -> Any:
        """Functions drawn with these seeds, uint64 (k,): what `evaluate_draws` needs of them.

        The result can be pickled. Its method `select(some)` returns some of the functions.
        """
        ...

    def evaluate_draws(
        self, points: Any, column: int, draws: Any, names: npt.NDArray[np.uint64]
    ) -> Floats:
        """Functions at the rows, (m, k), jointly distributed as `sample` with latent=True.

        names: uint64 (m,), hashes of the rows. A value depends on the function and the row only, to
        the last bit. The model must lie on the host.
        """
        ...

    def leave_one_out(
        self, column: int, observations: Observations | None = None
    ) -> PredictiveDistribution:
        """Prediction of each training target given all other rows, noise included.

        With `observations`, of each of these given all others; NaN for those of weight 0.
        """
        ...

    @property
    def quick_residuals(self) -> bool:
        """Whether `residuals` is cheap compared with training."""
        ...

    def residuals(self, column: int) -> Residuals:
        """Predictions of the model's rows without the observations at these rows."""
        ...

    def stand(self, *, apart: bool) -> Self:
        """The model with the unbranched runs of rows observed once counted as noise, or not."""
        ...

    def noise(self, column: int) -> float:
        """Noise variance of a new observation, as `predict` adds it to that of the function."""
        ...

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,) and their sample weights (n,), None if all are 1."""
        ...

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets."""
        ...

    def check(self, rows: Rows) -> None:
        """Raise ValueError if `insert` cannot add these rows; they must lie inside the box."""
        ...

    def insert(self, rows: Rows) -> Self:
        """The model conditioned on more rows, with the same parameters; rows must have X."""
        ...


@dataclass(frozen=True, eq=False)
class Residuals:
    """Predictions of training rows from other rows; calibration learns from them.

    Attributes
    ----------
    rows : int64 (k,)
        Rows of the model.
    mean, var : float64 (k,)
        Prediction of an observation at each row, given all rows at other inputs, or those of other
        folds; noise included.
    y : float64 (k,)
        Targets.
    weight : float64 (k,) or None
        How often each row counts; None if all count once.
    fresh : bool (k,)
        Whether the row was held out when the parameters were trained. If none was, all rows count.
    alone : bool
        Whether rows that are not fresh were left out alone, not with their folds. Their means may
        then tell their targets where all rows share a sum.
    """

    rows: npt.NDArray[np.int64]
    mean: Floats
    var: Floats
    y: Floats
    weight: Floats | None
    fresh: npt.NDArray[np.bool_]
    alone: bool = False


def expand_residuals(
    residuals: Residuals, observations: Observations, column: int, noise: float | None = None
) -> Residuals:
    """Residuals of observations, several of which may share a row of the model.

    All of them are predicted without any observation at their row. Together they count as one, or
    as their weight if that is less: what is learned from them is how new inputs are predicted.
    noise: if weights divide the noise of an observation, that of weight 1.
    """
    place = np.full(int(observations.index.max()) + 1, -1, np.int64)
    place[residuals.rows] = np.arange(residuals.rows.size)
    used = np.flatnonzero(observations.index >= 0)
    used = used[np.lexsort([*observations.y[used].T, observations.index[used]])]
    at = place[observations.index[used]]
    used, at = used[at >= 0], at[at >= 0]
    var, weight = residuals.var[at], np.ones(used.size)
    if observations.weight is not None:
        own = observations.weight[used]
        if noise is None:
            weight = own
        else:
            var = var + noise * (1.0 / own - 1.0)
    weight = weight / np.maximum(np.bincount(at, weight), 1.0)[at]
    return replace(
        residuals,
        rows=residuals.rows[at],
        mean=residuals.mean[at],
        var=var,
        y=observations.y[used, column],
        weight=weight,
        fresh=residuals.fresh[at],
    )


def divide_noise(residuals: Residuals, noise: float) -> Residuals:
    """Residuals of rows whose weights divide the noise variance: each counts once.

    noise: of an observation of weight 1, part of the variances. Rows of weight 0 count nothing.
    """
    weight = residuals.weight
    if weight is None:
        return residuals
    used = weight > 0
    added = noise * (1.0 / np.where(used, weight, 1.0) - 1.0)
    return replace(residuals, var=residuals.var + added, weight=used.astype(np.float64))


def repeated_residuals(
    fitted: Fitted, observations: Observations, column: int
) -> tuple[Residuals, Others]:
    """Residuals of observations that share their input, each predicted from all others.

    The second part are the other observations at the same input.
    """
    others = find_others(observations, column)
    some = np.flatnonzero(others.count > 0)
    again = observations.select(some)
    left = fitted.leave_one_out(column, again)
    residuals = Residuals(
        again.index,
        left.mean(),
        left.var(),
        again.y[:, column],
        again.weight,
        np.zeros(some.size, bool),
    )
    return residuals, others.select(some)


class Trained(NamedTuple):
    """Result of a training.

    Attributes
    ----------
    fitted : Fitted
        The model.
    stopped : bool
        Whether the time budget or Ctrl-C ended training early.
    n_evaluations : int
        Evaluations of the likelihood with gradient, members that are not kept included.
    residuals : tuple of Residuals or None
        One per target, for calibration; None if the model is not to be calibrated.
    curve : TrainingCurve or None
        Nll per row during training; None if it was not recorded.
    """

    fitted: Fitted
    stopped: bool
    n_evaluations: int
    residuals: tuple[Residuals, ...] | None = None
    curve: TrainingCurve | None = None
