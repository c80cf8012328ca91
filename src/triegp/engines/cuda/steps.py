"""Device functions of (node, column, tree, data): the work of one node in each sweep.

Same formulas as in the CPU engine. tree is (left, right, depth). data starts with levels, R(0..D),
if a step needs them. Arrays of 2n rows are indexed by id: leaf i is i, node i is n + i. Arithmetic
is float64 for any dtype of the arrays.
"""

from __future__ import annotations

import math

import numpy as np

from triegp.engines import messages
from triegp.engines.cuda.card import device

INF = math.inf

merge = device(messages.merge)
condition = device(messages.condition)
top_separator = device(messages.top_separator)


@device
def _lifted(id_, at, depth, levels, s):
    """Variance of a message, lifted to the depth where R is `at`."""
    return s[id_] + (at - levels[depth[id_]])


# Messages


@device
def inside(node, _, tree, data):
    """Merge two messages; write the terms log v, e^2/v and 1 to terms, float64 (3, n).

    If v = inf, the messages carry no information and the terms are not written.
    """
    left, right, depth = tree
    levels, m, s, terms = data
    n = left.size
    c1, c2 = left[node], right[node]
    at = levels[depth[n + node]]
    s1, s2 = _lifted(c1, at, depth, levels, s), _lifted(c2, at, depth, levels, s)
    m1, m2 = np.float64(m[c1]), np.float64(m[c2])
    m0, s0, _r1, _r2 = merge(m1, s1, m2, s2)
    m[n + node] = m0
    s[n + node] = s0
    v = s1 + s2
    if v < INF:
        e = m1 - m2
        terms[0, node] = math.log(v)
        terms[1, node] = e * (e / v)
        terms[2, node] = 1.0


@device
def outside(node, _, tree, data):
    """Outside messages (mo, so) of both children, held at the node's depth, `above`."""
    left, right, depth = tree
    levels, m, s, mo, so, above = data
    n = left.size
    c1, c2 = left[node], right[node]
    d0 = depth[n + node]
    at = levels[d0]
    s1, s2 = _lifted(c1, at, depth, levels, s), _lifted(c2, at, depth, levels, s)
    m0 = np.float64(mo[n + node])
    s0 = so[n + node] + (levels[above[n + node]] - at)
    out_m1, out_s1, _r1, _r2 = merge(m0, s0, np.float64(m[c2]), s2)
    out_m2, out_s2, _r1, _r2 = merge(m0, s0, np.float64(m[c1]), s1)
    mo[c1], so[c1], above[c1] = out_m1, out_s1, d0
    mo[c2], so[c2], above[c2] = out_m2, out_s2, d0


# Operators: x is float64 (2n, k)


@device
def sum_up(node, j, tree, data):
    """Sums of x over the leaves below."""
    left, right, _ = tree
    (x,) = data
    x[left.size + node, j] = x[left[node], j] + x[right[node], j]


@device
def spread_down(node, j, tree, data):
    """Second half of K x, in place: a child gets its parent's value + edge variance * sum below."""
    left, right, depth = tree
    levels, x = data
    top = left.size + node
    at = levels[depth[top]]
    for c in (left[node], right[node]):
        x[c, j] = x[top, j] + (at - levels[depth[c]]) * x[c, j]


@device
def mean_up(node, j, tree, data):
    """Means of x merged upwards as messages of variance s."""
    left, right, depth = tree
    levels, s, x = data
    top = left.size + node
    c1, c2 = left[node], right[node]
    at = levels[depth[top]]
    s1, s2 = _lifted(c1, at, depth, levels, s), _lifted(c2, at, depth, levels, s)
    x[top, j], _s, _r1, _r2 = merge(x[c1, j], s1, x[c2, j], s2)


@device
def solve_down(node, j, tree, data):
    """Second half of (K + noise)^-1 x, in place, after `mean_up`: adjoints of the means."""
    left, right, depth = tree
    levels, s, x = data
    above = left.size + node
    c1, c2 = left[node], right[node]
    at = levels[depth[above]]
    s1, s2 = _lifted(c1, at, depth, levels, s), _lifted(c2, at, depth, levels, s)
    _m, _s, r1, r2 = merge(0.0, s1, 0.0, s2)
    t = (x[c1, j] - x[c2, j]) * (1.0 / (s1 + s2))
    top = x[above, j]
    x[c1, j] = top * r2 + t
    x[c2, j] = top * r1 - t


