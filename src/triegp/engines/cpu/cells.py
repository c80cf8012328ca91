"""Rows in cells of about equal size, clustered by their inputs, and the rows nearest to a cell."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from triegp.engines.cpu.compiler import jit
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
    n = inputs.shape[0]
    rows, starts = np.arange(n, dtype=np.int32), np.zeros(n_cells + 1, np.int64)
    split_rows(inputs, n_cells, rows, starts)
    # Costs per query: n_cells / size groups and PROBES * size centres.
    size = max(1, round(math.sqrt(n_cells / PROBES)))
    centres: Floats = np.zeros((n_cells, inputs.shape[1]))
    cell_means(inputs, rows, starts, centres)
    cells = Cells(centres, size, _group_means(centres, size), rows, starts)
    some = np.ascontiguousarray(inputs[rows[:: max(1, n // (LLOYD_ROWS * n_cells))]])
    for _ in range(LLOYD_STEPS):
        own, first = _by_cell(find_cells(cells, some, n_threads), n_cells)
        cell_means(some, own, first, centres)
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


@jit
def split_rows(inputs, n_cells, rows, starts):
    """Reorder rows (n,) into n_cells <= n ranges of about equal size, and write their starts.

    A range is cut along the feature of largest variance, between two distinct values near the
    middle. If too many rows share a value, the feature of next largest variance is tried.
    """
    d = inputs.shape[1]
    stack = [(0, rows.size, 0, n_cells)]
    while len(stack) > 0:
        lo, hi, first, count = stack.pop()
        size = hi - lo
        if count == 1:
            starts[first + 1] = hi
            continue
        part = rows[lo:hi].copy()
        spread = np.zeros(d)
        for j in range(d):
            mean = 0.0
            for row in part:
                mean += inputs[row, j]
            mean /= size
            for row in part:
                spread[j] -= (inputs[row, j] - mean) ** 2
        middle = size * (count // 2) // count
        best, cut = 0, middle
        order = np.arange(size)
        for j in np.argsort(spread, kind="mergesort"):
            values = inputs[:, j][part]
            own = np.argsort(values, kind="mergesort")
            here = values[own[middle]]
            left, right = middle, middle
            while left > 0 and values[own[left - 1]] == here:
                left -= 1
            while right < size and values[own[right]] == here:
                right += 1
            at = left if left > 0 and (middle - left <= right - middle or right == size) else right
            share = min(at, size - at)
            if share > best:
                best, cut, order = share, at, own
            if best >= max(size // SMALLEST_SHARE, 1):
                break
        for i in range(size):
            rows[lo + i] = part[order[i]]
        share = (count * cut + size // 2) // size
        share = max(1, count - (size - cut), min(share, count - 1, cut))
        stack.append((lo, lo + cut, first, share))
        stack.append((lo + cut, hi, first + share, count - share))


@jit
def cell_means(inputs, rows, starts, centres):
    """Mean of the rows of every cell; the centre of an empty cell stays."""
    for b in range(centres.shape[0]):
        lo, hi = starts[b], starts[b + 1]
        if hi > lo:
            for j in range(centres.shape[1]):
                centres[b, j] = 0.0
            for i in range(lo, hi):
                for j in range(centres.shape[1]):
                    centres[b, j] += inputs[rows[i], j]
            for j in range(centres.shape[1]):
                centres[b, j] /= hi - lo


@jit
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
            g = int(np.argmin(apart))
            apart[g] = np.inf
            for b in range(g * size, min((g + 1) * size, centres.shape[0])):
                square = _square(inputs, i, centres, b)
                if square < least:
                    best, least = b, square
        cell[i] = best


@jit
def nearest_members(inputs, b, centres, size, groups, rows, starts, members):
    """The rows nearest to centre b, among those of cells near it; returns the radius.

    members: int32 (M,), receives rising row numbers. The radius is inf if all rows are members.
    """
    n, n_cells, wanted = rows.size, centres.shape[0], members.size
    apart = np.empty(groups.shape[0])
    for g in range(groups.shape[0]):
        apart[g] = _square(centres, b, groups, g)
    near = [b for _ in range(0)]
    found = 0
    for k, g in enumerate(np.argsort(apart, kind="mergesort")):
        if k >= PROBES and found >= 2 * CANDIDATES * wanted:
            break
        for other in range(g * size, min((g + 1) * size, n_cells)):
            near.append(other)
            found += starts[other + 1] - starts[other]
    by_cell = np.empty(len(near))
    for k in range(len(near)):
        by_cell[k] = _square(centres, b, centres, near[k])
    candidates = np.empty(found, np.int32)
    found = 0
    for k in np.argsort(by_cell, kind="mergesort"):
        if found >= CANDIDATES * wanted:
            break
        for row in rows[starts[near[k]] : starts[near[k] + 1]]:
            candidates[found] = row
            found += 1
    square = np.empty(found)
    for k in range(found):
        square[k] = _square(centres, b, inputs, candidates[k])
    order = np.argsort(square, kind="mergesort")[:wanted]
    members[:] = np.sort(candidates[order])
    return np.inf if wanted == n else square[order[wanted - 1]]
