"""Sweeps over the trie: messages up, adjoints and outside messages down.

Every kernel walks `order`, a slice of the merge order (children first), forwards to go up and
backwards to go down. Arrays of length 2n are indexed by id (see `linking`). levels is R(0..D), the
variance that remains below each depth. An edge from depth a down to depth b has variance R(a) -
R(b). A message is held at the depth of its id. Arithmetic is float64 for any dtype of the arrays.
"""

from __future__ import annotations

import math

import numpy as np

from triegp.engines import messages
from triegp.engines.cpu.compiler import inline, jit

INF = math.inf
SMALL, LARGE = 1e-100, 1e100  # a product of two numbers in this range is a normal float64

# numba's cache on disk does not notice changes in `messages`: clear it after one.
merge = inline(messages.merge)
merge_adjoint = inline(messages.merge_adjoint)


@jit
def gather(row_idx, y, variance, m, s, lo, hi):
    """Messages of leaves lo..hi from targets and variances in row order; variance: (n,) or (1,)."""
    for i in range(lo, hi):
        row = row_idx[i]
        m[i] = y[row]
        s[i] = variance[row if variance.size > 1 else 0]


@jit
def inside(order, left, right, depth, levels, m, s):
    """Merge the messages (m, s) upwards: return the sums of log v and e^2/v, and the term count.

    Terms with v = inf carry no information and are not counted. m, s: float (2n,); leaves are
    given, nodes are written. One logarithm is taken of a product of several v, to save time.
    """
    n = left.size
    log_sum, square, product = 0.0, 0.0, 1.0
    count = 0
    for k in range(order.size):
        node = order[k]
        c1, c2 = left[node], right[node]
        at = levels[depth[n + node]]
        s1 = s[c1] + (at - levels[depth[c1]])
        s2 = s[c2] + (at - levels[depth[c2]])
        m1, m2 = np.float64(m[c1]), np.float64(m[c2])
        m0, s0, _, _ = merge(m1, s1, m2, s2)
        m[n + node] = m0
        s[n + node] = s0
        v = s1 + s2
        if v < INF:
            e = m1 - m2
            square += e * (e / v)
            count += 1
            if SMALL < v < LARGE:
                product *= v
                if not SMALL < product < LARGE:
                    log_sum += math.log(product)
                    product = 1.0
            else:
                log_sum += math.log(v)
    return log_sum + math.log(product), square, count


@jit
def adjoint(order, left, right, depth, levels, m, s, by_level):
    """Adjoints of all messages, top down, in place; d nll / d W(l) is added to by_level.

    m, s: float (2n,), inside messages, except at the tops of the walk, where they are the adjoints
    (gm, gs). Every message read is overwritten by its adjoint. by_level: float64 (D + 1,).
    """
    n = left.size
    for k in range(order.size - 1, -1, -1):
        node = order[k]
        c1, c2 = left[node], right[node]
        d0, d1, d2 = depth[n + node], depth[c1], depth[c2]
        at = levels[d0]
        s1 = s[c1] + (at - levels[d1])
        s2 = s[c2] + (at - levels[d2])
        m1, m2 = np.float64(m[c1]), np.float64(m[c2])
        _, _, r1, r2 = merge(m1, s1, m2, s2)
        gm, gs = np.float64(m[n + node]), np.float64(s[n + node])
        gm1, gs1, gm2, gs2 = merge_adjoint(m1 - m2, s1 + s2, r1, r2, gm, gs)
        m[c1] = gm1
        s[c1] = gs1
        m[c2] = gm2
        s[c2] = gs2
        if d1 != d0:  # an edge of length 0 adds nothing, and gs is huge if noise is tiny
            by_level[d1] += gs1
            by_level[d0] -= gs1
        if d2 != d0:
            by_level[d2] += gs2
            by_level[d0] -= gs2


@jit
def outside(order, left, right, depth, levels, m, s, mo, so, above):
    """Outside messages, top down: (mo, so) of a child is held at its parent's depth, `above`.

    m, s: float (2n,), inside messages. mo, so: float (2n,) and above: int32 (2n,) are given at the
    tops of the walk and written below.
    """
    n = left.size
    for k in range(order.size - 1, -1, -1):
        node = order[k]
        c1, c2 = left[node], right[node]
        d0 = depth[n + node]
        at = levels[d0]
        s1 = s[c1] + (at - levels[depth[c1]])
        s2 = s[c2] + (at - levels[depth[c2]])
        m0 = np.float64(mo[n + node])
        s0 = so[n + node] + (levels[above[n + node]] - at)
        mo[c1], so[c1], _, _ = merge(m0, s0, np.float64(m[c2]), s2)
        mo[c2], so[c2], _, _ = merge(m0, s0, np.float64(m[c1]), s1)
        above[c1] = d0
        above[c2] = d0


@jit
def leave_out(depth, levels, mo, so, above, y, stays, mean, var, lo, hi):
    """Mean and variance of f at leaves lo..hi given all other rows: outside messages, lowered.

    stays: float64 (n,) or (1,), variance of the part of each row's message, with mean y, that
    remains when the row is left out; inf if nothing remains.
    """
    for i in range(lo, hi):
        lowered = so[i] + (levels[above[i]] - levels[depth[i]])
        kept = stays[i if stays.size > 1 else 0]
        mean[i], var[i], _, _ = merge(np.float64(mo[i]), lowered, np.float64(y[i]), kept)
