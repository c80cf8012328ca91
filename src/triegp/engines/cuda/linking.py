"""The trie's links on the card: who meets whom, from the plan of one trie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, int32

from triegp.engines.cuda.card import (
    THREADS,
    TILE,
    argsort,
    device,
    kernel,
    launch,
    to_device,
    to_host,
    xp,
)
from triegp.engines.cuda.keys import ranks
from triegp.engines.cuda.plan import Plan, make_plan
from triegp.engines.protocol import Ids, Links


@dataclass(frozen=True, eq=False)
class CardLinks(Links):
    """Links in the card's memory, and the plan by which blocks walk them.

    Nodes come in buckets, order[starts[k]:stops[k]], deepest first, and no node of a bucket stands
    above another; starts and stops are on the host. There is no spine.

    Attributes
    ----------
    plan : Plan
        Of one member.
    """

    plan: Plan

    @property
    def n_levels(self) -> int:
        """Length of a key, D."""
        return self.plan.n_levels


@device
def _link(lo, count, n_turns, place, partner, step, tops, next_tops, left, right, top):
    """Link a tile, round by round; top: (count,), the ids that its runs end in."""
    t = cuda.threadIdx.x
    for p in range(t, count, THREADS):
        top[p] = tops[lo + p] if tops.size > 1 else lo + p
    cuda.syncthreads()
    for turn in range(1, n_turns + 1):
        for p in range(t, count, THREADS):
            if step[lo + p] == turn:
                x = partner[lo + p]
                node = place[lo + p] if place.size > 1 else lo + p
                left[node] = top[x]
                right[node] = top[p]
                top[x] = left.size + node
        cuda.syncthreads()
    for p in range(t, count, THREADS):
        if step[lo + p] == 0:
            next_tops[-1 - partner[lo + p]] = top[p]


@kernel
def _link_tiles(first, n_turns, place, partner, step, tops, next_tops, left, right):
    """Links of all tiles; tops: ids of the items, or of size 1 where they are leaves."""
    tile = cuda.blockIdx.x
    lo, hi = first[tile], first[tile + 1]
    top = cuda.shared.array(TILE, int32)
    _link(lo, hi - lo, n_turns, place, partner, step, tops, next_tops, left, right, top)


@kernel
def _link_long_tiles(first, n_turns, place, partner, step, tops, next_tops, left, right, top):
    """The same for tiles of any length; top: int32 (n_items,)."""
    tile = cuda.blockIdx.x
    lo, hi = first[tile], first[tile + 1]
    _link(lo, hi - lo, n_turns, place, partner, step, tops, next_tops, left, right, top[lo:hi])


@kernel
def _fill_depths(lcp, n_levels, depth):
    """Depths of all ids."""
    i = cuda.grid(1)
    if i < lcp.size:
        depth[i] = n_levels
        depth[lcp.size + i] = lcp[i]


def link(lcp: Ids, n_levels: int) -> CardLinks:
    """The trie over the sorted keys of one trie, from the lcp of neighbours, (n,)."""
    lcp = to_device(lcp, np.int32)
    n = lcp.size
    rank = ranks(lcp, n_levels)
    plan = make_plan(rank, n, n_levels, 1)
    left, right, tops = xp.zeros(n, np.int32), xp.zeros(n, np.int32), xp.zeros(1, np.int32)
    sizes = [*(stage.n_items for stage in plan.stages[1:]), 1]
    for stage, size in zip(plan.stages, sizes, strict=True):
        next_tops = xp.empty(size, np.int32)
        n_turns = int(stage.step.max())
        given = (stage.first, n_turns, stage.place, stage.partner, stage.step)
        given = (*given, tops, next_tops, left, right)
        if stage.long:
            _link_long_tiles(stage.n_tiles, *given, xp.empty(stage.n_items, np.int32))
        else:
            _link_tiles(stage.n_tiles, *given)
        tops = next_tops
    depth = xp.empty(2 * n, np.int32)
    launch(_fill_depths, n, lcp, n_levels, depth)
    order, starts, stops = _buckets(rank[1:n])
    nothing: Any = xp.empty(0, np.int32)
    root = int(to_host(tops)[0])
    return CardLinks(depth, left, right, order, starts, stops, nothing, root, plan)


def _buckets(rank: Any) -> tuple[Any, Any, Any]:
    """Separators 1..n-1 in buckets of falling rank."""
    if rank.size == 0:
        return xp.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
    order = (argsort(-rank) + 1).astype(np.int32)
    counts = to_host(xp.bincount(rank))[::-1]
    stops = np.cumsum(counts[counts > 0])
    return order, stops - counts[counts > 0], stops
