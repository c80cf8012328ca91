"""Conditioning on a few rows each: a sparse factorisation of what inducing rows leave of a kernel.

R = K - Phi Phi', with Phi = K_XU L^-T, L L' = K_UU. Row i is regressed on its neighbours N, earlier
rows: weights b_i = R_NN^-1 R_Ni and variance d_i = R_ii - b_i' R_Ni. Then R ~ B^-1 D B^-T, with
B = I - (weights) unit lower triangular in the order of the factorisation.

Results of a row depend on that row and on its neighbours alone, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.cpu.matern import correlation
from triegp.engines.cpu.threads import run_each

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

JITTER = 1e-10  # of the scale, added to the diagonal of R_NN
FLOOR = 1e-12  # of the scale, smallest d_i
FEW, MANY = 4, 32  # rows that are projected at once
ROWS_PER_BLOCK = 256


def fill_kernel(
    code: int, scale: float, U: Floats, V: Floats, out: Floats, n_threads: int = 1
) -> None:
    """out[i, j] = k(u_i, v_j) for scaled inputs U (n, d) and V (m, d). O(n m d)."""

    def fill(lo: int) -> None:
        part = slice(lo, lo + ROWS_PER_BLOCK)
        kernel_rows(code, scale, U[part], V, out[part])

    run_each(fill, range(0, U.shape[0], ROWS_PER_BLOCK), n_threads)


def fill_blocks(
    code: int, scale: float, U: Floats, members: Ints, out: Floats, n_threads: int = 1
) -> None:
    """out[b] = K between the members of block b; see `kernel_blocks`."""

    def fill(lo: int) -> None:
        part = slice(lo, lo + ROWS_PER_BLOCK)
        kernel_blocks(code, scale, U, members[part], out[part])

    run_each(fill, range(0, members.shape[0], ROWS_PER_BLOCK), n_threads)


def fill_phi(
    code: int,
    scale: float,
    inducing: Floats,
    root: Floats,
    U: Floats,
    out: Floats,
    n_threads: int = 1,
) -> None:
    """out[i] = L^-1 k_U(u_i) for scaled inputs U (n, d), inducing (m, d); root = L. O(n m^2)."""
    project = project_few if U.shape[0] <= FEW else project_many

    def fill(lo: int) -> None:
        part = slice(lo, lo + ROWS_PER_BLOCK)
        project(code, scale, inducing, root, U[part], out[part])

    run_each(fill, range(0, U.shape[0], ROWS_PER_BLOCK), n_threads)


def fill_factor(
    code: int,
    scale: float,
    phi: Any,
    U: Floats,
    own_phi: Any,
    own_U: Floats,
    rows: Any,
    neighbours: Ints,
    weights: Floats,
    variances: Floats,
    n_threads: int = 1,
    added: Floats | None = None,
) -> None:
    """Write weights (m, m_v) and variances (m,) of the given rows of own_phi (m, m_i).

    phi and own_phi may be float32; all is computed in float64.

    neighbours: int32 (m, m_v), rows of phi (n, m_i) and U (n, d), -1 from the first unused entry
    on. Their order in `rows` does not matter, but is faster if neighbours are shared. O(m_i m_v^2 +
    m_v^3) per row. added: float64 (rows.size, m_v + 1, m_v + 1), optional; added to R, for each of
    `rows` and its neighbours, in this order.
    """
    size = 32 if rows.size < 64 * ROWS_PER_BLOCK else ROWS_PER_BLOCK
    nothing = np.empty((0, 0, 0))

    def fill(lo: int) -> None:
        some = rows[lo : lo + size]
        more = nothing if added is None else added[lo : lo + size]
        given = (code, scale, phi, U, own_phi, own_U, some, neighbours, more)
        regress_rows(*given, weights, variances)

    run_each(fill, range(0, rows.size, size), n_threads)


@inline
def _kernel(code, scale, u, v):
    """k(u, v) of scaled inputs."""
    square = 0.0
    for j in range(u.size):
        square += (u[j] - v[j]) * (u[j] - v[j])
    return scale * correlation(code, square)


@jit
def kernel_rows(code, scale, U, V, out):
    """out[i, j] = k(u_i, v_j)."""
    for i in range(U.shape[0]):
        for j in range(V.shape[0]):
            out[i, j] = _kernel(code, scale, U[i], V[j])


@jit
def kernel_blocks(code, scale, U, members, out):
    """out[b] = K between the members of block b, 0 for unused entries.

    members: int32 (n_blocks, size), rows; -1 marks an unused entry.
    """
    size = members.shape[1]
    for b in range(members.shape[0]):
        for i in range(size):
            for j in range(i + 1):
                value = 0.0
                if members[b, i] >= 0 and members[b, j] >= 0:
                    value = _kernel(code, scale, U[members[b, i]], U[members[b, j]])
                out[b, i, j] = value
                out[b, j, i] = value


def _project_rows(width):
    """Compile the projection of `width` rows at once. The result does not depend on the width."""

    @jit
    def project_rows(code, scale, inducing, root, U, out):
        """out[i] = L^-1 k_U(u_i), by forward substitution, two entries at a time."""
        n, m = out.shape
        x = np.zeros((m, width))
        one, two = np.empty(width), np.empty(width)
        for lo in range(0, n, width):
            count = min(width, n - lo)
            for c in range(count):
                for a in range(m):
                    x[a, c] = _kernel(code, scale, U[lo + c], inducing[a])
            for a in range(0, m, 2):
                other = min(a + 1, m - 1)  # the last entry of an odd number stands in for its next
                for c in range(width):
                    one[c], two[c] = x[a, c], x[other, c]
                for b in range(0, a - 3, 4):
                    p0, p1, p2, p3 = root[a, b], root[a, b + 1], root[a, b + 2], root[a, b + 3]
                    q0, q1 = root[other, b], root[other, b + 1]
                    q2, q3 = root[other, b + 2], root[other, b + 3]
                    for c in range(width):
                        x0, x1, x2, x3 = x[b, c], x[b + 1, c], x[b + 2, c], x[b + 3, c]
                        one[c] -= (p0 * x0 + p1 * x1) + (p2 * x2 + p3 * x3)
                        two[c] -= (q0 * x0 + q1 * x1) + (q2 * x2 + q3 * x3)
                for b in range(a // 4 * 4, a):
                    for c in range(width):
                        one[c] -= root[a, b] * x[b, c]
                        two[c] -= root[other, b] * x[b, c]
                for c in range(width):
                    x[a, c] = one[c] / root[a, a]
                if other > a:
                    for c in range(width):
                        x[other, c] = (two[c] - root[other, a] * x[a, c]) / root[other, other]
            for c in range(count):
                for a in range(m):
                    out[lo + c, a] = x[a, c]

    return project_rows


project_few, project_many = _project_rows(FEW), _project_rows(MANY)


@jit
def _subtract_products(T, width, R):
    """R[a, b] -= sum_l T[l, a] T[l, b] for b <= a < width, at least.

    T: (a multiple of 4, at least width), width a multiple of 8.
    """
    for first in range(0, width, 8):
        last = first + 8
        for k in range(0, T.shape[0], 4):
            for a in range(first, last, 2):
                c0, c1, c2, c3 = T[k, a], T[k + 1, a], T[k + 2, a], T[k + 3, a]
                e0, e1, e2, e3 = T[k, a + 1], T[k + 1, a + 1], T[k + 2, a + 1], T[k + 3, a + 1]
                for b in range(last):
                    t0, t1, t2, t3 = T[k, b], T[k + 1, b], T[k + 2, b], T[k + 3, b]
                    R[a, b] -= (c0 * t0 + c1 * t1) + (c2 * t2 + c3 * t3)
                    R[a + 1, b] -= (e0 * t0 + e1 * t1) + (e2 * t2 + e3 * t3)


@jit
def _factorise(R, count, jitter, L):
    """L L' = R + jitter I for the first `count` rows of R. Returns whether all pivots are sound."""
    for a in range(count):
        for b in range(a + 1):
            value = R[a, b]
            if a == b:
                value += jitter
            for k in range(b):
                value -= L[a, k] * L[b, k]
            if a > b:
                L[a, b] = value / L[b, b]
            elif value < 0.5 * jitter:  # they are at least the jitter if R is positive
                return False
            else:
                L[a, a] = np.sqrt(value)
    return True


