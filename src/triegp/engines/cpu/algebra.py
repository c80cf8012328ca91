"""Linear operators and joint distributions on one trie, on the CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from triegp.engines.cpu import columns, contraction
from triegp.engines.cpu.spread import Spread, lifted_root, with_nodes
from triegp.engines.records import Array, Floats, Ids, Links


@dataclass(frozen=True)
class Operators(Spread):
    """The methods of the CPU engine that multiply, solve and draw samples."""

    def product(self, links: Links, levels: Floats, x: Floats) -> Floats:
        """K x for x (n, k) in key order."""
        sums = self._sum_up(links, x)
        self._spread_down(links, levels, sums)
        return sums[: links.n_rows]

    def path_sums(self, links: Links, levels: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Sums of x (n,) below each id, and partial sums of K x on the path to it, both (2n,)."""
        sums = self._sum_up(links, x[:, None])
        below = sums[:, 0].copy()
        self._spread_down(links, levels, sums)
        return below, sums[:, 0]

    def _sum_up(self, links: Links, x: Floats) -> Floats:
        """Sums of x (n, k) below every id, (2n, k)."""
        sums = with_nodes(x)
        tree = (links.left, links.right)
        self._up(links, lambda nodes, _: columns.sum_up(nodes, *tree, sums))
        return sums

    def _spread_down(self, links: Links, levels: Floats, sums: Floats) -> None:
        """Turn sums below every id into partial sums of K x along the path to it, in place."""
        sums[links.root] *= levels[0] - levels[links.depth[links.root]]
        tail = (links.left, links.right, links.depth, levels, sums)
        self._down(links, lambda nodes, _: columns.spread_down(nodes, *tail))

    def solve(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """(K + noise)^-1 x for x (n, k) in key order; s: inside variances, noise at the leaves."""
        x = with_nodes(x)
        tail = (links.left, links.right, links.depth, levels, s, x)
        self._up(links, lambda nodes, _: columns.mean_up(nodes, *tail))
        x[links.root] /= lifted_root(links, levels, s)
        self._down(links, lambda nodes, _: columns.solve_down(nodes, *tail))
        return x[: links.n_rows]

    def whiten(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """T x with T'T = (K + noise)^-1. Row i belongs to node i, row 0 to the root."""
        out = np.empty_like(x)
        x = with_nodes(x)
        tail = (links.left, links.right, links.depth, levels, s, x)
        self._up(links, lambda nodes, _: columns.mean_up(nodes, *tail))
        self._up(links, lambda nodes, _: columns.whiten_nodes(nodes, *tail, out))
        out[0] = x[links.root] / math.sqrt(lifted_root(links, levels, s))
        return out

    def level_products(self, links: Links, x: Floats, z: Floats) -> Floats:
        """x' K_l z for l = 0..D, (D + 1, k); K_l is 1 if two rows share at least l bits, else 0."""
        parts = np.zeros((links.starts.size + 1, links.n_levels + 1, x.shape[1]))
        x, z = with_nodes(x), with_nodes(z)
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
        """Covariance of f at all leaves times x (k, c), in key order; edges from `contract`."""
        x = with_nodes(x)
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
