"""Linear operators on the trie, for many vectors at once.

Same walks and ids as in `sweeps`. x is float64 (2n, k), one row per id. The leaves are given and
the nodes are written.
"""

from __future__ import annotations

import math

from triegp.engines import messages
from triegp.engines.cpu.compiler import inline, jit

merge = inline(messages.merge)


@jit
def sum_up(order, left, right, x):
    """Sums of x over the leaves below every node."""
    n = left.size
    for k in range(order.size):
        node = order[k]
        c1, c2 = left[node], right[node]
        for j in range(x.shape[1]):
            x[n + node, j] = x[c1, j] + x[c2, j]


@jit
def spread_down(order, left, right, depth, levels, x):
    """Second half of K x, in place: each id gets its parent's value + edge variance * sum below."""
    n = left.size
    for k in range(order.size - 1, -1, -1):
        node = order[k]
        at = levels[depth[n + node]]
        for c in (left[node], right[node]):
            edge = at - levels[depth[c]]
            for j in range(x.shape[1]):
                x[c, j] = x[n + node, j] + edge * x[c, j]


@jit
def mean_up(order, left, right, depth, levels, s, x):
    """Means of x merged upwards as messages of variance s: float (2n,), inside variances."""
    n = left.size
    for k in range(order.size):
        node = order[k]
        c1, c2 = left[node], right[node]
        at = levels[depth[n + node]]
        s1 = s[c1] + (at - levels[depth[c1]])
        s2 = s[c2] + (at - levels[depth[c2]])
        _, _, r1, r2 = merge(0.0, s1, 0.0, s2)
        for j in range(x.shape[1]):
            if x[c1, j] == x[c2, j]:  # as in `merge`
                x[n + node, j] = x[c1, j]
            else:
                x[n + node, j] = x[c1, j] * r2 + x[c2, j] * r1


@jit
def solve_down(order, left, right, depth, levels, s, x):
    """Second half of (K + noise)^-1 x, in place, after `mean_up`: adjoints of the means."""
    n = left.size
    for k in range(order.size - 1, -1, -1):
        node = order[k]
        c1, c2 = left[node], right[node]
        at = levels[depth[n + node]]
        s1 = s[c1] + (at - levels[depth[c1]])
        s2 = s[c2] + (at - levels[depth[c2]])
        _, _, r1, r2 = merge(0.0, s1, 0.0, s2)
        inv = 1.0 / (s1 + s2)
        for j in range(x.shape[1]):
            t = (x[c1, j] - x[c2, j]) * inv
            top = x[n + node, j]
            x[c1, j] = top * r2 + t
            x[c2, j] = top * r1 - t


@jit
def whiten_nodes(order, left, right, depth, levels, s, x, out):
    """Innovations e / sqrt(v) of every node, after `mean_up`; out: float64 (n, k), by node."""
    n = left.size
    for k in range(order.size):
        node = order[k]
        c1, c2 = left[node], right[node]
        at = levels[depth[n + node]]
        v = s[c1] + (at - levels[depth[c1]]) + (s[c2] + (at - levels[depth[c2]]))
        sd = math.sqrt(v)
        for j in range(x.shape[1]):
            out[node, j] = (x[c1, j] - x[c2, j]) / sd


@jit
def cross_products(order, left, right, depth, x, z, by_level):
    """Sums by depth of x1 z2 + x2 z1 over the children of every node, added to by_level.

    x, z: float64 (2n, k), sums below every id; by_level: float64 (D + 1, k).
    """
    n = left.size
    for k in range(order.size):
        node = order[k]
        c1, c2 = left[node], right[node]
        for j in range(x.shape[1]):
            by_level[depth[n + node], j] += x[c1, j] * z[c2, j] + x[c2, j] * z[c1, j]


@jit
def gain_up(order, left, right, gain, x):
    """First half of a covariance product: gain-weighted sums of x below every node."""
    n = left.size
    for k in range(order.size):
        node = order[k]
        c1, c2 = left[node], right[node]
        for j in range(x.shape[1]):
            x[n + node, j] = gain[c1] * x[c1, j] + gain[c2] * x[c2, j]


@jit
def gain_down(order, left, right, gain, var, x):
    """Second half of a covariance product, in place."""
    n = left.size
    for k in range(order.size - 1, -1, -1):
        node = order[k]
        for c in (left[node], right[node]):
            for j in range(x.shape[1]):
                x[c, j] = gain[c] * x[n + node, j] + var[c] * x[c, j]


@jit
def draw_down(order, left, right, gain, shift, var, x):
    """Replace standard normals x by samples of f, parents before children."""
    n = left.size
    for k in range(order.size - 1, -1, -1):
        node = order[k]
        for c in (left[node], right[node]):
            sd = math.sqrt(var[c])
            for j in range(x.shape[1]):
                x[c, j] = gain[c] * x[n + node, j] + shift[c] + sd * x[c, j]
