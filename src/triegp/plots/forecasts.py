"""Constructors of displays that compare predictions with targets, and the models they open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array
from triegp.devices import to_host
from triegp.plots.canvas import Display

Floats = npt.NDArray[np.float64]


class ForecastDisplay(Display):
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
        estimator, rows = unwrap(model, X)
        display: Self = cls.from_predictions(
            observed, estimator.predict_distribution(rows), **options
        )
        return display

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
        fitted, _ = unwrap(model)
        display: Self = cls.from_predictions(
            fitted.loo_targets(), fitted.loo_distribution(), **options
        )
        return display


def finite_targets(y: Any) -> Floats:
    """Targets of new rows; raises ValueError unless all are finite."""
    observed = float_array("y", to_host(y))
    if not np.isfinite(observed).all():
        row = int(np.argwhere(~np.isfinite(observed))[0][0])
        raise ValueError(f"y must be finite, got {observed[row]} at row {row}")
    return observed


def unwrap(model: Any, X: Any = None) -> tuple[Any, Any]:
    """The last estimator of a pipeline or the best of a search, and X as it reads it."""
    if hasattr(model, "best_estimator_"):
        return unwrap(model.best_estimator_, X)
    if hasattr(model, "steps"):
        if X is not None and len(model.steps) > 1:
            X = model[:-1].transform(X)
        return unwrap(model[-1], X)
    return model, X
