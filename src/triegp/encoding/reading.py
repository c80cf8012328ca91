"""Reading X: conversion of any table to an array of real numbers, and checks by blocks of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import refuse_masked
from triegp.imports import import_once, scipy

BLOCK_ENTRIES = 2**17  # 1 MB of float64: a block stays in cache


def real_array(X: Any, estimator: Any) -> npt.NDArray[Any]:
    """Return X as a two-dimensional array of real numbers, copied only if necessary.

    Error messages name the given estimator.
    """
    refuse_masked("X", X)
    plain = rows_of_lists("X", X)
    if type(plain) is np.ndarray and plain.dtype.kind in "fiub" and plain.ndim == 2 and plain.size:
        return plain
    # Rows of numbers do not need scikit-learn.
    check_array = import_once("sklearn.utils").check_array
    try:
        data = check_array(X, dtype="numeric", ensure_all_finite=False, estimator=estimator)
        if data.dtype.kind == "O":
            data = data.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        text = _first_non_number(X)
        if text is None:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"X must hold real numbers, got {text}: {error}") from None
    if data.dtype.kind not in "fiub":
        raise ValueError(f"X must hold real numbers, got dtype {data.dtype}")
    return np.asarray(data)


def rows_of_lists(name: str, values: Any) -> Any:
    """Lists as an array, everything else as it is; raises ValueError if rows differ in length."""
    if not isinstance(values, list | tuple):
        return values
    try:
        return np.asarray(values)
    except ValueError:
        sizes = [len(row) if isinstance(row, list | tuple) else 1 for row in values]
        odd = next((i for i, size in enumerate(sizes) if size != sizes[0]), None)
        if odd is None:
            raise
        raise ValueError(
            f"{name} must have rows of equal length, got {sizes[0]} values in row 0 and "
            f"{sizes[odd]} in row {odd}"
        ) from None


def row_blocks(n_rows: int, n_features: int, n_entries: int = BLOCK_ENTRIES) -> Sequence[slice]:
    """Cut rows into blocks of about `n_entries` values, at least 64 rows each."""
    step = max(64, n_entries // n_features)
    return [slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step)]


def check_finite(
    data: npt.NDArray[Any], names: Any = None, first_row: int = 0, *, missing: bool = False
) -> None:
    """Raise ValueError if an entry of `data` (n, d) is not finite.

    The message names the entry, by column name if `names` is given, with rows counted from
    `first_row`. missing: whether NaN is allowed.
    """
    n_rows, n_features = data.shape
    for rows in row_blocks(n_rows, n_features):
        is_finite = ~np.isinf(data[rows]) if missing else np.isfinite(data[rows])
        if not is_finite.all():
            j, i = np.argwhere(~is_finite.T)[0].tolist()  # column by column
            cell = data[rows.start + i, j]
            value = "NaN" if np.isnan(cell) else f"{float(cell)}"
            where = place(j, first_row + rows.start + i, names)
            raise ValueError(f"X must be finite, got {value} {where}")


def place(column: int, row: int, names: Any) -> str:
    """Describe a position for an error message: column number, name if there is one, and row."""
    number = f"{names[column]!r} ({column})" if names is not None else f"{column}"
    return f"in column {number} at row {row}"


def _first_non_number(X: Any) -> str | None:
    """Describe the first cell, column by column, that is not a number, and its position."""
    if scipy.sparse.issparse(X):
        return None
    try:
        cells = np.asarray(X, dtype=object)
    except ValueError:
        return None
    if cells.ndim != 2:
        return None
    for j, column in enumerate(cells.T):
        for i, cell in enumerate(column.tolist()):
            try:
                float(cell)
            except (TypeError, ValueError, OverflowError):
                return f"{cell!r:.40} {place(j, i, getattr(X, 'columns', None))}"
    return None
