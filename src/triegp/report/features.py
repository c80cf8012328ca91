"""Features as a report shows them: labels of columns, values as text, bins of a column."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.columns import Columns
from triegp.encoding.tables import ReadTable
from triegp.plots.numbers import show_number

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BY_CODE = ("category", "ordered")  # kinds of columns whose numbers are places in a list
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows of a table by their value in one column.

    Attributes
    ----------
    labels : tuple of str
        What each bin holds.
    index : int64 (n,)
        Bin of each row.
    """

    labels: tuple[str, ...]
    index: Ints


def label_column(columns: Columns, j: int) -> str:
    """Name of column j; "feature j" if the table has no names."""
    return f"feature {j}" if columns.names is None else columns.names[j]


def show_value(columns: Columns, j: int, value: float, digits: int = 4) -> str:
    """A value of column j as text; digits: significant digits of a number."""
    if np.isnan(value):
        return "missing"
    kind = columns.kinds[j]
    if kind in BY_CODE:
        return str(columns.categories[j][int(value)])
    if kind == "time":
        moment = np.datetime64(0, "s") + np.timedelta64(round(value * DAY_SECONDS), "s")
        return str(moment).replace("T00:00:00", "").replace("T", " ")
    if kind == "duration":
        return f"{show_number(value, digits)} days"
    return show_number(value, digits)


def bin_column(table: ReadTable, j: int, n_bins: int) -> Bins:
    """Rows by quantiles of a number, or by category; gaps are a bin of their own.

    Categories beyond the most frequent n_bins - 1 share the last bin. Numbers of at most n_bins
    distinct values have one bin each.
    """
    values = np.asarray(table.data[:, j], np.float64)
    gaps = np.isnan(values)
    there = values[~gaps]
    if table.columns.kinds[j] in BY_CODE:
        labels, index = _bin_codes(table.columns, j, there, n_bins)
    else:
        labels, index = _bin_numbers(table.columns, j, there, n_bins)
    whole = np.full(values.size, len(labels), np.int64)
    whole[~gaps] = index
    return Bins((*labels, "missing") if gaps.any() else labels, whole)


def _bin_codes(
    columns: Columns, j: int, codes: Floats, n_bins: int
) -> tuple[tuple[str, ...], Ints]:
    numbers, count = np.unique(codes.astype(np.int64), return_counts=True)
    if columns.kinds[j] == "ordered" and numbers.size > n_bins:
        return _bin_numbers(columns, j, codes, n_bins)
    ranked = numbers[np.argsort(-count, kind="stable")]
    own = ranked if ranked.size <= n_bins else ranked[: n_bins - 1]
    if columns.kinds[j] == "ordered":
        own = np.sort(own)
    place = {int(code): k for k, code in enumerate(own.tolist())}
    labels = tuple(show_value(columns, j, code) for code in own.tolist())
    if ranked.size > own.size:
        labels = (*labels, f"{ranked.size - own.size:,} other categories")
    lookup = np.full(int(numbers.max(initial=0)) + 1, own.size, np.int64)
    lookup[list(place)] = list(place.values())
    return labels, lookup[codes.astype(np.int64)]


def _bin_numbers(
    columns: Columns, j: int, values: Floats, n_bins: int
) -> tuple[tuple[str, ...], Ints]:
    distinct = np.unique(values)
    if distinct.size <= n_bins:
        labels = tuple(show_value(columns, j, value) for value in distinct.tolist())
        return labels, np.searchsorted(distinct, values)
    inner = np.quantile(values, np.arange(1, n_bins) / n_bins, method="lower")
    edges = np.unique(inner[inner < distinct[-1]])
    index = np.searchsorted(edges, values, side="left")  # values up to an edge are below it
    ends = [float(distinct[0]), *edges.tolist(), float(distinct[-1])]
    shown = list[str]()
    for digits in range(3, 9):
        shown = [show_value(columns, j, end, digits) for end in ends]
        if len(set(shown)) == len(shown):
            break
    labels = tuple(f"{low} to {high}" for low, high in pairwise(shown))
    return labels, index
