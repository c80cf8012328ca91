"""The posterior at a few leaves as a tree of its own: gain, shift and variance of each edge."""

from __future__ import annotations

import numpy as np

from triegp.engines import messages
from triegp.engines.cpu.compiler import inline, jit

condition = inline(messages.condition)
top_separator = inline(messages.top_separator)


@jit
def compose(m, s, edge, path, c):
    """(gain, shift, var) from the upper end of the edge above c down to the id c stands for."""
    gain, shift, var = condition(np.float64(m[c]), np.float64(s[c]), edge)
    low = path[c, 0]
    return low * gain, low * shift + path[c, 1], low * low * var + path[c, 2]


@jit
def name(c, depth, n_levels, first, stands_for, n_chosen):
    """The id that c leads to in the tree over the chosen leaves alone."""
    if depth[c] < n_levels or first[c] == stands_for[c]:
        return stands_for[c]
    return n_chosen + top_separator(first[c], stands_for[c])


@jit
def contract(order, left, right, depth, levels, m, s, first, stands_for, path, out):
    """Reduce the tree to the chosen leaves and the nodes where two of them meet, bottom up.

    first, stands_for: int32 (2n,). At the leaves both are given: the number of the chosen leaf, or
    -1. At a node, first is the smallest chosen leaf below it, or -1. stands_for is the id that the
    node leads to in the tree over the k chosen leaves. For a node of depth D, whose rows have one
    key and merge by position, it is the largest chosen leaf instead. path: float64 (2n, 3), (gain,
    shift, var) from an id down to the id it stands for, (1, 0, 0) for leaves. out: float64 (2k, 3),
    receives (gain, shift, var) of every edge of the tree over the chosen leaves, by the id at its
    lower end.
    """
    n, n_levels = left.size, levels.size - 1
    n_chosen = out.shape[0] // 2
    for k in range(order.size):
        node = order[k]
        u = n + node
        at = levels[depth[u]]
        c1, c2 = left[node], right[node]
        if first[c1] >= 0 and first[c2] >= 0:
            first[u] = first[c1]
            path[u, 0], path[u, 1], path[u, 2] = 1.0, 0.0, 0.0
            if depth[u] == n_levels:
                stands_for[u] = stands_for[c2]
                out[first[c1], 0] = out[stands_for[c1], 0] = 1.0
                out[first[c2], 0] = out[stands_for[c2], 0] = 1.0
                out[n_chosen + first[c2], 0] = 1.0
            else:
                stands_for[u] = n_chosen + first[c2]
                for c in (c1, c2):
                    edge = at - levels[depth[c]]
                    low = name(c, depth, n_levels, first, stands_for, n_chosen)
                    out[low, 0], out[low, 1], out[low, 2] = compose(m, s, edge, path, c)
        elif first[c1] >= 0 or first[c2] >= 0:
            c = c1 if first[c1] >= 0 else c2
            edge = at - levels[depth[c]]
            first[u] = first[c]
            path[u, 0], path[u, 1], path[u, 2] = compose(m, s, edge, path, c)
            stands_for[u] = stands_for[c]
            if depth[u] < n_levels:
                stands_for[u] = name(c, depth, n_levels, first, stands_for, n_chosen)
        else:
            first[u] = -1
