"""Blocks of rows that are regressed on neighbours in earlier blocks, and sweeps over them.

Rows stand block by block: block b holds the places starts[b] to starts[b + 1], and has neighbours N
among the places before. With L the lower Cholesky factor of a matrix over (N, block), the rows of
the block are W times the neighbours plus a rest with the Cholesky factor L_D, the last corner of L;
W = L_CN L_NN^-1. Then R ~ S S' with S = B^-1 diag(L_D), B = I - (W).

Weights and roots are stored by row, in float32: row i of W in weights[i], row i of its block's L_D
in roots[i]. Sweeps take vectors in the order of the places, (n, k) float64, and work in place.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.cpu.low_rank import dot
from triegp.engines.cpu.matern import correlation
from triegp.engines.cpu.nearest import squares
from triegp.engines.cpu.threads import run_each

Floats = npt.NDArray[np.float64]
Phi = npt.NDArray[np.float32] | npt.NDArray[np.float64]

LANES = 8  # new rows that are projected at once: the result does not depend on the others


# Sweeps


@inline
def _gather(neighbours, b, x, near):
    """Rows of x (n, k) at the neighbours of block b, to near (k, m_v); returns their number."""
    count = 0
    while count < neighbours.shape[1] and neighbours[b, count] >= 0:
        for c in range(x.shape[1]):
            near[c, count] = x[neighbours[b, count], c]
        count += 1
    return count


@inline
def _add(line, value, x, count):
    """x += value line, over the first entries."""
    for a in range(count):
        x[a] += value * line[a]


@inline
def _hold(lo, hi, x, own):
    """Rows lo to hi of x (n, k), to own (k, width)."""
    for i in range(lo, hi):
        for c in range(x.shape[1]):
            own[c, i - lo] = x[i, c]


@jit
def colour(starts, neighbours, weights, roots, x):
    """x <- S x: of covariance R if x is white."""
    near, own = np.empty((x.shape[1], neighbours.shape[1])), np.empty((x.shape[1], roots.shape[1]))
    for b in range(starts.size - 1):
        lo, hi = starts[b], starts[b + 1]
        count = _gather(neighbours, b, x, near)
        _hold(lo, hi, x, own)
        for i in range(lo, hi):
            for c in range(x.shape[1]):
                x[i, c] = dot(weights[i], near[c], count) + dot(roots[i], own[c], i - lo + 1)


@jit
def halve(starts, neighbours, weights, roots, x):
    """x <- S' x, so that x' R x is its square."""
    near, own = np.empty((x.shape[1], neighbours.shape[1])), np.empty((x.shape[1], roots.shape[1]))
    for b in range(starts.size - 2, -1, -1):
        lo, hi = starts[b], starts[b + 1]
        count = _gather(neighbours, b, x, near)
        own[:] = 0.0
        for i in range(lo, hi):
            for c in range(x.shape[1]):
                _add(weights[i], x[i, c], near[c], count)
                _add(roots[i], x[i, c], own[c], i - lo + 1)
        for c in range(x.shape[1]):
            for a in range(count):
                x[neighbours[b, a], c] = near[c, a]
            for i in range(lo, hi):
                x[i, c] = own[c, i - lo]


@jit
def whiten(starts, neighbours, weights, roots, x):
    """x <- S^-1 x: white if x has covariance R."""
    near, own = np.empty((x.shape[1], neighbours.shape[1])), np.empty((x.shape[1], roots.shape[1]))
    for b in range(starts.size - 2, -1, -1):
        lo, hi = starts[b], starts[b + 1]
        count = _gather(neighbours, b, x, near)
        for i in range(lo, hi):
            at = i - lo
            for c in range(x.shape[1]):
                rest = x[i, c] - dot(weights[i], near[c], count) - dot(roots[i], own[c], at)
                own[c, at] = x[i, c] = rest / roots[i, at]


@jit
def unwhiten(starts, neighbours, weights, roots, x):
    """x <- S^-T x, the transpose of `whiten`."""
    near, own = np.empty((x.shape[1], neighbours.shape[1])), np.empty((x.shape[1], roots.shape[1]))
    for b in range(starts.size - 1):
        lo, hi = starts[b], starts[b + 1]
        count = _gather(neighbours, b, x, near)
        _hold(lo, hi, x, own)
        for i in range(hi - 1, lo - 1, -1):
            for c in range(x.shape[1]):
                value = own[c, i - lo] / roots[i, i - lo]
                x[i, c] = value
                _add(roots[i], -value, own[c], i - lo)
                _add(weights[i], -value, near[c], count)
        for c in range(x.shape[1]):
            for a in range(count):
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
    count, last, zero = 0, -1, np.int64(0)
    values = np.empty(max(m_i, members.shape[1]))
    for i in rows:
        b = cell[i]
        if b != last:
            last, count = b, 0
            while count < members.shape[1] and members[b, count] >= 0:
                for j in range(d):
                    near[j, count] = U[members[b, count], j]
                count += 1
        for c in range(out.shape[1]):
            out[i, c] = 0.0
        for part in range(2):
            size = m_i if part == 0 else count
            squares(inducing if part == 0 else near, zero, size, queries[i], values)
            for a in range(size):
                values[a] = correlation(code, values[a])
            for c in range(out.shape[1]):
                line = by_inducing[b, c] if part == 0 else by_member[b, c]
                out[i, c] += scale * dot(line, values, size)


def project(
    code: int, scale: float, inducing: Floats, root: Floats, U: Floats, out: Phi, n_threads: int
) -> None:
    """Write L^-1 k_U(u) of rows U (m, d) to out (m, m_i); inducing: (m_i, d); root = L. O(m m_i^2).

    A row does not depend on the others.
    """
    step = 4 * LANES

    def fill(lo: int) -> None:
        part = slice(lo, lo + step)
        _project(code, scale, inducing, root, U[part], out[part])

    run_each(fill, range(0, U.shape[0], step), n_threads)


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
            for c in range(LANES):
                line[c] = x[a, c]
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
