"""Features of a table for a plot: their values as numbers, their names, and changed tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from triegp.devices import to_host
from triegp.encoding.tables import is_named_frame, read_table
from triegp.plots.numbers import show_number

if TYPE_CHECKING:
    from matplotlib.axis import Axis

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LISTED = ("category", "ordered")
MISSING = "missing"
LONGEST = 18  # characters of a category that are shown


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

    def label(self, value: float) -> str:
        """A value in words."""
        if np.isnan(value):
            return MISSING
        if self.listed:
            text = str(self.categories[int(value)])
            return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
        return say_number(value, self.kind)


def say_number(value: float, kind: str) -> str:
    """A number, time or duration in words."""
    if kind == "time":
        moment = str(np.datetime64(round(value * 86_400), "s"))
        return moment.removesuffix(":00").removesuffix("T00:00").replace("T", " ")
    return show_number(value, 3)


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


def tick_values(axis: Axis, kind: str, most: int = 8) -> None:
    """Ticks of an axis that shows times as dates."""
    if kind == "time":
        from matplotlib import dates

        # With more ticks at least, spans that no interval divides so finely make it warn.
        locator = dates.AutoDateLocator(minticks=2, maxticks=most)  # type: ignore[no-untyped-call]
        axis.set_major_locator(locator)
        axis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
