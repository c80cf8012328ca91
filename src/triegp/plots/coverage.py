"""Coverage of intervals in groups of rows: by their width, and by the value of a feature."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.checks import whole_number
from triegp.metrics.forecasts import Forecast, binomial_band, make_forecast, unwrap
from triegp.models.distribution import interval_quantiles
from triegp.plots.canvas import (
    IF_CALIBRATED,
    Display,
    Style,
    draw_reference,
    dress,
    merge,
    set_labels,
)
from triegp.plots.features import (
    Feature,
    bin_values,
    quantile_bins,
    read_feature,
    read_values,
    training_rows,
)
from triegp.plots.forecasts import ForecastDisplay, finite_targets
from triegp.plots.palette import current_palette
from triegp.plots.text import MISSING, show_number, show_value

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

    @classmethod
    def from_forecast(cls, forecast: Forecast, coverage: float = 0.9, n_bins: int = 10) -> Self:
        """Count targets inside intervals, in bins of their widths; nothing is drawn.

        Parameters
        ----------
        forecast : Forecast
            Predictions of rows, with the observations there.
        coverage : float, default=0.9
            Nominal coverage, strictly between 0 and 1.
        n_bins : int, default=10
            Bins of about equal numbers of rows; fewer if many widths are equal.

        Notes
        -----
        O(K m) per step of the quantiles, seldom more than ten steps, and O(m log m).
        """
        interval_quantiles(coverage)  # raises ValueError unless it lies in (0, 1)
        width = np.diff(forecast.distribution.interval(coverage), axis=1)[:, 0]
        bins, edges = quantile_bins(width, whole_number("n_bins", n_bins))
        median = np.array([np.median(width[bins == k]) for k in range(edges.size - 1)])
        return cls(coverage, median, edges, *coverage_by_bin(forecast, bins, coverage))

    def plot(self, ax: Any = None, *, marker_kw: Style = None, band_kw: Style = None) -> Self:
        """Draw a mark per bin, and the band in which it should lie.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        marker_kw, band_kw : dict, optional
            Keyword arguments for the marks (`Axes.plot`) and the bands (`Axes.bar`).
        """
        ax = self._open(ax)
        draw_coverage(ax, self, "median width of the intervals in a bin", marker_kw, band_kw)
        labels = [show_number(value, 2) for value in self.width.tolist()]
        set_labels(ax, np.arange(self.width.size), labels)
        return self


@dataclass(eq=False)
class CoverageByFeatureDisplay(Display):
    """Observed coverage of intervals by the value of a feature.

    Numbers, times and durations are put in bins of about equal numbers of rows. Categories are
    shown by frequency, the rarest together as "others", ordered ones in their order. Missing values
    have a bin of their own.
    Use `from_estimator`, `from_loo` or `from_predictions`.

    Attributes
    ----------
    name : str
        Name of the feature.
    kind : {"number", "category", "ordered", "time", "duration"}
        Its kind.
    coverage : float
        Nominal coverage.
    labels : list of str
        What is in each bin.
    edges : float64 (k + 1,) or None
        Edges of the k bins of numbers, in days for times and durations. None for categories, and
        if there are at most n_bins distinct numbers, which then have a bin each.
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
    >>> from triegp.plots import CoverageByFeatureDisplay
    >>> rng = np.random.default_rng(0)
    >>> town = rng.choice(["Bonn", "Rome"], 2_000)
    >>> y = np.where(town == "Bonn", 1.0, 2.0) * rng.standard_normal(2_000)
    >>> same = PredictiveDistribution(np.ones(1), np.zeros((1, 2_000)), np.full((1, 2_000), 2.5))
    >>> display = CoverageByFeatureDisplay.from_predictions(y, same, town, name="town")
    >>> dict(zip(display.labels, display.observed.round(2).tolist()))
    {'Rome': 0.8, 'Bonn': 0.99}
    """

    name: str
    kind: str
    coverage: float
    labels: list[str]
    edges: Floats | None
    count: Ints
    observed: Floats
    low: Floats
    high: Floats

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any,
        feature: int | str,
        *,
        target: int | None = None,
        **options: Any,
    ) -> Self:
        """Predict rows and compare with their targets, which the model must not have seen.

        Parameters
        ----------
        model : estimator
            A fitted TrieGPRegressor or BinaryTreeGPRegressor, or a pipeline or search that ends in
            one.
        X : array-like or data frame (m, n_features)
            Rows, as the pipeline reads them; `feature` is one of these columns.
        y : array-like (m,) or (m, n_targets)
            Their targets, finite.
        feature : int or str
            Number or name of a column.
        target, **options
            As for `from_predictions`.
        """
        fitted, rows = unwrap(model, X)
        column = read_feature(X, feature, fitted if rows is X else None)
        distribution = fitted.predict_distribution(rows)
        forecast = make_forecast(finite_targets(y), distribution, target)
        return cls._of_column(forecast, column, **options)

    @classmethod
    def from_loo(
        cls,
        model: Any,
        feature: int | str,
        *,
        X: Any = None,
        target: int | None = None,
        **options: Any,
    ) -> Self:
        """Compare the training targets with their leave-one-out predictions.

        Parameters
        ----------
        model : estimator
            As for `from_estimator`.
        feature : int or str
            Number or name of a column.
        X : array-like or data frame (n, n_features), optional
            The training rows in the order in which they were passed. Needed if the model does not
            keep them, or has columns that are not numbers.
        target, **options
            As for `from_predictions`.

        Notes
        -----
        Rows of weight 0 are left out. All others count once, whatever their weight.
        """
        fitted, _ = unwrap(model)
        column = read_feature(training_rows(fitted) if X is None else X, feature, fitted)
        forecast = make_forecast(fitted.loo_targets(), fitted.loo_distribution(), target)
        return cls._of_column(forecast, column, **options)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        distribution: Any,
        values: Any,
        *,
        name: str = "feature",
        target: int | None = None,
        **options: Any,
    ) -> Self:
        """Coverage of predictive distributions by the values of a feature.

        Parameters
        ----------
        y : array-like (m,) or (m, n_targets)
            Targets. Rows with NaN are left out.
        distribution : PredictiveDistribution or TransformedDistribution, or a list of them
            What was predicted.
        values : array-like (m,)
            The feature: numbers, strings, categories, dates or durations; NaN and None are missing.
        name : str, default="feature"
            Its name.
        target : int, optional
            Which target; needed if there are several.
        **options
            `coverage`, the nominal coverage, 0.9 by default; `n_bins`, the largest number of bins,
            missing values not counted, 10 by default; and those of `plot`.
        """
        forecast = make_forecast(y, distribution, target)
        return cls._of_column(forecast, read_values(values, name), **options)

    @classmethod
    def _of_column(
        cls,
        forecast: Forecast,
        feature: Feature,
        coverage: float = 0.9,
        n_bins: int = 10,
        **style: Any,
    ) -> Self:
        interval_quantiles(coverage)  # raises ValueError unless it lies in (0, 1)
        if feature.values.size != forecast.n_passed:
            raise ValueError(
                f"the feature must have {forecast.n_passed} rows as y has, got "
                f"{feature.values.size}"
            )
        column = replace(feature, values=feature.values[forecast.row])
        bins, labels, edges = bin_values(column, whole_number("n_bins", n_bins))
        counts = coverage_by_bin(forecast, bins, coverage)
        return cls(feature.name, feature.kind, coverage, labels, edges, *counts).plot(**style)

    def plot(self, ax: Any = None, *, marker_kw: Style = None, band_kw: Style = None) -> Self:
        """Draw a mark per bin, and the band in which it should lie.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        marker_kw, band_kw : dict, optional
            Keyword arguments for the marks (`Axes.plot`) and the bands (`Axes.bar`).
        """
        ax = self._open(ax)
        draw_coverage(ax, self, self.name, marker_kw, band_kw)
        if self.edges is None:
            set_labels(ax, np.arange(len(self.labels)), self.labels)
            return self
        # Ticks between the bins say more with fewer words.
        places = (np.arange(self.edges.size) - 0.5).tolist()
        step = 10.0 ** np.floor(np.log10(np.ptp(self.edges)) - 2.0)  # no digits below that
        shown = np.round(self.edges / step) * step
        if self.kind == "time":  # days, if there are more of them than bins
            days = np.floor(self.edges)
            shown = days if np.unique(days).size == days.size else self.edges
        texts = [show_value(value, self.kind, digits=3) for value in shown.tolist()]
        if len(self.labels) == self.edges.size:
            places.append(self.edges.size - 1.0)
            texts.append(MISSING)
        set_labels(ax, places, texts)
        return self


def coverage_by_bin(
    forecast: Forecast, bins: Ints, coverage: float
) -> tuple[Ints, Floats, Floats, Floats]:
    """Rows, observed coverage and its binomial band in each bin, (n_bins,) each."""
    count = np.bincount(bins)
    observed = np.bincount(bins, forecast.inside(coverage)) / count
    return count, observed, *binomial_band(count, coverage)


def draw_coverage(
    ax: Any,
    display: CoverageByWidthDisplay | CoverageByFeatureDisplay,
    xlabel: str,
    marker_kw: Style,
    band_kw: Style,
) -> None:
    """A mark per bin, before the band in which it should lie; marks outside stand out."""
    palette, observed, coverage = current_palette(), display.observed, display.coverage
    low, high, x = display.low, display.high, np.arange(observed.size)
    band = {"color": palette.faint, "alpha": 0.25, "linewidth": 0.0, "label": IF_CALIBRATED}
    ax.bar(x, high - low, 0.8, bottom=low, **merge(band_kw, **band))
    draw_reference(ax, [-0.5, observed.size - 0.5], [coverage, coverage])
    off = (observed < low) | (observed > high)
    for chosen, color, marker, label in (
        (~off, palette.accent, "o", "observed"),
        (off, palette.warn, "D", "observed, outside"),
    ):
        if chosen.any():
            marks: dict[str, Any] = {"linestyle": "none", "markersize": 6, "label": label}
            marks |= {"color": color, "marker": marker}
            ax.plot(x[chosen], observed[chosen], **merge(marker_kw, **marks))
    bottom = float(min(low.min(), observed.min()))
    ax.set(xlim=(-0.6, observed.size - 0.4), ylim=(max(bottom - 0.25 * (1.0 - bottom), 0), 1.01))
    dress(ax, xlabel, f"coverage of {100 * coverage:g} % intervals", "lower left", 2)
