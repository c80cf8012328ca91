"""Features of a table for a plot: their values as numbers, their names, and changed tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from triegp.devices import to_host
from triegp.encoding.columns import Columns
from triegp.encoding.tables import ReadTable, is_named_frame, read_table
from triegp.plots.text import LISTED, MISSING, show_value

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ENDS = (0.01, 0.99)  # quantiles of numbers at which a grid ends


@dataclass(frozen=True, eq=False)
class Feature:
    """One column of a table.

    Attributes
    ----------
    index : int
        Its number.
    name : str
        Its name; "x" and its number if the table has no names.
    kind : str
        As in `triegp.encoding.columns.Columns`.
    values : float64 (n,)
        Numbers; days since 1970 of times, days of durations, places in `categories` of categories.
        NaN is missing.
    categories : tuple
        Categories by value; empty for other kinds.
    """

    index: int
    name: str
    kind: str
    values: Floats
    categories: tuple[Any, ...]

    @property
    def listed(self) -> bool:
        """Whether the values are categories."""
        return self.kind in LISTED

    def label(self, value: float, digits: int = 3) -> str:
        """A value in words."""
        return show_value(value, self.kind, self.categories, digits)


def read_feature(X: Any, feature: int | str, model: Any = None) -> Feature:
    """One column of a table of any kind that `fit` reads, by name or number.

    It is read as by the model, if that knows it.
    """
    known = getattr(model, "columns_", None)
    if isinstance(feature, str) and known is not None and feature not in (known.names or ()):
        known = None
    categorical = getattr(model, "categorical_features", "from_dtype")
    data, columns = read_table(to_host(X), model, known, categorical=categorical)
    names = columns.names
    if names is None and hasattr(model, "feature_names_in_"):
        names = tuple(map(str, model.feature_names_in_))
    j = find_feature(feature, data.shape[1], names)
    values = np.asarray(data[:, j], np.float64)
    name = feature_names(data.shape[1], names)[j]
    by_name = known is not None and known.names is not None and is_named_frame(X)
    place = list(nw.from_native(X).columns).index(name) if by_name else j
    return Feature(place, name, columns.kinds[j], values, columns.categories[j])


def column_of(table: ReadTable, j: int) -> Feature:
    """Column j of a table that a model has read."""
    columns, values = table.columns, np.asarray(table.data[:, j], np.float64)
    return Feature(j, label_column(columns, j), columns.kinds[j], values, columns.categories[j])


def label_column(columns: Columns, j: int) -> str:
    """Name of column j; "feature j" if the table has no names."""
    return f"feature {j}" if columns.names is None else columns.names[j]


def find_feature(feature: int | str, n_features: int, names: tuple[str, ...] | None) -> int:
    """Number of a feature; raises ValueError that lists what there is."""
    if isinstance(feature, str):
        if names is None or feature not in names:
            known = "X has no names" if names is None else f"X has {', '.join(names[:8])}"
            raise ValueError(f"feature must be a column of X, got {feature!r}: {known}")
        return names.index(feature)
    if isinstance(feature, bool) or not hasattr(feature, "__index__"):
        raise ValueError(f"feature must be a name or a number of a column, got {feature!r}")
    if not 0 <= feature < n_features:
        raise ValueError(f"feature must be between 0 and {n_features - 1}, got {feature}")
    return int(feature)


def feature_names(n_features: int, names: Any = None) -> tuple[str, ...]:
    """Names to show: those of the table, or "x0", "x1", ..."""
    return tuple(f"x{j}" for j in range(n_features)) if names is None else tuple(map(str, names))


def names_of(model: Any) -> tuple[str, ...]:
    """Names of the features of a fitted model."""
    return feature_names(model.n_features_in_, getattr(model, "feature_names_in_", None))


def read_values(values: Any, name: str) -> Feature:
    """A single column of any kind that `fit` reads."""
    column = np.asarray(values)
    if column.ndim != 1:
        raise ValueError(f"values must be one-dimensional, got shape {column.shape}")
    data, columns = read_table(column[:, None], None)
    values = np.asarray(data[:, 0], np.float64)
    return Feature(0, name, columns.kinds[0], values, columns.categories[0])


def training_rows(model: Any) -> Array:
    """The kept training rows, if their columns are all numbers.

    Raises ValueError otherwise: categories, strings and dates are kept as codes only.
    """
    if model.rows_ is None:
        raise ValueError("X must be given: this model does not hold its training rows")
    if not model.columns_.plain:
        raise ValueError("X must be given: this model has columns that are not numbers")
    rows: Array = model.rows_.features
    return rows


def replace_values(X: Any, rows: Ints, replaced: dict[int, Ints]) -> Any:
    """Rows of a table, with values of some columns taken from other rows of the same table.

    So values keep their type, whatever it is.

    Parameters
    ----------
    X : array or data frame (n, n_features)
        The table.
    rows : int (m,)
        Numbers of rows.
    replaced : dict of int (m,)
        By column, the rows that its values are taken from.

    Returns
    -------
    array or data frame (m, n_features)
        Of the same type.
    """
    X, frame = to_host(X), None
    if not isinstance(X, np.ndarray | list | tuple):
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        whole = X if isinstance(X, np.ndarray) else np.asarray(X)
        out = whole[rows]
        for j, source in replaced.items():
            out[:, j] = whole[source, j]
        return out
    names = frame.columns
    parts = [frame.get_column(name)[replaced.get(j, rows).tolist()] for j, name in enumerate(names)]
    first = parts[0].to_frame()
    return first.with_columns(*parts[1:]).to_native()


@contextmanager
def nameless_rows() -> Iterator[None]:
    """Let a model that knows names read arrays, whose columns are in its order, in silence."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield


