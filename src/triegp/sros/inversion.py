"""The inverse and the log determinant of I + L(P, C, U), and traces of products.

Internally, arrays are (q, n), with columns from coarse to fine and rows in the order of `nest`.
Each cell of a column is then a run of neighbouring rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from triegp.checks import Floats
from triegp.sros.forms import SymmetricSros
from triegp.sros.partitions import Ints, Nesting, nest

_BLOCK = 1 << 17  # numbers in the largest temporary of Algorithm 2


@dataclass(frozen=True, eq=False)
class InverseSros:
    """The inverse of I + L(P, C, U), in the form I + L(P, C', U').

    Attributes
    ----------
    symmetric : SymmetricSros
        L(P, C', U'): the inverse without its identity part.
    log_det : float
        `log |I + L(P, C, U)|`, the log determinant of the matrix that was inverted.
    """

    symmetric: SymmetricSros
    log_det: float


def invert(symmetric: SymmetricSros, nesting: Nesting | None = None) -> InverseSros:
    """Invert I + L(P, C, U) by the fastest algorithm that applies.

    Parameters
    ----------
    symmetric : SymmetricSros
        L(P, C, U), with nested partitions.
    nesting : Nesting, optional
        `nest(symmetric.partition)`, if it is already known. The default computes it.

    Returns
    -------
    InverseSros
        (I + L)^-1 = I + L(P, C', U'), and `log |I + L|`.

    Raises
    ------
    ValueError
        If the partitions are not nested.
    numpy.linalg.LinAlgError
        If I + L is not positive definite, or not positive definite if some of its coarsest
        columns are left out (the algorithms add columns from fine to coarse). This can't happen
        if C >= 0.

    Examples
    --------
    >>> from triegp.sros import to_dense
    >>> kernel = SymmetricSros([[0, 0], [0, 0], [0, 1]], [1.0, 0.5], 1.0)
    >>> inverse = invert(kernel)
    >>> print((np.eye(3) + to_dense(inverse.symmetric)).round(4))
    [[ 0.6562 -0.3438 -0.125 ]
     [-0.3438  0.6562 -0.125 ]
     [-0.125  -0.125   0.5   ]]
    >>> print(round(np.exp(inverse.log_det), 6))  # the determinant of I + L
    8.0

    Notes
    -----
    Uses `invert_shared`, O(n q), if all columns of U are equal; otherwise `invert_general`,
    O(n q^2). If L is large, the two parts of the inverse nearly cancel: up to about log10 of the
    largest eigenvalue of L of the 16 digits may be lost.
    """
    if _columns_agree(symmetric.factor):
        return invert_shared(symmetric, nesting)
    return invert_general(symmetric, nesting)


def invert_general(symmetric: SymmetricSros, nesting: Nesting | None = None) -> InverseSros:
    """Invert I + L(P, C, U) for any U.

    Parameters, return value and errors are those of `invert`.

    Parameters
    ----------
    symmetric : SymmetricSros
        L, on nested partitions.
    nesting : Nesting, optional
        Nesting of its partition, if it is known.

    Examples
    --------
    >>> inverse = invert_general(SymmetricSros([[0, 0], [0, 1]], 1.0, [[1.0, 1.0], [1.0, 2.0]]))
    >>> print(round(np.exp(inverse.log_det), 6))  # the determinant of [[3, 1], [1, 6]]
    17.0

    Notes
    -----
    Paper, Algorithm 2, O(n q^2). If all columns of U are equal, the result is that of
    `invert_shared`.
    """
    nesting = nest(symmetric.partition) if nesting is None else nesting
    c = _arrange(nesting, symmetric.coefficient)
    u = _arrange(nesting, symmetric.factor)
    inverse_c, inverse_u = np.empty(c.shape), u.copy()
    block = max(1, _BLOCK // nesting.n_rows)
    log_det = 0.0
    for i in reversed(range(nesting.n_columns)):
        starts, sizes = nesting.cells(i)
        of_cell, row_u = c[i, starts], inverse_u[i]
        z = _rank_one_terms(of_cell, row_u, u[i], nesting, i)
        log_det += float(np.log1p(z).sum())
        new_c = -of_cell / (1.0 + z)
        inverse_c[i] = np.repeat(new_c, sizes)
        for k in range(0, i, block):
            some = slice(k, min(k + block, i))
            y = np.add.reduceat(row_u * u[some], starts, axis=1)
            inverse_u[some] += np.repeat(new_c * y, sizes, axis=1) * row_u
    return _restore(symmetric, nesting, inverse_c, inverse_u, log_det)


def invert_shared(symmetric: SymmetricSros, nesting: Nesting | None = None) -> InverseSros:
    """Invert I + L(P, C, U) if all columns of U are equal.

    Parameters, return value and errors are those of `invert`. Also raises ValueError if columns of
    U differ.

    Parameters
    ----------
    symmetric : SymmetricSros
        L, on nested partitions.
    nesting : Nesting, optional
        Nesting of its partition, if it is known.

    Examples
    --------
    >>> inverse = invert_shared(SymmetricSros([[0, 0], [0, 1]], 1.0, 1.0))
    >>> print(round(np.exp(inverse.log_det), 6))  # the determinant of [[3, 1], [1, 3]]
    8.0

    Notes
    -----
    Paper, Algorithm 4, O(n q). The paper updates U' by adding C' u' y, with C' = -c / (1 + z) and
    z = c y. This equals a division by 1 + z. The code divides, which avoids cancellation.
    """
    if not _columns_agree(symmetric.factor):
        k = int(np.argmax((symmetric.factor != symmetric.factor[:, :1]).any(axis=0)))
        raise ValueError(f"factor must have equal columns, but columns 0 and {k} differ")
    nesting = nest(symmetric.partition) if nesting is None else nesting
    c = _arrange(nesting, symmetric.coefficient)
    inverse_c, inverse_u = np.empty(c.shape), np.empty(c.shape)
    if nesting.n_columns:
        u = symmetric.factor[nesting.order, 0]
        inverse_u[-1] = u
    log_det = 0.0
    for i in reversed(range(nesting.n_columns)):
        starts, sizes = nesting.cells(i)
        of_cell = c[i, starts]
        z = _rank_one_terms(of_cell, inverse_u[i], u, nesting, i)
        log_det += float(np.log1p(z).sum())
        inverse_c[i] = np.repeat(-of_cell / (1.0 + z), sizes)
        if i > 0:
            inverse_u[i - 1] = inverse_u[i] / np.repeat(1.0 + z, sizes)
    return _restore(symmetric, nesting, inverse_c, inverse_u, log_det)


def trace_of_product(left: SymmetricSros, right: SymmetricSros) -> float:
    """Compute the trace of the product of two symmetric operators.

    Parameters
    ----------
    left, right : SymmetricSros
        Operators of the same shape. The columns of both partitions together must be nested.

    Returns
    -------
    float
        Tr[L(P, C, U) L(P', C', U')].

    Examples
    --------
    >>> ones = SymmetricSros([[0], [0], [0]], 1.0, 1.0)
    >>> trace_of_product(ones, SymmetricSros([[0], [0], [1]], 2.0, 1.0))
    10.0

    Notes
    -----
    O(n q q'). The trace for two columns is the sum of c c' (sum of u u')^2 over the cells of the
    finer one. This is the paper's Algorithm 5 with two changes. Its vector of ones may be any
    vector. The coefficients c stay outside the square, so a negative c needs no complex root.
    """
    if left.shape != right.shape:
        raise ValueError(
            f"left and right must have the same shape, got {left.shape} and {right.shape}"
        )
    n_left = left.partition.shape[1]
    nesting = nest(np.hstack([left.partition, right.partition]))
    c = _arrange(nesting, np.hstack([left.coefficient, right.coefficient]))
    u = _arrange(nesting, np.hstack([left.factor, right.factor]))
    trace = 0.0
    for i in np.flatnonzero(nesting.columns < n_left):
        for j in np.flatnonzero(nesting.columns >= n_left):
            starts, _ = nesting.cells(int(max(i, j)))
            sums = np.add.reduceat(u[i] * u[j], starts)
            trace += float((c[i, starts] * c[j, starts]) @ (sums * sums))
    return trace


def level_traces(
    symmetric: SymmetricSros, identity: float = 0.0, nesting: Nesting | None = None
) -> Floats:
    """Compute the trace of L(P_i, 1, 1) times identity * I + L, for each column i of P.

    Parameters
    ----------
    symmetric : SymmetricSros
        L = L(P, C, U), with nested partitions.
    identity : float, default=0.0
        Multiple of the identity that is added to L. Use 1 for the `symmetric` part of an
        `InverseSros`.
    nesting : Nesting, optional
        `nest(symmetric.partition)`, if it is already known. The default computes it.

    Returns
    -------
    float64 array (q,)
        Tr[L(P_i, 1, 1) (identity * I + L(P, C, U))] for each column i of the partition.

    Examples
    --------
    >>> level_traces(SymmetricSros([[0, 0], [0, 0], [0, 1]], [1.0, 0.5], 1.0))
    array([11.5,  7.5])

    Notes
    -----
    Paper, Appendix B, and Algorithm 5 for every pair of columns i and j. O(n q^2). If column i is
    at least as fine as j, the sums of U_j over the cells of P_i are computed from those over the
    next finer partition. If it is coarser, the term does not depend on i. The coefficients c stay
    outside the square, so a negative c needs no complex root.
    """
    nesting = nest(symmetric.partition) if nesting is None else nesting
    c = _arrange(nesting, symmetric.coefficient)
    u = _arrange(nesting, symmetric.factor)
    steps = coarsening_steps(nesting)
    at_own, at_finer = np.zeros(len(steps)), np.zeros(len(steps))
    for j, own in enumerate(nesting.level):
        sums, of_cell = u[j], c[j]
        for level in reversed(range(own, len(steps))):
            sums = np.add.reduceat(sums, steps[level])
            of_cell = of_cell[steps[level]]
            term = float(of_cell @ (sums * sums))
            at_finer[level] += term
        at_own[own] += term
    beyond = np.cumsum(at_own[::-1])[::-1] - at_own  # columns j finer than the level
    traces = np.empty(nesting.n_columns)
    traces[nesting.columns] = (at_finer + beyond)[nesting.level] + identity * nesting.n_rows
    return traces


def coarsening_steps(nesting: Nesting) -> list[Ints]:
    """For each level, return the cells of the next finer level that start its cells.

    For the finest level, rows take the place of the cells of a finer level.
    """
    starts = [*nesting.starts, np.arange(nesting.n_rows)]
    return [np.searchsorted(fine, coarse) for coarse, fine in pairwise(starts)]


def _rank_one_terms(c: Floats, new_u: Floats, u: Floats, nesting: Nesting, i: int) -> Floats:
    """Compute z = c u'^T u on each cell of column i.

    1 + z is the cell's factor of the determinant. Raises LinAlgError unless it is > 0 and finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        z: Floats = c * np.add.reduceat(new_u * u, nesting.cells(i)[0])
    if not (z.min() > -1.0 and z.max() < np.inf):
        cell = int(np.argmin((z > -1.0) & (z < np.inf)))
        row = nesting.order[nesting.cells(i)[0][cell]]
        raise np.linalg.LinAlgError(
            "I + L(P, C, U) must be positive definite, also without its coarsest columns: "
            f"got 1 + z = {1.0 + z[cell]} in column {nesting.columns[i]} on the cell of row {row}"
        )
    return z


def _columns_agree(factor: Floats) -> bool:
    """Return True if all columns are equal; a broadcast column needs no comparison."""
    return factor.strides[1] == 0 or bool((factor == factor[:, :1]).all())


def _arrange(nesting: Nesting, array: Floats) -> Floats:
    """Rearrange (n, q) to (q, n): columns coarse to fine, rows in the order of the nesting."""
    if array.strides[0] == 0:
        return np.broadcast_to(array[:1, nesting.columns].T, array.shape[::-1])
    arranged = np.empty(array.shape[::-1])
    for i, k in enumerate(nesting.columns):
        np.take(array[:, k], nesting.order, out=arranged[i])
    return arranged


def _restore(
    symmetric: SymmetricSros, nesting: Nesting, c: Floats, u: Floats, log_det: float
) -> InverseSros:
    """Build the inverse from C' and U' (q, n), in the original order of rows and columns."""
    new_c, new_u = np.empty(c.shape), np.empty(u.shape)
    for i, k in enumerate(nesting.columns):
        new_c[k, nesting.order] = c[i]
        new_u[k, nesting.order] = u[i]
    return InverseSros(SymmetricSros(symmetric.partition, new_c.T, new_u.T), log_det)
