"""The general and the symmetric form of a sum of sparse rank-one matrices (SROS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from triegp.checks import Floats
from triegp.sros.partitions import Labels, check_labels


@dataclass(frozen=True, eq=False)
class Sros:
    """The operator L(P, P', U, U'), n_rows by n_cols (paper, section 4, Definition 3).

    Entry (a, b) is the sum of U[a, i] U'[b, i] over all i with P[a, i] = P'[b, i].

    Attributes
    ----------
    row_partition : integer array (n_rows, q)
        P: labels >= 0 of the operator's rows, one partition per column. The partitions need not
        be nested.
    col_partition : integer array (n_cols, q)
        P': labels >= 0 of the operator's columns, compared with the labels in P.
    row_factor : float64 array (n_rows, q)
        U, or an array that broadcasts to this shape.
    col_factor : float64 array (n_cols, q)
        U', or an array that broadcasts to this shape.

    Examples
    --------
    >>> from triegp.sros import to_dense
    >>> to_dense(Sros([[0], [0], [1]], [[1], [0]], 1.0, [[2.0], [3.0]]))
    array([[0., 3.],
           [0., 3.],
           [2., 0.]])

    Notes
    -----
    O((n_rows + n_cols) q) memory. In columns with labels of 4 (n_rows + n_cols) or more, labels
    are replaced by smaller ones that describe the same partition.
    """

    row_partition: Labels
    col_partition: Labels
    row_factor: Floats
    col_factor: Floats

    def __post_init__(self) -> None:
        rows, cols = check_labels(
            ("row_partition", "col_partition"), (self.row_partition, self.col_partition)
        )
        object.__setattr__(self, "row_partition", rows)
        object.__setattr__(self, "col_partition", cols)
        object.__setattr__(self, "row_factor", _broadcast("row_factor", self.row_factor, rows))
        object.__setattr__(self, "col_factor", _broadcast("col_factor", self.col_factor, cols))

    @property
    def shape(self) -> tuple[int, int]:
        """(n_rows, n_cols)."""
        return len(self.row_partition), len(self.col_partition)


@dataclass(frozen=True, eq=False)
class SymmetricSros:
    """The symmetric operator L(P, C, U) = L(P, P, U, C * U) (paper, section 4).

    Attributes
    ----------
    partition : integer array (n_rows, q)
        P: labels >= 0, one partition per column.
    coefficient : float64 array (n_rows, q)
        C, or an array that broadcasts to this shape. Constant on each cell of its column, of any
        sign.
    factor : float64 array (n_rows, q)
        U, or an array that broadcasts to this shape.

    Raises
    ------
    ValueError
        If `coefficient` is not constant on each cell.

    Examples
    --------
    >>> from triegp.sros import to_dense
    >>> to_dense(SymmetricSros([[0, 0], [0, 0], [0, 1]], [1.0, 0.5], 1.0))
    array([[1.5, 1.5, 1. ],
           [1.5, 1.5, 1. ],
           [1. , 1. , 1.5]])

    Notes
    -----
    O(n_rows q) time and memory. Only `invert` and the traces require nested partitions.
    """

    partition: Labels
    coefficient: Floats
    factor: Floats

    def __post_init__(self) -> None:
        given = np.asarray(self.partition)
        (partition,) = check_labels(("partition",), (self.partition,))
        coefficient = _broadcast("coefficient", self.coefficient, partition)
        if coefficient.strides[0] != 0:
            _check_constant(coefficient, partition, given)
        object.__setattr__(self, "partition", partition)
        object.__setattr__(self, "coefficient", coefficient)
        object.__setattr__(self, "factor", _broadcast("factor", self.factor, partition))

    @property
    def shape(self) -> tuple[int, int]:
        """(n_rows, n_rows)."""
        return len(self.partition), len(self.partition)


def to_sros(operator: Sros | SymmetricSros) -> Sros:
    """Return the operator in the general form.

    A symmetric operator becomes L(P, P, U, C * U), in O(n q). A general one is returned unchanged.

    Parameters
    ----------
    operator : Sros or SymmetricSros
        The operator.

    Examples
    --------
    >>> to_sros(SymmetricSros([[0], [0]], -2.0, [[1.0], [3.0]])).col_factor
    array([[-2.],
           [-6.]])
    """
    if isinstance(operator, Sros):
        return operator
    partition, factor = operator.partition, operator.factor
    return Sros(partition, partition, factor, operator.coefficient * factor)


def _broadcast(name: str, value: Any, partition: Labels) -> Floats:
    """Return `value` as finite float64 numbers, broadcast to the partition's shape as a view."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be an array of real numbers, got {array.dtype}")
    array = array.astype(np.float64, copy=False)
    distinct = array[tuple(slice(None, None if step else 1) for step in array.strides)]
    if not np.isfinite(distinct).all():
        where = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at position {where}")
    try:
        return np.broadcast_to(array, partition.shape)
    except ValueError:
        raise ValueError(
            f"{name} must have shape {partition.shape} or broadcast to it, got {array.shape}"
        ) from None


def _check_constant(coefficient: Floats, partition: Labels, given: Labels) -> None:
    """Raise ValueError if a coefficient varies within a cell of its column."""
    for k in range(partition.shape[1]):
        labels, column = partition[:, k], coefficient[:, k]
        of_cell = np.zeros(int(labels.max()) + 1)
        of_cell[labels] = column
        wrong = of_cell[labels] != column
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                "coefficient must be constant on each cell of its column, "
                f"got {column[row]} and {of_cell[labels[row]]} "
                f"in column {k} on the cell with label {given[row, k]}"
            )
