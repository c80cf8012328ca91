"""Sums of many trees over the same rows: products, quadratic forms and diagonal blocks of K.

Each kernel gathers `width` columns, sweeps up, sweeps down and scatters. The width is a
compile-time constant, so that the loop over columns becomes vector instructions. A call with fewer
columns is padded with zeros. x, z and out are float64 (n, width) in row order; room is float64 (2n,
width), scratch. Trees are summed in groups, and the groups in a fixed order, so the result does not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from triegp.engines.cpu import blocks, scratch
from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.threads import run_each
from triegp.engines.records import Floats, Ids, Tree

WIDE = 8  # columns per kernel call, if there is more than one
TREE_GROUPS = 8  # groups of trees; one partial sum per group is held


def _add_product(width):
    """Compile the kernel that adds one tree's product, for `width` columns."""

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
    """Compile the kernel of one tree's quadratic forms by depth, for `width` columns."""

    @jit
    def add_level_products(
        row_idx, order, starts, stops, spine, tree, x, z, x_room, z_room, by_level
    ):
        """Add the products of x and z that meet at each depth, over all columns, to by_level.

        by_level: float64 (D + 1,). A leaf's own product counts at depth D.
        """
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


def sum_products(trees: Sequence[Tree], x: Floats, n_threads: int) -> Floats:
    """Sum over trees of K x for x (n, k), in row order."""
    n, k = x.shape
    total: Floats = np.zeros((n, k))
    groups = [trees[g::TREE_GROUPS] for g in range(min(TREE_GROUPS, len(trees)))]
    for lo in range(0, k, WIDE):
        columns = _fill_up(x[:, lo : lo + WIDE])
        some = total[:, lo : lo + WIDE]
        for part in run_each(partial(_sum_group, columns), groups, n_threads):
            some += part[:, : some.shape[1]]
    return total


def sum_level_products(trees: Sequence[Tree], x: Floats, z: Floats, n_threads: int) -> list[Floats]:
    """x' K_l z for l = 0..D, summed over the columns, (D + 1,) per tree; x, z in row order."""
    pairs = [
        (_fill_up(x[:, lo : lo + WIDE]), _fill_up(z[:, lo : lo + WIDE]))
        for lo in range(0, x.shape[1], WIDE)
    ]
    return run_each(partial(_level_products, pairs), trees, n_threads)


def block_kernels(trees: Sequence[Tree], members: Ids, n_threads: int) -> Floats:
    """K between rows of the same block, float64 (n_blocks, size, size)."""
    n_blocks, size = members.shape
    out: Floats = np.zeros((n_blocks, size, size))
    n = trees[0].row_idx.size
    table = np.zeros((max(1, n.bit_length()), n), np.int32)
    place = np.empty(n, np.int32)
    step = max(1, -(-n_blocks // 64))
    ranges = [(lo, min(lo + step, n_blocks)) for lo in range(0, n_blocks, step)]
    for tree in trees:
        place[tree.row_idx] = np.arange(n, dtype=np.int32)
        blocks.fill_table(tree.links.lcp, table)
        given = (place, table, tree.levels, members)
        run_each(partial(_add_blocks, given, out), ranges, n_threads)
    prior = sum(float(tree.levels[0] - tree.levels[-1]) for tree in trees)
    block, entry = np.nonzero(members >= 0)
    out[block, entry, entry] = prior
    return out


def _fill_up(x: Floats) -> Floats:
    """Return one column as it is; pad several columns with zeros to WIDE."""
    if x.shape[1] in add_product:
        return np.ascontiguousarray(x)
    out: Floats = np.zeros((x.shape[0], WIDE))
    out[:, : x.shape[1]] = x
    return out


def _walk(tree: Tree) -> tuple[Any, ...]:
    """The leading arguments of the kernels above, for one tree."""
    links = tree.links
    shards = (links.order, links.starts, links.stops, links.spine)
    return (tree.row_idx, *shards, (links.left, links.right, links.depth))


def _sum_group(x: Floats, trees: Sequence[Tree]) -> Floats:
    """Sum of K x over a few trees."""
    n, width = x.shape
    out: Floats = np.zeros((n, width))
    room = scratch.borrow("room", 2 * n * width, np.float64).reshape(2 * n, width)
    for tree in trees:
        root = tree.links.root
        add_product[width](*_walk(tree), tree.levels, root, x, room, out)
    return out


def _add_blocks(given: tuple[Any, ...], out: Floats, some: tuple[int, int]) -> None:
    """Add one tree's kernel values to the blocks in range `some`."""
    arguments = (*given, *some, out)
    blocks.add_blocks(*arguments)


def _level_products(pairs: Sequence[tuple[Floats, Floats]], tree: Tree) -> Floats:
    """x' K_l z of one tree, (D + 1,), summed over all columns."""
    by_level = np.zeros(tree.links.n_levels + 1)
    for x, z in pairs:
        n, width = x.shape
        room = scratch.borrow("room", 4 * n * width, np.float64).reshape(2, 2 * n, width)
        add_level_products[width](*_walk(tree), x, z, *room, by_level)
    return np.asarray(np.cumsum(by_level[::-1])[::-1])