def quantile_bins(values: Floats, n_bins: int) -> tuple[Ints, Floats]:
    """Bins of about equal numbers of rows.

    Equal values share a bin, so there may be fewer bins.

    Returns
    -------
    bins : int64 (m,)
        Bin of each row, 0 to n - 1.
    edges : float64 (n + 1,)
        Smallest value, edges between bins, largest value.
    """
    ascending = np.sort(values)
    last = -(-np.arange(1, n_bins) * values.size // n_bins) - 1  # row of each bin, rounded upwards
    inner = np.unique(ascending[last])
    inner = inner[inner < ascending[-1]]
    edges = np.concatenate([ascending[:1], inner, ascending[-1:]])
    return np.searchsorted(inner, values, side="left"), edges


def bin_values(
    column: Feature, n_bins: int, others: str = "others"
) -> tuple[Ints, list[str], Floats | None]:
    """Bin of each row (m,), what is in each bin, and edges of numbers that share bins.

    Numbers share bins by quantiles if more than n_bins are distinct, and so do ordered categories.
    Other categories are in the order of their frequency; `others`, formatted with how many there
    are, names the rarest. Missing values have the last bin.
    """
    gaps = np.isnan(column.values)
    values, edges = column.values[~gaps], None
    bins = np.zeros(gaps.size, np.int64)
    distinct, count = np.unique(values, return_counts=True)
    if column.kind != "category" and distinct.size > n_bins:
        bins[~gaps], edges = quantile_bins(values, n_bins)
        for digits in range(3, 9):  # until ends of bins can be told from each other
            ends = [column.label(edge, digits) for edge in edges.tolist()]
            if len(set(ends)) == len(ends):
                break
        pairs = list(pairwise(ends))
        labels = [low if low == high else f"{low} to {high}" for low, high in pairs]
    else:
        kept = distinct
        if column.kind == "category":
            kept = distinct[np.argsort(-count, kind="stable")]
            kept = kept[: n_bins - 1] if kept.size > n_bins else kept
        same = values[:, None] == kept
        bins[~gaps] = np.where(same.any(axis=1), same.argmax(axis=1), kept.size)
        labels = [column.label(value, 4) for value in kept.tolist()]
        if distinct.size > kept.size:
            labels.append(others.format(distinct.size - kept.size))
    if gaps.any():
        bins[gaps] = len(labels)
        labels.append(MISSING)
    return bins, labels, None if column.listed else edges


def choose_values(feature: Feature, n_grid: int) -> Ints:
    """Rows whose values of a feature are the grid, ascending: quantiles, or frequent categories."""
    values = np.where(np.isnan(feature.values), np.inf, feature.values)  # missing ones last
    distinct, first, count = np.unique(values, return_index=True, return_counts=True)
    if feature.listed:
        kept = np.sort(np.argsort(-count, kind="stable")[:n_grid])
        return np.asarray(first[kept], np.int64)
    known = np.isfinite(distinct)
    distinct, first, count = distinct[known], first[known], count[known]
    if not distinct.size:
        raise ValueError(f"features must have values, got only missing ones in {feature.name!r}")
    if distinct.size <= n_grid:
        return np.asarray(first, np.int64)
    below = (np.cumsum(count) - 0.5 * count) / count.sum()
    levels = np.linspace(max(below[0], ENDS[0]), min(below[-1], ENDS[1]), n_grid)
    nearest = np.searchsorted(below, levels - 1e-12).clip(max=distinct.size - 1)
    return np.asarray(first[np.unique(nearest)], np.int64)


def deciles_of(feature: Feature) -> Floats:
    """Deciles of a feature, (9,); empty for categories."""
    if feature.listed:
        return np.empty(0)
    return np.asarray(np.nanquantile(feature.values, np.arange(1, 10) / 10.0))
