"""From the columns of a table to the columns a model works on: finite numbers only.

* A number or a duration is its value. If the column had gaps in training, these are filled in, and
  a second working column is 1 for gaps.
* A category is its rank by the shrunken mean of y, and its place in the sorted list of values. If
  there are few rows per category, the mean is cross-fitted, and there is a rank by frequency.
* A time is its value, and what the calendar repeats: day of the week, hour, day of the year.

A category that is missing is a category of its own. What training has not seen, a missing value
of a column without gaps or an unknown category, is *unseen*: it is replaced by several values of
the training rows in turn (`fill_unseen`), and predictions are averaged over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.categories import order_categories, spread_codes
from triegp.encoding.codes import MAX_PRECISION
from triegp.encoding.columns import Columns
from triegp.encoding.reading import place

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

N_VARIANTS = 16  # values that stand for an unseen one
WEEK, YEAR = 7.0, 365.2425  # days
MOST_DAYS = 1e8  # from 1970 on, of a date whose day of the year is known
LEAST_PERIODS = 2.0  # periods that times must cover for the calendar to have a column
ROLES = ("value", "missing", "rank", "mean", "frequency", "listed", "weekday", "hour", "yearday")
BY_CODE = ("rank", "mean", "frequency", "listed")  # roles that look codes up in a table


@dataclass(frozen=True, eq=False)
class Layout:
    """How columns become working columns.

    Attributes
    ----------
    roles : tuple of str
        What each working column is, one of ROLES.
    source : int64 (n_working,)
        The column that each is made of.
    gaps : bool (n_columns,)
        Columns that had missing values in training.
    fill : float64 (n_columns,)
        Value in place of missing ones; 0 for categories, for which it is not used.
    tables : tuple of float64 (n_categories,)
        For roles that look up codes: the value of each category, the last one for missing values
        if there were any. Empty for other roles.
    grid : float64 (n_columns, 16)
        Values that stand for an unseen one: quantiles of the training values, of categories in the
        order of their ranks.
    n_known : int64 (n_columns,)
        Number of categories that training has seen; larger codes are unseen. 0 for other columns.
    """

    roles: tuple[str, ...]
    source: Ints
    gaps: Bools
    fill: Floats
    tables: tuple[Floats, ...]
    grid: Floats
    n_known: Ints

    @property
    def plain(self) -> bool:
        """Whether the working columns are the columns themselves."""
        return all(role == "value" for role in self.roles) and not self.gaps.any()

    @property
    def empty(self) -> Bools:
        """Columns of numbers that had no value in training, (n_columns,): they are ignored."""
        out = self.gaps.copy()
        pairs = zip(self.source.tolist(), self.roles, strict=True)
        out[[j for j, role in pairs if role == "missing" or role in BY_CODE]] = False
        return out

    @property
    def n_columns(self) -> int:
        """Number of columns of the table."""
        return int(self.gaps.size)

    def names(self, names: Any) -> list[str] | None:
        """Names of the working columns, from those of the columns; None if there are none."""
        if names is None:
            return None
        taken = set(map(str, names))
        out = []
        for j, role in zip(self.source.tolist(), self.roles, strict=True):
            name = str(names[j])
            if role not in ("value", "rank"):
                name = f"{name}_{role}"
                while name in taken:  # the table has such a column
                    name += "_"
                taken.add(name)
            out.append(name)
        return out


def plain_layout(grid: Floats) -> Layout:
    """The layout of numbers without gaps; grid: (n_columns, 16)."""
    n = grid.shape[0]
    nothing = np.zeros(n, np.int64)
    tables = (np.empty(0),) * n
    return Layout(
        ("value",) * n, np.arange(n), np.zeros(n, bool), np.zeros(n), tables, grid, nothing
    )


def fit_layout(
    data: Array, columns: Columns, y: Floats | None, weight: Floats | None = None
) -> tuple[Layout, Array]:
    """Choose the working columns of a table and compute them for the training rows.

    Parameters
    ----------
    data : array (n, n_columns)
        As `read_table` returns it.
    columns : Columns
        Kinds of the columns.
    y : float64 (n, k) or None
        Targets, for the order of categories; None: categories are ranked by frequency.
    weight : float64 (n,), optional
        Sample weights; rows of weight 0 are ignored.

    Returns
    -------
    layout : Layout
    working : array (n, n_working)
        Working columns of the training rows; `data` itself if the layout is plain. Means of
        categories are computed without the row itself: by those four fifths of the rows that the
        row is not in. Equal rows are in the same fifth.
    """
    counted = np.ones(data.shape[0]) if weight is None else weight
    used = counted > 0
    n_known = np.zeros(data.shape[1], np.int64)
    gaps = np.array([np.isnan(data[used, j]).any() for j in range(data.shape[1])], bool)
    roles, source, tables = list[str](), list[int](), list[Floats]()
    fill, grid = np.zeros(data.shape[1]), np.empty((data.shape[1], N_VARIANTS))
    folded: dict[int, Floats] = {}  # cross-fitted values by working column
    for j, kind in enumerate(columns.kinds):
        values = data[used, j]
        empty = np.empty(0)
        if kind == "ordered":
            n_known[j] = len(columns.categories[j])
        if kind == "category":
            seen = values[~np.isnan(values)]
            n_known[j] = n_listed = int(seen.max()) + 1 if seen.size else 0
            codes = np.where(np.isnan(data[:, j]), n_listed, data[:, j])
            codes = np.where(used, codes, 0.0).astype(np.int64)
            n_codes = n_listed + int(gaps[j])
            found = order_categories(data, codes, n_codes, y, counted)
            if y is not None and n_codes > 2:  # by value: an hour is close to the next one
                found.append(("listed", np.arange(n_codes, dtype=np.float64), None))
            for role, table, crossed in found:
                if crossed is not None:
                    folded[len(roles)] = crossed
                roles.append(role)
                source.append(j)
                tables.append(table)
            grid[j] = spread_codes(codes, counted, found[0][1], n_listed, N_VARIANTS)
        else:
            there = used & ~np.isnan(data[:, j])
            present = data[there, j].astype(np.float64)
            own = None if weight is None else weight[there]
            grid[j] = _quantiles(present, own, (np.arange(N_VARIANTS) + 0.5) / N_VARIANTS)
            fill[j] = _quantiles(present, own, np.array([0.5]))[0]
            for role in ("value", *(_calendar(present) if kind == "time" else ())):
                roles.append(role)
                source.append(j)
                tables.append(empty)
        if gaps[j] and not np.isnan(values).all():
            roles.append("missing")
            source.append(j)
            tables.append(empty)
    sources = np.array(source, np.int64)
    layout = Layout(tuple(roles), sources, gaps, fill, tuple(tables), grid, n_known)
    if layout.plain:
        return layout, data
    working = work_out(layout, data)
    for k, values in folded.items():
        working[used, k] = values[used]
    return layout, working


def work_out(layout: Layout, data: Array) -> Array:
    """Working columns of rows without unseen values; O(1) per value.

    Returns `data` itself if the layout is plain. Unknown codes are read as the last category.
    """
    if layout.plain:
        return data
    out = np.empty((data.shape[0], len(layout.roles)))
    empty = layout.empty
    for k, (j, role) in enumerate(zip(layout.source.tolist(), layout.roles, strict=True)):
        values = data[:, j]
        if role == "missing":
            out[:, k] = np.isnan(values)
        elif role in BY_CODE:
            last = layout.tables[k].size - 1
            out[:, k] = layout.tables[k][np.nan_to_num(values, nan=last).astype(int).clip(0, last)]
        else:
            filled = np.where(empty[j] | np.isnan(values), layout.fill[j], values)
            out[:, k] = _of_calendar(filled, role)
    return out


def find_unseen(layout: Layout, data: Array) -> Bools | None:
    """Values that training has not seen, bool (n, n_columns); None if there are none.

    A missing value in a column without gaps, or an unknown category. Numbers are never unseen: see
    the treatment of rows outside the training box.
    """
    unseen = np.isnan(data) & ~layout.gaps if data.dtype.kind == "f" else np.zeros((0, 0), bool)
    for j in np.flatnonzero(layout.n_known).tolist():
        unseen[:, j] |= data[:, j] >= layout.n_known[j]
    return unseen if unseen.any() else None


def read_working(layout: Layout, data: Array) -> tuple[Array, Bools | None]:
    """Working columns of rows, and which values of the table are unseen, (n, n_columns) or None.

    One of the training values stands for an unseen one.
    """
    unseen = find_unseen(layout, data)
    if unseen is not None:
        data = np.where(unseen, layout.grid[:, N_VARIANTS // 2], data)
    return work_out(layout, data), unseen


def refuse_unseen(layout: Layout, data: Array, names: Any) -> None:
    """Raise ValueError if a value is unseen."""
    unseen = find_unseen(layout, data)
    if unseen is not None:
        i, j = np.argwhere(unseen)[0].tolist()
        what = "a missing value" if np.isnan(data[i, j]) else "an unknown category"
        raise ValueError(
            f"X must hold values that training has seen, got {what} {place(j, i, names)}"
        )


def fill_unseen(layout: Layout, data: Array, unseen: Bools) -> Floats:
    """Variants of rows with unseen values, (16 m, n_columns): those of a row one after another.

    In variant v, an unseen value of column j is entry p_j(v) of its grid, with a fixed random
    permutation p_j. So several unseen values of a row are combined at random.
    """
    out = np.repeat(data.astype(np.float64), N_VARIANTS, axis=0)
    for j in np.flatnonzero(unseen.any(axis=0)).tolist():
        values = np.random.default_rng(j).permutation(layout.grid[j])
        rows = np.repeat(unseen[:, j], N_VARIANTS)
        out[rows, j] = np.tile(values, int(unseen[:, j].sum()))
    return out


def working_precision(layout: Layout, precision: Any) -> Any:
    """Bits per working column: enough for every category, one for gaps.

    precision: as in `BitEncoder`, for the columns of the table. Rules ("auto", "paper") are applied
    to the working columns as they are.
    """
    if layout.plain or isinstance(precision, str):
        return precision
    widths = np.asarray(precision)
    if widths.ndim > 1 or widths.dtype.kind not in "iu" or widths.size not in (1, layout.n_columns):
        return precision  # the encoder raises
    out = np.broadcast_to(widths, (layout.n_columns,))[layout.source].astype(np.int64)
    for k, role in enumerate(layout.roles):
        if role == "missing":
            out[k] = 1
        elif role in ("rank", "frequency", "listed"):
            n_bits = int(max(layout.tables[k].size - 1, 1)).bit_length()
            out[k] = min(n_bits, MAX_PRECISION - 1)
    return out


def _quantiles(values: Floats, weight: Floats | None, at: Floats) -> Floats:
    """Values below which shares `at` of the weight lie; 0 if there are no values."""
    if not values.size:
        return np.zeros(at.size)
    if weight is None:
        places = (at * values.size).astype(np.intp)
        return np.asarray(np.partition(values, places)[places], np.float64)
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    places = np.searchsorted(below, at * below[-1], side="right").clip(max=values.size - 1)
    return np.asarray(values[order[places]], np.float64)


def _calendar(values: Floats) -> list[str]:
    """What the calendar repeats within the range of the times, in days."""
    if not values.size:
        return []
    span = float(values.max() - values.min())
    roles = []
    if span >= LEAST_PERIODS * WEEK:
        roles.append("weekday")
    if span >= LEAST_PERIODS and (values != np.floor(values)).any():
        roles.append("hour")
    if span >= LEAST_PERIODS * YEAR:
        roles.append("yearday")
    return roles


def _of_calendar(days: Floats, role: str) -> Floats:
    """Day of the week (Monday is 0), hour of the day, or day of the year of days since 1970."""
    if role == "weekday":
        return np.asarray((np.floor(days) + 3.0) % WEEK)
    if role == "hour":
        return np.asarray(24.0 * (days - np.floor(days)))
    if role == "yearday":
        # Days of tables lie within 300,000 years of 1970, those of an edited model file anywhere.
        whole = np.clip(np.floor(days), -MOST_DAYS, MOST_DAYS).astype("datetime64[D]")
        start = whole.astype("datetime64[Y]").astype("datetime64[D]")
        return np.asarray((whole - start).astype(np.float64) + days - np.floor(days))
    return days
