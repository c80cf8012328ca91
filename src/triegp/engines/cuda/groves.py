"""Which trees are walked as one batch, and where that is kept while it is used again and again."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triegp.engines.cuda.card import SMALL_BYTES, free_bytes, to_device, xp
from triegp.engines.cuda.keys import ranks
from triegp.engines.cuda.linking import CardLinks
from triegp.engines.cuda.plan import Plan, make_plan
from triegp.engines.protocol import Links, Tree

GROVE_BYTES = 1 << 34  # of a batch of trees, and what they give for all rows


@dataclass(frozen=True, eq=False)
class Grove:
    """Some trees as one batch.

    Attributes
    ----------
    plan : Plan
        Their members are the trees.
    row_idx : int32 (trees * n,)
        Rows in key order, tree after tree.
    """

    plan: Plan
    row_idx: Any


def plant(trees: Sequence[Tree]) -> Grove:
    """Trees over the same rows, of the same depth, as one batch."""
    n, n_levels = trees[0].row_idx.size, trees[0].links.n_levels
    rank = [_rank(tree.links)[:-1] for tree in trees]
    plan = make_plan(xp.concatenate([*rank, xp.full(1, -1, np.int32)]), n, n_levels, len(trees))
    row_idx = xp.concatenate([to_device(tree.row_idx, np.int32) for tree in trees])
    return Grove(plan, row_idx)


def _rank(links: Links) -> Any:
    return links.rank if isinstance(links, CardLinks) else ranks(links.lcp, links.n_levels)


def groves(trees: Sequence[Tree], n_columns: int) -> Iterator[Sequence[Tree]]:
    """Neighbouring trees of the same depth, as many together as fit a share of the memory."""
    n = trees[0].row_idx.size
    bytes_each = n * (40 + 10 * n_columns)
    most = max(1, GROVE_BYTES // bytes_each)
    if min(most, len(trees)) * bytes_each > SMALL_BYTES:
        most = max(1, min(GROVE_BYTES, free_bytes() // 2) // bytes_each)
    first = 0
    for k in range(1, len(trees) + 1):
        if (
            k == len(trees)
            or k - first == most
            or trees[k].links.n_levels != trees[first].links.n_levels
        ):
            yield trees[first:k]
            first = k


def grove_of(trees: Sequence[Tree]) -> tuple[Grove, Any]:
    """Trees as one batch and their levels, (trees, D + 1), on the card.

    Made when these trees are first seen together, and kept with the links of the first of them.
    """
    owner = vars(trees[0].links)  # where it ends with them
    links, levels = [tree.links for tree in trees], [tree.levels for tree in trees]
    kept = owner.get("_grove")
    if kept is None or not _same([ref() for ref in kept[0]], links):
        kept = owner["_grove"] = ([weakref.ref(one) for one in links], plant(trees))
        owner.pop("_levels", None)
    on_card = owner.get("_levels")
    if on_card is None or not _same(on_card[0], levels):
        on_card = owner["_levels"] = (levels, to_device(np.stack(levels), np.float64))
    return kept[1], on_card[1]


def _same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))
