"""Rows that were predicted worst, and rows that look like outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from triegp.encoding.tables import ReadTable
from triegp.metrics.forecasts import Forecast, sample_rows
from triegp.plots.features import column_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVEL = 0.9  # nominal coverage of the intervals shown
MANY_OUTLIERS = 0.01  # share of rows from which on they are no outliers but long tails
SURPRISING = 0.05  # rows that Gaussian noise would put so far out: fewer make a row an outlier
FEWEST_EXAMINED = 5_000  # rows of smallest tail probability, among which outliers are searched
EXAMINED = 2.0 * MANY_OUTLIERS  # share of the rows that are, if more: long tails must be seen
QUARTILE = 0.6744897501960817  # of the standard normal distribution
RARE = 0.05  # a value is unusual if at most this share of the rows is as far out
MOST_VALUES = 2  # unusual values shown per row
MOST_COMPARED = 20_000  # rows that values are compared with


@dataclass(frozen=True)
class RowFacts:
    """One row.

    Attributes
    ----------
    row : int
        Number of the row in the table that was passed, from 0.
    y, mean, low, high : float
        Target, prediction and its 90 % interval.
    z : float
        Distance from the predictive median, in deviations of its core: that of the Gaussian with
        the same quartiles. Long tails do not enlarge it.
    expected : float
        Rows that Gaussian noise would put at least as far out, among all n rows.
    unusual : tuple of (str, str, float)
        Features with unusual values: name, value, share of the rows that are as far out.
    """

    row: int
    y: float
    mean: float
    low: float
    high: float
    z: float
    expected: float
    unusual: tuple[tuple[str, str, float], ...]


def worst_rows(forecast: Forecast, table: ReadTable | None, most: int) -> tuple[RowFacts, ...]:
    """Rows with the largest absolute errors, largest first."""
    return _describe(forecast, _largest(np.abs(forecast.residual), most), table)


def outlying_rows(
    forecast: Forecast, table: ReadTable | None, most: int
) -> tuple[tuple[RowFacts, ...], int]:
    """Rows further out than Gaussian noise explains, furthest first, and how many there are.

    A row counts if Gaussian noise would put fewer than 0.05 rows of the table as far out
    (Bonferroni). The 5,000 rows that surprise the model most are examined, or 2 % if that is more.
    """
    most_examined = max(FEWEST_EXAMINED, int(EXAMINED * forecast.n_rows))
    tail = np.minimum(forecast.pit, 1.0 - forecast.pit)
    examined = _largest(-tail, most_examined)
    z = core_distance(forecast, examined)
    far = gaussian_count(z, forecast.n_rows) < SURPRISING
    outliers, z = examined[far], z[far]
    chosen = outliers[np.argsort(-np.abs(z), kind="stable")][:most]
    return _describe(forecast, chosen, table), int(outliers.size)


def core_distance(forecast: Forecast, places: Ints) -> Floats:
    """Distance of targets from the predictive median in deviations of the core, (len(places),)."""
    rows = forecast.distribution.select(places)
    low, median, high = np.asarray(rows.quantile(np.array([0.25, 0.5, 0.75]))).T
    distance = forecast.y[places] - median
    half = np.where(distance > 0, high - median, median - low)  # of a transformed target, by side
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(distance == 0, 0.0, QUARTILE * distance / half)


def gaussian_count(z: Floats, n_rows: int) -> Floats:
    """Rows of n_rows that Gaussian noise puts at least as far out, on average."""
    return np.asarray(2.0 * n_rows * ndtr(-np.abs(z)))


def _largest(values: Floats, most: int) -> Ints:
    """Places of the largest values, in order; equal ones in the order of the rows."""
    return np.asarray(np.argsort(-values, kind="stable")[:most])


def _describe(forecast: Forecast, places: Ints, table: ReadTable | None) -> tuple[RowFacts, ...]:
    if not places.size:
        return ()
    rows, z = forecast.row[places], core_distance(forecast, places)
    low, high = np.asarray(forecast.distribution.select(places).interval(LEVEL)).T
    unusual = [()] * rows.size if table is None else unusual_values(table, rows)
    return tuple(
        RowFacts(
            row=int(rows[i]),
            y=float(forecast.y[place]),
            mean=float(forecast.mean[place]),
            low=float(low[i]),
            high=float(high[i]),
            z=float(z[i]),
            expected=float(gaussian_count(z[i], forecast.n_rows)),
            unusual=tuple(unusual[i]),
        )
        for i, place in enumerate(places.tolist())
    )


def unusual_values(table: ReadTable, rows: Ints) -> list[tuple[tuple[str, str, float], ...]]:
    """The most unusual values of some rows, at most two each, beside all rows of the table.

    The share of a number is twice that of the rows beyond it, on the nearer side; of a category or
    a gap, that of the rows that have it.
    """
    columns = [column_of(table, j) for j in range(table.shape[1])]
    compared = sample_rows(table.shape[0], MOST_COMPARED)
    share = np.ones((rows.size, len(columns)))
    for j, column in enumerate(columns):
        values, others = column.values[rows], column.values[compared]
        known = np.sort(others[~np.isnan(others)])
        at_most = np.searchsorted(known, values, side="right")
        below = np.searchsorted(known, values, side="left")
        count = at_most - below
        if not column.listed:
            count = np.minimum(others.size, 2 * np.minimum(at_most, known.size - below))
        share[:, j] = count / others.size
        share[np.isnan(values), j] = np.isnan(others).mean()
    return [
        tuple(
            (columns[j].name, columns[j].label(columns[j].values[row], 4), float(share[i, j]))
            for j in np.argsort(share[i], kind="stable")[:MOST_VALUES].tolist()
            if share[i, j] <= RARE
        )
        for i, row in enumerate(rows.tolist())
    ]
