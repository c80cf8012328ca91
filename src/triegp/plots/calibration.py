"""Nominal against observed coverage of central intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import float_array, positive_number
from triegp.plots.canvas import draw_expected, draw_legend, draw_reference, dress, merge, open_axes
from triegp.plots.forecasts import ForecastDisplay, binomial_band, make_forecast, pit_of
from triegp.plots.palette import current_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

LEVELS = np.linspace(0.02, 0.98, 49)


@dataclass(eq=False)
class CalibrationDisplay(ForecastDisplay):
    """Calibration curve: nominal against observed coverage of central intervals.

    Above the diagonal, intervals are too wide; below, too narrow. Use `from_estimator`, `from_loo`
    or `from_predictions`.

    Attributes
    ----------
    nominal : float64 (k,)
        Nominal coverages.
    observed : float64 (k,)
        Share of the rows whose target lies inside the interval.
    low, high : float64 (k,)
        Binomial band: where the observed coverage of a calibrated model lies with a probability of
        95 %, at each nominal coverage by itself, if rows are independent.
    n_rows : int
        Number of rows.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.plots import CalibrationDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 1))
    >>> y = X[:, 0] + 0.1 * rng.standard_normal(200)
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, y)
    >>> display = CalibrationDisplay.from_loo(model)
    >>> display.n_rows, display.observed.shape
    (200, (49,))
    """

    nominal: Floats
    observed: Floats
    low: Floats
    high: Floats
    n_rows: int
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        distribution: Any,
        *,
        levels: Any = LEVELS,
        target: int | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        line_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Calibration curve of predictive distributions. O(K m) for m rows of K components.

        Parameters
        ----------
        y : array-like (m,) or (m, n_targets)
            Targets. Rows with NaN are left out.
        distribution : PredictiveDistribution or TransformedDistribution, or a list of them
            What was predicted.
        levels : array-like (k,), default: 0.02, 0.04, ..., 0.98
            Nominal coverages, strictly between 0 and 1.
        target : int, optional
            Which target; needed if there are several.
        name, ax, line_kw, band_kw
            As for `plot`.
        """
        nominal = check_coverages("levels", levels)
        forecast = make_forecast(y, distribution, target)
        # The central interval of coverage c contains y if P(Y <= y) is within c / 2 of a half.
        reached = np.sort(np.abs(2.0 * pit_of(forecast) - 1.0))
        observed = np.searchsorted(reached, nominal, side="right") / forecast.n_rows
        low, high = binomial_band(forecast.n_rows, nominal)
        display = cls(nominal, observed, low, high, forecast.n_rows)
        return display.plot(ax, name=name, line_kw=line_kw, band_kw=band_kw)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        name: str | None = None,
        line_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Draw the curve, the diagonal and the band around it.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        name : str, optional
            Name of the curve in the legend, default "observed".
        line_kw, band_kw : dict, optional
            Keyword arguments for the curve (`Axes.plot`) and the band (`Axes.fill_between`).
        """
        palette, self.ax_ = current_palette(), open_axes(ax, (4.4, 4.2))
        label = "95 % if calibrated"
        draw_expected(self.ax_, self.nominal, self.low, self.high, label, **(band_kw or {}))
        draw_reference(self.ax_, [0, 1], [0, 1])
        defaults = {"color": palette.accent, "linewidth": 2.0, "label": name or "observed"}
        self.ax_.plot(self.nominal, self.observed, **merge(defaults, line_kw))
        self.ax_.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        dress(self.ax_, "nominal coverage", "observed coverage")
        draw_legend(self.ax_, loc="upper left")
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        return self


def check_coverages(name: str, value: Any) -> Floats:
    """Coverages as an ascending vector (k,); raises ValueError unless all lie in (0, 1)."""
    levels = np.sort(np.atleast_1d(float_array(name, value)).ravel())
    if not (levels.size and ((levels > 0) & (levels < 1)).all()):
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {levels}")
    return levels


def check_coverage(name: str, value: Any) -> float:
    """One coverage; raises ValueError unless it lies in (0, 1)."""
    number = positive_number(name, value)
    if not number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return number
