"""Blocks of rows that are regressed on neighbours in earlier blocks, and sweeps over them.

Rows stand block by block: block b holds the places starts[b] to starts[b + 1], and has neighbours N
among the places before. With L the lower Cholesky factor of a matrix over (N, block), the rows of
the block are W times the neighbours plus a rest with the Cholesky factor L_D, the last corner of L;
W = L_CN L_NN^-1. Then R ~ S S' with S = B^-1 diag(L_D), B = I - (W).

Weights and roots are stored by row, in float32: row i of W in weights[i], row i of its block's L_D
in roots[i]. Sweeps take vectors in the order of the places, (n, k) float64, and work in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.matern import correlation
from triegp.engines.cpu.threads import run_each, thread_blocks

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

CANDIDATES = 4  # rows compared with a centre, per neighbour
BLOCKS_AT_ONCE = 64  # of a thread
LANES = 8  # new rows that are projected at once: the result does not depend on the others


def find_centres(U: Floats, starts: Ints) -> Floats:
    """Mean of the scaled inputs (n, d) of each block, (d, n_blocks)."""
    total = np.add.reduceat(U, starts[:-1], axis=0)
    return np.ascontiguousarray((total / np.diff(starts)[:, None]).T)


def nearest_centres(centres: Floats, U: Floats, n_threads: int = 1) -> Ids:
    """The nearest of the centres (d, n_blocks) to each row of U (m, d), int32 (m,)."""
    out = np.empty(U.shape[0], np.int32)
    parts = thread_blocks(out.size)
    run_each(lambda part: _nearest_centres(centres, U, *part, out), parts, n_threads)
    return out


def nearest_places(
    U: Floats, starts: Ints, centres: Floats, blocks: Ints, limits: Ints, k: int, n_threads: int
) -> Ids:
    """The k places nearest to the centre of each of the blocks (m,), nearest first, int32 (m, k).

    limits: int64 (m,), only blocks before these are searched. Missing places are -1. Rows of the
    nearest blocks are compared: of as many as hold four times k rows.
    """
    out = np.full((blocks.size, k), -1, np.int32)
    size = BLOCKS_AT_ONCE

    def fill(first: int) -> None:
        part = slice(first, first + size)
        _nearest_places(U, starts, centres, blocks[part], limits[part], out[part])

    if k:
        run_each(fill, range(0, blocks.size, size), n_threads)
    return out


@jit
def _squares(points, i, centre, j, out):
    """out[c] = |points[:, c] - centre[:, j]|^2 for the first i points; points: (d, m)."""
    for c in range(i):
        out[c] = 0.0
    for k in range(points.shape[0]):
        here, line = centre[k, j], points[k]
        for c in range(i):
            out[c] += (line[c] - here) * (line[c] - here)


@jit
def _nearest_centres(centres, U, lo, hi, out):
    """The nearest centre of rows lo to hi; the first of equally near ones."""
    count = centres.shape[1]
    square = np.empty(count)
    query = np.empty((centres.shape[0], 1))
    for i in range(lo, hi):
        query[:, 0] = U[i]
        _squares(centres, count, query, 0, square)
        out[i] = np.argmin(square)


@jit
def _nearest_places(U, starts, centres, blocks, limits, out):
    """See `nearest_places`."""
    k, d = out.shape[1], centres.shape[0]
    square = np.empty(centres.shape[1])
    for row in range(blocks.size):
        b, limit = blocks[row], limits[row]
        if limit == 0:
            continue
        _squares(centres, limit, centres, b, square)
        count = min(limit, max(8, (CANDIDATES * k * limit) // starts[limit] + 1))
        while True:
            least = np.partition(square[:limit], count - 1)[count - 1]
            found = 0
            for c in range(limit):
                if square[c] <= least:
                    found += starts[c + 1] - starts[c]
            if found >= min(CANDIDATES * k, starts[limit]):
                break
            count = min(2 * count, limit)
        places, apart = np.empty(found, np.int32), np.zeros(found)
        found = 0
        for c in range(limit):
            if square[c] <= least:
                for place in range(starts[c], starts[c + 1]):
                    for j in range(d):
                        apart[found] += (U[place, j] - centres[j, b]) ** 2
                    places[found] = place
                    found += 1
        order = np.argsort(apart, kind="mergesort")
        for a in range(min(k, found)):
            out[row, a] = places[order[a]]


# Sweeps


@jit
def _gather(neighbours, b, x, near):
    """Rows of x (n, k) at the neighbours of block b, to near (k, m_v); returns their number."""
    count = 0
    while count < neighbours.shape[1] and neighbours[b, count] >= 0:
        for c in range(x.shape[1]):
            near[c, count] = x[neighbours[b, count], c]
        count += 1
    return count


@jit
def _dot(line, x, count):
    """line . x over the first entries, in eight partial sums."""
    s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    whole = count // 8 * 8
    for a in range(0, whole, 8):
        s0 += line[a] * x[a]
        s1 += line[a + 1] * x[a + 1]
        s2 += line[a + 2] * x[a + 2]
        s3 += line[a + 3] * x[a + 3]
        s4 += line[a + 4] * x[a + 4]
        s5 += line[a + 5] * x[a + 5]
        s6 += line[a + 6] * x[a + 6]
        s7 += line[a + 7] * x[a + 7]
    total = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    for a in range(whole, count):
        total += line[a] * x[a]
    return total


@jit
def colour(starts, neighbours, weights, roots, x):
    """x <- S x: of covariance R if x is white."""
    near = np.empty((x.shape[1], neighbours.shape[1]))
    for b in range(starts.size - 1):
        lo, hi = starts[b], starts[b + 1]
        count = _gather(neighbours, b, x, near)
        for i in range(hi - 1, lo - 1, -1):
            for c in range(x.shape[1]):
                total = _dot(weights[i], near[c], count)
                for j in range(i - lo + 1):
                    total += roots[i, j] * x[lo + j, c]
                x[i, c] = total


@jit
def halve(starts, neighbours, weights, roots, x):
    """x <- S' x, so that x' R x is its square."""
    near = np.empty((x.shape[1], neighbours.shape[1]))
    for b in range(starts.size - 2, -1, -1):
        lo, hi = starts[b], starts[b + 1]
        count = _gather(neighbours, b, x, near)
        for i in range(lo, hi):
            for c in range(x.shape[1]):
                value, line, sums = x[i, c], weights[i], near[c]
                for a in range(count):
                    sums[a] += line[a] * value
        for a in range(count):
            for c in range(x.shape[1]):
                x[neighbours[b, a], c] = near[c, a]
        for i in range(lo, hi):
            for c in range(x.shape[1]):
                total = 0.0
                for j in range(i, hi):
                    total += roots[j, i - lo] * x[j, c]
                x[i, c] = total


@jit
def whiten(starts, neighbours, weights, roots, x):
    """x <- S^-1 x: white if x has covariance R."""
    near = np.empty((x.shape[1], neighbours.shape[1]))
    for b in range(starts.size - 2, -1, -1):
        lo, hi = starts[b], starts[b + 1]
        count = _gather(neighbours, b, x, near)
        for i in range(lo, hi):
            for c in range(x.shape[1]):
                total = x[i, c] - _dot(weights[i], near[c], count)
                for j in range(i - lo):
                    total -= roots[i, j] * x[lo + j, c]
                x[i, c] = total / roots[i, i - lo]


@jit
def unwhiten(starts, neighbours, weights, roots, x):
    """x <- S^-T x, the transpose of `whiten`."""
    near = np.empty((x.shape[1], neighbours.shape[1]))
    for b in range(starts.size - 1):
        lo, hi = starts[b], starts[b + 1]
        count = _gather(neighbours, b, x, near)
        for i in range(hi - 1, lo - 1, -1):
            for c in range(x.shape[1]):
                total = x[i, c]
                for j in range(i + 1, hi):
                    total -= roots[j, i - lo] * x[j, c]
                value = total / roots[i, i - lo]
                x[i, c] = value
                line, sums = weights[i], near[c]
                for a in range(count):
                    sums[a] -= line[a] * value
        for a in range(count):
            for c in range(x.shape[1]):
                x[neighbours[b, a], c] = near[c, a]


# New rows


@jit
def fill_means(code, scale, inducing, U, members, by_inducing, by_member, cell, rows, queries, out):
    """out[i] = k(x_i, inducing) by_inducing + k(x_i, members) by_member, of the cell of each row.

    inducing: (d, m_i); U: scaled inputs (n, d); members: int32 (n_cells, M), -1 from the first
    unused entry on; by_inducing: (n_cells, k, m_i); by_member: (n_cells, k, M); cell: (m,); rows:
    rows of the queries (m, d), those of a cell together; out: (m, k).
    """
    d, m_i = inducing.shape
    near = np.empty((d, members.shape[1]))
    count, last = 0, -1
    values, query = np.empty(max(m_i, members.shape[1])), np.empty((d, 1))
    for i in rows:
        b = cell[i]
        if b != last:
            last, count = b, 0
            while count < members.shape[1] and members[b, count] >= 0:
                for j in range(d):
                    near[j, count] = U[members[b, count], j]
                count += 1
        query[:, 0] = queries[i]
        out[i] = 0.0
        for part in range(2):
            size = m_i if part == 0 else count
            _squares(inducing if part == 0 else near, size, query, 0, values)
            for a in range(size):
                values[a] = correlation(code, values[a])
            for c in range(out.shape[1]):
                line = by_inducing[b, c] if part == 0 else by_member[b, c]
                out[i, c] += scale * _dot(line, values, size)


def project(
    code: int, scale: float, inducing: Floats, root: Floats, U: Floats, n_threads: int = 1
) -> Floats:
    """L^-1 k_U(u) of new rows U (m, d), (m, m_i); inducing: (m_i, d); root = L. O(m m_i^2).

    A row does not depend on the others.
    """
    out = np.empty((U.shape[0], inducing.shape[0]))
    step = 4 * LANES

    def fill(lo: int) -> None:
        part = slice(lo, lo + step)
        _project(code, scale, inducing, root, U[part], out[part])

    run_each(fill, range(0, U.shape[0], step), n_threads)
    return out


@jit
def _project(code, scale, inducing, root, U, out):
    """Forward substitution for eight rows at a time."""
    n, m = out.shape
    x = np.zeros((m, LANES))
    line = np.empty(LANES)
    for lo in range(0, n, LANES):
        count = min(LANES, n - lo)
        for c in range(count):
            for a in range(m):
                square = 0.0
                for k in range(U.shape[1]):
                    square += (U[lo + c, k] - inducing[a, k]) ** 2
                x[a, c] = scale * correlation(code, square)
        for a in range(m):
            line[:] = x[a]
            for b in range(a):
                value = root[a, b]
                for c in range(LANES):
                    line[c] -= value * x[b, c]
            for c in range(LANES):
                x[a, c] = line[c] / root[a, a]
        for c in range(count):
            for a in range(m):
                out[lo + c, a] = x[a, c]


@jit
def gather_rows(neighbours, weights, x, out):
    """out[i] = sum_a weights[i, a] x[neighbours[i, a]], for x (n, k) and out (m, k)."""
    out[:] = 0.0
    for i in range(neighbours.shape[0]):
        for a in range(neighbours.shape[1]):
            row = neighbours[i, a]
            if row < 0:
                break
            for c in range(x.shape[1]):
                out[i, c] += weights[i, a] * x[row, c]


def kept_places(neighbours: Any) -> Any:
    """The used entries of one line of neighbours, which end at the first -1."""
    return neighbours[: int(np.count_nonzero(neighbours >= 0))]
