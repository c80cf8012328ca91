"""Automatic precision: as few bits a feature as keep the bit strings as unique as the rows.

The paper ("A Simple Performance Improvement") raises one precision for all features by hand while
bit strings are less unique than rows. Here each feature has its own, and only those are raised
whose next bits tell apart rows that would otherwise share a bit string.

A feature's code at precision p is the first p bits of its code at 32 bits, its *full code*. So two
rows come apart in feature j at one fixed depth, where their full codes first differ, and rows once
apart stay apart: every round looks only at the rows that are still tied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import MAX_BITS, MAX_PRECISION

Precision = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
FullCodes = npt.NDArray[np.uint32]
ReadCodes = Callable[[slice | npt.NDArray[np.intp]], FullCodes]

MAX_PAIRS = 20_000
MAX_PAIR_ENTRIES = 2**21
NEVER = MAX_PRECISION + 1  # the depth at which two equal full codes come apart


def paper_precision(n_features: int) -> int:
    """Return the paper's precision for all features, min(8, floor(150 / d) + 1).

    Examples
    --------
    >>> paper_precision(11), paper_precision(26), paper_precision(385)
    (8, 6, 1)
    """
    return min(8, 150 // n_features + 1)


def separating_precision(read: ReadCodes, blocks: Sequence[slice], start: Precision) -> Precision:
    """Raise `start`, feature by feature, until distinct rows have distinct bit strings.

    Each round takes up to 20,000 pairs of distinct rows that share a bit string and raises, step
    by step, the feature whose next bits separate most of them per bit, until all are separated;
    then all rows still tied are grouped again. It ends when no two rows differ that 32 bits a
    feature (10**5 in all) could tell apart. Features that separate nothing stay as they are.

    Parameters
    ----------
    read : callable
        Takes a slice or an index array of rows, returns their full codes, uint32 (n_features, m).
    blocks : sequence of slices
        Cover the rows once, in order; the first pass reads block by block.
    start : int64 array (n_features,)
        Bits of each feature to begin with.

    Returns
    -------
    int64 array (n_features,)
        Not below `start`; the same for any order of the rows.

    Examples
    --------
    >>> full = np.array([[0, 1, 2, 3], [0, 0, 0, 1]], dtype=np.uint32) << np.uint32(28)
    >>> separating_precision(lambda rows: full[:, rows], [slice(0, 4)], np.array([1, 1]))
    array([4, 1])

    Notes
    -----
    O(n d) to read, one sort of n, then O(m d) a round for the m rows still tied. Rows are compared
    by 64-bit hashes: two hashes that collide can cost one tie, and nothing else. Memory: 24 bytes
    a row, and 4 d bytes a tied row.
    """
    precision = start.copy()
    rows, group, identity = _tied_rows(read, blocks, precision)
    if rows.size == 0:
        return precision
    codes = np.concatenate([read(part) for part in _parts(rows, blocks)], axis=1)
    while group.size:
        raised = _raise_for_pairs(_pair_depths(codes, group), precision)
        changed = np.flatnonzero(raised > precision)
        if changed.size == 0:
            break
        precision = raised
        group += hash_rows(_prefix(codes[changed], precision[changed]), changed)
        kept = _tied_order(group, identity)
        codes, group, identity = codes[:, kept], group[kept], identity[kept]
    return precision


def _tied_rows(
    read: ReadCodes, blocks: Sequence[slice], precision: Precision
) -> tuple[npt.NDArray[np.intp], Hashes, Hashes]:
    """Find the rows that share a bit string with a row of other full codes, one row of each kind.

    Returns their numbers, the hashes of their bit strings (sorted) and of their full codes.
    """
    n_rows = blocks[-1].stop
    group, identity = np.empty(n_rows, np.uint64), np.empty(n_rows, np.uint64)
    features = np.arange(precision.size)
    for block in blocks:
        codes = read(block)
        group[block] = hash_rows(_prefix(codes, precision), features)
        identity[block] = hash_rows(codes, features)
    rows = np.argsort(group)
    rows = rows[_in_runs(group[rows])]  # most rows are often alone: sort only the others again
    rows = rows[_tied_order(group[rows], identity[rows])]
    return rows, group[rows], identity[rows]


def _tied_order(group: Hashes, identity: Hashes) -> npt.NDArray[np.intp]:
    """Order by group, then by identity; drop doubles and what is then alone in its group."""
    order = np.lexsort((identity, group))
    is_first = np.ones(order.size, dtype=np.bool_)
    is_first[1:] = (np.diff(group[order]) != 0) | (np.diff(identity[order]) != 0)
    order = order[is_first]
    return order[_in_runs(group[order])]


def _in_runs(values: Hashes) -> npt.NDArray[np.bool_]:
    """Mark the entries of a sorted array that equal a neighbour."""
    same = values[1:] == values[:-1]
    marked = np.zeros(values.size, dtype=np.bool_)
    marked[1:] = same
    marked[:-1] |= same
    return marked


def _parts(rows: npt.NDArray[np.intp], blocks: Sequence[slice]) -> list[npt.NDArray[np.intp]]:
    """Cut an index array into pieces no longer than the first block."""
    step = blocks[0].stop - blocks[0].start
    return [rows[first : first + step] for first in range(0, rows.size, step)]


def _pair_depths(codes: FullCodes, group: Hashes) -> npt.NDArray[np.uint8]:
    """Bits at which neighbours in a group come apart, uint8 (n_features, n_pairs).

    Neighbours by hash, thinned evenly to the largest number of pairs: as good as random, but the
    same for any order of the rows.
    """
    n_features = codes.shape[0]
    left = np.flatnonzero(group[1:] == group[:-1])
    most = min(MAX_PAIRS, max(100, MAX_PAIR_ENTRIES // n_features))
    if left.size > most:
        left = left[np.arange(most) * left.size // most]
    _, bit_length = np.frexp((codes[:, left] ^ codes[:, left + 1]).astype(np.float64))
    return (NEVER - bit_length).astype(np.uint8)


def _raise_for_pairs(depths: npt.NDArray[np.uint8], precision: Precision) -> Precision:
    """Raise precision, best ratio of separated pairs to bits first, until no pair is left."""
    precision = precision.copy()
    budget = MAX_BITS - int(precision.sum())
    depths = depths[:, (depths > precision[:, None]).all(axis=0)]
    counts = _count_depths(depths)
    depth = np.arange(NEVER)
    while depths.shape[1] and budget > 0:
        gain = np.cumsum(counts[:, :NEVER], axis=1)
        cost = depth - precision[:, None]
        ratio = np.where((cost > 0) & (cost <= budget), gain / np.maximum(cost, 1), 0.0)
        best = int(np.argmax(ratio))
        if ratio.flat[best] == 0.0:
            break
        j, width = divmod(best, NEVER)
        budget -= width - int(precision[j])
        precision[j] = width
        tied = depths[j] > width
        counts -= _count_depths(depths[:, ~tied])
        depths = depths[:, tied]
    return precision


def _count_depths(depths: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Count pairs by feature and depth, int64 (n_features, NEVER + 1)."""
    n_features = depths.shape[0]
    cells = np.arange(n_features)[:, None] * (NEVER + 1) + depths
    counts = np.bincount(cells.ravel(), minlength=n_features * (NEVER + 1))
    return counts.reshape(n_features, NEVER + 1)


def _prefix(codes: FullCodes, precision: Precision) -> FullCodes:
    """Cut full codes (n_features, m) to their first bits."""
    return codes >> (MAX_PRECISION - precision).astype(np.uint32)[:, None]


def hash_rows(columns: npt.NDArray[Any], features: npt.NDArray[np.intp] | None = None) -> Hashes:
    """Hash each row of unsigned integers (n_columns, m): the sum of its mixed entries (SplitMix64).

    features: numbers of the columns; by default 0, 1, ...
    """
    numbers = np.arange(columns.shape[0]) if features is None else features
    salt = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = columns + salt[:, None]
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    total: Hashes = state.sum(axis=0, dtype=np.uint64)  # wraps
    return total
