"""Orders of categories: by shrunken means of y, without telling a row its own target."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.precision import hash_rows

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FEW_ROWS = 50.0  # of a category: with fewer it is rare
MOST_RARE = 0.1  # share of the rows in rare categories up to which means are not cross-fitted
N_FOLDS = 5


def order_categories(
    data: Array, codes: Ints, n_codes: int, y: Floats | None, counted: Floats
) -> list[tuple[str, Floats, Floats | None]]:
    """Working columns of a category: role, table, and cross-fitted values if they differ from it.

    A category of at least 50 rows is ranked by its shrunken mean: the mean of so many rows hardly
    depends on a single one. A rare one would tell the targets of its own rows. If at most a tenth
    of the rows is in rare categories, these are ranked as the mean of all rows. Otherwise the
    shrunken mean of all categories is cross-fitted, and a second column identifies the category
    without any target: its rank by frequency.
    """
    count = np.bincount(codes, counted, n_codes).astype(np.float64)
    by_count = _ranks(-count)
    if y is None:
        return [("rank", by_count, None)]
    score = _scores(codes, n_codes, y, counted)
    rare = count < FEW_ROWS
    if count[rare].sum() <= MOST_RARE * counted.sum():
        mean = _shrunken(codes, n_codes, score, counted, None)[0]
        unit = _unit(np.abs(score).max())
        mean[rare] = unit * (counted @ (score / unit) / counted.sum())
        return [("rank", _ranks(mean), None)]
    folds = (hash_rows(_bits(data)) % np.uint64(N_FOLDS)).astype(np.int64)
    table, crossed = _shrunken(codes, n_codes, score, counted, folds)
    return [("mean", table, crossed), ("frequency", by_count, None)]


def _scores(codes: Ints, n_codes: int, y: Floats, counted: Floats) -> Floats:
    """One target per row, (n,): y itself, or the direction in which categories differ most.

    For several targets: the first principal component of the means of the standardised targets.
    """
    if y.shape[1] == 1:
        return y[:, 0]
    total = counted.sum()
    y = y / _unit(np.abs(y).max(axis=0))
    centred = y - counted @ y / total
    size = np.sqrt(counted @ centred**2 / total)
    centred = centred / np.where(size > 0, size, 1.0)
    count = np.bincount(codes, counted, n_codes)
    sums = np.stack([np.bincount(codes, counted * part, n_codes) for part in centred.T], axis=1)
    means = sums / np.sqrt(np.maximum(count, 1e-300))[:, None]
    direction = np.linalg.svd(means, full_matrices=False)[2][0]
    return np.asarray(centred @ (direction * np.sign(direction[np.argmax(np.abs(direction))])))


def _shrunken(
    codes: Ints, n_codes: int, score: Floats, counted: Floats, folds: Ints | None
) -> tuple[Floats, Floats]:
    """Shrunken mean of each category, (n_codes,), and for each row without its fold, (n,).

    A category of n_c rows with mean m_c has (n_c m_c + r m) / (n_c + r): the posterior mean of a
    random effect, with r the variance within categories over that between them, by moments.
    """
    total = counted.sum()
    unit = _unit(np.abs(score).max())
    score = score / unit  # so that squares stay within float64
    centre = float(counted @ score / total)
    left = score - centre
    count = np.bincount(codes, counted, n_codes).astype(np.float64)
    sums = np.bincount(codes, counted * left, n_codes).astype(np.float64)
    mean = sums / np.where(count > 0, count, 1.0)
    n_used = int((count > 0).sum())
    within = float(counted @ (left - mean[codes]) ** 2) / max(total - n_used, 1.0)
    spread = float(count @ mean**2) - (n_used - 1) * within
    between = max(spread / max(total - float(count @ count) / total, 1e-300), 0.0)
    ratio = within / between if between > 0 else np.inf

    def shrink(sums: Floats, count: Floats) -> Floats:
        if np.isinf(ratio):
            return np.full(sums.shape, unit * centre)
        if ratio == 0:
            return np.asarray(unit * (centre + sums / np.where(count > 0, count, 1.0)))
        return np.asarray(unit * (centre + sums / (count + ratio)))

    table = shrink(sums, count)
    if folds is None:
        return table, table[codes]
    cell = codes * N_FOLDS + folds
    fold_sums = np.bincount(cell, counted * left, n_codes * N_FOLDS)
    fold_count = np.bincount(cell, counted, n_codes * N_FOLDS)
    crossed = shrink(sums[codes] - fold_sums[cell], count[codes] - fold_count[cell])
    used = crossed[counted > 0]
    return np.clip(table, used.min(), used.max()), crossed  # within the training box


def _unit(size: npt.NDArray[Any]) -> Floats:
    """The power of two below each size, 1 for 0: to divide by it is exact."""
    _, exponent = np.frexp(np.where(size > 0, size, 1.0))
    return np.asarray(np.ldexp(1.0, exponent - 1))


def _ranks(values: Floats) -> Floats:
    """Rank of each value, 0 to len - 1; equal values by their place."""
    out = np.empty(values.size)
    out[np.argsort(values, kind="stable")] = np.arange(values.size)
    return out


def spread_codes(
    codes: Ints, counted: Floats, table: Floats, n_listed: int, n_values: int
) -> Floats:
    """Codes of categories at so many evenly spaced quantiles, in the order of the table."""
    order = np.argsort(table, kind="stable")
    below = np.cumsum(np.bincount(codes, counted, table.size)[order])
    at = (np.arange(n_values) + 0.5) / n_values * below[-1]
    found = order[np.searchsorted(below, at, side="right").clip(max=order.size - 1)]
    out: Floats = found.astype(np.float64)
    out[found >= n_listed] = np.nan  # missing is a category of its own
    return out


def _bits(data: Array) -> npt.NDArray[np.uint64]:
    """Columns of a table as integers, for hashing; all NaN are equal."""
    columns = np.ascontiguousarray(data.T, np.float64) + 0.0
    columns[np.isnan(columns)] = np.nan
    return columns.view(np.uint64)
