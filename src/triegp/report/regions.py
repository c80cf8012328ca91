"""Where intervals are wide and narrow, and whether they keep their promise there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.encoding.tables import ReadTable
from triegp.plots.numbers import show_number
from triegp.report.features import Bins, bin_column, label_column
from triegp.report.forecasts import Forecast, share_of
from triegp.report.scores import chance_of, count_rows, is_off

Floats = npt.NDArray[np.float64]

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
        How many rows of equal weight would tell as much, see `count_rows`.
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
    n_bins = min(n_bins, width.size // FEWEST)
    edges = np.unique(np.quantile(width, np.arange(1, n_bins) / n_bins))
    index = np.searchsorted(edges, width, side="left")
    labels = []
    for k in range(edges.size + 1):
        own = width[index == k]
        ends = (own.min(), own.max()) if own.size else (np.nan, np.nan)
        labels.append(" to ".join(show_number(float(end), 3) for end in ends))
    return _summarise(forecast, Bins(tuple(labels), index))


def regions_by_feature(
    forecast: Forecast, table: ReadTable, n_features: int = N_FEATURES
) -> tuple[FeatureRegions, ...]:
    """Bins of the features by which widths differ most, those first.

    table: with the rows that `forecast.row` points to.
    """
    rows = forecast.row[forecast.sample]
    some = ReadTable(table.data[rows], table.columns)
    width, weight = _widths(forecast), forecast.sampled_weight()
    log_width = np.log(np.maximum(width, np.finfo(np.float64).tiny))
    found = []
    for j in range(some.shape[1]):
        bins = bin_column(some, j, N_BINS)
        regions = _summarise(forecast, bins)
        if len(regions) > 1:
            share = explained_share(log_width, bins, weight)
            found.append(FeatureRegions(label_column(table.columns, j), share, regions))
    found.sort(key=lambda one: -one.share)
    return tuple(one for k, one in enumerate(found[:n_features]) if k == 0 or one.share > LEAST)


def explained_share(values: Floats, bins: Bins, weight: Floats | None) -> float:
    """Share of the variance of values that lies between bins, less what chance gives."""
    count = np.ones(values.size) if weight is None else weight
    total = np.bincount(bins.index, count, len(bins.labels))
    mean = np.bincount(bins.index, count * values, len(bins.labels)) / np.maximum(total, 1e-300)
    centre = share_of(values, weight)
    spread = share_of((values - centre) ** 2, weight)
    if spread <= 0:
        return 0.0
    between = float(np.average((mean - centre) ** 2, weights=total)) / spread
    n, k = count_rows(weight, values.size), int((total > 0).sum())
    return max(0.0, 1.0 - (1.0 - between) * (n - 1.0) / max(n - k, 1.0))


def _widths(forecast: Forecast) -> Floats:
    return np.asarray(np.diff(forecast.interval(LEVEL), axis=1)[:, 0])


def _summarise(forecast: Forecast, bins: Bins) -> tuple[Region, ...]:
    """Regions of the sampled rows, without those of few rows."""
    width, weight = _widths(forecast), forecast.sampled_weight()
    inside = forecast.inside(LEVEL)[forecast.sample]
    error = np.abs(forecast.residual[forecast.sample])
    found = []
    for k, label in enumerate(bins.labels):
        own = np.flatnonzero(bins.index == k)
        if own.size < FEWEST:
            continue
        count = None if weight is None else weight[own]
        share = share_of(inside[own], count)
        n_effective = count_rows(count, own.size)
        low, high = chance_of(LEVEL, n_effective)
        size, off = share_of(width[own], count), share_of(error[own], count)
        found.append(Region(label, own.size, n_effective, size, off, share, low, high))
    return tuple(found)
