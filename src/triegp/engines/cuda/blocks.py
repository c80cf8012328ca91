"""Kernel values between rows of the same block, on the device: small dense pieces of K.

The lcp of two rows is the smallest rank between them, found in a sparse table of range minima over
the ranks of a tree's separators. One thread computes one entry of one block and adds up the trees
in their order. Tables of several trees are built at once, as many as fit in SMALL_BYTES.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import cuda

from triegp.engines.cuda.card import SMALL_BYTES, kernel, launch, to_device, xp
from triegp.engines.cuda.groves import lay_out
from triegp.engines.records import Floats, Ids, Tree


@kernel
def _find_places(row_idx, n_rows, place):
    """Position of every row in key order, tree by tree; both int32 (trees * n,)."""
    item = cuda.grid(1)
    if item < row_idx.size:
        tree = item // n_rows
        place[tree * n_rows + row_idx[item]] = item


@kernel
def _add_kernels(place, table, levels, n_rows, members, out):
    """out[b, i, j] += k(row i, row j) of several trees; unused entries are not written.

    place: int32 (trees * n,); table[p, i] = min of rank[i:i + 2**p]; levels: (trees, D + 1).
    """
    item = cuda.grid(1)
    if item < out.size:
        size, n_levels = members.shape[1], levels.shape[1] - 1
        block, entry = item // (size * size), item % (size * size)
        i, j = entry // size, entry % size
        first, second = members[block, i], members[block, j]
        if first >= 0 and second >= 0:
            total = out[block, i, j]
            for tree in range(levels.shape[0]):
                shared = n_levels
                if i != j:
                    one, other = place[tree * n_rows + first], place[tree * n_rows + second]
                    lo, hi = min(one, other) + 1, max(one, other)
                    power = 0
                    while (2 << power) <= hi - lo + 1:
                        power += 1
                    shared = min(shared, table[power, lo], table[power, hi - (1 << power) + 1])
                total += levels[tree, 0] - levels[tree, shared]
            out[block, i, j] = total


def block_kernels(trees: Sequence[Tree], members: Ids) -> Floats:
    """K, summed over trees, between rows of the same block, float64 (n_blocks, size, size).

    members: int32 (n_blocks, size), rows; -1 marks an unused entry. O(n log n) per tree and O(1)
    per entry and tree.
    """
    members = to_device(members, np.int32)
    n_blocks, size = members.shape
    out: Any = xp.zeros((n_blocks, size, size))
    n = trees[0].row_idx.size
    n_powers = max(1, n.bit_length())
    at_once = max(1, SMALL_BYTES // (4 * n * (n_powers + 1)))
    for grove in lay_out(trees, at_once):
        place = xp.empty(grove.row_idx.size, np.int32)
        launch(_find_places, place.size, grove.row_idx, n, place)
        table = _table(grove.rank[:-1], n_powers)
        launch(_add_kernels, out.size, place, table, grove.levels, n, members, out)
    return out  # type: ignore[no-any-return]


def _table(rank: Any, n_powers: int) -> Any:
    """table[p, i] = min of rank[i:i + 2**p] if that is in range, int32 (n_powers, size)."""
    table = xp.empty((n_powers, rank.size), np.int32)
    table[0] = rank
    for power in range(1, n_powers):
        half = 1 << (power - 1)
        count = rank.size - 2 * half + 1
        if count > 0:
            below = table[power - 1]
            xp.minimum(below[:count], below[half : half + count], out=table[power, :count])
    return table
