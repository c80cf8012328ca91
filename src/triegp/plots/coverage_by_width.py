"""Coverage of intervals by their width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import whole_number
from triegp.plots.calibration import check_coverage
from triegp.plots.canvas import open_axes
from triegp.plots.coverage import (
    coverage_by_bin,
    draw_coverage,
    inside_intervals,
    quantile_bins,
)
from triegp.plots.forecasts import ForecastDisplay, make_forecast
from triegp.plots.numbers import show_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class CoverageByWidthDisplay(ForecastDisplay):
    """Observed coverage of intervals by their predicted width.

    Coverage can be right on average, with too much where intervals are wide and too little where
    they are narrow. Use `from_estimator`, `from_loo` or `from_predictions`.

    Attributes
    ----------
    coverage : float
        Nominal coverage.
    width : float64 (n_bins,)
        Median width of the intervals in each bin.
    edges : float64 (n_bins + 1,)
        Widths at which bins begin and end.
    count : int64 (n_bins,)
        Rows in each bin.
    observed : float64 (n_bins,)
        Share of these whose target lies inside.
    low, high : float64 (n_bins,)
        Binomial band: where that share lies with a probability of 95 % in each bin, if the model is
        calibrated and rows are independent.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import PredictiveDistribution
    >>> from triegp.plots import CoverageByWidthDisplay
    >>> rng = np.random.default_rng(0)
    >>> var = rng.random((1, 2_000))
    >>> y = np.sqrt(var[0]) * rng.standard_normal(2_000)
    >>> right = PredictiveDistribution(np.ones(1), np.zeros((1, 2_000)), var)
    >>> wrong = PredictiveDistribution(np.ones(1), np.zeros((1, 2_000)), var**2)  # too uneven
    >>> CoverageByWidthDisplay.from_predictions(y, right, n_bins=4).observed.round(2)
    array([0.9 , 0.89, 0.92, 0.88])
    >>> CoverageByWidthDisplay.from_predictions(y, wrong, n_bins=4).observed.round(2)
    array([0.41, 0.68, 0.85, 0.85])
    """

    coverage: float
    width: Floats
    edges: Floats
    count: Ints
    observed: Floats
    low: Floats
    high: Floats
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        distribution: Any,
        *,
        coverage: float = 0.9,
        n_bins: int = 10,
        target: int | None = None,
        ax: Axes | None = None,
        marker_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Coverage by width of predictive distributions.

        Parameters
        ----------
        y : array-like (m,) or (m, n_targets)
            Targets. Rows with NaN are left out.
        distribution : PredictiveDistribution or TransformedDistribution, or a list of them
            What was predicted.
        coverage : float, default=0.9
            Nominal coverage, strictly between 0 and 1.
        n_bins : int, default=10
            Bins of about equal numbers of rows; fewer if many widths are equal.
        target : int, optional
            Which target; needed if there are several.
        ax, marker_kw, band_kw
            As for `plot`.

        Notes
        -----
        O(K m) per step of the quantiles, seldom more than ten steps, and O(m log m).
        """
        coverage = check_coverage("coverage", coverage)
        n_bins = whole_number("n_bins", n_bins)
        forecast = make_forecast(y, distribution, target)
        width = np.diff(forecast.distribution.interval(coverage), axis=1)[:, 0]
        bins, edges = quantile_bins(width, n_bins)
        inside = inside_intervals(forecast, coverage)
        counted = coverage_by_bin(inside, bins, edges.size - 1, coverage)
        median = np.array([np.median(width[bins == k]) for k in range(edges.size - 1)])
        display = cls(coverage, median, edges, *counted)
        return display.plot(ax, marker_kw=marker_kw, band_kw=band_kw)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        marker_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
    ) -> Self:
        """Draw a mark per bin, and the band in which it should lie.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        marker_kw, band_kw : dict, optional
            Keyword arguments for the marks (`Axes.plot`) and the bands (`Axes.bar`).
        """
        self.ax_ = open_axes(ax)
        labels = [show_number(value, 2) for value in self.width.tolist()]
        xlabel = "median width of the intervals in a bin"
        numbers = (self.observed, self.low, self.high, self.coverage)
        draw_coverage(self.ax_, *numbers, labels, xlabel, marker_kw, band_kw)
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        return self
