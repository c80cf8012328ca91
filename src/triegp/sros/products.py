"""Operations on SROS operators: products with vectors, dense form, transpose, sum, diagonal."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from triegp.checks import Floats, finite_columns
from triegp.sros.forms import Sros, SymmetricSros, to_sros
from triegp.sros.partitions import Labels

_BLOCK = 1 << 23  # numbers in the largest temporary of a product with many vectors


def matvec(operator: Sros | SymmetricSros, x: Any) -> Floats:
    """Multiply an operator by one or more vectors.

    Parameters
    ----------
    operator : Sros or SymmetricSros
        Operator of shape (n_rows, n_cols).
    x : float array (n_cols,) or (n_cols, k)
        One vector, or k vectors as columns.

    Returns
    -------
    float64 array (n_rows,) or (n_rows, k)

    Examples
    --------
    >>> matvec(SymmetricSros([[0, 0], [0, 0], [0, 1]], [1.0, 0.5], 1.0), [1.0, 0.0, 2.0])
    array([3.5, 3.5, 4. ])

    Notes
    -----
    Paper, Algorithm 1, for all columns at once. L = A B^T, where A (n_rows, n_labels) and B
    (n_cols, n_labels) are sparse with q entries per row. O((n_rows + n_cols) q k).
    """
    x = finite_columns("x", x, operator.shape[1])
    return _apply(*_sparse_factors(operator), x)


def to_dense(operator: Sros | SymmetricSros) -> Floats:
    """Return the operator as a dense array (n_rows, n_cols). O(n_rows n_cols q).

    Parameters
    ----------
    operator : Sros or SymmetricSros
        The operator.

    Examples
    --------
    >>> to_dense(SymmetricSros([[0], [1], [0]], 1.0, [[1.0], [2.0], [3.0]]))
    array([[1., 0., 3.],
           [0., 4., 0.],
           [3., 0., 9.]])
    """
    a, b = _sparse_factors(operator)
    dense: Floats = (a @ b.T).toarray()
    return dense


@overload
def transpose(operator: SymmetricSros) -> SymmetricSros: ...
@overload
def transpose(operator: Sros) -> Sros: ...
def transpose(operator: Sros | SymmetricSros) -> Sros | SymmetricSros:
    """Return the transpose L(P', P, U', U); a symmetric operator is returned unchanged. O(1).

    Parameters
    ----------
    operator : Sros or SymmetricSros
        The operator.

    Examples
    --------
    >>> to_dense(transpose(Sros([[0], [0], [1]], [[1], [0]], 1.0, [[2.0], [3.0]])))
    array([[0., 0., 2.],
           [3., 3., 0.]])
    """
    if isinstance(operator, SymmetricSros):
        return operator
    return Sros(
        operator.col_partition, operator.row_partition, operator.col_factor, operator.row_factor
    )


@overload
def add(left: SymmetricSros, right: SymmetricSros) -> SymmetricSros: ...
@overload
def add(left: Sros, right: Sros | SymmetricSros) -> Sros: ...
@overload
def add(left: Sros | SymmetricSros, right: Sros) -> Sros: ...
def add(left: Sros | SymmetricSros, right: Sros | SymmetricSros) -> Sros | SymmetricSros:
    """Add two operators by concatenating the columns of their partitions and factors.

    The sum of two symmetric operators is symmetric. `invert` applies to it if the columns of both
    partitions together are nested. O(n (q + q')).

    Parameters
    ----------
    left, right : Sros or SymmetricSros
        Operators of the same shape.

    Examples
    --------
    >>> one = SymmetricSros([[0], [0], [1]], 1.0, 1.0)
    >>> to_dense(add(one, SymmetricSros([[0], [0], [0]], 2.0, 1.0)))
    array([[3., 3., 2.],
           [3., 3., 2.],
           [2., 2., 3.]])
    """
    if left.shape != right.shape:
        raise ValueError(
            f"left and right must have the same shape, got {left.shape} and {right.shape}"
        )
    if isinstance(left, SymmetricSros) and isinstance(right, SymmetricSros):
        return SymmetricSros(
            np.hstack([left.partition, right.partition]),
            np.hstack([left.coefficient, right.coefficient]),
            np.hstack([left.factor, right.factor]),
        )
    both = to_sros(left), to_sros(right)
    return Sros(
        np.hstack([one.row_partition for one in both]),
        np.hstack([one.col_partition for one in both]),
        np.hstack([one.row_factor for one in both]),
        np.hstack([one.col_factor for one in both]),
    )


def diagonal(operator: Sros | SymmetricSros) -> Floats:
    """Return the main diagonal, (min(n_rows, n_cols),). O(n q).

    For a symmetric operator, it holds the row sums of C * U * U (paper, section 5).

    Parameters
    ----------
    operator : Sros or SymmetricSros
        The operator.

    Examples
    --------
    >>> diagonal(SymmetricSros([[0, 0], [0, 0], [0, 1]], [1.0, 0.5], 2.0))
    array([6., 6., 6.])
    """
    if isinstance(operator, SymmetricSros):
        c, u = operator.coefficient, operator.factor
        return np.asarray(np.einsum("ij,ij,ij->i", c, u, u))
    n = min(operator.shape)
    meet = operator.row_partition[:n] == operator.col_partition[:n]
    products = operator.row_factor[:n] * operator.col_factor[:n]
    return np.asarray(np.sum(products, axis=1, where=meet))


def as_linear_operator(operator: Sros | SymmetricSros, identity: float = 0.0) -> LinearOperator:
    """Return identity * I + L as a `scipy.sparse.linalg.LinearOperator`.

    Parameters
    ----------
    operator : Sros or SymmetricSros
        L.
    identity : float, default=0.0
        Number added to the diagonal. Must be 0 if L is not square.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator
        Supports products with L and its transpose, with one or more vectors. O(n q) per vector.

    Examples
    --------
    >>> from scipy.sparse.linalg import cg
    >>> kernel = SymmetricSros([[0], [0], [0]], 1.0, 1.0)
    >>> solution, status = cg(as_linear_operator(kernel, identity=1.0), [4.0, 4.0, 4.0])
    >>> solution
    array([1., 1., 1.])
    """
    n_rows, n_cols = operator.shape
    if identity != 0 and n_rows != n_cols:
        raise ValueError(f"identity must be 0 for an operator of shape {operator.shape}")
    a, b = _sparse_factors(operator)

    def forward(x: Floats) -> Floats:
        return _apply(a, b, x) + (identity * x if identity else 0.0)

    def backward(x: Floats) -> Floats:
        return _apply(b, a, x) + (identity * x if identity else 0.0)

    return LinearOperator(
        (n_rows, n_cols),
        matvec=forward,
        rmatvec=backward,
        matmat=forward,
        rmatmat=backward,
        dtype=np.dtype(np.float64),
    )


def _sparse_factors(operator: Sros | SymmetricSros) -> tuple[csr_array, csr_array]:
    """Return sparse A (n_rows, n_labels) and B (n_cols, n_labels) with L = A B^T."""
    if isinstance(operator, SymmetricSros):
        rows = cols = operator.partition
        row_factor = operator.factor
        col_factor = np.multiply(operator.coefficient, operator.factor, order="C")
    else:
        rows, cols = operator.row_partition, operator.col_partition
        row_factor, col_factor = operator.row_factor, operator.col_factor
    last = np.maximum(rows.max(axis=0, initial=0), cols.max(axis=0, initial=0))
    widths = last.astype(np.int64) + 1
    offsets = np.cumsum(widths) - widths
    n_labels = int(widths.sum())
    dtype = np.int32 if max(n_labels, rows.size, cols.size) < 2**31 else np.int64

    def sparse(indices: Labels, factor: Floats) -> csr_array:
        n, q = indices.shape
        pointers = q * np.arange(n + 1, dtype=dtype)
        return csr_array((factor.ravel(), indices.ravel(), pointers), shape=(n, n_labels))

    row_indices = np.add(rows, offsets, dtype=dtype, order="C", casting="same_kind")
    col_indices = row_indices
    if cols is not rows:
        col_indices = np.add(cols, offsets, dtype=dtype, order="C", casting="same_kind")
    return sparse(row_indices, row_factor), sparse(col_indices, col_factor)


def _apply(a: csr_array, b: csr_array, x: Floats) -> Floats:
    """Return A B^T x, computed for blocks of vectors so that B^T x stays small."""
    if x.ndim == 1:
        product: Floats = a @ (b.T @ x)
        return product
    y = np.empty((a.shape[0], x.shape[1]))
    step = max(1, _BLOCK // max(1, a.shape[1]))
    for k in range(0, x.shape[1], step):
        y[:, k : k + step] = a @ (b.T @ x[:, k : k + step])
    return y
