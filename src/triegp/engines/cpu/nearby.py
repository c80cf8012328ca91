"""Posterior variances from training rows near a query, by blocks of rows.

Rows are clustered into cells of about equal size. A block belongs to a cell: its members are the
rows nearest to the cell's centre. With A = K + noise of the M members and A = R'R, it stores the
upper triangle of X = R^-1. The variance of f at a query given the members is

    v = k(x, x) - |X' k|^2,    k: covariances with the members,

and 1 / (A^-1)_ii - noise_i, with (A^-1)_ii = sum_j X_ij^2, at member i given the other members. A
query is answered by the block of its nearest centre alone, so the result does not depend on what
else is asked.

Keys lie as uint64 (n, w, T): word by word, the trees side by side.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from triegp.engines.cpu import scratch
from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.matern import correlation
from triegp.engines.cpu.threads import run_each, thread_blocks
from triegp.engines.records import Array, Floats, Ids, Ints, Words

PROBES = 8  # groups of cells whose centres are compared with a query
LLOYD_STEPS = 2
CANDIDATES = 8  # rows compared with a centre, per member
SMALLEST_SHARE = 8  # a cut leaves at least 1 / 8 of the rows on both sides, if any cut does
LEAST_NOISE = 1e-10  # of the prior variance, so that equal rows can be factorised


class Process(NamedTuple):
    """Training rows, and the covariance of f between rows.

    Attributes
    ----------
    keys : uint64 (n, w, T)
        Key of each row in each tree.
    tables : float64 (T, 64 w + 1)
        Covariance of two rows in each tree by the number of leading bits that they share.
    inputs : float64 (n, d)
        Inputs, each divided by its lengthscale.
    code : int
        Correlation function of the smooth part (`matern.correlation`); -1 if there is none.
    scale : float
        Prior variance of the smooth part.
    noise : float64 (n,)
        Noise variance of each row.
    prior : float
        Prior variance of f.
    """

    keys: Words
    tables: Floats
    inputs: Floats
    code: int
    scale: float
    noise: Floats
    prior: float


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


class Block(NamedTuple):
    """The members of a cell's block and the factor of their inverse covariance.

    Attributes
    ----------
    members : int32 (M,)
        Rising row numbers.
    factor : float32 or float64 (M (M + 1) / 2,)
        Upper triangle of X, row by row.
    radius : float
        Square of the distance beyond which rows are no members.
    """

    members: Ids
    factor: Array
    radius: float


class Queries(NamedTuple):
    """Rows to answer.

    keys: uint64 (m, w, T); inputs: float64 (m, d), scaled; fade: float64 (m,), factor of the tree
    covariances with training rows.
    """

    keys: Words
    inputs: Floats
    fade: Floats


# Cells


def make_cells(inputs: Floats, n_cells: int, n_threads: int) -> Cells:
    """Cluster rows (n, d): cuts at medians, then two steps of k-means. O(n (log n + sqrt(c)) d)."""
    n = inputs.shape[0]
    rows, starts = np.arange(n, dtype=np.int32), np.zeros(n_cells + 1, np.int64)
    split_rows(inputs, n_cells, rows, starts)
    # Costs per query: n_cells / size groups and PROBES * size centres.
    size = max(1, round(math.sqrt(n_cells / PROBES)))
    centres: Floats = np.zeros((n_cells, inputs.shape[1]))
    for step in range(LLOYD_STEPS + 1):
        cell_means(inputs, rows, starts, centres)
        cells = Cells(centres, size, _group_means(centres, size), rows, starts)
        if step < LLOYD_STEPS:
            rows, starts = _by_cell(find_cells(cells, inputs, n_threads), n_cells)
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
            centres[b] = 0.0
            for row in rows[lo:hi]:
                centres[b] += inputs[row]
            centres[b] /= hi - lo


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


# Covariances


@intrinsic
def _leading_zeros(_, word):
    """Number of leading zeros of a 64-bit word, 64 for 0: one instruction, on several words."""

    def generate(context, builder, signature, args):
        return builder.ctlz(args[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), generate


leading_zeros: Any = _leading_zeros


@jit
def gather_members(process, members, words, places):
    """First words (T, M) and inputs (d, M) of the members, so that loops over members are tight."""
    for i in range(members.size):
        row = members[i]
        for t in range(words.shape[0]):
            words[t, i] = process.keys[row, 0, t]
        for k in range(places.shape[0]):
            places[k, i] = process.inputs[row, k]


@jit
def covariances(process, members, words, places, keys, inputs, row, fade, count, out):
    """Covariance of f at keys[row], inputs[row] with the first `count` members, to out.

    words, places: from `gather_members`.
    """
    n_words = keys.shape[1]
    for i in range(count):
        out[i] = 0.0
    for t in range(words.shape[0]):
        key, table, own = keys[row, 0, t], process.tables[t], words[t]
        same = 0
        for i in range(count):
            out[i] += table[leading_zeros(key ^ own[i])]
            same += key == own[i]
        if same > 0 and n_words > 1:
            for i in range(count):
                if key == own[i]:
                    shared = 64
                    for w in range(1, n_words):
                        more = leading_zeros(keys[row, w, t] ^ process.keys[members[i], w, t])
                        shared += more
                        if more < 64:
                            break
                    out[i] += table[shared] - table[64]
    if fade != 1.0:
        for i in range(count):
            out[i] *= fade
    if process.code >= 0:
        square = np.zeros(count)
        for k in range(places.shape[0]):
            here, own = inputs[row, k], places[k]
            for i in range(count):
                square[i] += (here - own[i]) ** 2
        for i in range(count):
            out[i] += process.scale * correlation(process.code, square[i])


# Blocks


def make_block(process: Process, cells: Cells, b: int, size: int, dtype: type) -> Block:
    """The block of cell b with `size` members, at most n. O(size^2 T + size^3)."""
    members = np.empty(min(size, cells.rows.size), np.int32)
    radius = nearest_members(process.inputs, b, *cells, members)
    m = members.size
    words, places = _gather(process, members)
    dense = scratch.borrow("nearby_dense", m * m, np.float64).reshape(m, m)
    fill_covariance(process, members, words, places, dense)
    factorise(dense, process.prior * LEAST_NOISE)
    factor: Array = np.empty(m * (m + 1) // 2, dtype)
    invert(dense, factor)
    return Block(members, factor, radius)


def _gather(process: Process, members: Ids) -> tuple[Words, Floats]:
    m, n_trees, d = members.size, process.tables.shape[0], process.inputs.shape[1]
    words = scratch.borrow("nearby_words", m * n_trees, np.uint64).reshape(n_trees, m)
    places = scratch.borrow("nearby_places", m * d, np.float64).reshape(d, m)
    gather_members(process, members, words, places)
    return words, places


@jit
def fill_covariance(process, members, words, places, out):
    """Upper triangle of K + noise of the members, out (M, M)."""
    keys, inputs = process.keys, process.inputs
    k = np.empty(members.size)
    for i in range(members.size):
        row = members[i]
        covariances(process, members, words, places, keys, inputs, row, 1.0, i, k)
        for j in range(i):
            out[j, i] = k[j]
        out[i, i] = process.prior + max(process.noise[row], LEAST_NOISE * process.prior)


@jit
def factorise(a, least):
    """Cholesky factor in place: A = R'R, R in the upper triangle. `least`: of squared pivots.

    Four rows are finished at a time, then subtracted from the rest together.
    """
    m = a.shape[0]
    for first in range(0, m, 4):
        last = min(first + 4, m)
        for i in range(first, last):
            for k in range(first, i):
                f = a[k, i]
                for j in range(i, m):
                    a[i, j] -= f * a[k, j]
            root = math.sqrt(max(a[i, i], least))
            a[i, i] = root
            for j in range(i + 1, m):
                a[i, j] /= root
        if last - first == 4:
            r0, r1, r2, r3 = a[first], a[first + 1], a[first + 2], a[first + 3]
            for i in range(last, m):
                f0, f1, f2, f3 = r0[i], r1[i], r2[i], r3[i]
                row = a[i]
                for j in range(i, m):
                    row[j] -= (f0 * r0[j] + f1 * r1[j]) + (f2 * r2[j] + f3 * r3[j])


@jit
def invert(r, out):
    """Write R^-1 row by row to out (M (M + 1) / 2,); r: upper triangle, overwritten by R^-1.

    Row i of X = R^-1 is (e_i - sum_{k > i} R_ik X_k) / R_ii, with the rows below finished first.
    """
    m = r.shape[0]
    line = np.empty(m)
    at = out.size
    for i in range(m - 1, -1, -1):
        own = r[i]
        line[i:] = 0.0
        k = i + 1
        while k + 4 <= m:
            x0, x1, x2, x3 = r[k], r[k + 1], r[k + 2], r[k + 3]
            f0, f1, f2, f3 = own[k], own[k + 1], own[k + 2], own[k + 3]
            line[k] -= f0 * x0[k]
            line[k + 1] -= f0 * x0[k + 1] + f1 * x1[k + 1]
            line[k + 2] -= f0 * x0[k + 2] + f1 * x1[k + 2] + f2 * x2[k + 2]
            for j in range(k + 3, m):
                line[j] -= (f0 * x0[j] + f1 * x1[j]) + (f2 * x2[j] + f3 * x3[j])
            k += 4
        while k < m:
            f, x = own[k], r[k]
            for j in range(k, m):
                line[j] -= f * x[j]
            k += 1
        line[i] = 1.0
        pivot = own[i]
        at -= m - i
        for j in range(i, m):
            value = line[j] / pivot
            own[j] = value
            out[at + j - i] = value


# Variances


def variances(
    process: Process,
    cells: Cells,
    blocks: MutableMapping[int, Block],
    queries: Queries,
    cell: Ids,
    size: int,
    dtype: type,
    n_threads: int,
) -> Floats:
    """Variance of f at queries, each from the block of its cell (m,).

    blocks: those made before, by cell; missing ones are made and added.
    """
    out = np.empty(cell.size)

    def answer(b: int, rows: Ids) -> None:
        block = _block(process, cells, blocks, b, size, dtype)
        fill_variances(process, block, *_gather(process, block.members), queries, rows, out)

    _by_block(answer, cell, n_threads)
    return out


def left_out_variances(
    process: Process,
    cells: Cells,
    blocks: MutableMapping[int, Block],
    rows: Ids,
    cell: Ids,
    size: int,
    dtype: type,
    n_threads: int,
) -> Floats:
    """Variance of f at training rows given the other members of their cells' blocks, (m,)."""
    out = np.empty(cell.size)

    def answer(b: int, some: Ids) -> None:
        block = _block(process, cells, blocks, b, size, dtype)
        words, places = _gather(process, block.members)
        fill_left_out(process, block, words, places, rows, some, out)

    _by_block(answer, cell, n_threads)
    return out


