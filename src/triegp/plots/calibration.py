"""Calibration: observed against nominal coverage, and the histogram of P(Y <= y)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import whole_number
from triegp.metrics.forecasts import Forecast
from triegp.models.distribution import check_quantiles
from triegp.plots.canvas import (
    Style,
    draw_expected,
    draw_reference,
    dress,
    merge,
)
from triegp.plots.forecasts import ForecastDisplay
from triegp.plots.palette import current_palette

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

    @classmethod
    def from_forecast(cls, forecast: Forecast, levels: Any = LEVELS) -> Self:
        """Count targets inside intervals; nothing is drawn. O(K m) for m rows of K components.

        Parameters
        ----------
        forecast : Forecast
            Predictions of rows, with the observations there.
        levels : array-like (k,), default: 0.02, 0.04, ..., 0.98
            Nominal coverages, strictly between 0 and 1.
        """
        nominal = np.sort(check_quantiles(levels, "levels"))
        *inside, total = forecast.weight_inside([*nominal, 1.0])
        observed = np.array(inside) / total
        return cls(nominal, observed, *forecast.band(nominal), forecast.n_rows)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        line_kw: Style = None,
        band_kw: Style = None,
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
        ax = self._open(ax, (4.4, 4.2))
        draw_expected(ax, self.nominal, self.low, self.high, band_kw)
        draw_reference(ax, [0, 1], [0, 1])
        line = {"color": current_palette().accent, "linewidth": 2.0, "label": name or "observed"}
        ax.plot(self.nominal, self.observed, **merge(line_kw, **line))
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        dress(ax, "nominal coverage", "observed coverage", "upper left")
        return self


@dataclass(eq=False)
class PitDisplay(ForecastDisplay):
    """Histogram of the PIT, P(Y <= y) at each row, which is uniform if the model is calibrated.

    A hill says that distributions are too wide, a bowl that they are too narrow, a slope that they
    are biased. Use `from_estimator`, `from_loo` or `from_predictions`.

    Attributes
    ----------
    pit : float64 (m,)
        The transform of each row.
    edges : float64 (n_bins + 1,)
        Edges of the bins.
    density : float64 (n_bins,)
        Share of the rows in each bin times n_bins; 1 is uniform.
    low, high : float
        Binomial band: where the density of a bin lies with a probability of 95 % if the model is
        calibrated and rows are independent.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import PredictiveDistribution
    >>> from triegp.plots import PitDisplay
    >>> y = np.random.default_rng(0).standard_normal(1_000)
    >>> normal = PredictiveDistribution(np.ones(1), np.zeros((1, 1_000)), np.ones((1, 1_000)))
    >>> display = PitDisplay.from_predictions(y, normal, n_bins=10)
    >>> bool((display.density > display.low).all())
    True
    """

    pit: Floats
    edges: Floats
    density: Floats
    low: float
    high: float

    @classmethod
    def from_forecast(cls, forecast: Forecast, n_bins: int = 20) -> Self:
        """Count rows by their PIT; nothing is drawn. O(K m) for m rows of K components.

        Parameters
        ----------
        forecast : Forecast
            Predictions of rows, with the observations there.
        n_bins : int, default=20
            Number of bins.
        """
        n_bins = whole_number("n_bins", n_bins)
        edges = np.linspace(0.0, 1.0, n_bins + 1)
        count = np.histogram(forecast.pit, edges, weights=forecast.weight)[0]
        band = forecast.band(1.0 / n_bins, n_bins)
        return cls(forecast.pit, edges, count * (n_bins / count.sum()), *map(float, band))

    def plot(self, ax: Any = None, *, bar_kw: Style = None, band_kw: Style = None) -> Self:
        """Draw the histogram and the band around the uniform density.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        bar_kw, band_kw : dict, optional
            Keyword arguments for the bars (`Axes.bar`) and the band (`Axes.fill_between`).
        """
        accent, ax = current_palette().accent, self._open(ax)
        bars = merge(bar_kw, color=accent, alpha=0.45, linewidth=0.0)
        ax.bar(self.edges[:-1], self.density, np.diff(self.edges), align="edge", **bars)
        ax.stairs(self.density, self.edges, color=accent, linewidth=1.2)
        draw_expected(ax, [0, 1], self.low, self.high, band_kw)
        draw_reference(ax, [0, 1], [1, 1], zorder=2.1)
        top = max(1.3 * self.high, 1.1 * float(self.density.max()))
        ax.set(xlim=(0, 1), ylim=(0, top))
        dress(ax, "PIT, P(Y ≤ y)", "density", "upper right")
        return self
