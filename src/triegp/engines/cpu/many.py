"""Many trees over the same rows: which kernels run on which threads, and how they add up.

Trees are summed in groups, groups in their order: the result does not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from triegp.engines.contract import Floats, Ids, Tree
from triegp.engines.cpu import blocks, forests, scratch
from triegp.engines.cpu.threads import run_each

TREE_GROUPS = 8  # whose sums are held at once


def sum_products(trees: Sequence[Tree], x: Floats, n_threads: int) -> Floats:
    """Sum over trees of K x for x (n, k), in the order of the rows."""
    n, k = x.shape
    total: Floats = np.zeros((n, k))
    groups = [trees[g::TREE_GROUPS] for g in range(min(TREE_GROUPS, len(trees)))]
    for lo in range(0, k, forests.WIDE):
        columns = _fill_up(x[:, lo : lo + forests.WIDE])
        some = total[:, lo : lo + forests.WIDE]
        for part in run_each(partial(_sum_group, columns), groups, n_threads):
            some += part[:, : some.shape[1]]
    return total


def sum_level_products(trees: Sequence[Tree], x: Floats, z: Floats, n_threads: int) -> list[Floats]:
    """x' K_l z for l = 0..D, summed over the columns, (D + 1,) a tree; rows in their order."""
    pairs = [
        (_fill_up(x[:, lo : lo + forests.WIDE]), _fill_up(z[:, lo : lo + forests.WIDE]))
        for lo in range(0, x.shape[1], forests.WIDE)
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
    """One column as it is, more filled up with zeros to the width of the kernels."""
    if x.shape[1] in forests.add_product:
        return np.ascontiguousarray(x)
    out: Floats = np.zeros((x.shape[0], forests.WIDE))
    out[:, : x.shape[1]] = x
    return out


def _walk(tree: Tree) -> tuple[Any, ...]:
    """What the kernels of `forests` take of a tree first."""
    links = tree.links
    shards = (links.order, links.starts, links.stops, links.spine)
    return (tree.row_idx, *shards, (links.left, links.right, links.depth))


def _sum_group(x: Floats, trees: Sequence[Tree]) -> Floats:
    """K x of a few trees, one after the other."""
    n, width = x.shape
    out: Floats = np.zeros((n, width))
    room = scratch.borrow("room", 2 * n * width, np.float64).reshape(2 * n, width)
    for tree in trees:
        root = tree.links.root
        forests.add_product[width](*_walk(tree), tree.levels, root, x, room, out)
    return out


def _add_blocks(given: tuple[Any, ...], out: Floats, some: tuple[int, int]) -> None:
    """One tree's part in some blocks."""
    arguments = (*given, *some, out)
    blocks.add_blocks(*arguments)


def _level_products(pairs: Sequence[tuple[Floats, Floats]], tree: Tree) -> Floats:
    """Of one tree."""
    by_level = np.zeros(tree.links.n_levels + 1)
    for x, z in pairs:
        n, width = x.shape
        room = scratch.borrow("room", 4 * n * width, np.float64).reshape(2, 2 * n, width)
        forests.add_level_products[width](*_walk(tree), x, z, *room, by_level)
    return np.asarray(np.cumsum(by_level[::-1])[::-1])