def _block(process, cells, blocks, b, size, dtype):
    """The block of cell b, made if it is missing. Two threads may make it; both make the same."""
    block = blocks.get(b)
    if block is None:
        block = blocks[b] = make_block(process, cells, b, size, dtype)
    return block


def _by_block(answer, cell, n_threads):
    """Call answer(b, rows) for every cell b that occurs in `cell`, with the rows of that cell."""
    order = np.argsort(cell, kind="stable").astype(np.int32)
    ordered = cell[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: cell.size])
    last = np.append(first[1:], cell.size)[: first.size]
    parts = list(zip(ordered[first].tolist(), first.tolist(), last.tolist(), strict=True))
    run_each(lambda part: answer(part[0], order[part[1] : part[2]]), parts, n_threads)


@jit
def fill_variances(process, block, words, places, queries, rows, out):
    """Variances of the queries `rows`, all of one block, written to out[rows]."""
    k, z = np.empty(block.members.size), np.empty(block.members.size)
    for row in rows:
        fade = queries.fade[row]
        out[row] = _variance(
            process, block, words, places, queries.keys, queries.inputs, row, fade, k, z
        )


@jit
def fill_left_out(process, block, words, places, rows, some, out):
    """Variances of training rows[some] given the members other than themselves, to out[some]."""
    members, factor = block.members, block.factor
    m = members.size
    k, z = np.empty(m), np.empty(m)
    for at in some:
        row = rows[at]
        i = np.searchsorted(members, row)
        if i < m and members[i] == row:
            first = i * m - i * (i - 1) // 2
            inverse = 0.0
            for j in range(first, first + m - i):
                inverse += np.float64(factor[j]) ** 2
            noise = max(process.noise[row], LEAST_NOISE * process.prior)
            out[at] = min(max(1.0 / inverse - noise, 0.0), process.prior)
        else:
            out[at] = _variance(
                process, block, words, places, process.keys, process.inputs, row, 1.0, k, z
            )