@device
def whiten_up(node, j, tree, data):
    """`mean_up`; also write the innovation e / sqrt(v) of the node to out, float64 (n, k)."""
    left, right, depth = tree
    levels, s, x, out = data
    top = left.size + node
    c1, c2 = left[node], right[node]
    at = levels[depth[top]]
    s1, s2 = _lifted(c1, at, depth, levels, s), _lifted(c2, at, depth, levels, s)
    x1, x2 = x[c1, j], x[c2, j]
    x[top, j], _s, _r1, _r2 = merge(x1, s1, x2, s2)
    out[node, j] = (x1 - x2) / math.sqrt(s1 + s2)


@device
def meet_up(node, j, tree, data):
    """Sums of x and z below; also write x1 z2 + x2 z1 of the children to met, float64 (n, k)."""
    left, right, _ = tree
    x, z, met = data
    top = left.size + node
    c1, c2 = left[node], right[node]
    x1, x2, z1, z2 = x[c1, j], x[c2, j], z[c1, j], z[c2, j]
    x[top, j] = x1 + x2
    z[top, j] = z1 + z2
    met[node, j] = x1 * z2 + x2 * z1


# The joint distribution of f at all leaves


@device
def gain_up(node, j, tree, data):
    """First half of a covariance product: gain-weighted sums of x below."""
    left, right, _ = tree
    gain, x = data
    c1, c2 = left[node], right[node]
    x[left.size + node, j] = gain[c1] * x[c1, j] + gain[c2] * x[c2, j]


@device
def gain_down(node, j, tree, data):
    """Second half of a covariance product, in place."""
    left, right, _ = tree
    gain, var, x = data
    for c in (left[node], right[node]):
        x[c, j] = gain[c] * x[left.size + node, j] + var[c] * x[c, j]


@device
def draw_down(node, j, tree, data):
    """Replace standard normals x by samples of f, parents before children."""
    left, right, _ = tree
    gain, shift, var, x = data
    for c in (left[node], right[node]):
        x[c, j] = gain[c] * x[left.size + node, j] + shift[c] + math.sqrt(var[c]) * x[c, j]


@device
def compose(m, s, edge, path, c):
    """(gain, shift, var) from the upper end of the edge above c down to the id c stands for."""
    gain, shift, var = condition(np.float64(m[c]), np.float64(s[c]), edge)
    low = path[c, 0]
    return low * gain, low * shift + path[c, 1], low * low * var + path[c, 2]


@device
def name(c, depth, n_levels, first, stands_for, n_chosen):
    """The id that c leads to in the tree over the chosen leaves alone."""
    if depth[c] < n_levels or first[c] == stands_for[c]:
        return stands_for[c]
    return n_chosen + top_separator(first[c], stands_for[c])


@device
def contract(node, _, tree, data):
    """Reduce the tree to the chosen leaves and the nodes where two of them meet.

    first, stands_for: int32 (2n,); path: float64 (2n, 3); out: float64 (2k, 3), as in the CPU
    engine's `contraction`.
    """
    left, right, depth = tree
    levels, m, s, first, stands_for, path, out = data
    n_levels, n_chosen = levels.size - 1, out.shape[0] // 2
    u = left.size + node
    at = levels[depth[u]]
    c1, c2 = left[node], right[node]
    if first[c1] >= 0 and first[c2] >= 0:
        first[u] = first[c1]
        path[u, 0], path[u, 1], path[u, 2] = 1.0, 0.0, 0.0
        if depth[u] == n_levels:
            stands_for[u] = stands_for[c2]
            out[first[c1], 0] = 1.0
            out[stands_for[c1], 0] = 1.0
            out[first[c2], 0] = 1.0
            out[stands_for[c2], 0] = 1.0
            out[n_chosen + first[c2], 0] = 1.0
        else:
            stands_for[u] = n_chosen + first[c2]
            for c in (c1, c2):
                low = name(c, depth, n_levels, first, stands_for, n_chosen)
                gain, shift, var = compose(m, s, at - levels[depth[c]], path, c)
                out[low, 0], out[low, 1], out[low, 2] = gain, shift, var
    elif first[c1] >= 0 or first[c2] >= 0:
        c = c1 if first[c1] >= 0 else c2
        gain, shift, var = compose(m, s, at - levels[depth[c]], path, c)
        first[u] = first[c]
        path[u, 0], path[u, 1], path[u, 2] = gain, shift, var
        stands_for[u] = stands_for[c]
        if depth[u] < n_levels:
            stands_for[u] = name(c, depth, n_levels, first, stands_for, n_chosen)
    else:
        first[u] = -1
