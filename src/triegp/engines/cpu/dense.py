"""Kernel matrices of a sum of trees over few rows, columns of large ones, and sums by depth.

In key order, the lcp of leaves i < j is the smallest lcp of neighbours between them. One leaf
further, it differs only for leaves of the cell that is left. So the rows of a tree's matrix are one
vector that changes in few places from row to row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from triegp.engines.cpu import keys, sorting
from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.matern import MIRRORED
from triegp.engines.cpu.threads import run_each
from triegp.engines.records import Bytes, Floats, Ids, Ints, Tree

ROWS = 64  # fewest rows of a sum of matrices for a thread: each passes over all leaves of all trees
TREES = 8  # trees that one thread sums entries for at a time
COLUMNS = 32  # columns that one thread fills at a time


class Sorted(NamedTuple):
    """Trees over the same few rows: sorted, not linked.

    row_idx, lcp: int32 (T, n), the rows of each tree in key order, and the lcp of neighbours.
    levels: float64 (Q,), R(0..D) of one tree after the other. first: int64 (T + 1,), where those of
    each tree begin, and Q.
    """

    row_idx: Ids
    lcp: Ids
    levels: Floats
    first: Ints


@jit
def add_matrices(row_idx, lcp, levels, first, lo, hi, out):
    """out[i, j] += K_ij of all trees, for rows lo <= i < hi and all rows j after i in key order.

    Arguments as in `Sorted`. Entries (i, j) and (j, i) are both written to one of them: the caller
    adds the transpose. `shared` is the covariance of each row with row i, going down in key order;
    it changes only for the rows in the cell that a step leaves.
    """
    n_trees, n = row_idx.shape
    shared = np.empty(n)
    for t in range(n_trees):
        rows, depth, remaining = row_idx[t], lcp[t], levels[first[t] : first[t + 1]]
        for j in range(n):
            shared[j] = 0.0
        for i in range(n - 2, -1, -1):
            value = remaining[0] - remaining[depth[i + 1]]
            shared[rows[i + 1]] = value
            j = i + 2
            while j < n and shared[rows[j]] > value:
                shared[rows[j]] = value
                j += 1
            row = rows[i]
            if lo <= row < hi:
                line = out[row]
                for k in range(n):
                    line[k] += shared[k]


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
def add_by_depth(row_idx, lcp, first, lo, hi, entries, by_depth):
    """by_depth[l] += sum of entries_ij over pairs i != j with lcp l, for trees lo <= t < hi.

    entries: float64 (n, n), symmetric. The adjoint of `add_matrices`: `sums` is the sum of each
    row's entries since its covariance changed.
    """
    n = row_idx.shape[1]
    sums = np.empty(n)
    for t in range(lo, hi):
        rows, depth, out = row_idx[t], lcp[t], by_depth[first[t] : first[t + 1]]
        for j in range(n):
            sums[j] = 0.0
        for i in range(n - 1):
            line = entries[rows[i]]
            for k in range(n):
                sums[k] += line[k]
            here = depth[i + 1]
            total, j = 0.0, i + 1
            while j == i + 1 or (j < n and depth[j] > here):
                total += sums[rows[j]]
                sums[rows[j]] = 0.0
                j += 1
            out[here] += 2.0 * total


@jit
def fill_entries(lower, alpha, first, last, out):
    """Rows first to last of (k A^-1 - sum_c a_c a_c') / 2, and their mirror images; lower: of A^-1.

    alpha: float64 (n, k), its columns are the a_c.
    """
    k = alpha.shape[1]
    for j in range(last):
        for i in range(max(first, j), last):
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
        fill_entries(lower, columns, first, min(first + MIRRORED, n), out)

    run_each(fill, range(0, n, MIRRORED), n_threads)
    return out


def sort_trees(
    packed: Sequence[Bytes], bits: Sequence[Ints], levels: Floats, first: Ints, n_threads: int
) -> Sorted:
    """Sort the rows (n, width) of each tree by its key bits (D,)."""
    n = packed[0].shape[0]
    row_idx, lcp = np.empty((2, len(bits), n), np.int32)
    row_bits = keys.low_bits(n)

    def sort(t: int) -> None:
        sorting.sort_few_rows(packed[t], bits[t], row_bits, row_idx[t], lcp[t])

    run_each(sort, range(len(bits)), n_threads)
    return Sorted(row_idx, lcp, levels, first)


def sum_matrices(trees: Sorted, n_threads: int) -> Floats:
    """K, summed over the trees, (n, n). O(n^2 T)."""
    n = trees.row_idx.shape[1]
    out: Floats = np.zeros((n, n))
    step = max(ROWS, -(-n // n_threads))  # a row's sum does not depend on the cuts
    run_each(lambda lo: add_matrices(*trees, lo, lo + step, out), range(0, n, step), n_threads)
    out += out.T.copy()
    prior = trees.levels[trees.first[:-1]] - trees.levels[trees.first[1:] - 1]
    np.fill_diagonal(out, prior.sum())
    return out


def sum_by_depth(trees: Sorted, entries: Floats, n_threads: int) -> Floats:
    """Sums of entries_ij over pairs of rows by lcp, (Q,) as the levels; entries: symmetric.

    A row shares all D bits with itself. O(n^2 T).
    """
    row_idx, lcp, levels, first = trees
    out: Floats = np.zeros(levels.size)
    out[first[1:] - 1] = np.trace(entries)

    def add(lo: int) -> None:
        add_by_depth(row_idx, lcp, first, lo, min(lo + TREES, len(lcp)), entries, out)

    run_each(add, range(0, len(lcp), TREES), n_threads)
    return out


def kernel_matrix(trees: Sequence[Tree], n_threads: int) -> Floats:
    """K, summed over linked trees, (n, n). O(n^2 T)."""
    return sum_matrices(stack_trees(trees), n_threads)


def stack_trees(trees: Sequence[Tree]) -> Sorted:
    """Linked trees as sorted ones."""
    row_idx, lcp = [tree.row_idx for tree in trees], [tree.links.lcp for tree in trees]
    levels = [tree.levels for tree in trees]
    first = np.cumsum([0, *map(len, levels)])
    return Sorted(np.stack(row_idx), np.stack(lcp), np.concatenate(levels), first)


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


def _fill_columns(given: tuple[Any, ...], rows: Ints, out: Floats, first: int) -> None:
    some = slice(first, first + COLUMNS)
    add_columns(*given, rows[some], out[some])
