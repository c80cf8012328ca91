"""Find where new keys leave the trie, and the posterior there, on the device; one query per thread.

Keys are uint64 (n, words), first bit most significant, sorted. All arrays are on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from triegp.engines.cuda.card import device, kernel, launch, to_device, xp
from triegp.engines.cuda.steps import merge
from triegp.engines.records import Array, Floats, Ids, Ints, Links, Located, Words


@device
def _above(keys, i, query, j):
    """Whether keys[i] > query[j], lexicographically."""
    for w in range(keys.shape[1]):
        if keys[i, w] != query[j, w]:
            return keys[i, w] > query[j, w]
    return False


@device
def _leading_zeros(word):
    """Number of leading zeros of a non-zero uint64."""
    count = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(64 - step) == np.uint64(0):
            word <<= np.uint64(step)
            count += step
    return count


@device
def key_lcp(keys, i, query, j, limit):
    """Number of leading bits that two keys share, at most `limit`."""
    for w in range(keys.shape[1]):
        diff = keys[i, w] ^ query[j, w]
        if diff != np.uint64(0):
            shared = 64 * w + _leading_zeros(diff)
            return shared if shared < limit else limit
    return limit


@kernel
def _upper_bounds(keys, query, out):
    """out[j] = number of keys <= query[j]; keys are sorted."""
    j = cuda.grid(1)
    if j < out.size:
        low, high = 0, keys.shape[0]
        while low < high:
            middle = (low + high) // 2
            if _above(keys, middle, query, j):
                high = middle
            else:
                low = middle + 1
        out[j] = low


def upper_bounds(keys: Words, query: Words) -> Ints:
    """Number of keys <= query[j] for each j, int64 (m,); keys are sorted."""
    positions = xp.empty(len(query), np.int64)
    launch(_upper_bounds, len(query), keys, query, positions)
    return positions  # type: ignore[no-any-return]


@kernel
def _locate(keys, query, positions, depth, left, right, root, limit, node, above, leaves_at):
    """Where query keys leave the trie: on the edge above `node`, below depth `above`.

    positions: int64 (m,), from `upper_bounds`. Writes node, above and leaves_at, int32 (m,).
    leaves_at is the depth at which the key leaves that edge, or `limit` if the key ends on a leaf.
    """
    j = cuda.grid(1)
    if j < node.size:
        n = keys.shape[0]
        p = positions[j]
        with_left, with_right = -1, -1
        if p > 0:
            with_left = key_lcp(keys, p - 1, query, j, limit)
        if p < n:
            with_right = key_lcp(keys, p, query, j, limit)
        go_left = with_left < with_right  # then the key follows the leftmost path right of p
        at = with_right if go_left else with_left
        here, up = root, 0
        if p > 0 and p < n:
            here, up = (right[p] if go_left else left[p]), depth[n + p]
        while depth[here] < at:
            up = depth[here]
            here = left[here - n] if go_left else right[here - n]
        node[j] = here
        above[j] = up
        leaves_at[j] = at


def locate(links: Links, keys: Words, query: Words, row_idx: Ids) -> Located:
    """Where each of the sorted query keys leaves the trie."""
    positions = upper_bounds(keys, query)
    node, above, leaves_at = (xp.empty(len(query), np.int32) for _ in range(3))
    tree = (links.depth, links.left, links.right, links.root, links.n_levels)
    launch(_locate, len(query), keys, query, positions, *tree, node, above, leaves_at)
    return Located(row_idx, node, above, leaves_at)


@kernel
def _predict(row_idx, node, above, leaves_at, depth, levels, m, s, mo, so, with_var, mean, var):
    """Posterior mean and variance of f where keys leave the trie, written at row_idx."""
    j = cuda.grid(1)
    if j < node.size:
        c = node[j]
        at = levels[leaves_at[j]]
        s_in = s[c] + (at - levels[depth[c]])
        s_out = so[c] + (levels[above[j]] - at)
        here, spread, _r1, _r2 = merge(np.float64(mo[c]), s_out, np.float64(m[c]), s_in)
        mean[row_idx[j]] = here
        if with_var:
            var[row_idx[j]] = spread + (at - levels[levels.size - 1])


def predict(
    links: Links,
    levels: Floats,
    located: Located,
    inside: tuple[Array, Array],
    outside: tuple[Array, Array],
    with_var: bool,
) -> tuple[Floats, Floats | None]:
    """Mean and variance of f at located keys, in the order of the new rows."""
    n_new = located.node.size
    where = (located.row_idx, located.node, located.above, located.leaves_at)
    known = (links.depth, to_device(levels, np.float64), *inside, *outside)
    mean, var = xp.empty(n_new), xp.empty(n_new if with_var else 1)
    launch(_predict, n_new, *where, *known, with_var, mean, var)
    return mean, var if with_var else None


@kernel
def _interleave(positions, n_old, source):
    """Position of every key in the union, old keys before equal new ones: source, int64 (n + k,).

    positions: upper bounds of the new keys in the old ones. source[position] is i for old key i and
    -1 - j for new key j.
    """
    t = cuda.grid(1)
    if t < n_old:
        low, high = 0, positions.size  # low becomes the number of new keys before old key t
        while low < high:
            middle = (low + high) // 2
            if positions[middle] > t:
                high = middle
            else:
                low = middle + 1
        source[t + low] = t
    elif t < source.size:
        j = t - n_old
        source[positions[j] + j] = -1 - j


@kernel
def _union_lcp(keys, added, lcp, added_lcp, source, out, limit):
    """The lcp of neighbours in the union, int32 (n + k,); out[0] = -1."""
    place = cuda.grid(1)
    if place == 0:
        out[0] = -1
    elif place < source.size:
        last, here = source[place - 1], source[place]
        if here < 0 and last < 0:
            out[place] = added_lcp[-1 - here]
        elif here < 0:
            out[place] = key_lcp(keys, last, added, -1 - here, limit)
        elif last < 0:
            out[place] = key_lcp(keys, here, added, -1 - last, limit)
        else:
            out[place] = lcp[here]


def merge_keys(
    keys: Words, lcp: Ids, added: Words, added_lcp: Ids, n_levels: int
) -> tuple[Ints, Ids]:
    """Merge two sorted sets of keys: source (i old, -1 - j new) and lcp of their union."""
    n_old, total = len(keys), len(keys) + len(added)
    source: Any = xp.empty(total, np.int64)
    out: Any = xp.empty(total, np.int32)
    launch(_interleave, total, upper_bounds(keys, added), n_old, source)
    launch(_union_lcp, total, keys, added, lcp, added_lcp, source, out, n_levels)
    return source, out
