"""Standardised residuals over the predicted deviation or mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from triegp.checks import one_of, whole_number
from triegp.metrics.forecasts import Forecast
from triegp.plots.canvas import DASHED, Style, draw_colorbar, draw_points, dress, merge, ramp
from triegp.plots.features import quantile_bins
from triegp.plots.forecasts import ForecastDisplay
from triegp.plots.palette import current_palette

Floats = npt.NDArray[np.float64]

OVER = {"std": "standard deviation", "mean": "mean"}
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
BIN_ROWS = 400  # rows of a bin that tell the quantiles which it should have
STEPS = np.sinh(np.linspace(-4.0, 4.0, 161))  # residuals at which distributions are evaluated
MOST_POINTS = 5_000  # more are drawn as hexagons
WIDE_RANGE = 30.0  # ratio of deviations from which their axis is logarithmic


@dataclass(eq=False)
class ResidualDisplay(ForecastDisplay):
    """Standardised residuals, (y - mean) / std, over the predicted std or mean.

    Solid lines are the quantiles of the residuals in bins of rows, dashed ones those that they
    should have. A fan says that deviations are wrong, a bend that means are. Use `from_estimator`,
    `from_loo` or `from_predictions`.

    Attributes
    ----------
    over : {"std", "mean"}
        What x is.
    x, residual : float64 (m,)
        Predicted std or mean, and residual of each row. A residual is 0 if it is 0 / 0, and NaN if
        mean or deviation are infinite.
    levels : float64 (5,)
        Probabilities of the quantiles: 0.05, 0.25, 0.5, 0.75, 0.95.
    middle : float64 (n_bins,)
        Median of x in each bin.
    observed, expected : float64 (n_bins, 5)
        Quantiles of the residuals in each bin, and those under the predictive distributions: of all
        rows of a bin together, at most 400 of them.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import PredictiveDistribution
    >>> from triegp.plots import ResidualDisplay
    >>> rng = np.random.default_rng(0)
    >>> var = rng.random((1, 2_000))
    >>> y = np.sqrt(var[0]) * rng.standard_normal(2_000)
    >>> normal = PredictiveDistribution(np.ones(1), np.zeros((1, 2_000)), var)
    >>> display = ResidualDisplay.from_predictions(y, normal, n_bins=1)
    >>> display.expected.round(2)
    array([[-1.64, -0.67,  0.  ,  0.67,  1.64]])
    """

    over: str
    x: Floats
    residual: Floats
    levels: Floats
    middle: Floats
    observed: Floats
    expected: Floats

    @classmethod
    def from_forecast(cls, forecast: Forecast, over: str = "std", n_bins: int = 10) -> Self:
        """Residuals and their quantiles in bins; nothing is drawn.

        Parameters
        ----------
        forecast : Forecast
            Predictions of rows, with the observations there.
        over : {"std", "mean"}, default="std"
            Whether x is the predicted standard deviation or the predicted mean.
        n_bins : int, default=10
            Bins of about equal numbers of rows, in which quantiles are computed.

        Notes
        -----
        O(K m) for the moments, O(m log m) for the bins, and O(64,000 K) per bin for the quantiles
        that residuals should have.
        """
        one_of("over", over, tuple(OVER))
        mean, std = forecast.mean, forecast.distribution.std()
        with np.errstate(divide="ignore", invalid="ignore"):
            residual = forecast.residual / std
        residual[forecast.y == mean] = 0.0
        residual[~np.isfinite(mean + std)] = np.nan
        x = std if over == "std" else mean
        usable = np.isfinite(residual)
        if not usable.any():
            raise ValueError("distribution must have finite means and positive deviations")
        bins, edges = quantile_bins(x[usable], whole_number("n_bins", n_bins))
        groups = [np.flatnonzero(usable)[bins == k] for k in range(edges.size - 1)]
        observed = np.array([np.quantile(residual[rows], LEVELS) for rows in groups])
        expected = np.array([_expected(forecast, rows, std) for rows in groups])
        middle = np.array([np.median(x[rows]) for rows in groups])
        return cls(over, x, residual, LEVELS.copy(), middle, observed, expected)

    def plot(self, ax: Any = None, *, point_kw: Style = None, line_kw: Style = None) -> Self:
        """Draw residuals and their quantiles.

        Up to 5,000 rows are drawn as points, more as hexagons by the logarithm of their number. So
        a million rows take about a second. Residuals beyond the axis, at most about one in a
        thousand, are drawn at its border.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        point_kw, line_kw : dict, optional
            Keyword arguments for the points (`Axes.plot`) or hexagons (`Axes.hexbin`), and for the
            lines of observed quantiles (`Axes.plot`).
        """
        palette, ax = current_palette(), self._open(ax)
        shown = np.isfinite(self.residual) & np.isfinite(self.x)
        x, residual = self.x[shown], self.residual[shown]
        lines = float(max(np.abs(self.observed).max(), np.abs(self.expected).max()))
        reach = float(np.clip(np.quantile(np.abs(residual), 0.999), 1.4 * lines, 4.0 * lines))
        reach = max(reach, 3.0)
        wide = self.over == "std" and bool(x.min() > 0 and x.max() > WIDE_RANGE * x.min())
        scale, drawn = "log" if wide else "linear", residual.clip(-reach, reach)
        if x.size <= MOST_POINTS:
            points = {"color": palette.faint, "alpha": 0.6, "markersize": 2 if x.size > 500 else 3}
            draw_points(ax, x, drawn, point_kw, **points)
            ax.set_xscale(scale)
        else:
            cells = {"gridsize": (60, 30), "bins": "log", "mincnt": 1, "linewidths": 0.0}
            hexagons = merge(point_kw, **cells, cmap=ramp(), xscale=scale)
            draw_colorbar(ax, ax.hexbin(x, drawn, **hexagons), "rows")
        expected = {"color": palette.ink, "linewidth": 1.2, "linestyle": DASHED}
        for k, level in enumerate(self.levels):
            names = (None, None) if k else ("observed 5, 25, 50, 75, 95 %", "if calibrated")
            line = {"linewidth": 2.0 if level == 0.5 else 1.3, "marker": "o", "markersize": 3}
            line = merge(line_kw, color=palette.accent2, label=names[0], **line)
            ax.plot(self.middle, self.observed[:, k], **line)
            ax.plot(self.middle, self.expected[:, k], label=names[1], **expected)
        ax.set_ylim(-1.05 * reach, 1.35 * reach)
        dress(ax, f"predicted {OVER[self.over]}", "standardised residual", "upper right", 2)
        return self


def _expected(forecast: Forecast, rows: Any, std: Floats) -> Floats:
    """Quantiles of the residuals of some rows together, under their distributions, (5,)."""
    if rows.size > BIN_ROWS:
        rows = rows[np.linspace(0, rows.size - 1, BIN_ROWS).astype(np.int64)]
    rows = rows[std[rows] > 0]
    if not rows.size:
        return np.zeros(LEVELS.size)
    group, mean, std = forecast.distribution.select(rows), forecast.mean[rows], std[rows]
    below = np.array([group.cdf(mean + z * std).mean() for z in STEPS])
    # By normal scores, between which lines are nearly straight.
    scores = ndtri(below.clip(1e-15, 1.0 - 1e-15))
    return np.asarray(np.interp(ndtri(LEVELS), scores, STEPS))
