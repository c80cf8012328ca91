"""Who merges with whom, tile by tile: the trie as blocks of threads walk it.

A tile is a run of adjacent items, at first the leaves, that one block holds in shared memory. In a
tile every separator merges the two runs of items beside it, deep ones first, as long as what bounds
the merged run on both sides is less deep. What stays open in all tiles, a few items each, are the
items of the next stage, until every member is one item, its root. This is the shard of the design,
again and again; it depends on the ranks alone and serves all sweeps over the same trie.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda, int32

from triegp.engines.cuda.card import (
    THREADS,
    TILE,
    Kernel,
    current_device,
    device,
    kernel,
    to_device,
    to_host,
    xp,
)

Ints = npt.NDArray[np.int32]
ENDS = TILE + 1
CHOSEN = 1 << 29  # more than any place in a tile
ENOUGH = TILE  # items that are one tile in any case
WORST = 0.75  # a stage that leaves more than this share of a member open is followed by a long one


@dataclass(frozen=True, eq=False)
class Stage:
    """Items of one stage, their tiles, and what each tile does with them.

    Attributes
    ----------
    rank : int32 (n_items + 1,)
        Of the separator in front of each item; -1 in front of a member, and at the end.
    depth : int32 (n_items,) or None
        Depth of the top of each item; None where all are leaves.
    place : int32 (n_items,) or None
        First leaf of each item, by its number in the batch; None where items are leaves.
    partner : int32 (n_items,)
        Where the run begins, in the tile, that this item's separator merges with the run from this
        item on; -1 - j where it stays open and its run is item j of the next stage.
    step : int32 (n_items,)
        In which round it does so, from 1 on: after all merges of both runs. 0 where it stays open.
    first : int32 (n_tiles + 1,)
        Where tiles begin.
    member : int32 (n_tiles,)
        Whose each tile is.
    members : int32 (n_tiles,), on the host
        The same.
    long : bool
        Whether tiles may have more than TILE items, too many for shared memory.
    """

    rank: Any
    depth: Any
    place: Any
    partner: Any
    step: Any
    first: Any
    member: Any
    members: Ints
    long: bool

    @property
    def items(self) -> tuple[Any, ...]:
        """What sweeps take of the items: ranks, depths, partners and rounds."""
        return self.rank, self.depth, self.partner, self.step

    @property
    def n_tiles(self) -> int:
        """Number of tiles."""
        return int(self.members.size)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return int(self.partner.size)


@dataclass(frozen=True, eq=False)
class Plan:
    """All stages of a batch.

    Attributes
    ----------
    stages : tuple of Stage
        From the leaves up.
    root_depth : int32 (n_members,)
        Depth of every member's root.
    n_rows, n_levels, n_members : int
        Leaves a member, length of a key, members.
    """

    stages: tuple[Stage, ...]
    root_depth: Any
    n_rows: int
    n_levels: int
    n_members: int


@device
def _close(lo, count, rank, depth, n_levels, partner, step, n_open, ranks, begin, end, own):
    """Merge in rounds: whatever is deeper than what bounds it on both sides has its turn."""
    t = cuda.threadIdx.x
    n_merged = cuda.shared.array(1, int32)
    if t == 0:
        ranks[count] = rank[lo + count]
        n_merged[0] = 0
    for p in range(t, count, THREADS):
        ranks[p] = rank[lo + p]
        begin[p] = p
        end[p] = p + 1
        own[p] = -1 - (n_levels if depth.size == 1 else depth[lo + p])
    cuda.syncthreads()
    turn = 0
    go_on = True
    while go_on:
        turn += 1
        found = 0
        for p in range(t, count, THREADS):
            if p > 0 and own[p] < 0:
                level = ranks[p]
                if ranks[begin[p - 1]] < level and ranks[end[p]] < level:
                    own[p] = CHOSEN
                    found += 1
        if found > 0:
            cuda.atomic.add(n_merged, 0, found)
        go_on = cuda.syncthreads_or(found) != 0
        if go_on:
            for p in range(t, count, THREADS):
                if own[p] == CHOSEN:
                    x, y = begin[p - 1], end[p]
                    step[lo + p] = turn
                    own[p] = x
                    own[x] = -1 - min(ranks[p], n_levels)
                    end[x] = y
                    begin[y - 1] = x
            cuda.syncthreads()
    for p in range(t, count, THREADS):
        partner[lo + p] = own[p]
        if own[p] < 0:
            step[lo + p] = 0
    if t == 0:
        n_open[cuda.blockIdx.x] = count - n_merged[0]


def _closing(long: bool) -> Kernel:
    @kernel
    def close_tiles(first, rank, depth, n_levels, partner, step, n_open, room):
        """Merge what a tile can; partner of what stays open is -1 - the depth of its run's top.

        depth: int32 (n_items,), or of size 1 where all items are leaves. n_open: int32 (n_tiles,).
        room: empty, or, if tiles are of any length, four arrays int32 (n_items + n_tiles,).
        """
        b = cuda.blockIdx.x
        lo, hi = first[b], first[b + 1]
        if long:
            ranks, begin = room[0][lo + b : hi + b + 1], room[1][lo:hi]
            end, own = room[2][lo:hi], room[3][lo:hi]
        else:
            ranks = cuda.shared.array(ENDS, int32)
            begin = cuda.shared.array(TILE, int32)
            end = cuda.shared.array(TILE, int32)
            own = cuda.shared.array(TILE, int32)
        _close(lo, hi - lo, rank, depth, n_levels, partner, step, n_open, ranks, begin, end, own)

    return close_tiles


_close_tiles, _close_long_tiles = _closing(False), _closing(True)


@kernel
def _gather_open(first, rank, place, partner, offset, next_rank, next_depth, next_place):
    """What stays open becomes the next stage's items; partner says where.

    offset: int32 (n_tiles + 1,), where each tile's open items go.
    """
    t = cuda.threadIdx.x
    b = cuda.blockIdx.x
    lo = first[b]
    count = first[b + 1] - lo
    share = (count + THREADS - 1) // THREADS
    start, stop = min(t * share, count), min((t + 1) * share, count)
    found = cuda.shared.array(THREADS, int32)
    mine = 0
    for p in range(start, stop):
        if partner[lo + p] < 0:
            mine += 1
    found[t] = mine
    cuda.syncthreads()
    if t == 0:
        total = offset[b]
        for i in range(THREADS):
            mine = found[i]
            found[i] = total
            total += mine
    cuda.syncthreads()
    to = found[t]
    for p in range(start, stop):
        if partner[lo + p] < 0:
            next_rank[to] = rank[lo + p]
            next_depth[to] = -1 - partner[lo + p]
            next_place[to] = place[lo + p] if place.size > 1 else lo + p
            partner[lo + p] = -1 - to
            to += 1
    if b == 0 and t == 0:
        next_rank[next_depth.size] = -1


@device
def last_turn(turns, count, last):
    """The last round of a tile, by all threads; last: shared int32 (1,)."""
    t = cuda.threadIdx.x
    if t == 0:
        last[0] = 0
    cuda.syncthreads()
    for p in range(t, count, THREADS):
        if turns[p] > 0:
            cuda.atomic.max(last, 0, turns[p])
    cuda.syncthreads()
    found = last[0]
    cuda.syncthreads()
    return found


def make_plan(rank: Any, n_rows: int, n_levels: int, n_members: int) -> Plan:
    """Plan the sweeps over a batch from its ranks, int32 (n_members * n_rows + 1,).

    O(N) and, for each of the few stages, one number a tile to the host and a table back.
    """
    none = xp.zeros(1, np.int32)
    depth, place, long = none, none, False
    counts = np.full(n_members, n_rows)
    first, members, on_card = _leaf_tiles(n_rows, n_members, current_device())
    stages: list[Stage] = []
    while True:
        n_items, n_tiles = int(first[-1]), members.size
        partner, step = xp.empty(n_items, np.int32), xp.empty(n_items, np.int32)
        n_open = xp.empty(n_tiles, np.int32)
        given = (on_card[0], rank, depth, n_levels, partner, step, n_open)
        room = tuple(xp.empty(n_items + n_tiles, np.int32) for _ in range(4 if long else 0))
        (_close_long_tiles if long else _close_tiles)(n_tiles, *given, room)
        starts, owners = on_card
        stages.append(Stage(rank, depth, place, partner, step, starts, owners, members, long))
        offset = np.zeros(n_tiles + 1, np.int32)
        np.cumsum(to_host(n_open), out=offset[1:])
        n_next = int(offset[-1])
        ends = np.searchsorted(members, np.arange(n_members), side="right")
        before, counts = counts, np.diff(offset[ends], prepend=0)
        poor = (counts > WORST * before) & (counts > ENOUGH)  # each member's own affair
        first, members = cut_up(counts, np.where(poor, counts, TILE))
        long = bool(poor.any())
        offset_card, *on_card = upload(offset, first, members)
        next_rank = xp.empty(n_next + 1, np.int32)
        next_depth, next_place = xp.empty(n_next, np.int32), xp.empty(n_next, np.int32)
        found = (next_rank, next_depth, next_place)
        _gather_open(n_tiles, starts, rank, place, partner, offset_card, *found)
        if n_next == n_members:
            return Plan(tuple(stages), next_depth, n_rows, n_levels, n_members)
        rank, depth, place = next_rank, next_depth, next_place


@lru_cache(maxsize=16)
def _leaf_tiles(n_rows: int, n_members: int, device: int) -> tuple[Ints, Ints, list[Any]]:
    """Tables of the first stage, which do not depend on the data; kept for each device."""
    first, members = cut_up(np.full(n_members, n_rows), TILE)
    return first, members, upload(first, members)


def upload(*tables: npt.NDArray[Any]) -> list[Any]:
    """Several tables in one copy."""
    together = to_device(np.concatenate(tables), np.int32)
    parts, end = [], 0
    for table in tables:
        parts.append(together[end : end + table.size])
        end += table.size
    return parts


def cut_up(counts: npt.NDArray[Any], sizes: Any) -> tuple[Ints, Ints]:
    """Cut runs of so many items into pieces of at most `sizes`: firsts, and whose each is."""
    sizes = np.broadcast_to(sizes, counts.shape)
    pieces = -(-counts // sizes)
    ends, begin = np.cumsum(pieces), np.cumsum(counts) - counts
    owner = np.repeat(np.arange(counts.size, dtype=np.int32), pieces)
    within = np.arange(owner.size) - (ends - pieces)[owner]
    first = np.append(begin[owner] + sizes[owner] * within, counts.sum())
    return first.astype(np.int32), owner
