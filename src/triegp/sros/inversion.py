"""The inverse and the log determinant of I + L(P, C, U), and traces of products.

Inside, arrays are (q, n): columns coarse to fine, rows in the order of `nest`, so that a sum over
the cells of a column is a sum over runs.
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
        log |I + L(P, C, U)|, of the matrix that was inverted.
    """

    symmetric: SymmetricSros
    log_det: float


def invert(symmetric: SymmetricSros, nesting: Nesting | None = None) -> InverseSros:
    """Invert I + L(P, C, U), by the faster of the two algorithms that applies.

    Parameters
    ----------
    symmetric : SymmetricSros
        L(P, C, U), with nested partitions.
    nesting : Nesting, optional
        `nest(symmetric.partition)`, where it is known already.

    Returns
    -------
    InverseSros
        (I + L)^-1 = I + L(P, C', U'), and log |I + L|.

    Raises
    ------
    ValueError
        If the partitions are not nested.
    numpy.linalg.LinAlgError
        If I + L is not positive definite, or is not without some of its coarsest columns (they
        are added finest first). Neither happens while C >= 0.

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
    `invert_shared` if the columns of U agree, O(n q); else `invert_general`, O(n q^2). The two
    parts of the inverse nearly cancel where L is large: about as many of 16 digits may be lost
    as log10 of its largest eigenvalue.
    """
    if _columns_agree(symmetric.factor):
        return invert_shared(symmetric, nesting)
    return invert_general(symmetric, nesting)


def invert_general(symmetric: SymmetricSros, nesting: Nesting | None = None) -> InverseSros:
    """Invert I + L(P, C, U) for any U.

    Parameters, results and errors are those of `invert`.

    Examples
    --------
    >>> inverse = invert_general(SymmetricSros([[0, 0], [0, 1]], 1.0, [[1.0, 1.0], [1.0, 2.0]]))
    >>> print(round(np.exp(inverse.log_det), 6))  # the determinant of [[3, 1], [1, 6]]
    17.0

    Notes
    -----
    Paper, Algorithm 2, O(n q^2). Where the columns of U agree the results are those of
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
    """Invert I + L(P, C, U) where all columns of U are the same.

    Parameters, results and errors are those of `invert`; and ValueError if the columns differ.

    Examples
    --------
    >>> inverse = invert_shared(SymmetricSros([[0, 0], [0, 1]], 1.0, 1.0))
    >>> print(round(np.exp(inverse.log_det), 6))  # the determinant of [[3, 1], [1, 3]]
    8.0

    Notes
    -----
    Paper, Algorithm 4, O(n q). The update of U' by C' u' y, with C' = -c / (1 + z) and z = c y,
    is a division by 1 + z, and done as one: nothing cancels.
    """
    if not _columns_agree(symmetric.factor):
        k = int(np.argmax((symmetric.factor != symmetric.factor[:, :1]).any(axis=0)))
        raise ValueError(f"factor must have columns that agree, but columns 0 and {k} differ")
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
    """Trace of the product of two symmetric operators.

    Parameters
    ----------
    left, right : SymmetricSros
        Of the same size; all columns of both partitions must be comparable.

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
    Two columns share the cells of the finer one, so their trace is the sum over these cells of
    c c' (sum of u u')^2: paper, Algorithm 5, with any vector for its vector of ones, and with c
    outside the square, where it needs no complex root. O(n q q').
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
    """Trace of the product of each partition's own operator and identity * I + L.

    Parameters
    ----------
    symmetric : SymmetricSros
        L = L(P, C, U), with nested partitions.
    identity : float
        Multiple of the identity that is added to L: 1 for the L of an `InverseSros`.
    nesting : Nesting, optional
        `nest(symmetric.partition)`, where it is known already.

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
    Paper, Appendix B and Algorithm 5 for every i and j. The sums of U_j over the cells of P_i,
    i >= j, come from those over the next finer partition; a term with i < j does not depend on
    i. c stands outside the square, so no number is complex. O(n q^2).
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
    """For each level, which cells of the next finer one (rows for the finest) start its cells."""
    starts = [*nesting.starts, np.arange(nesting.n_rows)]
    return [np.searchsorted(fine, coarse) for coarse, fine in pairwise(starts)]


def _rank_one_terms(c: Floats, new_u: Floats, u: Floats, nesting: Nesting, i: int) -> Floats:
    """z = c u'^T u on each cell of a column: 1 + z, the factor of the determinant, is > 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        z: Floats = c * np.add.reduceat(new_u * u, nesting.cells(i)[0])
    if not (z.min() > -1.0 and z.max() < np.inf):
        cell = int(np.argmin((z > -1.0) & (z < np.inf)))
        row = nesting.order[nesting.cells(i)[0][cell]]
        raise np.linalg.LinAlgError(
            "I + L(P, C, U) must be positive definite, and also without its coarsest columns: "
            f"got 1 + z = {1.0 + z[cell]} in column {nesting.columns[i]} on the cell of row {row}"
        )
    return z


def _columns_agree(factor: Floats) -> bool:
    """Whether all columns are the same; a broadcast column is not compared."""
    return factor.strides[1] == 0 or bool((factor == factor[:, :1]).all())


def _arrange(nesting: Nesting, array: Floats) -> Floats:
    """(n, q) to (q, n), columns coarse to fine, rows in the order of the nesting."""
    if array.strides[0] == 0:
        return np.broadcast_to(array[:1, nesting.columns].T, array.shape[::-1])
    arranged = np.empty(array.shape[::-1])
    for i, k in enumerate(nesting.columns):
        np.take(array[:, k], nesting.order, out=arranged[i])
    return arranged


def _restore(
    symmetric: SymmetricSros, nesting: Nesting, c: Floats, u: Floats, log_det: float
) -> InverseSros:
    """From (q, n) back to the caller's rows and columns."""
    new_c, new_u = np.empty(c.shape), np.empty(u.shape)
    for i, k in enumerate(nesting.columns):
        new_c[k, nesting.order] = c[i]
        new_u[k, nesting.order] = u[i]
    return InverseSros(SymmetricSros(symmetric.partition, new_c.T, new_u.T), log_det)
