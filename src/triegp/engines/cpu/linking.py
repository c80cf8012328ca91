"""From lcp to trie: which subtrees merge, and in which order, for any cut of the sorted rows.

Leaf i is the i-th row in key order. Node i, 0 < i < n, is named after the separator it stands for,
the one between leaves i - 1 and i; its depth is lcp[i]. As an id, leaf i is i and node i is n + i.
Rows with identical keys have separators of full depth D and merge there, over edges of length 0:
together they are one leaf of the tree. Among themselves they merge in pairs, then in pairs of
pairs, where the binary digits of their places say so: a million of them are 20 merges deep.
"""

from __future__ import annotations

import numpy as np

from triegp.engines.cpu.compiler import jit

FULL = 1 << 30  # more than any place


@jit
def _rank(lcp, sep, n_levels):
    """How deep a separator is; no two of which one is above the other are equal."""
    depth = lcp[sep]
    return depth if depth < n_levels else n_levels + FULL - (sep & -sep)


@jit
def link(items, seps, outer, lcp, n_levels, order, left, right, open_items, open_seps, open_ranks):
    """Merge neighbouring subtrees as far as they are known to be complete.

    items: int32 (k,), ids of adjacent subtrees from left to right; seps: int32 (k,), the separator
    in front of each (the first does not matter). outer: depth assumed beyond both ends, D where a
    neighbour may still join and -1 at the ends of the data. Writes left, right and, in `order`,
    the merged nodes, children first. What stays open goes to open_items and open_seps (open_ranks
    is scratch), with separators that first fall and then rise: at most 2 D + 3 of them. On the way
    there may be up to 31 more, one a binary digit of the places of identical keys.
    Returns (merged, open).
    """
    n_leaves = left.size
    n_open, n_merged = 0, 0  # open_items[k] waits for what comes after separator open_seps[k + 1]
    frozen = 0  # open items whose left neighbour may still grow into them
    lowest = outer
    current = items[0]
    for i in range(1, items.size + 1):
        here = outer if i == items.size else _rank(lcp, seps[i], n_levels)
        while n_open > frozen and open_ranks[n_open] >= here:
            node = open_seps[n_open]
            n_open -= 1
            left[node] = open_items[n_open]
            right[node] = current
            order[n_merged] = node
            n_merged += 1
            current = n_leaves + node
        if here < lowest:
            lowest = here
            frozen = n_open + 1
        open_items[n_open] = current
        n_open += 1
        if i < items.size:
            open_seps[n_open] = seps[i]
            open_ranks[n_open] = here
            current = items[i]
    open_seps[0] = seps[0]
    return n_merged, n_open


@jit
def link_shard(
    lo, hi, outer, lcp, n_levels, depth, left, right, order, open_items, open_seps, open_ranks
):
    """`link` over leaves lo..hi, and their depths and those of their separators.

    order[lo:hi] receives the merged nodes, and 0 after the last of them.
    """
    n = lcp.size
    depth[lo:hi] = n_levels
    depth[n + lo : n + hi] = lcp[lo:hi]
    leaves = np.arange(lo, hi, dtype=np.int32)
    merged, n_open = link(
        leaves,
        leaves,
        outer,
        lcp,
        n_levels,
        order[lo:hi],
        left,
        right,
        open_items,
        open_seps,
        open_ranks,
    )
    order[lo + merged : hi] = 0
    return merged, n_open
