"""Box, percentiles, precision and layout of numeric features that lie on a device.

The same numbers as on the host, to the last bit: order statistics, positions and hashes are exact.
Only what few rows are needed for leaves the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.devices import like, to_host
from triegp.encoding.codes import MAX_PRECISION
from triegp.encoding.grids import DEVICE_ENTRIES, map_of
from triegp.encoding.layout import N_VARIANTS, Layout, plain_layout
from triegp.encoding.precision import (
    ALL_BUT_LAST,
    FEWEST_ROWS,
    Precision,
    paper_precision,
    separate_tied,
    tied_order,
)
from triegp.encoding.quantiser import Quantiser
from triegp.encoding.reading import row_blocks
from triegp.encoding.scaling import N_STEPS, between_values
from triegp.engines import GridMap, device_engine

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FULL = float(1 << MAX_PRECISION)  # cells of a full code


def held_layout(X: Any) -> Layout:
    """The layout of finite features (n, d) on a device; as `fit_layout` without weights. O(n d)."""
    n_rows, n_features = X.shape
    places = ((np.arange(N_VARIANTS) + 0.5) / N_VARIANTS * n_rows).astype(np.intp)
    grid, fill = np.empty((n_features, N_VARIANTS)), np.empty(n_features)
    for j in range(n_features):
        found = _order_statistics(X[:, j], np.append(places, int(0.5 * n_rows)))
        grid[j], fill[j] = found[:-1], found[-1]
    plain = plain_layout(grid)
    return Layout(
        plain.roles, plain.source, plain.gaps, fill, plain.tables, plain.grid, plain.n_known
    )


def fit_held(
    X: Any, *, scaling: str, precision: Any, outside: str, margin: float = 0.0
) -> Quantiser:
    """A quantiser without shift, from finite features (n, d) on a device.

    Equal to that of `BitEncoder(...).fit` on the host. O(n d), one sort per feature for the
    percentiles and one of all rows for precision="auto".
    """
    n_features = X.shape[1]
    encoder = Quantiser(scaling=scaling, outside=outside, margin=margin)
    encoder.low_, encoder.high_ = (
        to_host(part).astype(np.float64) for part in (X.min(axis=0), X.max(axis=0))
    )
    low, high = like(encoder.low_, X), like(encoder.high_, X)
    two_valued = np.zeros(n_features, np.bool_)
    if X.shape[0] >= FEWEST_ROWS:
        two_valued = to_host(((low == X) | (high == X)).all(axis=0))
    encoder.two_valued_ = two_valued
    encoder.knots_ = None
    if scaling == "ecdf":
        encoder.knots_ = np.stack([_percentiles(X[:, j]) for j in range(n_features)])
    encoder.shift_ = None
    if isinstance(precision, str) and precision == "auto":
        encoder.precision_ = _separate(X, encoder)
    else:
        encoder.precision_ = encoder.fit_precision(np.empty((0, n_features)), None, precision)
    encoder.n_bits_ = int(encoder.precision_.sum())
    return encoder


def hash_held(X: Any) -> Any:
    """Hash of each row of features on a device, uint64 (n,); as `models.repeats.hash_inputs`."""
    engine, nothing = device_engine(), np.zeros(X.shape[1], np.int64)
    parts = []
    for rows in row_blocks(X.shape[0], X.shape[1], DEVICE_ENTRIES):
        values = X[rows].astype(np.float64) + 0.0  # -0 is 0
        parts.append(engine.hash_rows(values.view(np.uint64), nothing))
    return np.concatenate(parts)


def _order_statistics(column: Any, places: npt.NDArray[np.intp]) -> Floats:
    """Values at some places of the sorted column, on the host."""
    ordered = np.sort(column)
    found: Floats = to_host(ordered[like(places, ordered)]).astype(np.float64)
    return found


def _percentiles(column: Any) -> Floats:
    """Percentiles 0, 10, ..., 100; as `weighted_percentiles` without weights."""
    n_values = column.size
    at = (n_values - 1) * np.arange(N_STEPS + 1) / N_STEPS
    lower = at.astype(np.intp)
    both = np.append(lower, np.minimum(lower + 1, n_values - 1))
    left, right = _order_statistics(column, both).reshape(2, -1)
    return between_values(left, right, at - lower)


def _separate(X: Any, encoder: Quantiser) -> Precision:
    """Precision at which distinct rows have distinct bit strings; as `separating_precision`."""
    n_rows, n_features = X.shape
    few = (encoder.low_ == encoder.high_) | encoder.two_valued_
    start = np.where(few, 1, paper_precision(n_features))
    widths = np.full(n_features, MAX_PRECISION)
    one = map_of(encoder, np.zeros(n_features), np.full(n_features, FULL), widths)
    engine, nothing = device_engine(), np.zeros(n_features, np.int64)
    groups, identities = [], []
    for rows in row_blocks(n_rows, n_features, DEVICE_ENTRIES):
        codes = _full_codes(X[rows], one)
        groups.append(engine.hash_rows(codes, MAX_PRECISION - start))
        identities.append(engine.hash_rows(codes, nothing))
    group, identity = np.concatenate(groups), np.concatenate(identities)
    order = np.argsort(group)
    same = group[order[1:]] == group[order[:-1]]
    marked = np.zeros_like(order, dtype=np.bool_)
    marked[1:] = same
    marked[:-1] |= same
    some = order[marked]
    if not some.size:
        return start
    hashes = to_host(group[some]), to_host(identity[some])
    kept = tied_order(*hashes)
    codes = _full_codes(X[some[like(kept, some)]], one)
    columns = np.ascontiguousarray(to_host(codes).T.astype(np.uint32))
    return separate_tied(columns, hashes[0][kept], hashes[1][kept], start)


def _full_codes(X: Any, one: GridMap) -> Any:
    """Codes at 32 bits, the last one 0, uint64 (m, d), on the device."""
    at = device_engine().place(X.astype(np.float64, copy=False), one)
    at *= FULL
    return np.minimum(np.floor(at), FULL - 1.0).astype(np.uint64) & int(ALL_BUT_LAST)
