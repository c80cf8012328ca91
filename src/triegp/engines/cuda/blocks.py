"""Kernel values on the card between rows that lie in the same block: small dense pieces of K.

A sparse table answers how far two rows share their keys, the smallest lcp between them. One thread
has one entry of one block, and adds up the trees in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import cuda

from triegp.engines.cuda.card import kernel, launch, to_device, xp
from triegp.engines.protocol import Floats, Ids, Tree


@kernel
def _add_tree(place, table, levels, members, out):
    """out[b, i, j] += k(row i, row j) of one tree; entries without a row are left alone.

    place: int32 (n,), place of every row in key order; table[p, i] = min of lcp[i:i + 2**p].
    """
    item = cuda.grid(1)
    if item < out.size:
        size = members.shape[1]
        block, entry = item // (size * size), item % (size * size)
        i, j = entry // size, entry % size
        first, second = members[block, i], members[block, j]
        if first >= 0 and second >= 0:
            shared = levels.size - 1
            if i != j:
                lo, hi = place[first] + 1, place[second]
                if lo > hi:
                    lo, hi = place[second] + 1, place[first]
                power = 0
                while (2 << power) <= hi - lo + 1:
                    power += 1
                left, right = table[power, lo], table[power, hi - (1 << power) + 1]
                shared = left if left < right else right
            out[block, i, j] += levels[0] - levels[shared]


def block_kernels(trees: Sequence[Tree], members: Ids) -> Floats:
    """K, summed over trees, between rows of the same block, float64 (n_blocks, size, size).

    members: int32 (n_blocks, size), rows; -1 is none. O(n log n) a tree and O(1) an entry.
    """
    members = to_device(members, np.int32)
    n_blocks, size = members.shape
    out: Any = xp.zeros((n_blocks, size, size))
    n = trees[0].row_idx.size
    table = xp.empty((max(1, n.bit_length()), n), np.int32)
    place = xp.empty(n, np.int32)
    for tree in trees:
        place[to_device(tree.row_idx)] = xp.arange(n, dtype=np.int32)
        _fill_table(tree.links.lcp, table)
        launch(_add_tree, out.size, place, table, to_device(tree.levels, np.float64), members, out)
    return out  # type: ignore[no-any-return]


def _fill_table(lcp: Any, table: Any) -> None:
    """table[p, i] = min of lcp[i:i + 2**p], as far as i + 2**p <= n."""
    table[0] = lcp
    for power in range(1, len(table)):
        half = 1 << (power - 1)
        count = lcp.size - 2 * half + 1
        if count > 0:
            below = table[power - 1]
            xp.minimum(below[:count], below[half : half + count], out=table[power, :count])
