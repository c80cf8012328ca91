"""What was predicted beside what was observed: from a model and rows, or by leaving rows out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from triegp.checks import float_array
from triegp.devices import to_host
from triegp.metrics import pit

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

BAND = 0.95  # probability of the binomial bands, at each point


@dataclass(frozen=True, eq=False)
class Forecast:
    """Targets and the predictive distribution of each.

    Attributes
    ----------
    y : float64 (m,)
        Targets without NaN.
    distribution : distribution of m rows
        What was predicted.
    known : bool (n,)
        Which rows of those passed have a target; m of them do.
    """

    y: Floats
    distribution: Any
    known: npt.NDArray[np.bool_]

    @property
    def n_rows(self) -> int:
        """Number of rows, m."""
        return int(self.y.size)


class ForecastDisplay:
    """Constructors of the displays that compare predictive distributions with targets."""

    from_predictions: ClassVar[Callable[..., Any]]  # (y, distribution, **options)

    @classmethod
    def from_estimator(cls, model: Any, X: Any, y: Any, **options: Any) -> Self:
        """Predict rows and compare with their targets, which the model must not have seen.

        Parameters
        ----------
        model : estimator
            A fitted TrieGPRegressor or BinaryTreeGPRegressor, or a pipeline or search that ends in
            one.
        X : array-like or data frame (m, n_features)
            Rows.
        y : array-like (m,) or (m, n_targets)
            Their targets, finite.
        **options
            As for `from_predictions`.
        """
        observed = finite_targets(y)
        own, rows = unwrap(model, X)
        found: Self = cls.from_predictions(observed, own.predict_distribution(rows), **options)
        return found

    @classmethod
    def from_loo(cls, model: Any, **options: Any) -> Self:
        """Compare the training targets with their leave-one-out predictions. Needs no data.

        Parameters
        ----------
        model : estimator
            As for `from_estimator`. Raises ValueError if it was fitted to more rows than it holds.
        **options
            As for `from_predictions`.

        Notes
        -----
        Rows of weight 0 are left out. All others count once, whatever their weight.
        """
        own, _ = unwrap(model)
        found: Self = cls.from_predictions(own.loo_targets(), own.loo_distribution(), **options)
        return found


def finite_targets(y: Any) -> Floats:
    """Targets of new rows; raises ValueError unless all are finite."""
    observed = float_array("y", to_host(y))
    if not np.isfinite(observed).all():
        row = int(np.argwhere(~np.isfinite(observed))[0][0])
        raise ValueError(f"y must be finite, got {observed[row]} at row {row}")
    return observed


def make_forecast(y: Any, distribution: Any, target: int | None = None) -> Forecast:
    """One target with its distribution; rows whose y is NaN are left out.

    Parameters
    ----------
    y : array-like (m,) or (m, n_targets)
        Targets.
    distribution : distribution, or list of them
        One per target.
    target : int, optional
        Which target; needed if there are several.
    """
    observed = float_array("y", y)
    if isinstance(distribution, Sequence):
        k = choose_target(target, len(distribution))
        if observed.ndim != 2 or observed.shape[1] != len(distribution):
            raise ValueError(
                f"y must have one column per distribution, {len(distribution)}, got shape "
                f"{observed.shape}"
            )
        observed, distribution = observed[:, k], distribution[k]
    else:
        choose_target(target, 1)
        if observed.ndim == 2 and observed.shape[1] == 1:
            observed = observed[:, 0]
    if observed.shape != (distribution.n_rows,):
        raise ValueError(f"y must have shape ({distribution.n_rows},), got {observed.shape}")
    known = ~np.isnan(observed)
    if not known.any():
        raise ValueError("y must have at least one row that is not NaN")
    if not known.all():
        observed, distribution = observed[known], distribution.select(known)
    return Forecast(observed, distribution, known)


def choose_target(target: int | None, n_targets: int) -> int:
    """The number of a target: 0 if there is one, else the one that was given."""
    if target is None:
        if n_targets > 1:
            raise ValueError(f"target must be given, 0 to {n_targets - 1}: there are {n_targets}")
        return 0
    if isinstance(target, bool) or not hasattr(target, "__index__"):
        raise ValueError(f"target must be an integer, got {target!r}")
    if not 0 <= target < n_targets:
        raise ValueError(f"target must be between 0 and {n_targets - 1}, got {target}")
    return int(target)


def unwrap(model: Any, X: Any = None) -> tuple[Any, Any]:
    """The last estimator of a pipeline or the best of a search, and X as it reads it."""
    if hasattr(model, "best_estimator_"):
        return unwrap(model.best_estimator_, X)
    if hasattr(model, "steps"):
        if X is not None and len(model.steps) > 1:
            X = model[:-1].transform(X)
        return unwrap(model[-1], X)
    return model, X


def pit_of(forecast: Forecast) -> Floats:
    """Probability integral transform, float64 (m,): P(Y <= y) at each row."""
    return pit(forecast.y, forecast.distribution)


def binomial_band(n_rows: Any, probability: Any, band: float = BAND) -> tuple[Floats, Floats]:
    """Central interval of a share of n_rows independent rows, if each counts with a probability."""
    tail = 0.5 * (1.0 - band)
    n = np.asarray(n_rows, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = (binom.ppf(q, n, probability) / n for q in (tail, 1.0 - tail))
    return np.asarray(low), np.asarray(high)
