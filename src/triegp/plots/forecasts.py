"""Constructors of displays that compare predictions with targets, and the models they open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array
from triegp.devices import to_host
from triegp.metrics.forecasts import make_forecast, unwrap
from triegp.plots.canvas import Display

Floats = npt.NDArray[np.float64]


class ForecastDisplay(Display):
    """Constructors of the displays that compare predictive distributions with targets."""

    from_forecast: ClassVar[Callable[..., Any]]  # (forecast, **options), the numbers alone

    @classmethod
    def from_predictions(
        cls, y: Any, distribution: Any, *, target: int | None = None, **options: Any
    ) -> Self:
        """Compare predictive distributions with targets.

        Parameters
        ----------
        y : array-like (m,) or (m, n_targets)
            Targets. Rows with NaN are left out.
        distribution : PredictiveDistribution or TransformedDistribution, or a list of them
            What was predicted.
        target : int, optional
            Which target; needed if there are several.
        **options
            As for `from_forecast` and `plot`.
        """
        style = {name: options.pop(name) for name in [*options] if is_style(name)}
        display = cls.from_forecast(make_forecast(y, distribution, target), **options)
        drawn: Self = display.plot(**style)
        return drawn

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
        return cls.from_predictions(observed, estimator.predict_distribution(rows), **options)

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
        return cls.from_predictions(fitted.loo_targets(), fitted.loo_distribution(), **options)


def is_style(name: str) -> bool:
    """Whether a keyword argument says how and where to draw."""
    return name in ("ax", "name") or name.endswith("_kw")


def finite_targets(y: Any) -> Floats:
    """Targets of new rows; raises ValueError unless all are finite."""
    observed = float_array("y", to_host(y))
    if not np.isfinite(observed).all():
        row = int(np.argwhere(~np.isfinite(observed))[0][0])
        raise ValueError(f"y must be finite, got {observed[row]} at row {row}")
    return observed
