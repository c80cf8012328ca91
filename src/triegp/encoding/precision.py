"""Automatic precision: few bits per feature, yet distinct rows have distinct bit strings.

The paper ("A Simple Performance Improvement") raises one precision, common to all features, by
hand while there are fewer distinct bit strings than distinct rows. Here each feature has its own
precision. It is raised only if the added bits separate rows that would otherwise share a bit
string.

The *full code* of a feature is its code at 32 bits. Its code at precision p is the first p bits of
the full code. So two rows separate in feature j at a fixed depth: the first bit at which their full
codes differ. Raising a precision never makes separated rows share a bit string again. Each round
therefore reads only the *tied* rows: those that still share a bit string with a different row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import MAX_BITS, MAX_PRECISION

Floats = npt.NDArray[np.float64]
Precision = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
FullCodes = npt.NDArray[np.uint32]
ReadCodes = Callable[[slice | npt.NDArray[np.intp]], FullCodes]

FEWEST_ROWS = 100  # for a feature to be two-valued
BLOCK_ROWS = 1_000  # rows that are searched for a third value at a time
MAX_PAIRS = 20_000
MAX_PAIR_ENTRIES = 2**21
ALL_BITS = np.uint32(2**MAX_PRECISION - 1)
ALL_BUT_LAST = ALL_BITS - np.uint32(1)  # bits that may be chosen if a shift may need one more
NEVER = MAX_PRECISION + 1  # depth assigned to a pair with equal full codes


def find_two_valued(
    data: npt.NDArray[Any], low: Floats, high: Floats, kept: npt.NDArray[np.intp] | None = None
) -> npt.NDArray[np.bool_]:
    """Mark the features with at most two distinct values, bool (n_features,).

    One bit separates such values. No feature is marked if there are fewer than 100 rows: few rows
    say little about the values to come.

    Parameters
    ----------
    data : array (n_rows, n_features)
        Real numbers.
    low, high : float64 arrays (n_features,)
        Smallest and largest value per feature.
    kept : index array, optional
        Rows that count; by default all do.

    Notes
    -----
    At most O(n d). A feature is read no further than the block of rows that has a third value.
    """
    n_rows = data.shape[0] if kept is None else kept.size
    found = np.zeros(data.shape[1], np.bool_)
    left = np.arange(data.shape[1] if n_rows >= FEWEST_ROWS else 0)
    for first in range(0, n_rows, BLOCK_ROWS):
        if not left.size:
            break
        rows = slice(first, first + BLOCK_ROWS)
        part = data[rows if kept is None else kept[rows]][:, left].astype(np.float64, copy=False)
        left = left[((part == low[left]) | (part == high[left])).all(axis=0)]
    found[left] = True
    return found


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

    Each round takes at most 20,000 pairs of distinct rows that share a bit string. It repeatedly
    raises the feature that separates the most pairs per added bit, until all pairs are separated.
    The rows that are still tied are then grouped again by bit string. The search ends when no tied
    rows are left, or when the limits (32 bits per feature, 10**5 in total) allow no further
    separation. Features that separate no pair keep their precision.

    Parameters
    ----------
    read : callable
        Takes a slice or an index array of rows, returns their full codes, uint32 (n_features, m).
    blocks : sequence of slices
        Cover each row once, in order; the first pass reads block by block.
    start : int64 array (n_features,)
        Initial bits per feature.

    Returns
    -------
    int64 array (n_features,)
        Bits per feature, at least `start`. Does not depend on the order of the rows.

    Examples
    --------
    >>> full = np.array([[0, 1, 2, 3], [0, 0, 0, 1]], dtype=np.uint32) << np.uint32(28)
    >>> separating_precision(lambda rows: full[:, rows], [slice(0, 4)], np.array([1, 1]))
    array([4, 1])

    Notes
    -----
    O(n d) to read the n rows of d features and one sort of n hashes, then O(m d) per round for the
    m rows still tied. Memory: 24 bytes per row, and 4 d bytes per tied row. Rows are compared by
    64-bit hashes. The only effect of a hash collision is that two rows may stay tied.
    """
    precision = start.copy()
    rows, group, identity = _tied_rows(read, blocks, precision)
    if rows.size == 0:
        return precision
    codes = np.concatenate([read(part) for part in _parts(rows, blocks)], axis=1)
    return separate_tied(codes, group, identity, precision)


