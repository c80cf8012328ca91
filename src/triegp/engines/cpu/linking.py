"""From lcp to trie: which subtrees merge, and in which order, for any cut of the sorted rows.

Leaf i is the i-th row in key order. Node i, 0 < i < n, is the separator between leaves i - 1 and i;
its depth is lcp[i]. As ids, leaf i is i and node i is n + i. Rows with identical keys have
separators of full depth D and merge there over edges of length 0, so that together they are one
leaf of the tree. Among themselves they merge in pairs, then in pairs of pairs, and so on, by the
binary digits of their positions. A million of them are 20 merges deep.
"""

from __future__ import annotations

from triegp.engines.cpu.compiler import inline, jit

FULL = 1 << 30  # more than any position


@inline
def _rank(lcp, sep, n_levels):
    """Rank of a separator: larger is deeper. A separator above another has a smaller rank."""
    depth = lcp[sep]
    return depth if depth < n_levels else n_levels + FULL - (sep & -sep)


@jit
def link(items, seps, outer, lcp, n_levels, order, left, right, open_items, open_seps, open_ranks):
    """Merge neighbouring subtrees as far as they are known to be complete.

    items: int32 (k,), ids of adjacent subtrees from left to right; seps: int32 (k,), the separator
    in front of each (the first is not used). outer: depth assumed beyond both ends: D if a
    neighbouring shard may still join, -1 at the ends of the data. Writes left, right and, in
    `order`, the merged nodes, children first. The subtrees that stay open go to open_items and
    open_seps; open_ranks is scratch. Their separators first fall and then rise, so there are at
    most 2 D + 3. During the merge there may be up to 31 more, one per binary digit of the positions
    of identical keys. Returns (merged, open).
    """
    n_leaves = left.size
    n_open, n_merged = 0, 0  # open_seps[k + 1] is between open_items[k] and the next item
    frozen = 0  # leading open items that may still merge with something beyond the left end
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
