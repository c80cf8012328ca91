"""Rows in cells of about equal size, clustered by their inputs, and the rows nearest to a cell."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.cpu.threads import run_each, thread_blocks
from triegp.engines.records import Floats, Ids, Ints

PROBES = 8  # groups of cells whose centres are compared with a query
LLOYD_STEPS = 2
LLOYD_ROWS = 8  # per cell, that a step of k-means takes
CANDIDATES = 8  # rows compared with a centre, per member
SMALLEST_SHARE = 8  # a cut leaves at least 1 / 8 of the rows on both sides, if any cut does


class Cells(NamedTuple):
    """Rows by the nearest of c centres. Close cells have close numbers.

    Attributes
    ----------
    centres : float64 (c, d)
        One per cell.
    group_size : int
        Cells per group; a group is a run of cells.
    groups : float64 (g, d)
        Mean of the centres of each group.
    rows : int32 (n,)
        Rows in the order of their cells.
    starts : int64 (c + 1,)
        rows[starts[b]:starts[b + 1]] are the rows of cell b.
    """

    centres: Floats
    group_size: int
    groups: Floats
    rows: Ids
    starts: Ints


def make_cells(inputs: Floats, n_cells: int, n_threads: int) -> Cells:
    """Cluster rows (n, d): cuts at medians, then two steps of k-means. O(n (log n + sqrt(c)) d).

    k-means takes every s-th row of each cell, about 8 per cell, if there are more.
    """
    rows, starts = _split_rows(inputs, n_cells)
    # Costs per query: n_cells / size groups and PROBES * size centres.
    size = max(1, round(math.sqrt(n_cells / PROBES)))
    centres: Floats = np.zeros((n_cells, inputs.shape[1]))
    _move_centres(inputs, rows, starts, centres)
    cells = Cells(centres, size, _group_means(centres, size), rows, starts)
    some = np.ascontiguousarray(inputs[rows[:: max(1, len(inputs) // (LLOYD_ROWS * n_cells))]])
    for _ in range(LLOYD_STEPS):
        own, first = _by_cell(find_cells(cells, some, n_threads), n_cells)
        _move_centres(some, own, first, centres)
        cells = cells._replace(groups=_group_means(centres, size))
    rows, starts = _by_cell(find_cells(cells, inputs, n_threads), n_cells)
    return cells._replace(rows=rows, starts=starts)


def find_cells(cells: Cells, inputs: Floats, n_threads: int) -> Ids:
    """The cell of each row (m, d): its nearest centre among the PROBES nearest groups, (m,)."""
    cell = np.empty(inputs.shape[0], np.int32)
    tail = (cells.centres, cells.group_size, cells.groups, cell)
    run_each(
        lambda part: nearest_centres(inputs, *part, *tail), thread_blocks(cell.size), n_threads
    )
    return cell


def add_rows(cells: Cells, cell: Ids) -> Cells:
    """The cells with rows n, n + 1, ... added to the given cells (k,). O(n)."""
    n, order = cells.rows.size, np.argsort(cell, kind="stable")
    added = (n + order).astype(np.int32)
    rows = np.insert(cells.rows, cells.starts[cell[order] + 1], added)
    counts = np.bincount(cell, minlength=cells.starts.size - 1)
    return cells._replace(rows=rows, starts=cells.starts + np.append(0, np.cumsum(counts)))


def _by_cell(cell: Ids, n_cells: int) -> tuple[Ids, Ints]:
    """Rows in the order of their cells, and where each cell starts."""
    starts = np.append(0, np.cumsum(np.bincount(cell, minlength=n_cells)))
    return np.argsort(cell, kind="stable").astype(np.int32), starts


def _group_means(centres: Floats, size: int) -> Floats:
    first = np.arange(0, len(centres), size)
    counts = np.diff(np.append(first, len(centres)))
    means: Floats = np.add.reduceat(centres, first, axis=0) / counts[:, None]
    return means


def _split_rows(inputs: Floats, n_cells: int) -> tuple[Ids, Ints]:
    """Rows (n,) in n_cells <= n ranges of about equal size, and where each starts."""
    rows, starts = np.arange(len(inputs), dtype=np.int32), np.zeros(n_cells + 1, np.int64)
    stack = [(0, rows.size, 0, n_cells)]
    while stack:
        lo, hi, first, count = stack.pop()
        if count == 1:
            starts[first + 1] = hi
            continue
        part, size = rows[lo:hi], hi - lo
        order, cut = _cut(inputs[part], size * (count // 2) // count)
        rows[lo:hi] = part[order]
        share = (count * cut + size // 2) // size
        share = max(1, count - (size - cut), min(share, count - 1, cut))
        stack.append((lo, lo + cut, first, share))
        stack.append((lo + cut, hi, first + share, count - share))
    return rows, starts


@np.errstate(over="ignore", invalid="ignore")
def _cut(values: Floats, middle: int) -> tuple[Ints, int]:
    """An order of rows (m, d), and where to cut it: between two distinct values near the middle.

    They are ordered by the feature of largest variance. If too many rows share a value of it, the
    feature of next largest variance is tried.
    """
    size = len(values)
    spread = np.square(values - values.sum(axis=0) / size).sum(axis=0)
    best, cut, order = 0, middle, np.arange(size)
    for j in np.argsort(-spread, kind="stable"):
        own = np.argsort(values[:, j], kind="stable")
        line = values[own, j]
        left = int(line.searchsorted(line[middle], "left"))
        right = int(line.searchsorted(line[middle], "right"))
        at = left if left > 0 and (middle - left <= right - middle or right == size) else right
        share = min(at, size - at)
        if share > best:
            best, cut, order = share, at, own
        if best >= max(size // SMALLEST_SHARE, 1):
            break
    return order, cut


def _move_centres(inputs: Floats, rows: Ids, starts: Ints, centres: Floats) -> None:
    """Centres become the means of the rows of their cells; that of an empty cell stays."""
    counts = np.diff(starts)
    cell, filled = np.repeat(np.arange(counts.size), counts), counts > 0
    for j in range(centres.shape[1]):
        total = np.bincount(cell, inputs[rows, j], counts.size)
        centres[filled, j] = total[filled] / counts[filled]


def squares_from(point: Floats, lines: Floats) -> Floats:
    """Squares of the distances of a point (d,) from points with a line per input, (d, m)."""
    with np.errstate(over="ignore"):
        square: Floats = np.square(np.subtract(lines, point[:, None], order="C")).sum(axis=0)
    return square


def nearest_members(inputs: Floats, b: int, cells: Cells, wanted: int) -> tuple[Ids, float]:
    """The rows nearest to the centre of cell b, among those of cells near it, and their radius.

    Row numbers rise, (wanted,). The radius is inf if all rows are members.
    """
    starts, centre, size = cells.starts, cells.centres[b], cells.group_size
    near: list[int] = []
    found = 0
    for k, g in enumerate(np.argsort(squares_from(centre, cells.groups.T), kind="stable").tolist()):
        if k >= PROBES and found >= 2 * CANDIDATES * wanted:
            break
        group = range(g * size, min((g + 1) * size, len(cells.centres)))
        near.extend(group)
        found += int(starts[group.stop] - starts[group.start])
    by_cell = np.argsort(squares_from(centre, cells.centres[near].T), kind="stable")
    ordered = np.array(near)[by_cell]
    total = np.cumsum(starts[ordered + 1] - starts[ordered])
    last = int(total.searchsorted(CANDIDATES * wanted)) + 1
    candidates = np.concatenate([cells.rows[starts[c] : starts[c + 1]] for c in ordered[:last]])
    square = squares_from(centre, inputs[candidates].T)
    order = np.argsort(square, kind="stable")[:wanted]
    radius = math.inf if wanted == cells.rows.size else float(square[order[-1]])
    return np.sort(candidates[order]), radius


@inline
def _square(a, i, b, j):
    """Square of the distance between a[i] and b[j]."""
    total = 0.0
    for k in range(a.shape[1]):
        total += (a[i, k] - b[j, k]) ** 2
    return total


@jit
def nearest_centres(inputs, lo, hi, centres, size, groups, cell):
    """Cells of inputs[lo:hi]; of equally near centres the first in order of the search."""
    n_groups = groups.shape[0]
    apart = np.empty(n_groups)
    for i in range(lo, hi):
        for g in range(n_groups):
            apart[g] = _square(inputs, i, groups, g)
        best, least = 0, np.inf
        for _ in range(min(PROBES, n_groups)):
            g = 0
            for other in range(1, n_groups):
                if apart[other] < apart[g]:
                    g = other
            apart[g] = np.inf
            for b in range(g * size, min((g + 1) * size, centres.shape[0])):
                square = _square(inputs, i, centres, b)
                if square < least:
                    best, least = b, square
        cell[i] = best
