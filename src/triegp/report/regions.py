"""Where intervals are wide and narrow, and whether they keep their promise there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.encoding.tables import ReadTable
from triegp.metrics.forecasts import (
    Forecast,
    binomial_band,
    effective_rows,
    weighted_mean,
)
from triegp.metrics.summary import is_off
from triegp.plots.features import bin_values, column_of, quantile_bins
from triegp.plots.text import show_number

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVEL = 0.9  # nominal coverage of the intervals
N_BINS = 6  # of a feature
N_FEATURES = 4  # features shown
LEAST = 0.01  # share of the variance of log width that a feature must explain, but for the first
FEWEST = 20  # rows of a bin that is shown


@dataclass(frozen=True)
class Region:
    """Rows in one bin.

    Attributes
    ----------
    label : str
        What the bin holds.
    n_rows : int
        Rows in the bin, of those that were looked at.
    n_effective : float
        How many rows of equal weight would tell as much, see `effective_rows`.
    width : float
        Mean width of their 90 % intervals.
    error : float
        Mean absolute error.
    coverage : float
        Share of the rows inside their interval.
    low, high : float
        Where that share lies 19 times in 20 if the model is calibrated and rows are independent.
    """

    label: str
    n_rows: int
    n_effective: float
    width: float
    error: float
    coverage: float
    low: float
    high: float

    @property
    def is_off(self) -> bool:
        """Whether chance does not explain the coverage, and the difference matters."""
        return is_off(self.coverage, LEVEL, self.low, self.high)


@dataclass(frozen=True)
class FeatureRegions:
    """Bins of one feature; share: of the variance of log width that they explain."""

    feature: str
    share: float
    regions: tuple[Region, ...]


def regions_by_width(forecast: Forecast, n_bins: int = 10) -> tuple[Region, ...]:
    """Rows by the width of their interval, narrow ones first."""
    width = _widths(forecast)
    if width.size < 2 * FEWEST:
        return ()
    bins, edges = quantile_bins(width, min(n_bins, width.size // FEWEST))
    labels = []
    for k in range(edges.size - 1):
        ends = width[bins == k].min(), width[bins == k].max()
        labels.append(" to ".join(show_number(float(end), 3) for end in ends))
    return _summarise(forecast, bins, labels)


def regions_by_feature(
    forecast: Forecast, table: ReadTable, n_features: int = N_FEATURES
) -> tuple[FeatureRegions, ...]:
    """Bins of the features by which widths differ most, those first.

    table: with the rows that `forecast.row` points to.
    """
    rows = ReadTable(table.data[forecast.row[forecast.sample]], table.columns)
    log_width = np.log(np.maximum(_widths(forecast), np.finfo(np.float64).tiny))
    groups = []
    for j in range(rows.shape[1]):
        column = column_of(rows, j)
        bins, labels, _ = bin_values(column, N_BINS, "{:,} other categories")
        regions = _summarise(forecast, bins, labels)
        if len(regions) > 1:
            share = explained_share(log_width, bins, forecast.sampled_weight)
            groups.append(FeatureRegions(column.name, share, regions))
    groups.sort(key=lambda group: -group.share)
    return (*groups[:1], *(group for group in groups[1:n_features] if group.share > LEAST))


def explained_share(values: Floats, bins: Ints, weight: Floats | None) -> float:
    """Share of the variance of values that lies between bins, less what chance gives."""
    count = np.ones(values.size) if weight is None else weight
    total = np.bincount(bins, count)
    mean = np.bincount(bins, count * values) / np.maximum(total, 1e-300)
    centre = weighted_mean(values, weight)
    spread = weighted_mean((values - centre) ** 2, weight)
    if spread <= 0:
        return 0.0
    between = float(np.average((mean - centre) ** 2, weights=total)) / spread
    n, k = effective_rows(weight, values.size), int((total > 0).sum())
    return max(0.0, 1.0 - (1.0 - between) * (n - 1.0) / max(n - k, 1.0))


def _widths(forecast: Forecast) -> Floats:
    return np.asarray(np.diff(forecast.interval(LEVEL), axis=1)[:, 0])


def _summarise(forecast: Forecast, bins: Ints, labels: Sequence[str]) -> tuple[Region, ...]:
    """Regions of the sampled rows, without those of few rows."""
    weight, sample = forecast.sampled_weight, forecast.sample
    width, error = _widths(forecast), np.abs(forecast.residual[sample])
    inside = forecast.inside(LEVEL)[sample]
    regions = []
    for k, label in enumerate(labels):
        rows = np.flatnonzero(bins == k)
        if rows.size < FEWEST:
            continue
        count = None if weight is None else weight[rows]
        n_effective = effective_rows(count, rows.size)
        means = [weighted_mean(values[rows], count) for values in (width, error, inside)]
        band = map(float, binomial_band(max(1, round(n_effective)), LEVEL))
        regions.append(Region(label, rows.size, n_effective, *means, *band))
    return tuple(regions)
