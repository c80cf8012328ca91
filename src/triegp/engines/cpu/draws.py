"""One function drawn from a tree, evaluated at any keys: a walk down from the root.

From depth i to i + 1 the value of a function changes by a normal that is keyed by the seed of the
function and the first i + 1 bits of the key. So its values do not depend on the other keys.
"""

from __future__ import annotations

import numpy as np

from triegp.engines import messages
from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.cpu.keyed import GOLDEN, mix, normal
from triegp.engines.cpu.threads import run_each, thread_blocks
from triegp.engines.records import Array, Floats, Ids, Links, Located, Words

AT_ONCE = 16  # functions that are evaluated together
NO_NODE = -1

condition = inline(messages.condition)


def walk_prior(query: Words, lcp: Ids, levels: Floats, seeds: Words, n_threads: int) -> Floats:
    """Functions drawn from the prior at m sorted keys, float64 (m, k), in key order. O(m D k).

    Parameters
    ----------
    query : uint64 (m, words)
        Keys, sorted.
    lcp : int32 (m,)
        Number of bits that each shares with the one before.
    levels : float64 (D + 1,)
        R(0..D).
    seeds : uint64 (k,)
        One per function.
    n_threads : int
        Threads; results do not depend on it.
    """
    nothing, nowhere = np.zeros(0), np.zeros(0, np.int32)
    start = np.zeros(len(query), np.int32)
    tree = (nowhere, nowhere, nowhere, NO_NODE, nothing, nothing)
    found: Floats = _walk(query, lcp, start, levels, tree, seeds, n_threads)
    return found


def walk_posterior(
    query: Words,
    lcp: Ids,
    located: Located,
    links: Links,
    levels: Floats,
    inside: tuple[Array, Array],
    seeds: Words,
    n_threads: int,
) -> Floats:
    """Functions drawn from the posterior at m sorted keys, (m, k), in key order; see `walk_prior`.

    located: where the keys leave the trie. inside: (m, s) of all ids.
    """
    tree = (links.depth, links.left, links.right, links.root, *inside)
    found: Floats = _walk(query, lcp, located.leaves_at, levels, tree, seeds, n_threads)
    return found


def _walk(query, lcp, leaves_at, levels, tree, seeds, n_threads):
    """Walk down blocks of keys, a few functions at a time."""
    out = np.empty((len(query), seeds.size))
    starts = range(0, seeds.size, AT_ONCE)
    work = [(b, k) for b in thread_blocks(len(query)) for k in starts]

    def walk(item):
        (lo, hi), first = item
        some = slice(first, min(first + AT_ONCE, seeds.size))
        values = np.empty((levels.size, seeds[some].size))
        path = np.empty(levels.size, np.int32)
        rest = (seeds[some], lo, hi, values, path, out[:, some])
        walk_keys(query, lcp, leaves_at, levels, *tree, *rest)

    run_each(walk, work, n_threads)
    return out


@jit
def walk_keys(
    query, lcp, leaves_at, levels, depth, left, right, root, m, s, seeds, lo, hi, values, path, out
):
    """Values of functions at keys lo..hi, written to out (m, k).

    values: float64 (D + 1, k) and path: int32 (D + 1,), scratch. At depth i of the last key, they
    hold the values there, and the id at the lower end of the edge that contains this depth. A key
    goes on where it parts from the one before.
    """
    n, n_levels, n_draws = left.size, levels.size - 1, seeds.size
    one = np.uint64(1)
    for d in range(n_draws):
        values[0, d] = 0.0
    path[0] = root
    for j in range(lo, hi):
        start = lcp[j] if j > lo else 0
        before = np.uint64(0)  # hash of the words that are whole
        for w in range(start >> 6):
            before = mix(before + query[j, w] + GOLDEN)
        for i in range(start, n_levels):
            word = query[j, i >> 6]
            at = np.uint64(63 - (i & 63))
            on_trie = i < leaves_at[j]
            if on_trie:
                here = path[i]
                if depth[here] == i:
                    here = right[here - n] if (word >> at) & one else left[here - n]
                path[i + 1] = here
            v = levels[i] - levels[i + 1]
            if v > 0.0:
                prefix = (word >> at) << at
                name = mix(before + prefix) + np.uint64(i + 1) * GOLDEN
                if on_trie:
                    spread = s[here] + (levels[i + 1] - levels[depth[here]])
                    gain, shift, var = condition(np.float64(m[here]), spread, v)
                else:
                    gain, shift, var = 1.0, 0.0, v
                sd = np.sqrt(var)
                for d in range(n_draws):
                    step = sd * normal(mix(name + seeds[d]))
                    values[i + 1, d] = gain * values[i, d] + shift + step
            else:
                for d in range(n_draws):
                    values[i + 1, d] = values[i, d]
            if at == 0:
                before = mix(before + word + GOLDEN)
        for d in range(n_draws):
            out[j, d] = values[n_levels, d]
