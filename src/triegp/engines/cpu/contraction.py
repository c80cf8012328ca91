"""The posterior at a few leaves as a tree of its own: gain, shift and variance along each edge."""

from __future__ import annotations

import numpy as np

from triegp.engines import messages
from triegp.engines.cpu.compiler import inline, jit

condition = inline(messages.condition)


@jit
def compose(m, s, edge, path, c):
    """From the upper end of the edge above c to whom c stands for: (gain, shift, var)."""
    gain, shift, var = condition(np.float64(m[c]), np.float64(s[c]), edge)
    low = path[c, 0]
    return low * gain, low * shift + path[c, 1], low * low * var + path[c, 2]


@jit
def contract(order, left, right, depth, levels, m, s, first, stands_for, path, out):
    """Keep the chosen leaves and the nodes where two of them meet, bottom up.

    first, stands_for: int32 (2n,), of the leaves given: number j of the chosen leaf, or -1.
    first: smallest chosen leaf below an id; stands_for: the id, in the tree over the k chosen
    leaves alone, that an id leads to. path: float64 (2n, 3), (gain, shift, var) from an id down to
    whom it stands for, (1, 0, 0) for leaves. out: float64 (2k, 3), receives the same for every
    edge of the tree over the chosen leaves, by the id at its lower end.
    """
    n = left.size
    n_chosen = out.shape[0] // 2
    for k in range(order.size):
        node = order[k]
        u = n + node
        at = levels[depth[u]]
        c1, c2 = left[node], right[node]
        if first[c1] >= 0 and first[c2] >= 0:
            for c in (c1, c2):
                edge = at - levels[depth[c]]
                low = stands_for[c]
                out[low, 0], out[low, 1], out[low, 2] = compose(m, s, edge, path, c)
            first[u] = first[c1]
            stands_for[u] = n_chosen + first[c2]
            path[u, 0], path[u, 1], path[u, 2] = 1.0, 0.0, 0.0
        elif first[c1] >= 0 or first[c2] >= 0:
            c = c1 if first[c1] >= 0 else c2
            edge = at - levels[depth[c]]
            first[u] = first[c]
            stands_for[u] = stands_for[c]
            path[u, 0], path[u, 1], path[u, 2] = compose(m, s, edge, path, c)
        else:
            first[u] = -1
