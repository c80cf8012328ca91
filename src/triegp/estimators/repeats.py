"""Rows that share their features, and weights: folded into one row each, in an order of their own.

Rows are sorted by a hash of their features in float32. So nothing that is drawn from them, such as
the folds of a calibration, depends on the order in which they were passed, or on rows of weight 0.

Whether observations with the same features are independent decides what they say about the noise.
If some of them differ, they are repeated measurements, and their differences teach the noise. If
practically none differ, they are copies of one observation, such as duplicated records or sample
weights above 1. Copies count as one observation each, with a relative weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from triegp.devices import like, on_device, to_host
from triegp.encoding.precision import hash_rows
from triegp.estimators.held import count_shared_cells, order_distinct, scale_features
from triegp.models.repeats import Observations, hash_inputs
from triegp.tree.rows import Rows

MEANINGS = ("frequency", "precision")  # of sample weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_SHARE = 0.001  # of repeats that must differ for all to be independent
LEAST_COPIES = 0.01  # share of copies above which `fit` warns
LEAST_TWINS = 0.01  # of the rows that must be near another, to look for twins
ENOUGH = 10  # repeats that differ, or ENOUGH_SHARE of all repeats
ENOUGH_SHARE = 0.2
NEAR = 0.02  # of the typical distance between neighbours: nearer rows are candidates for twins
NEAR_ROWS = 50  # with fewer rows, nothing is nearer than chance allows
AGREEMENT = 0.1  # of the deviation of y: twins differ by less
SKIP = 5  # rows between two that are next to each other but no twins
MOST_PAIRS = 20  # near pairs per row: more are no twins but a dense cloud
MOST_AGREE = 0.5  # share of near pairs that agree, beyond that of other neighbours


@dataclass(frozen=True, eq=False)
class Folded:
    """Rows with distinct features, and how the rows that were passed map to them.

    Attributes
    ----------
    rows : Rows
        Distinct rows: weighted means of the targets, sums of the weights.
    index : int64 (n,)
        For each row that was passed its row here, -1 if its weight is 0.
    weight : float64 (n,) or None
        Weight of each row that was passed, in units of `rows.weight`; None if all are 1.
    copies : bool
        Whether rows that share their features are copies of one observation.
    n_copies : int
        Rows passed that repeat another, counted by weight, if they are copies; otherwise 0.
    unit : float
        Sample weight, as passed, of a row of weight 1.
    """

    rows: Rows
    index: Ints
    weight: Floats | None
    copies: bool
    n_copies: int
    unit: float = 1.0

    def observations(self, y: Floats) -> Observations:
        """The rows that were passed, with standardised targets y (n, k)."""
        return Observations(self.index, y, self.weight, self.copies, self.unit)


def fold_rows(
    rows: Rows, reading: str, unit: Floats | float = 1.0, *, twins: bool = True
) -> Folded:
    """Fold rows with the same features and known noise, and read their weights.

    Parameters
    ----------
    rows : Rows
        With features; y (n, k). Features on a device stay there, unless rows repeat.
    reading : {"frequency", "precision"}
        "frequency": a weight c stands for c observations. "precision": for one observation whose
        noise variance is divided by c; weights are scaled to mean 1.
    unit : float64 (k,), default=1.0
        Deviation of each target, about. The scatter is in units of its square, which need not be
        within the range of float64.
    twins : bool, default=True
        Whether to look for near-twins, too.

    Notes
    -----
    A row of weight 2 equals a row that appears twice. O(n d) for the hashes, O(n log n) to sort
    them.
    """
    if on_device(rows.features):
        if rows.weight is None and rows.known_noise is None:
            source = _order_there(rows.features)
            if source is not None:
                index = np.argsort(source)
                return Folded(_take(rows, source), index, None, False, 0)
        rows = replace(rows, X=to_host(rows.features))
    source, group = _group_equal(rows)
    count = np.ones(source.size) if rows.weight is None else rows.weight[source]
    weight_unit = 1.0
    if reading == "precision":
        weight_unit = float(count.mean())
        count = count / weight_unit
    if group[-1] == group.size - 1 and (count == 1.0).all():
        ordered = replace(_take(rows, source), weight=None)
        near = _find_twins(ordered, unit) if twins else None
        if near is None:
            index = np.full(rows.n_rows, -1, np.int64)
            index[source] = group
            return Folded(ordered, index, None, False, 0, weight_unit)
        source, group = source[np.argsort(near, kind="stable")], np.sort(near)
    n_distinct = int(group[-1]) + 1
    first = np.searchsorted(group, np.arange(n_distinct))
    total: Floats = np.bincount(group, count).astype(np.float64)
    number = np.bincount(group).astype(np.float64)
    y = rows.y[source]
    base = y[first]
    # Deviations keep their accuracy if the targets are large. Halves do not overflow.
    apart = (0.5 * y - 0.5 * base[group]) / np.multiply(0.5, unit)
    shift = _sum_groups(group, count[:, None] * apart) / total[:, None]
    left = apart - shift[group]
    scatter = _sum_groups(group, count[:, None] * left * left)
    # A precision is not a number of observations: only rows that repeat can be copies then.
    copies = not _differ(y, count if reading == "frequency" else np.ones(count.size), group)
    folded = rows.select(source[first])
    folded = replace(folded, y=2.0 * (0.5 * base + shift * np.multiply(0.5, unit)), weight=None)
    index = np.full(rows.n_rows, -1, np.int64)
    index[source] = group
    n_copies = 0
    if copies and reading == "precision":
        n_copies, total = int((number - 1.0).sum()), total / number
    elif copies:
        n_copies = round(float(np.maximum(total - 1.0, 0.0).sum()))
        weight_unit = float(total.mean())
        total, count = total / weight_unit, count / weight_unit
    elif reading == "frequency":
        number = total
    own = np.ones(rows.n_rows)
    own[source] = count
    plain = bool((total == 1.0).all())
    if not plain:
        repeated = None if copies or not scatter.any() else scatter
        observed = np.ones(n_distinct) if copies else number
        pulling = copies and reading == "frequency"
        folded = replace(folded, weight=total, copies=observed, scatter=repeated, pulling=pulling)
    return Folded(folded, index, None if plain else own, copies, n_copies, weight_unit)


def _order_there(X: Any) -> Ints | None:
    """Order of rows on a device by their hashes, (n,); None if some repeat, or may be twins."""
    order = order_distinct(X)
    if order is None:
        return None
    size, sd = scale_features(X)
    n_features = int((sd > 0).sum())
    if X.shape[0] < NEAR_ROWS or not n_features or not np.isfinite(sd).all():
        return order
    n_shared = count_shared_cells(X, size, sd, _radius(X.shape[0], n_features))
    return None if n_shared >= LEAST_TWINS * X.shape[0] else order


def copies_warning(folded: Folded, n_rows: int) -> list[Warning]:
    """A warning if rows are copies of others."""
    if folded.n_copies < max(2.0, LEAST_COPIES * n_rows):
        return []
    return [
        UserWarning(
            f"{folded.n_copies:,} of the observations are copies of others: rows that repeat with "
            "the same target, near-twins, or sample weights above 1. Each group of copies counts "
            "as one observation of that weight; see weights= and the guide"
        )
    ]


def _sum_groups(group: Ints, values: Floats) -> Floats:
    """Sums of values (n, k) over the rows of each group."""
    return np.stack([np.bincount(group, part) for part in values.T], axis=1).astype(np.float64)


def _differ(y: Floats, count: Floats, group: Ints) -> bool:
    """Whether enough observations at the same features differ for all to be independent.

    Also true if there are no repeats: then no row has a weight above 1.
    """
    repeats = float(np.maximum(np.bincount(group, count) - 1.0, 0.0).sum())
    if repeats < 1e-9:
        return True
    order = np.lexsort((y[:, 0], group))
    same = group[order][1:] == group[order][:-1]
    n_differ = int((same & (y[order][1:] != y[order][:-1]).any(axis=1)).sum())
    enough = n_differ >= ENOUGH or n_differ >= ENOUGH_SHARE * repeats
    return enough and n_differ >= LEAST_SHARE * repeats


def _take(rows: Rows, source: Ints) -> Rows:
    """Some of the rows; features stay where they are."""
    return replace(replace(rows, X=None).select(source), X=rows.features[like(source, rows.X)])


def _group_equal(rows: Rows) -> tuple[Ints, Ints]:
    """Rows of a weight other than 0, by hashes of features and known noise, and the group of each.

    Groups are those of equal rows, numbered from 0; equal rows are sorted by target.
    """
    with np.errstate(over="ignore"):  # values learned from the rows have rounding errors
        hashes = hash_inputs(rows.features.astype(np.float32))
    columns = list(rows.features.T)
    if rows.known_noise is not None:
        known = rows.known_noise + 0.0  # -0 is 0
        hashes = hash_rows(np.stack([hashes, known.view(np.uint64)]))
        columns.append(known)
    kept = np.arange(rows.n_rows) if rows.weight is None else np.flatnonzero(rows.weight > 0)
    order = kept[np.argsort(hashes[kept], kind="stable")]
    again = hashes[order[1:]] == hashes[order[:-1]]
    if not again.any():
        return order, np.arange(order.size)
    order = kept[np.lexsort([*rows.y[kept].T, *(c[kept] for c in columns), hashes[kept]])]
    is_first = np.append(True, ~again)
    for column in columns:
        is_first[1:] |= column[order[1:]] != column[order[:-1]]
    return order, np.cumsum(is_first) - 1


def _find_twins(rows: Rows, unit: Floats | float) -> Ints | None:
    """Group of each row, if rows come in twins: nearer than chance allows, with the same target.

    Two rows are near if their distance, in standard deviations of the features, is a fiftieth of
    the distance between neighbours of a regular grid. None if few rows are near another, or if near
    rows do not agree in y far more often than rows that are next to each other otherwise. O(n d)
    if a sample of cells of that size shows none; otherwise one search in a k-d tree. unit: as for
    `fold_rows`.
    """
    n_rows = rows.n_rows
    if n_rows < NEAR_ROWS or rows.known_noise is not None:
        return None
    X = np.ascontiguousarray(rows.features, np.float64)
    size = np.abs(X).max(axis=0)
    X = X / np.where(size > 0, size, 1.0)  # squares of huge features must not overflow
    sd = X.std(axis=0)
    varies = sd > 0
    if not varies.any() or not np.isfinite(sd).all():
        return None
    X = X[:, varies] / sd[varies]
    n_features = X.shape[1]
    radius = _radius(n_rows, n_features)
    if _count_shared_cells(X, radius) < LEAST_TWINS * n_rows:
        return None
    near = cKDTree(X).query_pairs(radius, output_type="ndarray")
    if len(near) < ENOUGH or len(near) > MOST_PAIRS * n_rows:
        return None
    y = 0.5 * rows.y  # differences of halves do not overflow
    agree = np.broadcast_to(np.multiply(0.5 * AGREEMENT, unit), y.shape[1:])
    same = (np.abs(y[near[:, 0]] - y[near[:, 1]]) <= agree).all(axis=1)
    usual = _usual_agreement(X, y, agree)
    if same.mean() - usual <= MOST_AGREE * (1.0 - usual):
        return None
    links = csr_array((np.ones(int(same.sum())), near[same].T), (n_rows, n_rows))
    return np.asarray(connected_components(links, directed=False)[1], np.int64)


def _radius(n_rows: int, n_features: int) -> float:
    """Distance, in deviations of the features, below which rows are candidates for twins."""
    return float(NEAR * float(n_rows) ** (-1.0 / n_features) * np.sqrt(n_features))


def _count_shared_cells(X: Floats, radius: float) -> int:
    """Rows that share a cell of width 4 radius with another, on one of two grids."""
    shared = np.zeros(X.shape[0], bool)
    for shift in (0.0, 0.5):
        cells = np.ascontiguousarray(np.floor(X / (4.0 * radius) + shift).T)
        hashes = hash_rows(cells.view(np.uint64))
        order = np.argsort(hashes, kind="stable")
        same = hashes[order[1:]] == hashes[order[:-1]]
        shared[order[1:][same]] = shared[order[:-1][same]] = True
    return int(shared.sum())


def _usual_agreement(X: Floats, y: Floats, agree: Floats) -> float:
    """Share of rows whose target agrees with that of a row next to it along one feature."""
    shares = []
    for column in X.T[:8]:
        order = np.argsort(column, kind="stable")
        one, other = order[SKIP:], order[:-SKIP]  # not the next row: that may be a twin
        shares.append((np.abs(y[one] - y[other]) <= agree).all(axis=1).mean())
    return float(np.max(shares))
