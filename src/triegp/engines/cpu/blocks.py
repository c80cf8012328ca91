"""Kernel values between rows of the same block: small dense pieces of K.

The lcp of two rows is the smallest lcp of neighbours between them. A sparse table of range minima
gives it in O(1). In a block sorted by key, one lookup per neighbouring pair is enough.
"""

from __future__ import annotations

from triegp.engines.cpu.compiler import jit


@jit
def fill_table(lcp, table):
    """table[k, i] = min of lcp[i:i + 2**k], int32 (n_powers, n)."""
    n = lcp.size
    for i in range(n):
        table[0, i] = lcp[i]
    for k in range(1, table.shape[0]):
        half = 1 << (k - 1)
        for i in range(n - 2 * half + 1):
            table[k, i] = min(table[k - 1, i], table[k - 1, i + half])


@jit
def add_blocks(place, table, levels, members, first, last, out):
    """out[b] += K between the members of blocks first..last-1; diagonals are not written.

    place: int32 (n,), position of every row in key order; members: int32 (n_blocks, size), rows; -1
    marks an unused entry and comes last.
    """
    size = members.shape[1]
    n_levels = levels.size - 1
    where, own = [0] * size, [0] * size
    shared = [0] * size
    for b in range(first, last):
        count = 0
        while count < size and members[b, count] >= 0:
            at, k = place[members[b, count]], count
            while k > 0 and where[k - 1] > at:  # insertion sort by key
                where[k], own[k] = where[k - 1], own[k - 1]
                k -= 1
            where[k], own[k] = at, count
            count += 1
        for i in range(1, count):
            lo, hi = where[i - 1] + 1, where[i]
            power = 0
            while (2 << power) <= hi - lo + 1:
                power += 1
            shared[i] = min(table[power, lo], table[power, hi - (1 << power) + 1])
        for i in range(count):
            least = n_levels
            for j in range(i + 1, count):
                least = min(least, shared[j])
                value = levels[0] - levels[least]
                out[b, own[i], own[j]] += value
                out[b, own[j], own[i]] += value
