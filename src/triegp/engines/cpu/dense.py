"""Kernel matrices of a sum of trees over few rows, columns of large ones, and sums by depth.

In key order, the lcp of leaves i < j is the smallest lcp of neighbours between them. So one pass
along a row of the matrix visits all pairs, with a running minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from triegp.engines.cpu import scratch
from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.threads import run_each
from triegp.engines.records import Floats, Ints, Tree

TREE_GROUPS = 8  # groups of trees; one partial sum per group is held
COLUMNS = 32  # columns that one thread fills at a time


@jit
def add_matrix(row_idx, lcp, levels, shared, out):
    """out[i, j] += K_ij of one tree, for the rows i < j in key order, four rows i at a time.

    shared: float64 (n,), scratch. Entries (i, j) and (j, i) are both written to one of them: the
    caller adds the transpose. A row shares nothing with any row after the first such row.
    """
    n = row_idx.size
    top = levels[0]
    for j in range(n):
        shared[j] = top - levels[lcp[j]]
    for i in range(0, n - 3, 4):
        a, b, c, d = row_idx[i], row_idx[i + 1], row_idx[i + 2], row_idx[i + 3]
        of_c = shared[i + 3]
        of_b = min(shared[i + 2], of_c)
        of_a = min(shared[i + 1], of_b)
        out[a, b] += shared[i + 1]
        out[a, c] += min(shared[i + 1], shared[i + 2])
        out[b, c] += shared[i + 2]
        out[a, d] += of_a
        out[b, d] += of_b
        out[c, d] += of_c
        of_d = top - levels[-1]
        for j in range(i + 4, n):
            value = shared[j]
            of_a = value if value < of_a else of_a
            of_b = value if value < of_b else of_b
            of_c = value if value < of_c else of_c
            of_d = value if value < of_d else of_d
            if of_d == 0.0:
                break
            row = row_idx[j]
            out[a, row] += of_a
            out[b, row] += of_b
            out[c, row] += of_c
            out[d, row] += of_d
    for i in range(n // 4 * 4, n):
        value = top - levels[-1]
        for j in range(i + 1, n):
            value = min(value, shared[j])
            out[row_idx[i], row_idx[j]] += value


@jit
def add_columns(row_idx, place, shared, prior, rows, out):
    """out[c, j] += K of one tree between rows[c] and row j.

    place: int32 (n,), leaf of each row; shared: float64 (n,), covariance of leaves i - 1 and i;
    prior: of a row with itself. A walk from a leaf ends at the first leaf that shares nothing.
    """
    n = row_idx.size
    for c in range(rows.size):
        at = place[rows[c]]
        out[c, rows[c]] += prior
        value = prior
        for j in range(at + 1, n):
            value = min(value, shared[j])
            if value == 0.0:
                break
            out[c, row_idx[j]] += value
        value = prior
        for j in range(at, 0, -1):
            value = min(value, shared[j])
            if value == 0.0:
                break
            out[c, row_idx[j - 1]] += value


@jit
def add_by_depth(row_idx, lcp, entries, by_level):
    """by_level[l] += sum of entries_ij + entries_ji over pairs with lcp l > 0, and the diagonal.

    entries: float64 (n, n), symmetric. A row's own entry counts at depth D.
    """
    n = row_idx.size
    last = by_level.size - 1
    for i in range(n):
        row = row_idx[i]
        by_level[last] += entries[row, row]
        least = last
        total = 0.0
        for j in range(i + 1, n):
            if lcp[j] < least:
                by_level[least] += 2.0 * total
                least, total = lcp[j], 0.0
                if least <= 0:
                    break
            total += entries[row, row_idx[j]]
        by_level[least] += 2.0 * total


@jit
def fill_entries(lower, alpha, first, last, out):
    """Rows first to last of (k A^-1 - sum_c a_c a_c') / 2, and their mirror images; lower: of A^-1.

    alpha: float64 (n, k), its columns are the a_c.
    """
    k = alpha.shape[1]
    for i in range(first, last):
        for j in range(i + 1):
            square = alpha[i, 0] * alpha[j, 0]
            for c in range(1, k):
                square += alpha[i, c] * alpha[j, c]
            value = 0.5 * (k * lower[i, j] - square)
            out[i, j] = value
            out[j, i] = value


def nll_entries(lower: Floats, alpha: Floats, n_threads: int) -> Floats:
    """Derivatives of the nll by entries of A, (A^-1 - a a') / 2, (n, n); lower: of A^-1.

    alpha: (n,), or (n, k) for the nll of k targets together.
    """
    n = alpha.shape[0]
    out: Floats = np.empty((n, n))
    lower, columns = np.asarray(lower), np.ascontiguousarray(alpha.reshape(n, -1))

    def fill(first: int) -> None:
        fill_entries(lower, columns, first, min(first + COLUMNS, n), out)

    run_each(fill, range(0, n, COLUMNS), n_threads)
    return out


def kernel_matrix(trees: Sequence[Tree], n_threads: int) -> Floats:
    """K, summed over the trees, (n, n). O(n^2 T)."""
    groups = [trees[g::TREE_GROUPS] for g in range(min(TREE_GROUPS, len(trees)))]
    parts = run_each(_sum_matrices, groups, n_threads)
    total = parts[0]
    for part in parts[1:]:
        total += part
    total += total.T.copy()
    prior = sum(float(tree.levels[0] - tree.levels[-1]) for tree in trees)
    np.fill_diagonal(total, prior)
    return total


def kernel_columns(trees: Sequence[Tree], rows: Ints, n_threads: int) -> Floats:
    """K[:, rows], summed over the trees, (n, r). O(n T r), without a product."""
    n = trees[0].row_idx.size
    out: Floats = np.zeros((rows.size, n))
    place = np.empty(n, np.int32)
    for tree in trees:
        place[tree.row_idx] = np.arange(n, dtype=np.int32)
        shared = tree.levels[0] - tree.levels[tree.links.lcp]
        prior = float(tree.levels[0] - tree.levels[-1])
        given = (tree.row_idx, place, shared, prior)
        run_each(partial(_fill_columns, given, rows, out), range(0, rows.size, COLUMNS), n_threads)
    return np.ascontiguousarray(out.T)


def level_traces(trees: Sequence[Tree], entries: Floats, n_threads: int) -> list[Floats]:
    """Sum of entries_ij K_l,ij for l = 0..D, one array (D + 1,) per tree; entries: symmetric."""
    return run_each(partial(_traces, entries, float(entries.sum())), trees, n_threads)


def _sum_matrices(trees: Sequence[Tree]) -> Floats:
    n = trees[0].row_idx.size
    out: Floats = np.zeros((n, n))
    shared = scratch.borrow("shared", n, np.float64)
    for tree in trees:
        add_matrix(tree.row_idx, tree.links.lcp, tree.levels, shared, out)
    return out


def _fill_columns(given: tuple[Any, ...], rows: Ints, out: Floats, first: int) -> None:
    some = slice(first, first + COLUMNS)
    add_columns(*given, rows[some], out[some])


def _traces(entries: Floats, total: float, tree: Tree) -> Floats:
    by_level = np.zeros(tree.links.n_levels + 1)
    add_by_depth(tree.row_idx, tree.links.lcp, entries, by_level)
    found: Floats = np.cumsum(by_level[::-1])[::-1].copy()
    found[0] = total  # pairs that part at the first bit included
    return found