@jit
def _variance(process, block, words, places, keys, inputs, row, fade, k, z):
    """prior - |X'k|^2; k, z: float64 (M,), scratch."""
    members, x = block.members, block.factor
    m = members.size
    covariances(process, members, words, places, keys, inputs, row, fade, m, k)
    for j in range(m):
        z[j] = 0.0
    first, i = 0, 0
    while i + 4 <= m:
        x0 = x[first : first + m - i]
        x1 = x[first + m - i : first + 2 * (m - i) - 1]
        x2 = x[first + 2 * (m - i) - 1 : first + 3 * (m - i) - 3]
        x3 = x[first + 3 * (m - i) - 3 : first + 4 * (m - i) - 6]
        k0, k1, k2, k3 = k[i], k[i + 1], k[i + 2], k[i + 3]
        z[i] += k0 * x0[0]
        z[i + 1] += k0 * x0[1] + k1 * x1[0]
        z[i + 2] += k0 * x0[2] + k1 * x1[1] + k2 * x2[0]
        tail = z[i + 3 :]
        for j in range(m - i - 3):
            tail[j] += (k0 * x0[j + 3] + k1 * x1[j + 2]) + (k2 * x2[j + 1] + k3 * x3[j])
        first += 4 * (m - i) - 6
        i += 4
    while i < m:
        for j in range(i, m):
            z[j] += k[i] * x[first + j - i]
        first += m - i
        i += 1
    explained = 0.0
    for j in range(m):
        explained += z[j] * z[j]
    return max(process.prior - explained, 0.0)


def local_covariances(process: Process, members: Ids, queries: Queries) -> Floats:
    """Covariance of f at queries with the members, (m, M)."""
    words, places = _gather(process, members)
    out = np.empty((queries.fade.size, members.size))
    for i in range(queries.fade.size):
        given = (queries.keys, queries.inputs, i, float(queries.fade[i]), members.size, out[i])
        covariances(process, members, words, places, *given)
    return out
