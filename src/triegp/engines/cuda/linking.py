"""Links of a trie on the device, computed from its merge plan."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import cuda, int32

from triegp.engines.cpu.once import computed_once
from triegp.engines.cuda.card import (
    THREADS,
    TILE,
    Kernel,
    argsort,
    device,
    finish,
    kernel,
    launch,
    to_host,
    xp,
)
from triegp.engines.cuda.keys import Sorted, ranks
from triegp.engines.cuda.plan import Plan, last_turn, make_plan
from triegp.engines.records import Ids, Links


@device
def _link(lo, count, place, partner, step, tops, next_tops, left, right, top):
    """Link one tile, round by round; top: (count,), the id at the top of each run."""
    t = cuda.threadIdx.x
    for p in range(t, count, THREADS):
        top[p] = tops[lo + p] if tops.size > 1 else lo + p
    last = cuda.shared.array(1, int32)
    for turn in range(1, last_turn(step[lo : lo + count], count, last) + 1):
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


@cache
def _link_tiles(long: bool) -> Kernel:
    """The kernel that links one stage; tops: ids of its items, or of size 1 if they are leaves.

    long: whether tiles may exceed TILE items. room: one array int32 (n_items,) if long, else empty.
    """

    @kernel
    def link_tiles(first, place, partner, step, tops, next_tops, left, right, room):
        tile = cuda.blockIdx.x
        lo, hi = first[tile], first[tile + 1]
        top = room[0][lo:hi] if long else cuda.shared.array(TILE, int32)
        _link(lo, hi - lo, place, partner, step, tops, next_tops, left, right, top)

    return link_tiles


@kernel
def _fill_depths(rank, n_levels, depth):
    """Depths of all ids, int32 (2n,)."""
    n = rank.size - 1
    i = cuda.grid(1)
    if i < n:
        depth[i] = n_levels
        depth[n + i] = min(rank[i], n_levels)


class Origin(NamedTuple):
    """The batch that a trie was sorted in, its member number, and its rows in key order."""

    batch: Sorted
    member: int
    row_idx: Any


class CardLinks(Links):
    """Links in device memory, each computed on first use.

    Nodes are in buckets order[starts[k]:stops[k]], deepest first. No node of a bucket is above
    another node of it. starts and stops are on the host. There is no spine.

    Parameters
    ----------
    rank : int32 (n + 1,)
        Ranks of the separators, see `keys.Sorted`.
    n_levels : int
        Length of a key, D.
    origin : Origin, optional
        The batch in which the rows were sorted, if there was one.
    """

    def __init__(self, rank: Any, n_levels: int, origin: Origin | None = None) -> None:
        vars(self).update(rank=rank, _n_levels=n_levels, origin=origin)

    if TYPE_CHECKING:
        rank: Any
        origin: Origin | None
        _n_levels: int
    else:

        @computed_once
        def depth(self):
            """Depth of every id, int32 (2n,)."""
            depth = xp.empty(2 * self.n_rows, np.int32)
            launch(_fill_depths, self.n_rows, self.rank, self.n_levels, depth)
            finish()  # threads with other streams may share it
            return depth

        left = property(lambda self: self._tree[0])
        right = property(lambda self: self._tree[1])
        root = property(lambda self: self._tree[2])
        order = property(lambda self: self._buckets[0])
        starts = property(lambda self: self._buckets[1])
        stops = property(lambda self: self._buckets[2])
        spine = property(lambda self: self._buckets[0][:0])

    @property
    def n_rows(self) -> int:
        """Number of leaves, n."""
        return int(self.rank.size) - 1

    @property
    def n_levels(self) -> int:
        """Length of a key, D."""
        return self._n_levels

    @computed_once
    def plan(self) -> Plan:
        """The merge plan of this trie."""
        plan = make_plan(self.rank, self.n_rows, self.n_levels, 1)
        finish()
        return plan

    @computed_once
    def _tree(self) -> tuple[Any, Any, int]:
        """left, right and root."""
        return _link_plan(self.plan)

    @computed_once
    def _buckets(self) -> tuple[Any, Any, Any]:
        """order, starts and stops."""
        return _bucket(self.rank[1:-1])


def link(lcp: Ids, n_levels: int) -> CardLinks:
    """The trie over n sorted keys, from the lcp of neighbours, (n,)."""
    return CardLinks(ranks(lcp, n_levels), n_levels)


def _link_plan(plan: Plan) -> tuple[Any, Any, int]:
    """Children of all nodes, int32 (n,), and the id of the root."""
    n = plan.n_rows
    left, right, tops = xp.zeros(n, np.int32), xp.zeros(n, np.int32), xp.zeros(1, np.int32)
    sizes = [*(stage.n_items for stage in plan.stages[1:]), 1]
    for stage, size in zip(plan.stages, sizes, strict=True):
        next_tops = xp.empty(size, np.int32)
        items = (stage.first, stage.place, stage.partner, stage.step)
        room = (xp.empty(stage.n_items, np.int32),) if stage.long else ()
        _link_tiles(stage.long)(stage.n_tiles, *items, tops, next_tops, left, right, room)
        tops = next_tops
    return left, right, int(to_host(tops)[0])


def _bucket(rank: Any) -> tuple[Any, Any, Any]:
    """Separators 1..n-1 in buckets of decreasing rank: order, starts, stops."""
    if rank.size == 0:
        return xp.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
    order = (argsort(-rank) + 1).astype(np.int32)
    counts = to_host(xp.bincount(rank))[::-1]
    stops = np.cumsum(counts[counts > 0])
    return order, stops - counts[counts > 0], stops
