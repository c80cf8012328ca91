"""Approximate nearest neighbours: a forest of balanced trees cut by random hyperplanes.

A node's direction is the unit vector between two of its rows, drawn at random. Its rows are cut at
the median of their projections, so the layout is implicit: node k has the children 2k + 1 and
2k + 2, and every leaf is a range of a permutation of the rows. The ranges depend on the number of
rows alone. A query visits the leaves of all trees in the order of a lower bound of their distance,
until it has seen enough rows. The result depends on the seed, but not on the number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines.cpu.compiler import inline, jit
from triegp.engines.cpu.threads import run_each

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

N_TREES = 6
LEAF_ROWS = 64
CANDIDATES, FEWEST_CANDIDATES = 17, 256  # rows compared with a query: per neighbour, at least
QUERIES_PER_BLOCK = 1024
DRAWS = 8  # of a pair of rows that differ


@dataclass(frozen=True, eq=False)
class Index:
    """Trees over the rows of a matrix, which is not kept.

    Attributes
    ----------
    directions : float64 (n_trees, n_nodes, d)
        Unit vectors; 0 in nodes whose rows are all equal. n_nodes is 2**depth - 1.
    thresholds : float64 (n_trees, n_nodes)
        A query goes left if its projection is below.
    rows : int32 (n_trees, n)
        Rows in the order of the leaves.
    starts : int32 (n_leaves + 1,)
        Leaf l holds rows[t, starts[l] : starts[l + 1]] in tree t.
    """

    directions: Floats
    thresholds: Floats
    rows: Ints
    starts: Ints

    @property
    def n_rows(self) -> int:
        """Number of rows in the index."""
        return int(self.rows.shape[1])

    @property
    def n_leaves(self) -> int:
        """Number of leaves of a tree."""
        return self.starts.size - 1

    def leaf(self, number: int) -> Ints:
        """Rows of a leaf of tree 0."""
        return self.rows[0, self.starts[number] : self.starts[number + 1]]


def build_index(
    U: Floats,
    n_trees: int = N_TREES,
    leaf_rows: int = LEAF_ROWS,
    seed: int = 0,
    n_threads: int = 1,
) -> Index:
    """Trees over the rows of U (n, d), leaves of at most leaf_rows rows. O(n_trees d n log n)."""
    n, d = U.shape
    depth = 0
    while n > leaf_rows << depth:
        depth += 1
    starts = np.array([0, n])
    for _ in range(depth):
        middle = (starts[:-1] + starts[1:]) // 2
        starts = np.insert(starts, np.arange(1, starts.size), middle)
    n_nodes = (1 << depth) - 1
    index = Index(
        np.zeros((n_trees, n_nodes, d)),
        np.zeros((n_trees, n_nodes)),
        np.empty((n_trees, n), dtype=np.int32),
        starts.astype(np.int32),
    )
    U = np.ascontiguousarray(U, dtype=np.float64)
    seeds = np.random.SeedSequence(seed).generate_state(n_trees, np.uint64)

    def plant(t: int) -> None:
        grow_tree(U, seeds[t], index.directions[t], index.thresholds[t], index.rows[t])

    run_each(plant, range(n_trees), n_threads)
    return index


def nearest_rows(
    index: Index,
    U: Floats,
    query: Floats,
    k: int,
    n_threads: int = 1,
    n_candidates: int | None = None,
    limits: Any = None,
) -> Ints:
    """The k rows of U (n, d) nearest to each query (m, d): int32 (m, k), nearest first.

    U begins with the rows that the index was built over. Each query is compared with all rows after
    those. limits: int64 (m,), if only the first limits[i] rows are searched for query i. Equal
    distances are ordered by row number; missing neighbours are -1. A query that equals a row finds
    that row. n_candidates: rows compared with a query, by default 17 k, at least 256. Exact if the
    index has at most max(n_candidates, 4 k) rows.
    """
    m, n_candidates = query.shape[0], candidates_for(k) if n_candidates is None else n_candidates
    out = np.empty((m, k), dtype=np.int32)
    if limits is None:
        limits = np.full(m, U.shape[0])
    queries = by_leaf(index, query)  # what they read is near, too
    _search(index, U, query, queries, limits[queries], n_candidates, out, n_threads)
    return out


def earlier_rows(
    U: Floats, k: int, seed: int = 0, n_threads: int = 1, n_candidates: int | None = None
) -> Ints:
    """The k rows before row i nearest to it, for every row of U (n, d): int32 (n, k), padded by -1.

    The order of the rows should be random, or sorted within its halves. Rows n / 2^(j + 1) to
    n / 2^j search the first n / 2^j rows. Exact for the first max(n_candidates, 4 k) rows.
    """
    n, n_candidates = U.shape[0], candidates_for(k) if n_candidates is None else n_candidates
    U = np.ascontiguousarray(U, dtype=np.float64)
    out = np.empty((n, k), dtype=np.int32)
    last = n
    while last > 0:
        first = last // 2 if last > max(n_candidates, 4 * k) else 0
        prefix = U[:last]
        index = build_index(prefix, seed=seed, n_threads=n_threads)
        queries = index.rows[0][index.rows[0] >= first]  # by leaves: what they read is near, too
        _search(index, prefix, prefix, queries, queries, n_candidates, out, n_threads)
        last = first
    return out


def by_leaf(index: Index, query: Floats) -> Any:
    """Numbers of the queries (m, d) by leaf of tree 0, int64 (m,): close ones follow each other."""
    leaf = np.empty(query.shape[0], dtype=np.int32)
    query = np.ascontiguousarray(query, dtype=np.float64)
    find_leaves(index.directions[0], index.thresholds[0], query, leaf)
    return np.argsort(leaf, kind="stable")


def candidates_for(k: int) -> int:
    """Rows compared with a query for k neighbours."""
    return max(CANDIDATES * k, FEWEST_CANDIDATES)


def _search(
    index: Index,
    U: Floats,
    query: Floats,
    queries: Any,
    limits: Any,
    n_candidates: int,
    out: Ints,
    n_threads: int,
) -> None:
    """out[i] = rows nearest to query[i] and below limits, for the i in queries, in parallel."""
    n_candidates = max(n_candidates, 4 * out.shape[1])
    if out.shape[1] == 0:
        return
    U = np.ascontiguousarray(U, dtype=np.float64)
    query = np.ascontiguousarray(query, dtype=np.float64)

    def search(lo: int) -> None:
        hi = min(lo + QUERIES_PER_BLOCK, queries.size)
        search_leaves(
            index.directions,
            index.thresholds,
            index.rows,
            index.starts,
            U,
            query,
            queries[lo:hi],
            limits[lo:hi],
            n_candidates,
            out,
        )

    run_each(search, range(0, queries.size, QUERIES_PER_BLOCK), n_threads)


@inline
def _next(state):
    """A step of splitmix64: the new state and 64 random bits."""
    state += np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, z ^ (z >> np.uint64(31))


@jit
def grow_tree(U, seed, directions, thresholds, rows):
    """Fill in one tree: directions (n_nodes, d), thresholds (n_nodes,), rows (n,)."""
    n, d = U.shape
    n_nodes = thresholds.size
    state = np.uint64(seed)
    for i in range(n):
        rows[i] = i
    first, last = np.empty(2 * n_nodes + 1, np.int64), np.empty(2 * n_nodes + 1, np.int64)
    first[0], last[0] = 0, n
    value = np.empty(n)
    for node in range(n_nodes):
        lo, hi = first[node], last[node]
        mid = (lo + hi) // 2
        first[2 * node + 1], last[2 * node + 1] = lo, mid
        first[2 * node + 2], last[2 * node + 2] = mid, hi
        length = 0.0
        for _ in range(DRAWS):
            state, bits = _next(state)
            a = rows[lo + np.int64(bits % np.uint64(hi - lo))]
            state, bits = _next(state)
            b = rows[lo + np.int64(bits % np.uint64(hi - lo))]
            length = 0.0
            for j in range(d):
                directions[node, j] = U[a, j] - U[b, j]
                length += directions[node, j] * directions[node, j]
            if length > 0:
                break
        if length > 0:
            for j in range(d):
                directions[node, j] /= math.sqrt(length)
        for i in range(lo, hi):
            value[i] = _project(directions[node], U[rows[i]])
        _halve(value, rows, lo, mid, hi)
        thresholds[node] = value[mid]


@jit
def _halve(value, rows, lo, mid, hi):
    """Reorder value[lo:hi], and rows with it, so that value[mid] is where sorting would put it."""
    hi -= 1
    while lo < hi:
        pivot = value[(lo + hi) // 2]
        i, j = lo, hi
        while i <= j:
            while value[i] < pivot:
                i += 1
            while value[j] > pivot:
                j -= 1
            if i <= j:
                value[i], value[j] = value[j], value[i]
                rows[i], rows[j] = rows[j], rows[i]
                i += 1
                j -= 1
        if mid <= j:
            hi = j
        elif mid >= i:
            lo = i
        else:
            return


@jit
def _project(direction, row):
    """direction . row."""
    value = 0.0
    for j in range(direction.size):
        value += direction[j] * row[j]
    return value


@jit
def _square_distance(u, v):
    """|u - v|^2, in four sums that do not wait for each other."""
    d = u.size
    a, b, c, e = 0.0, 0.0, 0.0, 0.0
    j = 0
    while j + 4 <= d:
        a += (u[j] - v[j]) * (u[j] - v[j])
        b += (u[j + 1] - v[j + 1]) * (u[j + 1] - v[j + 1])
        c += (u[j + 2] - v[j + 2]) * (u[j + 2] - v[j + 2])
        e += (u[j + 3] - v[j + 3]) * (u[j + 3] - v[j + 3])
        j += 4
    while j < d:
        a += (u[j] - v[j]) * (u[j] - v[j])
        j += 1
    return (a + b) + (c + e)


@jit
def find_leaves(directions, thresholds, query, out):
    """out[i] = leaf of query i in one tree."""
    n_nodes = thresholds.size
    for i in range(query.shape[0]):
        node = 0
        while node < n_nodes:
            right = _project(directions[node], query[i]) >= thresholds[node]
            node = 2 * node + 2 if right else 2 * node + 1
        out[i] = node - n_nodes


@jit
def _insert(square, row, best, found, count):
    """Add a row to the sorted neighbours best (squares) and found (rows). Returns their number."""
    k = found.size
    at = count if count < k else k - 1
    while at > 0 and (best[at - 1] > square or (best[at - 1] == square and found[at - 1] > row)):
        best[at], found[at] = best[at - 1], found[at - 1]
        at -= 1
    best[at], found[at] = square, row
    return min(count + 1, k)


@jit
def _push(bounds, nodes, size, bound, node):
    """Add an entry to a binary heap of `size` entries, smallest bound first."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if bounds[up] <= bound:
            break
        bounds[at], nodes[at] = bounds[up], nodes[up]
        at = up
    bounds[at], nodes[at] = bound, node