@jit
def regress_rows(code, scale, phi, U, own_phi, own_U, rows, neighbours, added, weights, variances):
    """Weights and variance of each of the rows given its neighbours; see `fill_factor`."""
    more = added.size > 0
    m_v, m_i = neighbours.shape[1], phi.shape[1]
    width = (m_v + 8) // 8 * 8  # the neighbours and the row itself
    T = np.zeros(((m_i + 3) // 4 * 4, width))
    R, L = np.zeros((width, width)), np.empty((width, width))
    b = np.empty(width)
    for index in range(rows.size):
        i = rows[index]
        count = 0
        while count < m_v and neighbours[i, count] >= 0:
            count += 1
        own = 0.0
        for k in range(m_i):
            own += np.float64(own_phi[i, k]) * own_phi[i, k]
        left = scale - own
        if more:
            left += added[index, 0, 0]
        weights[i] = 0.0
        if count > 0:
            for a in range(count):
                row = neighbours[i, a]
                for k in range(m_i):
                    T[k, a] = phi[row, k]
                for c in range(a):
                    R[a, c] = _kernel(code, scale, U[row], U[neighbours[i, c]])
                R[a, a] = scale
                R[count, a] = _kernel(code, scale, own_U[i], U[row])
                if more:
                    for c in range(a + 1):
                        R[a, c] += added[index, a + 1, c + 1]
                    R[count, a] += added[index, 0, a + 1]
            for k in range(m_i):
                T[k, count] = own_phi[i, k]
            _subtract_products(T, (count + 8) // 8 * 8, R)
            jitter = JITTER * scale
            while not _factorise(R, count, jitter, L):
                jitter *= 10.0
            for a in range(count):
                b[a] = R[count, a]
                for c in range(a):
                    b[a] -= L[a, c] * b[c]
                b[a] /= L[a, a]
            for a in range(count - 1, -1, -1):
                b[a] /= L[a, a]
                for c in range(a):
                    b[c] -= L[a, c] * b[a]
            for a in range(count):
                weights[i, a] = b[a]
                left -= b[a] * R[count, a]
        variances[i] = max(left, FLOOR * scale)


# B in the order of the factorisation: neighbours are places of earlier rows, -1 if unused.


@jit
def solve_lower(neighbours, weights, x):
    """x <- B^-1 x, for x (n, k). O(n m_v k)."""
    n, m_v = weights.shape
    for i in range(n):
        for a in range(m_v):
            row = neighbours[i, a]
            if row < 0:
                break
            for c in range(x.shape[1]):
                x[i, c] += weights[i, a] * x[row, c]


@jit
def solve_upper(neighbours, weights, x):
    """x <- B^-T x, for x (n, k). O(n m_v k)."""
    n, m_v = weights.shape
    for i in range(n - 1, -1, -1):
        for a in range(m_v):
            row = neighbours[i, a]
            if row < 0:
                break
            for c in range(x.shape[1]):
                x[row, c] += weights[i, a] * x[i, c]


@jit
def multiply_lower(neighbours, weights, x):
    """x <- B x, for x (n, k). O(n m_v k)."""
    n, m_v = weights.shape
    for i in range(n - 1, -1, -1):
        for a in range(m_v):
            row = neighbours[i, a]
            if row < 0:
                break
            for c in range(x.shape[1]):
                x[i, c] -= weights[i, a] * x[row, c]


@jit
def multiply_upper(neighbours, weights, x):
    """x <- B' x, for x (n, k). O(n m_v k)."""
    n, m_v = weights.shape
    for i in range(n):
        for a in range(m_v):
            row = neighbours[i, a]
            if row < 0:
                break
            for c in range(x.shape[1]):
                x[row, c] -= weights[i, a] * x[i, c]


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
