"""The CPU engine: numba kernels on threads of our own.

Results do not depend on the number of threads: work is cut by the number of rows alone, and sums
over the pieces are taken in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from scipy.linalg import solve_triangular

from triegp.devices import to_host
from triegp.engines.contract import (
    Adjoints,
    Array,
    Bytes,
    Candidate,
    Descent,
    Engine,
    Evaluated,
    Floats,
    Ids,
    Ints,
    Links,
    Located,
    Sums,
    Tree,
    Woodbury,
    Words,
)
from triegp.engines.cpu import (
    columns,
    contraction,
    linking,
    many,
    rows,
    scratch,
    search,
    sweeps,
)
from triegp.engines.cpu.descent import CpuDescent, dots
from triegp.engines.cpu.threads import available_cores, row_blocks, run_each
from triegp.engines.cpu.woodbury import apply_woodbury
from triegp.engines.cuts import between_keys, default_cuts

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class CpuEngine:
    """The CPU engine.

    Attributes
    ----------
    n_threads : int
        Threads to use; 0 means all cores this process may run on.
    """

    n_threads: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.n_threads, int) or self.n_threads < 0:
            raise ValueError(f"n_threads must be an integer, 0 or more, got {self.n_threads!r}")

    @property
    def batches(self) -> bool:
        """Whether many candidates at once cost less than one by one: no."""
        return False

    def hold(self, array: Array) -> Array:
        """Return the array as it is if it lies on the host, else a copy there."""
        return to_host(array)  # type: ignore[no-any-return]

    def fetch(self, array: Array) -> Array:
        """Return the array as it is: it lies in the host's memory."""
        return array

    # Rows to sorted keys

    def sort_rows(self, packed: Bytes, bits: Ints) -> tuple[Ids, Ids]:
        """Rows in key order and the lcp of neighbours, both int32 (n,); lcp[0] = -1."""
        return rows.sort_rows(packed, bits, self._threads)

    def resort_rows(
        self, packed: Bytes, bits: Ints, row_idx: Ids, lcp: Ids, first_change: int
    ) -> tuple[Ids, Ids]:
        """Return the same as `sort_rows`, from the rows sorted by an order that shares a prefix."""
        return rows.resort_rows(packed, bits, row_idx, lcp, first_change, self._threads)

    def keys(self, packed: Bytes, bits: Ints, row_idx: Ids) -> Words:
        """Keys of the given rows, uint64 (len(row_idx), ceil(D / 64)), first bit on top."""
        return rows.fill_keys(packed, bits, row_idx, self._threads)

    def merge_keys(
        self, keys: Words, lcp: Ids, added: Words, added_lcp: Ids, n_levels: int
    ) -> tuple[Ints, Ids]:
        """Interleave sorted keys: source (i old, -1 - j new) and lcp of the union."""
        total = len(keys) + len(added)
        source, out = np.empty(total, np.int64), np.empty(total, np.int32)
        positions = self._upper_bounds(keys, added)
        search.merge_sorted(keys, added, positions, lcp, added_lcp, source, out, n_levels)
        out[0] = -1
        return source, out

    # The trie

    def link(self, lcp: Ids, n_levels: int, cuts: Ints) -> Links:
        """The trie over sorted keys; cuts are the first leaves of the shards, cuts[0] = 0.

        A cut between rows with the same key moves behind the last of them.
        """
        n = lcp.size
        cuts = between_keys(cuts, lcp, n_levels)
        # One piece of memory: the allocator then keeps it for the next trie.
        depth, left, right, order = np.split(np.empty(5 * n, np.int32), [2 * n, 3 * n, 4 * n])
        left[0] = right[0] = 0
        ends = [*cuts[1:].tolist(), n]
        last = -1 if cuts.size == 1 else n_levels

        def link_shard(k: int) -> tuple[int, Ids, Ids]:
            lo, hi = int(cuts[k]), ends[k]
            room = _open_ends(hi - lo, n_levels)
            merged, n_open = linking.link_shard(
                lo, hi, last, lcp, n_levels, depth, left, right, order, *room
            )
            return lo + merged, room[0][:n_open], room[1][:n_open]

        stops, items, seps = zip(*self._run(link_shard, range(cuts.size)), strict=True)
        tops, spine = items[0], order[:0]
        if cuts.size > 1:
            tops, between = np.concatenate(items), np.concatenate(seps)
            spine, room = np.empty(tops.size, np.int32), _open_ends(tops.size, n_levels)
            merged, _ = linking.link(tops, between, -1, lcp, n_levels, spine, left, right, *room)
            tops, spine = room[0], spine[:merged]
        stop = np.array(stops, np.int64)
        return Links(depth, left, right, order, cuts, stop, spine, int(tops[0]))

    def link_many(self, packed: Sequence[Bytes], bits: Sequence[Ints]) -> list[tuple[Ids, Links]]:
        """Rows in key order and the trie over them, of each pair, side by side."""

        def build(alone: Engine, pair: tuple[Bytes, Ints]) -> tuple[Ids, Links]:
            row_idx, lcp = alone.sort_rows(*pair)
            return row_idx, alone.link(lcp, int(pair[1].size), default_cuts(row_idx.size))

        return self.each(build, list(zip(packed, bits, strict=True)))

    # Likelihood

    def evaluate(
        self,
        links: Links,
        levels: Floats,
        row_idx: Ids,
        y: Floats,
        variance: Floats,
        dtype: np.dtype[Any],
        gradient: bool,
    ) -> tuple[Sums, Adjoints | None]:
        """Sums of the likelihood and, if wanted, its derivatives."""
        n = row_idx.size
        m, s = scratch.borrow("m", 2 * n, dtype), scratch.borrow("s", 2 * n, dtype)
        tree = (links.left, links.right, links.depth, levels, m, s)
        ends = [*links.starts[1:].tolist(), n, n]
        starts = [*links.starts.tolist(), n]  # the spine has no leaves of its own

        leaves = (row_idx, y, variance)
        parts = self._up(
            links, lambda nodes, k: sweeps.inside_rows(starts[k], ends[k], *leaves, nodes, *tree)
        )
        sums = _with_root(links, levels, m, s, parts)
        if not gradient or math.isinf(sums.square):
            return sums, None
        by_level = self._adjoint(links, levels, m, s)
        return sums, Adjoints(by_level, m[:n], s[:n])

    def evaluate_many(
        self,
        candidates: Sequence[Candidate],
        dtype: np.dtype[Any],
        gradient: bool,
        rows: bool = False,
    ) -> list[Evaluated]:
        """Sort, link and evaluate many orders side by side, each on one thread."""
        return self.each(
            lambda alone, candidate: _evaluate_alone(alone, candidate, dtype, gradient, rows),
            candidates,
        )

    def leaves(
        self, row_idx: Ids, y: Floats, variance: Floats, dtype: np.dtype[Any]
    ) -> tuple[Array, Array]:
        """Messages (m, s), (2n,): leaves filled from rows, nodes empty."""
        m, s = np.empty(2 * row_idx.size, dtype), np.empty(2 * row_idx.size, dtype)
        self._gather(row_idx, y, variance, m, s)
        return m, s

    def _gather(self, row_idx: Ids, y: Floats, variance: Floats, m: Array, s: Array) -> None:
        self._run(lambda b: sweeps.gather(row_idx, y, variance, m, s, *b), row_blocks(row_idx.size))

    def inside(self, links: Links, levels: Floats, m: Array, s: Array) -> Sums:
        """Merge messages up; the leaves of m and s are given, the nodes are written."""
        parts = self._up(
            links,
            lambda nodes, _: sweeps.inside(
                nodes, links.left, links.right, links.depth, levels, m, s
            ),
        )
        return _with_root(links, levels, m, s, parts)

    def _adjoint(self, links: Links, levels: Floats, m: Array, s: Array) -> Floats:
        """d nll / d W(0..D); inside messages m and s are overwritten by their adjoints."""
        root = links.root
        by_level = np.zeros((links.starts.size + 1, levels.size))
        inv = 1.0 / _lifted_root(links, levels, s)
        t = float(m[root]) * inv
        m[root], s[root] = t, 0.5 * (inv - t * t)
        by_level[-1, links.depth[root]] += s[root]
        by_level[-1, 0] -= s[root]
        self._down(
            links,
            lambda nodes, k: sweeps.adjoint(
                nodes, links.left, links.right, links.depth, levels, m, s, by_level[k]
            ),
        )
        with np.errstate(over="ignore", invalid="ignore"):  # the caller looks for overflow
            total: Floats = by_level.sum(axis=0)
        return total

    # Posterior

    def outside(self, links: Links, levels: Floats, m: Array, s: Array) -> tuple[Array, Array, Ids]:
        """Outside messages (mo, so) of all ids and the depth at which each is held."""
        mo, so = np.zeros_like(m), np.zeros_like(s)
        above = np.zeros(m.size, np.int32)
        self._down(
            links,
            lambda nodes, _: sweeps.outside(
                nodes, links.left, links.right, links.depth, levels, m, s, mo, so, above
            ),
        )
        return mo, so, above

    def leave_out(
        self,
        links: Links,
        levels: Floats,
        outside: tuple[Array, Array, Ids],
        y: Array,
        stays: Floats,
    ) -> tuple[Floats, Floats]:
        """Mean and variance of f at each leaf given all others, in key order."""
        mean, var = np.empty(links.n_rows), np.empty(links.n_rows)
        given = (links.depth, levels, *outside, y, stays)
        self._run(lambda b: sweeps.leave_out(*given, mean, var, *b), row_blocks(links.n_rows))
        return mean, var

    def locate(self, links: Links, keys: Words, query: Words, row_idx: Ids) -> Located:
        """Where sorted query keys leave the trie."""
        positions = self._upper_bounds(keys, query)
        node, above, leaves_at = (np.empty(len(query), np.int32) for _ in range(3))
        head = (keys, query, positions, links.depth, links.left, links.right)
        self._run(
            lambda b: search.locate(*head, links.root, links.n_levels, *b, node, above, leaves_at),
            row_blocks(len(query)),
        )
        return Located(row_idx, node, above, leaves_at)

    def predict(
        self,
        links: Links,
        levels: Floats,
        located: Located,
        inside: tuple[Array, Array],
        outside: tuple[Array, Array],
        with_var: bool,
    ) -> tuple[Floats, Floats | None]:
        """Mean and variance of f at located keys, in the order of their rows."""
        n_new = located.node.size
        where = (located.row_idx, located.node, located.above, located.leaves_at)
        known = (links.depth, levels, *inside, *outside)
        mean = np.empty(n_new)
        if not with_var:
            self._run(
                lambda b: search.predict_mean(*where, *known, mean, *b),
                row_blocks(n_new),
            )
            return mean, None
        var = np.empty(n_new)
        self._run(
            lambda b: search.predict(*where, *known, mean, var, *b),
            row_blocks(n_new),
        )
        return mean, var

    # Operators

    def product(self, links: Links, levels: Floats, x: Floats) -> Floats:
        """K x for x (n, k) in key order."""
        sums = self._sum_up(links, x)
        self._spread_down(links, levels, sums)
        return sums[: links.n_rows]

    def path_sums(self, links: Links, levels: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Of x (n,) in key order, by id (2n,): sums below, and K x on the path down to it."""
        sums = self._sum_up(links, x[:, None])
        below = sums[:, 0].copy()
        self._spread_down(links, levels, sums)
        return below, sums[:, 0]

    def _sum_up(self, links: Links, x: Floats) -> Floats:
        sums = _with_nodes(x)
        tree = (links.left, links.right)
        self._up(links, lambda nodes, _: columns.sum_up(nodes, *tree, sums))
        return sums

    def _spread_down(self, links: Links, levels: Floats, sums: Floats) -> None:
        """Turn sums below every id into K x on the path down to it, in place."""
        sums[links.root] *= levels[0] - levels[links.depth[links.root]]
        tail = (links.left, links.right, links.depth, levels, sums)
        self._down(links, lambda nodes, _: columns.spread_down(nodes, *tail))

    def solve(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """(K + noise)^-1 x for x (n, k) in key order; s: inside variances, leaves the noise."""
        x = _with_nodes(x)
        tail = (links.left, links.right, links.depth, levels, s, x)
        self._up(links, lambda nodes, _: columns.mean_up(nodes, *tail))
        x[links.root] /= _lifted_root(links, levels, s)
        self._down(links, lambda nodes, _: columns.solve_down(nodes, *tail))
        return x[: links.n_rows]

    def whiten(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """T x with T'T = (K + noise)^-1: row i belongs to node i, row 0 to the root."""
        out = np.empty_like(x)
        x = _with_nodes(x)
        tail = (links.left, links.right, links.depth, levels, s, x)
        self._up(links, lambda nodes, _: columns.mean_up(nodes, *tail))
        self._up(links, lambda nodes, _: columns.whiten_nodes(nodes, *tail, out))
        out[0] = x[links.root] / math.sqrt(_lifted_root(links, levels, s))
        return out

    def level_products(self, links: Links, x: Floats, z: Floats) -> Floats:
        """x' K_l z for l = 0..D, (D + 1, k), K_l being 1 where two rows share l bits."""
        parts = np.zeros((links.starts.size + 1, links.n_levels + 1, x.shape[1]))
        x, z = _with_nodes(x), _with_nodes(z)
        tree = (links.left, links.right)

        def meet(nodes: Ids, k: int) -> None:
            columns.sum_up(nodes, *tree, x)
            columns.sum_up(nodes, *tree, z)
            columns.cross_products(nodes, *tree, links.depth, x, z, parts[k])

        self._up(links, meet)
        by_level = parts.sum(axis=0)
        by_level[-1] += (x[: links.n_rows] * z[: links.n_rows]).sum(axis=0)
        total: Floats = np.cumsum(by_level[::-1], axis=0)[::-1]
        return total

    # Many trees over the same rows

    def plant(self, trees: Sequence[Tree]) -> Sequence[Tree]:
        """Return the trees: there is nothing to make ready."""
        return trees

    def sum_products(
        self, trees: Sequence[Tree], x: Floats, variance: Floats | None = None
    ) -> Floats:
        """(K + variance) x for x (n, k), in the order of the rows; K is the sum of the trees'."""
        found = many.sum_products(trees, x, self._threads)
        return found if variance is None else found + variance[:, None] * x

    def sum_level_products(self, trees: Sequence[Tree], x: Floats, z: Floats) -> list[Floats]:
        """x' K_l z for l = 0..D, summed over the columns, (D + 1,) a tree; rows in their order."""
        return many.sum_level_products(trees, x, z, self._threads)

    def block_kernels(self, trees: Sequence[Tree], members: Ids) -> Floats:
        """K between rows of the same block, float64 (n_blocks, size, size)."""
        return many.block_kernels(trees, members, self._threads)

    # The joint distribution of f at chosen leaves

    def contract(
        self, links: Links, levels: Floats, m: Array, s: Array, chosen: Ids, n_chosen: int
    ) -> Floats:
        """Edges of the tree over the chosen leaves: (gain, shift, var), float64 (2k, 3)."""
        n = links.n_rows
        first, stands_for = (np.empty(2 * n, np.int32) for _ in range(2))
        first[:n] = stands_for[:n] = chosen
        path = np.empty((2 * n, 3))
        path[:n] = (1.0, 0.0, 0.0)
        out = np.zeros((2 * n_chosen, 3))
        tail = (levels, m, s, first, stands_for, path, out)
        tree = (links.left, links.right, links.depth)
        self._up(links, lambda nodes, _: contraction.contract(nodes, *tree, *tail))
        root = links.root
        edge = float(levels[0] - levels[links.depth[root]])
        low = contraction.name(root, links.depth, links.n_levels, first, stands_for, n_chosen)
        out[low] = contraction.compose(m, s, edge, path, root)
        return out

    def covariance_product(self, links: Links, edges: Floats, x: Floats) -> Floats:
        """Covariance of f at all leaves times x (k, c), in key order; edges as of `contract`."""
        x = _with_nodes(x)
        gain, _, var = (np.ascontiguousarray(column) for column in edges.T)
        tree = (links.left, links.right)
        self._up(links, lambda nodes, _: columns.gain_up(nodes, *tree, gain, x))
        x[links.root] *= var[links.root]
        self._down(links, lambda nodes, _: columns.gain_down(nodes, *tree, gain, var, x))
        return x[: links.n_rows]

    def draw(self, links: Links, edges: Floats, normals: Floats) -> Floats:
        """Samples of f at all leaves, (k, c); normals (2k, c) are overwritten."""
        gain, shift, var = (np.ascontiguousarray(column) for column in edges.T)
        root = links.root
        normals[root] = shift[root] + math.sqrt(var[root]) * normals[root]
        tail = (links.left, links.right, gain, shift, var, normals)
        self._down(links, lambda nodes, _: columns.draw_down(nodes, *tail))
        return normals[: links.n_rows]

    # Small dense algebra

    def dots(self, x: Floats, z: Floats) -> Floats:
        """Products of the columns of x with those of z, both (n, k): (k,)."""
        return dots(x, z)

    def cholesky(self, matrices: Floats) -> Floats:
        """Lower factors, (..., m, m); LinAlgError where one is not positive."""
        return np.asarray(np.linalg.cholesky(matrices), np.float64)

    def solve_lower(self, lower: Floats, x: Floats) -> Floats:
        """L^-1 x for a lower triangular L (m, m) and x (m,) or (m, k)."""
        return np.asarray(solve_triangular(lower, x, lower=True), np.float64)

    # Conjugate gradients

    def descend(
        self,
        trees: Sequence[Tree],
        variance: Floats,
        x: Floats,
        columns: Ints,
        r: Floats,
        woodbury: Woodbury | None,
    ) -> Descent:
        """Begin to solve (K + variance) x = b."""
        multiply = partial(self.sum_products, trees, variance=variance)
        inverse = None if woodbury is None else partial(self.apply_woodbury, woodbury)
        return CpuDescent(multiply, x, columns, r, inverse)

    def apply_woodbury(self, woodbury: Woodbury, x: Floats) -> Floats:
        """(S - G G') x for x (n, k), the same for any number of threads."""
        return apply_woodbury(woodbury, x, self._threads)

    # Many jobs at once

    def each(self, work: Callable[[Engine, Item], Result], items: Sequence[Item]) -> list[Result]:
        """work(engine, item) for all items side by side, each with an engine of one thread."""
        alone = CpuEngine(n_threads=1)
        return self._run(lambda item: work(alone, item), items)

    # How work is spread

    @property
    def _threads(self) -> int:
        return self.n_threads or available_cores()

    def _run(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return run_each(work, items, self._threads)

    def _up(self, links: Links, work: Callable[[Ids, int], Result]) -> list[Result]:
        """work(nodes, piece) for all shards side by side, then for the spine."""
        results = self._run(lambda k: work(_shard(links, k), k), range(links.starts.size))
        if links.spine.size:
            results.append(work(links.spine, links.starts.size))
        return results

    def _down(self, links: Links, work: Callable[[Ids, int], None]) -> None:
        """work(nodes, piece) for the spine, then for all shards side by side."""
        if links.spine.size:
            work(links.spine, links.starts.size)
        self._run(lambda k: work(_shard(links, k), k), range(links.starts.size))

    def _upper_bounds(self, keys: Words, query: Words) -> Ints:
        positions = np.empty(len(query), np.int64)
        self._run(lambda b: search.upper_bounds(keys, query, *b, positions), row_blocks(len(query)))
        return positions


def _evaluate_alone(
    engine: Engine, candidate: Candidate, dtype: np.dtype[Any], gradient: bool, rows: bool
) -> Evaluated:
    """The same bits as by way of a trie."""
    packed, bits, levels, y, variance = candidate
    row_idx, lcp = engine.sort_rows(packed, bits)
    n_rows, n_levels = row_idx.size, int(bits.size)
    links = engine.link(lcp, n_levels, default_cuts(n_rows))
    sums, adjoints = engine.evaluate(links, levels, row_idx, y, variance, dtype, gradient)
    if adjoints is None:
        return Evaluated(sums)
    by_var: Floats | None = None
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks for overflow
        by_noise = float(adjoints.by_var.sum(dtype=np.float64))
    if rows:
        by_var = np.empty(n_rows)
        by_var[row_idx] = adjoints.by_var
    return Evaluated(sums, adjoints.by_level, by_noise, by_var)


def _shard(links: Links, k: int) -> Ids:
    """Nodes of shard k, children first."""
    return links.order[links.starts[k] : links.stops[k]]


def _open_ends(n_items: int, n_levels: int) -> tuple[Ids, Ids, Ids]:
    """Room for what merging n_items adjacent subtrees leaves open."""
    # 2 D + 3 in the end; while it runs up to 31 more, for identical keys that wait for others.
    items, seps, ranks = np.empty((3, min(n_items, 2 * n_levels + 68)), np.int32)
    return items, seps, ranks


def _lifted_root(links: Links, levels: Floats, s: Array) -> float:
    """Variance of the root's message, lifted to depth 0."""
    return float(s[links.root] + (levels[0] - levels[links.depth[links.root]]))


def _with_root(
    links: Links, levels: Floats, m: Array, s: Array, parts: list[tuple[float, float, int]]
) -> Sums:
    """Sums over the shards, and the root's own terms."""
    log_det, square, count = (sum(column) for column in zip(*parts, strict=True))
    mean, var = float(m[links.root]), _lifted_root(links, levels, s)
    if var == math.inf:  # no row says anything
        return Sums(0.0, 0.0, 0)
    return Sums(log_det + math.log(var), square + mean * (mean / var), count + 1)


def _with_nodes(x: Floats) -> Floats:
    """Leaf values x (n, k) with room for the nodes, (2n, k)."""
    out = np.empty((2 * x.shape[0], x.shape[1]))
    out[: x.shape[0]] = x
    return out
