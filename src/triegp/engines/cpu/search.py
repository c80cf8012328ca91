"""Find where new keys leave the trie, and the posterior there."""

from __future__ import annotations

import numpy as np

from triegp.engines import messages
from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.cpu.sorting import clz

# numba's cache on disk does not notice changes in `messages`: clear it after one.
merge = inline(messages.merge)


@inline
def _above(keys, i, query, j):
    """Whether keys[i] > query[j], lexicographically."""
    for w in range(keys.shape[1]):
        if keys[i, w] != query[j, w]:
            return keys[i, w] > query[j, w]
    return False


@inline
def key_lcp(keys, i, query, j, limit):
    """Number of leading bits that two keys share, at most `limit`."""
    for w in range(keys.shape[1]):
        diff = keys[i, w] ^ query[j, w]
        if diff != 0:
            return min(64 * w + clz(diff), limit)
    return limit


@jit
def upper_bounds(keys, query, lo, hi, out):
    """Number of keys <= query[j], for lo <= j < hi; keys and query are sorted.

    Each search gallops from the previous result.
    """
    n = keys.shape[0]
    position = np.int64(0)
    for j in range(lo, hi):
        step = 1
        low = position  # keys[:low] <= query[j]
        high = position
        while high < n and not _above(keys, high, query, j):
            low = high + 1
            high += step
            step *= 2
        high = min(high, n)
        while low < high:
            middle = (low + high) // 2
            if _above(keys, middle, query, j):
                high = middle
            else:
                low = middle + 1
        out[j] = low
        position = low


@jit
def locate(keys, query, positions, depth, left, right, root, limit, lo, hi, node, above, leaves_at):
    """Where query[lo:hi] leave the trie: on the edge above `node`, below depth `above`.

    positions: int64 (m,), from `upper_bounds`. Writes node, above and leaves_at, int32 (m,).
    leaves_at is the depth at which the key leaves that edge, or `limit` if the key ends on a leaf.
    """
    n = keys.shape[0]
    for j in range(lo, hi):
        p = positions[j]
        with_left = key_lcp(keys, p - 1, query, j, limit) if p > 0 else -1
        with_right = key_lcp(keys, p, query, j, limit) if p < n else -1
        go_left = with_left < with_right  # then the key follows the leftmost path right of p
        at = max(with_left, with_right)
        here, up = root, 0
        if 0 < p < n:
            here, up = (right[p] if go_left else left[p]), depth[n + p]
        while depth[here] < at:
            up = depth[here]
            here = left[here - n] if go_left else right[here - n]
        node[j] = here
        above[j] = up
        leaves_at[j] = at


@jit
def predict_mean(row_idx, node, above, leaves_at, depth, levels, m, s, mo, so, mean, lo, hi):
    """Posterior mean of f where keys lo..hi leave the trie, written to mean[row_idx]."""
    for j in range(lo, hi):
        c = node[j]
        at = levels[leaves_at[j]]
        s_in = s[c] + (at - levels[depth[c]])
        s_out = so[c] + (levels[above[j]] - at)
        mean[row_idx[j]], _, _, _ = merge(np.float64(mo[c]), s_out, np.float64(m[c]), s_in)


@jit
def predict(row_idx, node, above, leaves_at, depth, levels, m, s, mo, so, mean, var, lo, hi):
    """Posterior mean and variance of f where keys lo..hi leave the trie, written at row_idx."""
    bottom = levels[levels.size - 1]
    for j in range(lo, hi):
        c = node[j]
        at = levels[leaves_at[j]]
        s_in = s[c] + (at - levels[depth[c]])
        s_out = so[c] + (levels[above[j]] - at)
        mean[row_idx[j]], spread, _, _ = merge(np.float64(mo[c]), s_out, np.float64(m[c]), s_in)
        var[row_idx[j]] = spread + (at - bottom)


@jit
def merge_sorted(keys, added, positions, lcp, added_lcp, source, out_lcp, limit):
    """Merge two sorted sets of keys: source[i] is k for old key k, -1 - j for new key j.

    positions: upper bounds of `added` in `keys`; lcp, added_lcp: lcp of neighbours within each set.
    Writes source and out_lcp (except out_lcp[0]), (n + k,). Old keys come before equal new ones.
    """
    n, k = keys.shape[0], added.shape[0]
    i, j = 0, 0
    for place in range(n + k):
        take_new = j < k and positions[j] <= i
        if take_new:
            source[place] = -1 - j
        else:
            source[place] = i
        if place > 0:
            last = source[place - 1]
            if take_new and last < 0:
                out_lcp[place] = added_lcp[j]
            elif take_new:
                out_lcp[place] = key_lcp(keys, last, added, j, limit)
            elif last < 0:
                out_lcp[place] = key_lcp(keys, i, added, -1 - last, limit)
            else:
                out_lcp[place] = lcp[i]
        if take_new:
            j += 1
        else:
            i += 1
