"""Rows that were predicted worst, and rows that look like outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from triegp.encoding.tables import ReadTable
from triegp.report.features import BY_CODE, label_column, show_value
from triegp.report.forecasts import Forecast, draw_rows

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
class OddRow:
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
    tail : float
        Probability of an observation at least as far in a tail, by the model.
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
    tail: float
    unusual: tuple[tuple[str, str, float], ...]


def worst_rows(forecast: Forecast, table: ReadTable | None, most: int) -> tuple[OddRow, ...]:
    """Rows with the largest absolute errors, largest first."""
    return _describe(forecast, _largest(np.abs(forecast.residual), most), table)


def outlying_rows(
    forecast: Forecast, table: ReadTable | None, most: int
) -> tuple[tuple[OddRow, ...], int]:
    """Rows further out than Gaussian noise explains, furthest first, and how many there are.

    A row counts if Gaussian noise would put fewer than 0.05 rows of the table as far out
    (Bonferroni). The 5,000 rows that surprise the model most are examined, or 2 % if that is more.
    """
    most_examined = max(FEWEST_EXAMINED, int(EXAMINED * forecast.n_rows))
    some = _largest(-forecast.tail, most_examined)
    z = core_distance(forecast, some)
    far = gaussian_count(z, forecast.n_rows) < SURPRISING
    some, z = some[far], z[far]
    chosen = some[np.argsort(-np.abs(z), kind="stable")][:most]
    return _describe(forecast, chosen, table), int(some.size)


def core_distance(forecast: Forecast, places: Ints) -> Floats:
    """Distance of targets from the predictive median in deviations of the core, (len(places),)."""
    few = forecast.distribution.select(forecast.row[places])
    low, median, high = np.asarray(few.quantile(np.array([0.25, 0.5, 0.75]))).T
    apart = forecast.y[places] - median
    half = np.where(apart > 0, high - median, median - low)  # of a transformed target, by side
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(apart == 0, 0.0, QUARTILE * apart / half)


def gaussian_count(z: Floats, n_rows: int) -> Floats:
    """Rows of n_rows that Gaussian noise puts at least as far out, on average."""
    return np.asarray(2.0 * n_rows * ndtr(-np.abs(z)))


def _largest(values: Floats, most: int) -> Ints:
    """Places of the largest values, in order; equal ones in the order of the rows."""
    if values.size > most:
        least = np.partition(values, values.size - most)[values.size - most]
        some = np.flatnonzero(values >= least)
    else:
        some = np.arange(values.size)
    return np.asarray(some[np.argsort(-values[some], kind="stable")][:most])


def _describe(forecast: Forecast, places: Ints, table: ReadTable | None) -> tuple[OddRow, ...]:
    if not places.size:
        return ()
    intervals = forecast.intervals_of(places, LEVEL)
    rows = forecast.row[places]
    unusual = [()] * rows.size if table is None else unusual_values(table, rows)
    z = core_distance(forecast, places)
    expected = gaussian_count(z, forecast.n_rows)
    return tuple(
        OddRow(
            row=int(rows[i]),
            y=float(forecast.y[place]),
            mean=float(forecast.mean[place]),
            low=float(intervals[i, 0]),
            high=float(intervals[i, 1]),
            z=float(z[i]),
            expected=float(expected[i]),
            tail=float(forecast.tail[place]),
            unusual=tuple(unusual[i]),
        )
        for i, place in enumerate(places.tolist())
    )


def unusual_values(table: ReadTable, rows: Ints) -> list[tuple[tuple[str, str, float], ...]]:
    """The most unusual values of some rows, at most two each, beside all rows of the table.

    The share of a number is twice that of the rows beyond it, on the nearer side; of a category or
    a gap, that of the rows that have it.
    """
    columns = table.columns
    others = table.data[draw_rows(table.shape[0], MOST_COMPARED)]
    share = np.ones((rows.size, table.shape[1]))
    for j, kind in enumerate(columns.kinds):
        column = np.asarray(others[:, j], np.float64)
        there = np.sort(column[~np.isnan(column)])
        own = np.asarray(table.data[rows, j], np.float64)
        gap = np.isnan(own)
        at_most = np.searchsorted(there, own, side="right")
        below = np.searchsorted(there, own, side="left")
        if kind in BY_CODE:
            share[:, j] = (at_most - below) / column.size
        else:
            beyond = np.minimum(at_most, there.size - below)
            share[:, j] = np.minimum(1.0, 2.0 * beyond / column.size)
        share[gap, j] = np.isnan(column).mean()
    out = []
    for i, row in enumerate(rows.tolist()):
        ranked = np.argsort(share[i], kind="stable")[:MOST_VALUES]
        out.append(
            tuple(
                (
                    label_column(columns, j),
                    show_value(columns, j, float(table.data[row, j])),
                    float(share[i, j]),
                )
                for j in ranked.tolist()
                if share[i, j] <= RARE
            )
        )
    return out
