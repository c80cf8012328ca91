"""Sums of many trees over the same rows: products, quadratic forms and diagonal blocks of K.

A product gathers one column, sweeps up, sweeps down and scatters: 3 to 8 nanoseconds per row.
Quadratic forms take `width` columns at a time, padded with zeros; the width is a compile-time
constant, so that the loop over columns becomes vector instructions. Vectors are in row order. Trees
are summed in groups, and the groups in a fixed order, so the result does not depend on the number
of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from triegp.engines.cpu import blocks, scratch
from triegp.engines.cpu.compiler import jit
from triegp.engines.cpu.threads import run_each
from triegp.engines.records import Floats, Ids, Steps, Tree

WIDE = 8  # columns per kernel call, if there is more than one
TREE_GROUPS = 8  # groups of trees; one partial sum per group is held


@jit
def add_product(row_idx, steps, x, room, out):
    """out += K x of one tree, for x and out (n,) in row order; room: float64 (2n,), scratch."""
    first, second, to_first, to_second, to_root = steps
    n = row_idx.size
    for i in range(n):
        room[i] = x[row_idx[i]]
    for k in range(n - 1):
        room[n + k] = room[first[k]] + room[second[k]]
    room[2 * n - 2] *= to_root
    for k in range(n - 2, -1, -1):
        above, a, b = room[n + k], first[k], second[k]
        room[a] = above + to_first[k] * room[a]
        room[b] = above + to_second[k] * room[b]
    for i in range(n):
        out[row_idx[i]] += room[i]


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


add_level_products = {width: _add_level_products(width) for width in (1, WIDE)}


def make_steps(tree: Tree) -> Steps:
    """The nodes of a tree, children before parents, with the variance of every edge. O(n)."""
    links, n = tree.links, tree.links.n_rows
    shards = zip(links.starts.tolist(), links.stops.tolist(), strict=True)
    nodes = np.concatenate([*(links.order[lo:hi] for lo, hi in shards), links.spine])
    ids = np.arange(2 * n, dtype=np.int32)  # a node's id is its place among the nodes, after leaves
    ids[n + nodes] = n + np.arange(nodes.size, dtype=np.int32)
    left, right, above = links.left[nodes], links.right[nodes], tree.levels[links.depth[n + nodes]]
    return Steps(
        ids[left],
        ids[right],
        above - tree.levels[links.depth[left]],
        above - tree.levels[links.depth[right]],
        float(tree.levels[0] - tree.levels[links.depth[links.root]]),
    )


def sum_products(trees: Sequence[Tree], x: Floats, n_threads: int) -> Floats:
    """Sum over trees of K x for x (n, k), in row order. O(n) per tree and column."""
    n, k = x.shape
    total: Floats = np.zeros((n, k))
    groups = [trees[g::TREE_GROUPS] for g in range(min(TREE_GROUPS, len(trees)))]
    for c in range(k):
        column = np.ascontiguousarray(x[:, c])
        for part in run_each(partial(_sum_group, column), groups, n_threads):
            total[:, c] += part
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
    if x.shape[1] in add_level_products:
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
    """Sum of K x over a few trees, (n,)."""
    out: Floats = np.zeros(x.size)
    room = scratch.borrow("room", 2 * x.size, np.float64)
    for tree in trees:
        add_product(tree.row_idx, tree.steps or make_steps(tree), x, room, out)
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
