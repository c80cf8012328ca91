"""Batches of trees that are walked together, kept for repeated use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triegp.engines.cpu.once import computed_once
from triegp.engines.cuda.card import SMALL_BYTES, finish, free_bytes, to_device, xp
from triegp.engines.cuda.keys import ranks
from triegp.engines.cuda.linking import CardLinks, Origin
from triegp.engines.cuda.plan import Plan, make_plan
from triegp.engines.records import Links, Tree

GROVE_BYTES = 1 << 34  # maximum for a batch of trees and its results for all rows


@dataclass(frozen=True, eq=False)
class Grove:
    """Several trees over the same rows as one batch.

    Attributes
    ----------
    rank : int32 (trees * n + 1,)
        Ranks of the separators, see `keys.Sorted`.
    row_idx : int32 (trees * n,)
        Rows in key order, tree after tree.
    levels : float64 (trees, D + 1)
        Levels of each tree.
    """

    rank: Any
    row_idx: Any
    levels: Any

    @computed_once
    def plan(self) -> Plan:
        """The merge plan; its members are the trees."""
        n_trees, n_levels = self.levels.shape
        plan = make_plan(self.rank, self.row_idx.size // n_trees, n_levels - 1, n_trees)
        finish()  # threads with other streams may share it
        return plan


class Planted(list[Tree]):
    """Trees over the same rows, with the batches of the last walk."""

    _most = 0
    _groves: tuple[Grove, ...] = ()

    def groves(self, most: int) -> tuple[Grove, ...]:
        """Batches of at most `most` trees, with their plans made. The last result is kept."""
        if most != self._most:
            self._groves, self._most = tuple(lay_out(self, most)), most
            for grove in self._groves:
                _ = grove.plan
        return self._groves


def groves(trees: Sequence[Tree], n_columns: int) -> tuple[Grove, ...]:
    """Batches of consecutive trees of the same depth, as many per batch as memory allows.

    n_columns: number of columns of the product that the memory must hold.
    """
    planted = trees if isinstance(trees, Planted) else Planted(trees)
    n = planted[0].row_idx.size
    bytes_each = n * (40 + 10 * n_columns)
    most = max(1, GROVE_BYTES // bytes_each)
    if min(most, len(planted)) * bytes_each > SMALL_BYTES:
        most = max(1, min(GROVE_BYTES, free_bytes() // 2) // bytes_each)
    return planted.groves(min(most, len(planted)))


def lay_out(trees: Sequence[Tree], most: int) -> Iterator[Grove]:
    """Batches of consecutive trees of the same depth, at most `most` per batch."""
    first = 0
    for k in range(1, len(trees) + 1):
        if (
            k == len(trees)
            or k - first == most
            or trees[k].links.n_levels != trees[first].links.n_levels
        ):
            yield _plant(trees[first:k])
            first = k


def _plant(trees: Sequence[Tree]) -> Grove:
    """One batch of trees over the same rows and of the same depth."""
    n, sorted_at_once = trees[0].row_idx.size, _origin(trees)
    if sorted_at_once is not None:
        start, stop = sorted_at_once.member * n, (sorted_at_once.member + len(trees)) * n
        rank = sorted_at_once.batch.rank[start : stop + 1]
        row_idx = sorted_at_once.batch.row_idx[start:stop]
    else:
        parts = [_rank(tree.links)[:-1] for tree in trees]
        rank = xp.concatenate([*parts, xp.full(1, -1, np.int32)])
        row_idx = xp.concatenate([to_device(tree.row_idx, np.int32) for tree in trees])
    levels = to_device(np.stack([tree.levels for tree in trees]), np.float64)
    return Grove(rank, row_idx, levels)


def _origin(trees: Sequence[Tree]) -> Origin | None:
    """Origin of the first tree, if all trees are consecutive members of one sorted batch."""
    first: Origin | None = getattr(trees[0].links, "origin", None)
    for k, tree in enumerate(trees):
        own: Origin | None = getattr(tree.links, "origin", None)
        if first is None or own is None or tree.row_idx is not own.row_idx:
            return None
        if own.batch is not first.batch or own.member != first.member + k:
            return None
    return first


def _rank(links: Links) -> Any:
    """Ranks of the separators of one trie, int32 (n + 1,)."""
    return links.rank if isinstance(links, CardLinks) else ranks(links.lcp, links.n_levels)