def separate_tied(
    codes: FullCodes, group: Hashes, identity: Hashes, precision: Precision
) -> Precision:
    """Raise `precision` until tied rows are separated, as `separating_precision` does.

    codes: uint32 (n_features, m), full codes of the tied rows. group, identity: uint64 (m,), hashes
    of their bit strings and of their full codes, in the order of `tied_order`.
    """
    while group.size:
        raised = _raise_for_pairs(_pair_depths(codes, group), precision)
        changed = np.flatnonzero(raised > precision)
        if changed.size == 0:
            break
        precision = raised
        group += hash_rows(_prefix(codes[changed], precision[changed]), changed)
        kept = tied_order(group, identity)
        codes, group, identity = codes[:, kept], group[kept], identity[kept]
    return precision


def _tied_rows(
    read: ReadCodes, blocks: Sequence[slice], precision: Precision
) -> tuple[npt.NDArray[np.intp], Hashes, Hashes]:
    """Find the rows that share a bit string with a row whose full codes differ.

    Of rows with equal full codes, only one is returned. Returns the row indices, the hashes of
    their bit strings (sorted) and the hashes of their full codes.
    """
    n_rows = blocks[-1].stop
    group, identity = np.empty(n_rows, np.uint64), np.empty(n_rows, np.uint64)
    features = np.arange(precision.size)
    for block in blocks:
        codes = read(block)
        group[block] = hash_rows(_prefix(codes, precision), features)
        identity[block] = hash_rows(codes, features)
    rows = np.argsort(group)
    rows = rows[_in_runs(group[rows])]  # often few rows are tied: only these are sorted again
    rows = rows[tied_order(group[rows], identity[rows])]
    return rows, group[rows], identity[rows]


def tied_order(group: Hashes, identity: Hashes) -> npt.NDArray[np.intp]:
    """Sort by group, then by identity; drop duplicates, then groups of one row."""
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
    """Depths at which pairs of tied rows separate in each feature, uint8 (n_features, n_pairs).

    The pairs are neighbours in the order of the hashes, thinned evenly to the maximum number of
    pairs. This is as good as a random choice, and does not depend on the order of the rows.
    """
    n_features = codes.shape[0]
    left = np.flatnonzero(group[1:] == group[:-1])
    most = min(MAX_PAIRS, max(100, MAX_PAIR_ENTRIES // n_features))
    if left.size > most:
        left = left[np.arange(most) * left.size // most]
    _, bit_length = np.frexp((codes[:, left] ^ codes[:, left + 1]).astype(np.float64))
    return (NEVER - bit_length).astype(np.uint8)


def _raise_for_pairs(depths: npt.NDArray[np.uint8], precision: Precision) -> Precision:
    """Raise `precision` until all pairs are separated, most separated pairs per bit first.

    Stops earlier if the limit of 10**5 bits in total leaves no useful step.
    """
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
    """Count pairs per feature and depth, int64 (n_features, NEVER + 1)."""
    n_features = depths.shape[0]
    cells = np.arange(n_features)[:, None] * (NEVER + 1) + depths
    counts = np.bincount(cells.ravel(), minlength=n_features * (NEVER + 1))
    return counts.reshape(n_features, NEVER + 1)


def _prefix(codes: FullCodes, precision: Precision) -> FullCodes:
    """Cut full codes (n_features, m) to their first `precision` bits."""
    return codes >> (MAX_PRECISION - precision).astype(np.uint32)[:, None]


def hash_rows(columns: npt.NDArray[Any], features: npt.NDArray[np.intp] | None = None) -> Hashes:
    """Hash each of m rows of unsigned integers (n_columns, m).

    The hash is the sum, modulo 2**64, of the row's entries mixed by SplitMix64. `features` are the
    column numbers that enter the mixing, by default 0, 1, ...
    """
    numbers = np.arange(columns.shape[0]) if features is None else features
    salt = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = columns + salt[:, None]
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    total: Hashes = state.sum(axis=0, dtype=np.uint64)  # modulo 2**64
    return total
