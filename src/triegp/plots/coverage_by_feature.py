"""Coverage of intervals by the value of a feature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
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
    set_labels,
)
from triegp.plots.features import (
    MISSING,
    Feature,
    read_feature,
    read_values,
    say_number,
    training_rows,
)
from triegp.plots.forecasts import Forecast, finite_targets, make_forecast, unwrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

OTHERS = "others"


@dataclass(eq=False)
class CoverageByFeatureDisplay:
    """Observed coverage of intervals by the value of a feature.

    Numbers, times and durations are put in bins of about equal numbers of rows. Categories are
    shown by frequency, the rarest together as "others". Missing values have a bin of their own.
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
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any,
        feature: int | str,
        *,
        coverage: float = 0.9,
        n_bins: int = 10,
        target: int | None = None,
        ax: Axes | None = None,
        marker_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
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
        coverage, n_bins, target, ax, marker_kw, band_kw
            As for `from_predictions`.
        """
        own, rows = unwrap(model, X)
        read = read_feature(X, feature, own if rows is X else None)
        forecast = make_forecast(finite_targets(y), own.predict_distribution(rows), target)
        display = cls._count(forecast, read, coverage, n_bins)
        return display.plot(ax, marker_kw=marker_kw, band_kw=band_kw)

    @classmethod
    def from_loo(
        cls,
        model: Any,
        feature: int | str,
        *,
        X: Any = None,
        coverage: float = 0.9,
        n_bins: int = 10,
        target: int | None = None,
        ax: Axes | None = None,
        marker_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
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
        coverage, n_bins, target, ax, marker_kw, band_kw
            As for `from_predictions`.

        Notes
        -----
        Rows of weight 0 are left out. All others count once, whatever their weight.
        """
        own, _ = unwrap(model)
        read = read_feature(training_rows(own) if X is None else X, feature, own)
        forecast = make_forecast(own.loo_targets(), own.loo_distribution(), target)
        display = cls._count(forecast, read, coverage, n_bins)
        return display.plot(ax, marker_kw=marker_kw, band_kw=band_kw)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        distribution: Any,
        values: Any,
        *,
        name: str = "feature",
        coverage: float = 0.9,
        n_bins: int = 10,
        target: int | None = None,
        ax: Axes | None = None,
        marker_kw: Mapping[str, Any] | None = None,
        band_kw: Mapping[str, Any] | None = None,
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
        coverage : float, default=0.9
            Nominal coverage, strictly between 0 and 1.
        n_bins : int, default=10
            Largest number of bins, missing values not counted.
        target : int, optional
            Which target; needed if there are several.
        ax, marker_kw, band_kw
            As for `plot`.
        """
        forecast = make_forecast(y, distribution, target)
        display = cls._count(forecast, read_values(values, name), coverage, n_bins)
        return display.plot(ax, marker_kw=marker_kw, band_kw=band_kw)

    @classmethod
    def _count(cls, forecast: Forecast, feature: Feature, coverage: float, n_bins: int) -> Self:
        coverage = check_coverage("coverage", coverage)
        if feature.values.size != forecast.known.size:
            raise ValueError(
                f"the feature must have {forecast.known.size} rows as y has, got "
                f"{feature.values.size}"
            )
        known = replace(feature, values=feature.values[forecast.known])
        bins, labels, edges = bin_feature(known, whole_number("n_bins", n_bins))
        inside = inside_intervals(forecast, coverage)
        counted = coverage_by_bin(inside, bins, len(labels), coverage)
        return cls(feature.name, feature.kind, coverage, labels, edges, *counted)

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
        numbers = (self.observed, self.low, self.high, self.coverage)
        draw_coverage(self.ax_, *numbers, self.labels, self.name, marker_kw, band_kw)
        if self.edges is not None:  # ticks between the bins say more with fewer words
            places = (np.arange(self.edges.size) - 0.5).tolist()
            step = 10.0 ** np.floor(np.log10(np.ptp(self.edges)) - 2.0)  # no digits below that
            shown = np.round(self.edges / step) * step
            if self.kind == "time":  # days, if there are more of them than bins
                days = np.floor(self.edges)
                shown = days if np.unique(days).size == days.size else self.edges
            texts = [say_number(value, self.kind) for value in shown.tolist()]
            if len(self.labels) == self.edges.size:
                places.append(self.edges.size - 1.0)
                texts.append(MISSING)
            set_labels(self.ax_, places, texts)
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        return self


def bin_feature(feature: Feature, n_bins: int) -> tuple[Ints, list[str], Floats | None]:
    """Bins of a feature: bin of each row (m,), what is in each bin, and edges of numbers.

    Bins without rows do not exist. Missing values have the last bin.
    """
    there = ~np.isnan(feature.values)
    values, edges = feature.values[there], None
    bins = np.zeros(feature.values.size, np.int64)
    labels: list[str] = []
    if feature.listed and values.size:
        codes, place, count = np.unique(values, return_inverse=True, return_counts=True)
        rank = np.argsort(np.argsort(-count, kind="stable"), kind="stable")
        many = codes.size > n_bins
        kept = n_bins - 1 if many else codes.size
        bins[there] = np.minimum(rank, kept)[place]
        frequent = codes[np.argsort(rank, kind="stable")][:kept]
        labels = [feature.label(code) for code in frequent]
        labels += [OTHERS] * many
    elif np.unique(values).size <= n_bins:
        distinct, bins[there] = np.unique(values, return_inverse=True)
        labels = [feature.label(value) for value in distinct]
    else:
        bins[there], edges = quantile_bins(values, n_bins)
        labels = [
            feature.label(low) if low == high else f"{feature.label(low)} to {feature.label(high)}"
            for low, high in pairwise(edges.tolist())
        ]
    if not there.all():
        bins[~there] = len(labels)
        labels.append(MISSING)
    return bins, labels, edges
