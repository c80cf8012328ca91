"""Nested partitions of rows: checking labels, ordering cells, and the partitions by key bits.

A partition of n rows is a vector of integer labels. Rows with equal labels share a cell. An array
(n, q) contains q partitions, one per column. A partition is finer than another if each of its cells
lies within a cell of the other. Two partitions are comparable if one is finer than the other or
they are equal. Partitions are nested if every two of them are comparable. The rows can then be
ordered so that every cell of every column is a run of neighbouring rows, and sums over cells are
sums over runs. `nest` computes this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Nesting:
    """Nested partitions, with an order of the rows in which every cell is a run.

    Attributes
    ----------
    order : int64 array (n_rows,)
        Row numbers, in the new order.
    columns : int64 array (q,)
        Columns of the partition, coarse to fine.
    level : int64 array (q,)
        Level of column `columns[i]`: the number of its partition among the distinct partitions,
        coarse to fine. Columns with the same partition have the same level.
    starts : tuple of int64 arrays
        For each level, the position of the first row of each cell in the new order. Every array
        contains the entries of the previous one.
    """

    order: Ints
    columns: Ints
    level: Ints
    starts: tuple[Ints, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.order.size)

    @property
    def n_columns(self) -> int:
        """Number of columns of the partition, q."""
        return int(self.columns.size)

    def cells(self, i: int) -> tuple[Ints, Ints]:
        """Return the start positions of the cells of column `columns[i]`, and their sizes.

        Parameters
        ----------
        i : int
            Place of the column in `columns`.
        """
        starts = self.starts[self.level[i]]
        return starts, np.diff(starts, append=self.n_rows)


def nest(partition: Any) -> Nesting:
    """Order the columns of nested partitions coarse to fine, and the rows cell by cell.

    Parameters
    ----------
    partition : integer array (n_rows, q)
        Labels >= 0; the columns may be in any order.

    Returns
    -------
    Nesting

    Raises
    ------
    ValueError
        If two columns are not comparable: neither is finer than the other.

    Examples
    --------
    >>> nesting = nest([[7, 0], [3, 0], [7, 0], [5, 4]])
    >>> nesting.columns
    array([1, 0])
    >>> nesting.order
    array([1, 0, 2, 3])
    >>> [starts.tolist() for starts in nesting.starts]
    [[0, 3], [0, 1, 3]]

    Notes
    -----
    O(n q), plus one sort of the cells per column. The paper assumes nested partitions ("by
    assumption, all columns of P are comparable", section 4).
    """
    (labels,) = check_labels(("partition",), (partition,))
    n_rows, n_columns = labels.shape
    by_column = np.ascontiguousarray(labels.T)
    present = [_present(column) for column in by_column]
    n_cells = np.array([cells.size for cells in present], dtype=np.int64)
    columns = np.argsort(n_cells, kind="stable")

    parent_label = np.zeros(n_rows, dtype=np.int64)
    rank = np.zeros(1, dtype=np.int64)  # rank[label]: position of the cell in the order so far
    level = np.zeros(n_columns, dtype=np.int64)
    for i, k in enumerate(columns):
        label = by_column[k]
        parent = np.zeros(int(present[k][-1]) + 1, dtype=np.int64)
        parent[label] = parent_label
        if not np.array_equal(parent[label], parent_label):
            a, b = sorted((int(columns[i - 1]), int(k)))
            raise ValueError(
                "partition must have columns of which of every two one is finer than the other, "
                f"but the cells of columns {a} and {b} cross"
            )
        same = i > 0 and n_cells[k] == n_cells[columns[i - 1]]
        level[i] = level[i - 1] + (not same) if i > 0 else 0
        sorted_cells = present[k][np.argsort(rank[parent[present[k]]], kind="stable")]
        rank = np.zeros(parent.size, dtype=np.int64)
        rank[sorted_cells] = np.arange(sorted_cells.size)
        parent_label = label

    order = np.argsort(rank[parent_label], kind="stable")
    _, firsts = np.unique(level, return_index=True)
    starts = tuple(_run_starts(by_column[columns[i]][order]) for i in firsts)
    return Nesting(order, columns, level, starts)


def kernel_partitions(bits: Any) -> npt.NDArray[np.int32]:
    """Partition rows by their leading key bits.

    In column i - 1, rows share a cell if their first i bits are equal.

    Parameters
    ----------
    bits : bool or integer array (n_rows, n_bits)
        Key bits, 0 or 1, most important first.

    Returns
    -------
    int32 array (n_rows, n_bits)
        Labels from 0 on, in lexicographic order of the keys.

    Examples
    --------
    >>> kernel_partitions([[1, 0], [0, 1], [1, 1], [1, 0]])
    array([[1, 1],
           [0, 0],
           [1, 2],
           [1, 1]], dtype=int32)

    Notes
    -----
    The sort and the count of unique rows in the paper, Algorithm 3. O(n q + n log n), since bits
    are compared 64 at a time.
    """
    bits = check_bits("bits", bits)
    n_rows, n_bits = bits.shape
    packed = np.zeros((n_rows, 8 * max(1, -(-n_bits // 64))), dtype=np.uint8)
    packed[:, : -(-n_bits // 8)] = np.packbits(bits, axis=1)
    words = packed.view(">u8").astype(np.uint64)
    order = np.lexsort(words.T[::-1])
    ranked = bits[order]
    differ = np.logical_or.accumulate(ranked[1:] != ranked[:-1], axis=1)
    partition = np.zeros((n_rows, n_bits), dtype=np.int32)
    partition[order[1:]] = np.cumsum(differ, axis=0, dtype=np.int32)
    return partition


def check_bits(name: str, value: Any) -> npt.NDArray[np.bool_]:
    """Return `value` as a bool array (n_rows, n_bits) with at least one row."""
    bits = np.asarray(value)
    if bits.ndim != 2 or bits.dtype.kind not in "biu" or not len(bits):
        raise ValueError(
            f"{name} must be a two-dimensional array of 0s and 1s with at least one row, "
            f"got {bits.dtype} {bits.shape}"
        )
    if bits.dtype.kind != "b" and bits.size and (bits.min() < 0 or bits.max() > 1):
        worst = bits.min() if bits.min() < 0 else bits.max()
        raise ValueError(f"{name} must contain 0s and 1s only, got {worst}")
    return bits.astype(np.bool_, copy=False)


def check_labels(names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Labels, ...]:
    """Check the labels of one or more partitions (n_rows, q), and make large labels smaller.

    Labels that are equal in two entries of `values` stay equal.
    """
    parts = []
    for name, value in zip(names, values, strict=True):
        part = np.asarray(value)
        if part.ndim != 2 or part.dtype.kind not in "iu" or not len(part):
            raise ValueError(
                f"{name} must be a two-dimensional integer array with at least one row, "
                f"got {part.dtype} {part.shape}"
            )
        if part.size and (part.min() < 0 or part.max() > np.iinfo(np.int64).max):
            worst = part.min() if part.min() < 0 else part.max()
            raise ValueError(f"{name} must contain labels from 0 to 2**63 - 1, got {worst}")
        parts.append(part)
    widths = [part.shape[1] for part in parts]
    if len(set(widths)) > 1:
        raise ValueError(
            f"{' and '.join(names)} must have the same number of columns, "
            f"got {' and '.join(map(str, widths))}"
        )
    small = 4 * sum(len(part) for part in parts)  # longest table indexed by labels
    dtype = np.int32 if small <= np.iinfo(np.int32).max else np.int64
    large = np.any([part.max(axis=0, initial=0) >= small for part in parts], axis=0)
    if not large.any():
        return tuple(part.astype(dtype, copy=False) for part in parts)
    stacked = np.concatenate([part.astype(np.int64) for part in parts])
    for k in np.flatnonzero(large):
        stacked[:, k] = np.unique(stacked[:, k], return_inverse=True)[1]
    edges = np.cumsum([len(part) for part in parts])[:-1]
    return tuple(np.split(stacked.astype(dtype), edges))


def _present(column: Labels) -> Ints:
    """Return the labels that occur in a column, ascending; assumes small labels."""
    flags = np.zeros(int(column.max()) + 1, dtype=np.bool_)
    flags[column] = True
    return np.flatnonzero(flags)


def _run_starts(labels: Labels) -> Ints:
    """Return the start positions of the runs of equal labels."""
    return np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
