"""The columns of a table: their kinds, names and categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

KINDS = ("number", "category", "ordered", "time", "duration")


@dataclass(frozen=True)
class Columns:
    """How the columns of a table are read.

    Attributes
    ----------
    kinds : tuple of str
        Kind of each column: "number" (booleans too), "category", "ordered" (categories in an order
        of their own), "time" or "duration".
    categories : tuple of tuple
        Categories of each column by value, strings or numbers; empty for other kinds.
    names : tuple of str or None
        Names of the columns; None if the table had none.
    formats : tuple of str
        Format of each column of strings that are dates, one of `dates.FORMATS`, "" for others;
        empty if there are none.
    """

    kinds: tuple[str, ...]
    categories: tuple[tuple[Any, ...], ...]
    names: tuple[str, ...] | None = None
    formats: tuple[str, ...] = ()

    def format_of(self, j: int) -> str:
        """Format of the dates of column j, "" if they are not strings."""
        return self.formats[j] if self.formats else ""

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers."""
        return all(kind == "number" for kind in self.kinds)


def plain_columns(n_columns: int, names: Any = None) -> Columns:
    """Columns of numbers."""
    names = None if names is None else tuple(map(str, names))
    return Columns(("number",) * n_columns, ((),) * n_columns, names)


def sort_categories(
    data: Array, columns: Columns, used: npt.NDArray[np.bool_]
) -> tuple[Array, Columns]:
    """Codes in the order of the values: categories of used rows first, then all others.

    So codes do not depend on the order in which categories came. data: (n, n_columns), not changed.
    """
    lists = []
    for j, (kind, listed) in enumerate(zip(columns.kinds, columns.categories, strict=True)):
        if kind == "category":
            codes = data[used, j]
            there = set(codes[~np.isnan(codes)].astype(np.int64).tolist())
            order = sorted(range(len(listed)), key=lambda k: (k not in there, listed[k]))
            listed = tuple(listed[k] for k in order)
        lists.append(listed)
    found = replace(columns, categories=tuple(lists))
    return recode(data, columns, found), found


def recode(data: Array, old: Columns, new: Columns) -> Array:
    """Codes of the same categories in another list; `data` itself if the lists agree."""
    out = data
    for j, (before, after) in enumerate(zip(old.categories, new.categories, strict=True)):
        if before == after[: len(before)]:
            continue
        code = {value: k for k, value in enumerate(after)}
        codes = np.array([code[value] for value in before], dtype=np.float64)
        out = out.copy() if out is data else out
        there = ~np.isnan(data[:, j])
        out[there, j] = codes[data[there, j].astype(np.int64)]
    return out


def choose_categories(categorical: Any, names: Sequence[Any]) -> list[bool]:
    """Which columns are categories by the parameter `categorical_features`."""
    n = len(names)
    if categorical is None or (isinstance(categorical, str) and categorical == "from_dtype"):
        return [False] * n
    if isinstance(categorical, str) or np.ndim(categorical) != 1:
        raise ValueError(
            "categorical_features must be None, 'from_dtype', names, indices or a mask of columns, "
            f"got {categorical!r:.80}"
        )
    given = [item.item() if isinstance(item, np.generic) else item for item in categorical]
    if given and all(isinstance(item, bool) for item in given):
        if len(given) != n:
            raise ValueError(f"categorical_features must have {n} entries, got {len(given)}")
        return given
    chosen = [False] * n
    for item in given:
        if isinstance(item, str):
            if item not in names:
                raise ValueError(f"categorical_features names {item!r:.80}, which X does not have")
            chosen[list(names).index(item)] = True
        elif isinstance(item, int) and not isinstance(item, bool) and 0 <= item < n:
            chosen[item] = True
        else:
            raise ValueError(
                f"categorical_features must name columns or be between 0 and {n - 1}, "
                f"got {item!r:.80}"
            )
    return chosen


def check_width(n_columns: int, expected: int, estimator: Any) -> None:
    """Raise ValueError unless a table has the columns of training."""
    if n_columns != expected:
        raise ValueError(
            f"X has {n_columns} features, but {type(estimator).__name__} is expecting {expected} "
            "features as input"
        )