@jit
def _pop(bounds, nodes, size):
    """Remove the first entry of a heap of `size` entries; what it was has been read."""
    bound, node = bounds[size - 1], nodes[size - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and bounds[child + 1] < bounds[child]:
            child += 1
        if bounds[child] >= bound:
            break
        bounds[at], nodes[at] = bounds[child], nodes[child]
        at = child
    bounds[at], nodes[at] = bound, node


@jit
def search_leaves(
    directions, thresholds, rows, starts, U, query, queries, limits, n_candidates, out
):
    """out[i] = rows below the limit nearest to query[i], for the i in queries; see `_search`.

    A node's bound is the largest distance of the query from a hyperplane beyond which it lies.
    """
    n_trees, n = rows.shape
    n_nodes = thresholds.shape[1]
    k = out.shape[1]
    best = np.empty(k)
    found = np.empty(k, np.int32)
    bounds = np.empty(n_trees * (n_nodes + 1))
    nodes = np.empty(n_trees * (n_nodes + 1), np.int64)
    size = 1
    while size < 2 * (n_candidates + starts[starts.size - 1] - starts[starts.size - 2]):
        size *= 2
    seen = np.empty(size, np.int32)  # hash set of the rows compared, at most half full
    n_codes = 2 * n_nodes + 1  # nodes and leaves of a tree
    for q in range(queries.size):
        i = queries[q]
        limit = limits[q]
        count = 0
        others = 0  # the first row that is not in the trees
        if min(limit, n) > n_candidates:
            others = n
            seen[:] = -1
            n_seen = 0
            for t in range(n_trees):
                bounds[t], nodes[t] = 0.0, t * n_codes
            n_pending = n_trees
            while n_pending > 0 and n_seen < n_candidates:
                bound, code = bounds[0], nodes[0]
                if count == k and bound * bound > best[k - 1]:
                    break
                _pop(bounds, nodes, n_pending)
                n_pending -= 1
                t, node = code // n_codes, code % n_codes
                while node < n_nodes:
                    gap = _project(directions[t, node], query[i]) - thresholds[t, node]
                    near = 2 * node + 2 if gap >= 0 else 2 * node + 1
                    far = 4 * node + 3 - near
                    _push(bounds, nodes, n_pending, max(bound, abs(gap)), t * n_codes + far)
                    n_pending += 1
                    node = near
                leaf = node - n_nodes
                for at in range(starts[leaf], starts[leaf + 1]):
                    row = rows[t, at]
                    if row >= limit:
                        continue
                    slot = (row * 0x9E3779B1 >> 7) & (size - 1)
                    while seen[slot] >= 0 and seen[slot] != row:
                        slot = (slot + 1) & (size - 1)
                    if seen[slot] == row:
                        continue
                    seen[slot] = row
                    n_seen += 1
                    square = _square_distance(query[i], U[row])
                    last = k - 1
                    if (
                        count < k
                        or square < best[last]
                        or (square == best[last] and row < found[last])
                    ):
                        count = _insert(square, row, best, found, count)
        for row in range(others, limit):
            square = _square_distance(query[i], U[row])
            if count < k or square < best[k - 1]:
                count = _insert(square, row, best, found, count)
        for j in range(k):
            out[i, j] = found[j] if j < count else -1
