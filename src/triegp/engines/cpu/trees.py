"""One trie on the CPU: links, likelihood with gradient, posterior and prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from triegp.engines.cpu import linking, scratch, search, sweeps
from triegp.engines.cpu.spread import Spread, lifted_root
from triegp.engines.cpu.threads import thread_blocks
from triegp.engines.cuts import between_keys
from triegp.engines.records import Adjoints, Array, Floats, Ids, Ints, Links, Located, Sums, Words


@dataclass(frozen=True)
class Trees(Spread):
    """The methods of the CPU engine that work on one trie."""

    def link(self, lcp: Ids, n_levels: int, cuts: Ints) -> Links:
        """The trie over sorted keys; cuts are the first leaves of the shards, cuts[0] = 0.

        A cut between rows with the same key is moved to the end of that run of rows.
        """
        n = lcp.size
        cuts = between_keys(cuts, lcp, n_levels)
        # One allocation, which the allocator reuses for the next trie.
        depth, left, right, order = np.split(np.empty(5 * n, np.int32), [2 * n, 3 * n, 4 * n])
        left[0] = right[0] = 0
        ends = [*cuts[1:].tolist(), n]
        last = -1 if cuts.size == 1 else n_levels

        def link_shard(k: int) -> tuple[int, Ids, Ids]:
            lo, hi = int(cuts[k]), ends[k]
            room, leaves = _open_ends(hi - lo, n_levels), np.arange(lo, hi, dtype=np.int32)
            depth[lo:hi], depth[n + lo : n + hi] = n_levels, lcp[lo:hi]
            nodes, children = order[lo:hi], (left, right)
            merged, n_open = linking.link(
                leaves, leaves, last, lcp, n_levels, nodes, *children, *room
            )
            nodes[merged:] = 0
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
        """Terms of the likelihood and, if requested and if they are finite, its derivatives."""
        n = row_idx.size
        m, s = scratch.borrow("m", 2 * n, dtype), scratch.borrow("s", 2 * n, dtype)
        tree = (links.left, links.right, links.depth, levels, m, s)
        ends = [*links.starts[1:].tolist(), n, n]
        starts = [*links.starts.tolist(), n]  # the spine has no leaves of its own

        def up(nodes: Ids, k: int) -> tuple[float, float, int]:
            sweeps.gather(row_idx, y, variance, m, s, starts[k], ends[k])
            return sweeps.inside(nodes, *tree)  # type: ignore[no-any-return]

        parts = self._up(links, up)
        sums = _with_root(links, levels, m, s, parts)
        if not gradient or math.isinf(sums.square):
            return sums, None
        by_level = self._adjoint(links, levels, m, s)
        return sums, Adjoints(by_level, m[:n], s[:n])

    def leaves(
        self, row_idx: Ids, y: Floats, variance: Floats, dtype: np.dtype[Any]
    ) -> tuple[Array, Array]:
        """Messages (m, s), both (2n,): leaves filled from the rows, nodes uninitialised."""
        m, s = np.empty(2 * row_idx.size, dtype), np.empty(2 * row_idx.size, dtype)
        self._gather(row_idx, y, variance, m, s)
        return m, s

    def _gather(self, row_idx: Ids, y: Floats, variance: Floats, m: Array, s: Array) -> None:
        self._run(
            lambda b: sweeps.gather(row_idx, y, variance, m, s, *b), thread_blocks(row_idx.size)
        )

    def inside(self, links: Links, levels: Floats, m: Array, s: Array) -> Sums:
        """Merge messages upwards; the leaves of m and s are read, the nodes are overwritten."""
        parts = self._up(
            links,
            lambda nodes, _: sweeps.inside(
                nodes, links.left, links.right, links.depth, levels, m, s
            ),
        )
        return _with_root(links, levels, m, s, parts)

    def _adjoint(self, links: Links, levels: Floats, m: Array, s: Array) -> Floats:
        """d nll / d W(0..D). The inside messages m and s are overwritten by their adjoints."""
        root = links.root
        by_level = np.zeros((links.starts.size + 1, levels.size))
        inv = 1.0 / lifted_root(links, levels, s)
        t = float(m[root]) * inv
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for overflow
            m[root], s[root] = t, 0.5 * (inv - t * t)
            by_level[-1, links.depth[root]] += s[root]
            by_level[-1, 0] -= s[root]
        self._down(
            links,
            lambda nodes, k: sweeps.adjoint(
                nodes, links.left, links.right, links.depth, levels, m, s, by_level[k]
            ),
        )
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for overflow
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
        """Mean and variance of f at each leaf given all other rows, in key order."""
        mean, var = np.empty(links.n_rows), np.empty(links.n_rows)
        given = (links.depth, levels, *outside, y, stays)
        self._run(lambda b: sweeps.leave_out(*given, mean, var, *b), thread_blocks(links.n_rows))
        return mean, var

    def locate(self, links: Links, keys: Words, query: Words, row_idx: Ids) -> Located:
        """Where each of the sorted query keys leaves the trie."""
        positions = self._upper_bounds(keys, query)
        node, above, leaves_at = (np.empty(len(query), np.int32) for _ in range(3))
        head = (keys, query, positions, links.depth, links.left, links.right)
        self._run(
            lambda b: search.locate(*head, links.root, links.n_levels, *b, node, above, leaves_at),
            thread_blocks(len(query)),
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
        """Mean and variance of f at located keys, in the order of the new rows."""
        n_new = located.node.size
        where = (located.row_idx, located.node, located.above, located.leaves_at)
        known = (links.depth, levels, *inside, *outside)
        mean = np.empty(n_new)
        if not with_var:
            self._run(
                lambda b: search.predict_mean(*where, *known, mean, *b),
                thread_blocks(n_new),
            )
            return mean, None
        var = np.empty(n_new)
        self._run(
            lambda b: search.predict(*where, *known, mean, var, *b),
            thread_blocks(n_new),
        )
        return mean, var

    def _upper_bounds(self, keys: Words, query: Words) -> Ints:
        positions = np.empty(len(query), np.int64)
        self._run(
            lambda b: search.upper_bounds(keys, query, *b, positions), thread_blocks(len(query))
        )
        return positions


def _open_ends(n_items: int, n_levels: int) -> tuple[Ids, Ids, Ids]:
    """Space for the subtrees that stay open when n_items adjacent subtrees merge."""
    # At most 2 D + 3 stay open. During the merge there are up to 31 more, for identical keys.
    items, seps, ranks = np.empty((3, min(n_items, 2 * n_levels + 68)), np.int32)
    return items, seps, ranks


def _with_root(
    links: Links, levels: Floats, m: Array, s: Array, parts: list[tuple[float, float, int]]
) -> Sums:
    """Terms of the likelihood: sums over the shards, and the root's own terms."""
    log_det, square, count = (sum(column) for column in zip(*parts, strict=True))
    mean, var = float(m[links.root]), lifted_root(links, levels, s)
    if var == math.inf:  # no row carries information
        return Sums(0.0, 0.0, 0)
    return Sums(log_det + math.log(var), square + mean * (mean / var), count + 1)
