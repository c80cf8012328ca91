"""Sums over many trees of the same rows: gather, sweep up, sweep down and scatter in one kernel.

Each kernel works on `width` columns at once. The width is known when it is compiled, so that the
loop over columns becomes vector instructions; a call with fewer columns is filled up with zeros.
x, z and out are float64 (n, width) in the order of the rows; room is float64 (2n, width).
"""

from __future__ import annotations

from triegp.engines.cpu.compiler import jit

WIDE = 8  # columns at once, where there are more than one


def _add_product(width):
    @jit
    def add_product(row_idx, order, starts, stops, spine, tree, levels, root, x, room, out):
        """out += K x of one tree; tree: (left, right, depth)."""
        left, right, depth = tree
        n = left.size
        for i in range(n):
            for j in range(width):
                room[i, j] = x[row_idx[i], j]
        for shard in range(starts.size + 1):
            last = shard == starts.size
            lo = 0 if last else starts[shard]
            hi = spine.size if last else stops[shard]
            for k in range(lo, hi):
                node = spine[k] if last else order[k]
                c1, c2 = left[node], right[node]
                for j in range(width):
                    room[n + node, j] = room[c1, j] + room[c2, j]
        edge = levels[0] - levels[depth[root]]
        for j in range(width):
            room[root, j] *= edge
        for back in range(starts.size + 1):
            shard = starts.size - back
            last = shard == starts.size
            lo = 0 if last else starts[shard]
            hi = spine.size if last else stops[shard]
            for k in range(hi - 1, lo - 1, -1):
                node = spine[k] if last else order[k]
                c1, c2 = left[node], right[node]
                at = levels[depth[n + node]]
                e1, e2 = at - levels[depth[c1]], at - levels[depth[c2]]
                for j in range(width):
                    top = room[n + node, j]
                    room[c1, j] = top + e1 * room[c1, j]
                    room[c2, j] = top + e2 * room[c2, j]
        for i in range(n):
            for j in range(width):
                out[row_idx[i], j] += room[i, j]

    return add_product


def _add_level_products(width):
    @jit
    def add_level_products(
        row_idx, order, starts, stops, spine, tree, x, z, x_room, z_room, by_level
    ):
        """What meets at each depth of one tree, all columns together, into float64 (D + 1,)."""
        left, right, depth = tree
        n = left.size
        own = 0.0
        for i in range(n):
            r = row_idx[i]
            for j in range(width):
                x_room[i, j], z_room[i, j] = x[r, j], z[r, j]
                own += x[r, j] * z[r, j]
        by_level[depth[0]] += own
        for shard in range(starts.size + 1):
            last = shard == starts.size
            lo = 0 if last else starts[shard]
            hi = spine.size if last else stops[shard]
            for k in range(lo, hi):
                node = spine[k] if last else order[k]
                c1, c2 = left[node], right[node]
                met = 0.0
                for j in range(width):
                    x1, x2, z1, z2 = x_room[c1, j], x_room[c2, j], z_room[c1, j], z_room[c2, j]
                    met += x1 * z2 + x2 * z1
                    x_room[n + node, j] = x1 + x2
                    z_room[n + node, j] = z1 + z2
                by_level[depth[n + node]] += met

    return add_level_products


add_product = {width: _add_product(width) for width in (1, WIDE)}
add_level_products = {width: _add_level_products(width) for width in (1, WIDE)}
