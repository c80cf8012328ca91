"""Reading arrays and lists of rows: as numbers if that is what they hold, or column by column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.cells import is_missing, kind_of_cells, read_cells
from triegp.encoding.columns import Columns, check_width, choose_categories, plain_columns
from triegp.encoding.dates import find_format, tell_categories, tell_dates
from triegp.encoding.reading import place, real_array

Array = npt.NDArray[Any]


def read_array(
    X: Any, estimator: Any, known: Columns | None, categorical: Any, *, learn_dates: bool
) -> tuple[Array, Columns]:
    """Read an array or lists; parameters and results as those of `read_table`."""
    cells = _as_cells(X)
    if cells is None or cells.ndim != 2 or 0 in cells.shape:
        return _read_numbers(real_array(X, estimator), estimator, known, categorical)
    n_columns = cells.shape[1]
    if known is not None:
        check_width(n_columns, len(known.kinds), estimator)
    chosen = [False] * n_columns if known else choose_categories(categorical, range(n_columns))
    data = np.empty(cells.shape, order="F")
    kinds, categories, formats = [], [], []
    names = known.names if known else None
    for j in range(n_columns):
        column, where = cells[:, j].tolist(), f"column {j if names is None else repr(names[j])}"
        form = known.format_of(j) if known is not None else ""
        if known is not None:
            kind = known.kinds[j]
        else:
            kind = "category" if chosen[j] else kind_of_cells(column, where)
        strings = learn_dates and known is None and kind == "category" and not chosen[j]
        if strings and (form := find_format((c for c in column if not is_missing(c)), where)):
            kind = "time"
            tell_dates(form, where)
        listed = known.categories[j] if known else ()
        data[:, j], listed = read_cells(column, kind, listed, where, form)
        if strings and kind == "category":
            tell_categories(listed, int((~np.isnan(data[:, j])).sum()), where)
        kinds.append(kind)
        categories.append(listed)
        formats.append(form)
    return data, Columns(
        tuple(kinds), tuple(categories), names, tuple(formats) if any(formats) else ()
    )


def _as_cells(X: Any) -> Array | None:
    """An array of Python objects; None if X holds numbers, or is not a list of equal rows."""
    if isinstance(X, list | tuple):
        try:
            X = X if np.asarray(X).dtype.kind in "fiub" else np.asarray(X, dtype=object)
        except ValueError:  # ragged
            return None
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OUSMm":
        return None
    if X.dtype.kind in "Mm":
        X = X.astype(f"{X.dtype.kind}8[us]")  # Python has no nanoseconds
    return np.asarray(X, dtype=object)


def _read_numbers(
    data: Array, estimator: Any, known: Columns | None, categorical: Any
) -> tuple[Array, Columns]:
    """Numbers, of which some columns may be categories."""
    n_columns = data.shape[1]
    if known is None:
        chosen = choose_categories(categorical, range(n_columns))
        kinds = tuple("category" if flag else "number" for flag in chosen)
        known = replace(plain_columns(n_columns), kinds=kinds)
    if known.plain:
        return data, known
    check_width(n_columns, len(known.kinds), estimator)
    out = np.array(data, np.float64, order="F")
    categories = []
    for j, (kind, listed) in enumerate(zip(known.kinds, known.categories, strict=True)):
        if kind in ("category", "ordered"):
            out[:, j], listed = read_cells(out[:, j].tolist(), kind, listed, f"column {j}")
        elif kind != "number" and not np.isnan(out[:, j]).all():
            raise ValueError(f"X must hold {kind}s {place(j, 0, known.names)}, got numbers")
        categories.append(listed)
    return out, replace(known, categories=tuple(categories))
