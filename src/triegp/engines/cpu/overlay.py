"""A few new rows in many tries, by path copying: the tries themselves do not change.

A new row changes the messages on one path of a trie, from its leaf to the root. The nodes of that
path are copied with their new messages, and all other subtrees are shared with the trie below. Ids
below 2n are those of the trie (see `linking`), and id 2n + j is node j of the overlay. Overlay
nodes of full depth D are leaves: `left` is the number of a new row with their key, and `right`
tells whether they stand for one observation. A new key that is already there is merged into its
leaf.

Outside messages are derived on the way down, when a row is predicted. All tries are read at their
addresses, so that one call serves all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.np.numpy_support import carray

from triegp.engines import messages
from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.cpu.paths import pointer
from triegp.engines.cpu.search import key_lcp
from triegp.engines.cpu.threads import run_each
from triegp.engines.records import Array, Floats, Ids, Ints, Links, Words

# numba's cache on disk does not notice changes in `messages`: clear it after one.
merge = inline(messages.merge)

FIRST_NODES = 1 << 10  # nodes per trie that a new overlay has room for
FIRST_ROWS = 1 << 5  # rows, the same


class Tries(NamedTuple):
    """Tries over the same n rows with the messages of k targets, at their addresses.

    Attributes
    ----------
    places : int64 (T, 11)
        For each trie: n, D, the words of a key, the size of `levels`, and the addresses of keys,
        depth, left, right, levels, row_idx and the numbers of observations (0 if all are 1).
    inside : int64 (T, k, 2)
        Addresses of the inside messages, mean and variance, of each target.
    roots : int64 (T,)
        Ids of the roots.
    kept : tuple
        The arrays, so that their addresses stay valid.
    """

    places: Ints
    inside: Ints
    roots: Ints
    kept: tuple[Any, ...]


class Nodes(NamedTuple):
    """Nodes and keys of an overlay; rows and nodes are only ever appended.

    depth, left, right: int32 (T, room). m, s: float64 (T, room, k). keys: uint64 (T, rows, w).
    """

    depth: Ids
    left: Ids
    right: Ids
    m: Floats
    s: Floats
    keys: Words


class Overlay(NamedTuple):
    """New rows over tries.

    Attributes
    ----------
    nodes : Nodes
        Shared with earlier overlays, which use fewer of them.
    roots : int64 (T,)
        Ids of the roots, of the tries or of the overlay.
    n_nodes : int64 (T,)
        Nodes in use, per trie.
    n_rows : int
        New rows.
    ticket : list
        Not empty until rows are appended to `nodes`. Who appends takes the ticket; everyone else
        copies the nodes first.
    """

    nodes: Nodes
    roots: Ints
    n_nodes: Ints
    n_rows: int
    ticket: list[bool]


def hold_tries(
    links: Sequence[Links],
    keys: Sequence[Words],
    levels: Sequence[Floats],
    row_idx: Sequence[Ids],
    counts: Sequence[Floats | None],
    inside: Sequence[Sequence[tuple[Array, Array]]],
) -> Tries:
    """Tries with their sorted keys (n, w), levels, rows, and float64 messages of each target.

    counts: how many observations each row stands for, (n,), None if each is one.
    """
    places = np.zeros((len(links), 11), np.int64)
    addresses = np.zeros((len(links), len(inside[0]), 2), np.int64)
    kept: list[Any] = []

    def address(array: Array, dtype: Any) -> int:
        held = np.ascontiguousarray(array, dtype)
        kept.append(held)
        return int(held.ctypes.data)

    for t, own in enumerate(links):
        count = counts[t]
        places[t, :4] = own.n_rows, own.n_levels, keys[t].shape[1], levels[t].size
        places[t, 4:] = (
            address(keys[t], np.uint64),
            address(own.depth, np.int32),
            address(own.left, np.int32),
            address(own.right, np.int32),
            address(levels[t], np.float64),
            address(row_idx[t], np.int32),
            0 if count is None else address(count, np.float64),
        )
        for j, pair in enumerate(inside[t]):
            addresses[t, j] = [address(part, np.float64) for part in pair]
    roots = np.array([own.root for own in links], np.int64)
    return Tries(places, addresses, roots, tuple(kept))


def new_overlay(tries: Tries) -> Overlay:
    """No rows yet."""
    n_tries, n_targets, _ = tries.inside.shape
    shape, n_words = (n_tries, FIRST_NODES), int(tries.places[:, 2].max())
    depth, left, right = (np.zeros(shape, np.int32) for _ in range(3))
    m, s = np.zeros((*shape, n_targets)), np.zeros((*shape, n_targets))
    keys: Words = np.zeros((n_tries, FIRST_ROWS, n_words), np.uint64)
    nodes = Nodes(depth, left, right, m, s, keys)
    return Overlay(nodes, tries.roots, np.zeros(n_tries, np.int64), 0, [True])


def append_rows(
    tries: Tries,
    overlay: Overlay,
    keys: Words,
    y: Floats,
    variance: Floats,
    single: Array,
    n_threads: int,
) -> Overlay:
    """The overlay with k more rows; `overlay` stays as it is. O(k D) per trie.

    keys: uint64 (k, w, T). y: float64 (k, n_targets). variance: float64 (T, k, n_targets), noise
    over weight. single: bool (k,), whether each row stands for one observation.
    """
    first, k = overlay.n_rows, y.shape[0]
    try:
        overlay.ticket.pop()
        nodes = overlay.nodes
    except IndexError:  # someone else has appended to these nodes
        nodes = Nodes._make(part.copy() for part in overlay.nodes)
    if first + k > nodes.keys.shape[1]:
        nodes = nodes._replace(keys=_lengthen(nodes.keys, 2 * (first + k)))
    nodes.keys[:, first : first + k, : keys.shape[1]] = keys.transpose(2, 0, 1)
    roots, n_nodes, done = overlay.roots.copy(), overlay.n_nodes.copy(), np.zeros_like(tries.roots)
    shares = _shares(tries, n_threads)

    def append(some: slice) -> None:
        own = (tries.places[some], tries.inside[some], variance[some], overlay.n_nodes[some])
        rest = (part[some] for part in (*nodes, roots, n_nodes, done))
        graft(*own, y, single, first, *rest)

    while True:
        run_each(append, shares, n_threads)
        if (done == k).all():
            return Overlay(nodes, roots, n_nodes, first + k, [True])
        room = 2 * nodes.depth.shape[1]
        nodes = Nodes._make([*(_lengthen(part, room) for part in nodes[:-1]), nodes.keys])


def predict_rows(
    tries: Tries, overlay: Overlay, keys: Words, column: int, apart: bool, n_threads: int
) -> tuple[Floats, Floats, Floats]:
    """Mean and variance of f, and the part of the variance that is its run, (T, m) each. O(m T D).

    keys: uint64 (m, w, T). apart: as for `triegp.tree.predict`.
    """
    mean, var, run = np.empty((3, tries.roots.size, keys.shape[0]))
    query = np.ascontiguousarray(keys.transpose(2, 0, 1))
    read = (tries.places, tries.inside, *overlay.nodes, overlay.roots, query)

    def ask(some: slice) -> None:
        own = (part[some] for part in read)
        descend(*own, column, apart, mean[some], var[some], run[some])

    run_each(ask, _shares(tries, n_threads), n_threads)
    return mean, var, run


def _shares(tries: Tries, n_threads: int) -> list[slice]:
    """The tries, divided among threads."""
    n_tries = tries.roots.size
    step = -(-n_tries // n_threads)
    return [slice(first, first + step) for first in range(0, n_tries, step)]


def _lengthen(array: Array, room: int) -> Array:
    """The array (T, n, ...) with room for more in its second axis."""
    out = np.zeros((array.shape[0], room, *array.shape[2:]), array.dtype)
    out[:, : array.shape[1]] = array
    return out


@jit
def _bit(keys, i, level):
    """Bit `level` of a key."""
    return (keys[i, level >> 6] >> np.uint64(63 - (level & 63))) & np.uint64(1) != 0


@jit
def _follow(query, i, at, limit, trie, own, path):
    """The ids from the root `at` down to a leaf, by the bits of query[i], which may not be there.

    Returns their number, and the lcp of the query with that leaf's key.
    """
    old_keys, old_depth, old_left, old_right = trie
    keys, depth, left, right = own
    size = old_depth.size
    count = 0
    while True:
        path[count] = at
        count += 1
        new = at >= size
        here = depth[at - size] if new else old_depth[at]
        if here == limit:
            break
        if _bit(query, i, np.int64(here)):
            at = right[at - size] if new else old_right[at - size // 2]
        else:
            at = left[at - size] if new else old_left[at - size // 2]
    if at >= size:
        return count, key_lcp(keys, np.int64(left[at - size]), query, i, limit)
    return count, key_lcp(old_keys, at % (size // 2), query, i, limit)


@jit
def graft(
    places,
    inside,
    variance,
    start,
    y,
    single,
    first,
    depth,
    left,
    right,
    m,
    s,
    keys,
    roots,
    n_nodes,
    done,
):
    """Append rows done[t].. of each trie until all are in, or until there is no more room.

    Nodes from start[t] on belong to this call alone and are changed in place. y: float64 (k,
    n_targets); variance: float64 (T, k, n_targets); row i has key keys[t, first + i].
    """
    n_targets = y.shape[1]
    for t in range(places.shape[0]):
        n, limit, w, n_levels = places[t, 0], places[t, 1], places[t, 2], places[t, 3]
        old_keys = carray(pointer(places[t, 4]), (n, w), np.uint64)
        old_depth = carray(pointer(places[t, 5]), (2 * n,), np.int32)
        old_left = carray(pointer(places[t, 6]), (n,), np.int32)
        old_right = carray(pointer(places[t, 7]), (n,), np.int32)
        levels = carray(pointer(places[t, 8]), (n_levels,), np.float64)
        trie = (old_keys, old_depth, old_left, old_right)
        own = (keys[t], depth[t], left[t], right[t])
        size = 2 * n
        path = np.empty(limit + 1, np.int64)
        for i in range(done[t], y.shape[0]):
            count, lcp = _follow(keys[t], first + i, roots[t], limit, trie, own, path)
            if n_nodes[t] + count + 1 > depth.shape[1]:
                break
            place = count - 1  # on the path, of the node above which the key leaves
            while place > 0:
                above = path[place - 1]
                up = depth[t, above - size] if above >= size else old_depth[above]
                if up < lcp:
                    break
                place -= 1
            below = path[place]
            if lcp < limit or below < size + start[t]:
                leaf = n_nodes[t]
                n_nodes[t] += 1
            else:
                leaf = below - size
            depth[t, leaf] = limit
            left[t, leaf] = first + i
            right[t, leaf] = 1 if lcp < limit and single[i] else 0
            for j in range(n_targets):
                value, spread = y[i, j], variance[t, i, j]
                if lcp == limit:  # the key is there: rows with one key are one leaf
                    m0, s0 = _message(inside, t, j, size, below, m, s)
                    value, spread, _, _ = merge(m0, s0, value, spread)
                m[t, leaf, j] = value
                s[t, leaf, j] = spread
            child = size + leaf
            # The node at which the key leaves, if it is new, then those above.
            for up in range(place if lcp < limit else place - 1, -1, -1):
                at = path[up]
                if up == place:
                    here, one, two = lcp, below, below
                elif at >= size:
                    here, one, two = depth[t, at - size], left[t, at - size], right[t, at - size]
                else:
                    here, one, two = old_depth[at], old_left[at - n], old_right[at - n]
                if up < place and at >= size + start[t]:
                    node = at - size
                else:
                    node = n_nodes[t]
                    n_nodes[t] += 1
                turns = _bit(keys[t], first + i, np.int64(here))
                depth[t, node] = here
                left[t, node] = one if turns else child
                right[t, node] = child if turns else two
                _meet(inside, t, size, levels, old_depth, depth, left, right, m, s, node)
                child = size + node
            roots[t] = child
            done[t] = i + 1


@jit
def _message(inside, t, j, size, at, m, s):
    """The inside message of target j at an id."""
    if at >= size:
        return m[t, at - size, j], s[t, at - size, j]
    mean = carray(pointer(inside[t, j, 0]), (size,), np.float64)
    var = carray(pointer(inside[t, j, 1]), (size,), np.float64)
    return mean[at], var[at]


@jit
def _meet(inside, t, size, levels, old_depth, depth, left, right, m, s, node):
    """Messages of an overlay node from those of its children."""
    one, two = np.int64(left[t, node]), np.int64(right[t, node])
    at = levels[depth[t, node]]
    v1 = at - levels[depth[t, one - size] if one >= size else old_depth[one]]
    v2 = at - levels[depth[t, two - size] if two >= size else old_depth[two]]
    for j in range(inside.shape[1]):
        m1, s1 = _message(inside, t, j, size, one, m, s)
        m2, s2 = _message(inside, t, j, size, two, m, s)
        m[t, node, j], s[t, node, j], _, _ = merge(m1, s1 + v1, m2, s2 + v2)


@jit
def descend(
    places, inside, depth, left, right, m, s, keys, roots, query, column, apart, mean, var, run
):
    """Posterior of f at query (T, m, w): outside messages from the root down, then the inside one.

    Writes mean, var and run, float64 (T, m).
    """
    for t in range(places.shape[0]):
        n, limit, w, n_levels = places[t, 0], places[t, 1], places[t, 2], places[t, 3]
        old_keys = carray(pointer(places[t, 4]), (n, w), np.uint64)
        old_depth = carray(pointer(places[t, 5]), (2 * n,), np.int32)
        old_left = carray(pointer(places[t, 6]), (n,), np.int32)
        old_right = carray(pointer(places[t, 7]), (n,), np.int32)
        levels = carray(pointer(places[t, 8]), (n_levels,), np.float64)
        row_idx = carray(pointer(places[t, 9]), (n,), np.int32)
        trie = (old_keys, old_depth, old_left, old_right)
        own = (keys[t], depth[t], left[t], right[t])
        size = 2 * n
        path = np.empty(limit + 1, np.int64)
        for i in range(query.shape[1]):
            _, lcp = _follow(query[t], i, roots[t], limit, trie, own, path)
            m0, s0, above, k = 0.0, 0.0, 0, 0
            at = path[0]
            here = depth[t, at - size] if at >= size else old_depth[at]
            while here < lcp:
                k += 1
                new, low = at >= size, path[k]
                other = left[t, at - size] if new else old_left[at - n]
                if other == low:
                    other = right[t, at - size] if new else old_right[at - n]
                other = np.int64(other)
                beside = depth[t, other - size] if other >= size else old_depth[other]
                m2, s2 = _message(inside, t, column, size, other, m, s)
                s2 += levels[here] - levels[beside]
                s0 += levels[above] - levels[here]
                m0, s0, _, _ = merge(m0, s0, m2, s2)
                above, at = here, low
                here = depth[t, at - size] if at >= size else old_depth[at]
            end = lcp
            if apart and lcp == limit:
                once = False
                if at >= size:
                    once = right[t, at - size] != 0
                elif at < n:
                    once = True
                    if places[t, 10] != 0:
                        counts = carray(pointer(places[t, 10]), (n,), np.float64)
                        once = counts[row_idx[at]] <= 1.0
                if once:
                    end = above
            m1, s1 = _message(inside, t, column, size, at, m, s)
            s1 += levels[end] - levels[here]
            s0 += levels[above] - levels[end]
            mean[t, i], spread, _, _ = merge(m0, s0, m1, s1)
            run[t, i] = levels[end] - levels[n_levels - 1]
            var[t, i] = spread + run[t, i]
