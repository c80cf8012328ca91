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
    device,
    kernel,
    to_device,
    to_host,
    xp,
)

Ints = npt.NDArray[np.int32]
ENDS = TILE + 1
CHOSEN = 1 << 29  # more than any place in a tile
WORST = 0.75  # a stage that leaves more than this share of its items open is followed by a long one


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


@kernel
def _close_tiles(first, rank, depth, n_levels, partner, step, n_open):
    """Merge what a tile can; partner of what stays open is -1 - the depth of the top of its run.

    depth: int32 (n_items,), or of size 1 where all items are leaves. n_open: int32 (n_tiles,).
    """
    lo = first[cuda.blockIdx.x]
    count = first[cuda.blockIdx.x + 1] - lo
    ranks = cuda.shared.array(ENDS, int32)
    begin = cuda.shared.array(TILE, int32)
    end = cuda.shared.array(TILE, int32)
    own = cuda.shared.array(TILE, int32)
    _close(lo, count, rank, depth, n_levels, partner, step, n_open, ranks, begin, end, own)


@kernel
def _close_long_tiles(first, rank, depth, n_levels, partner, step, n_open, ranks, begin, end, own):
    """The same for tiles of any length; ranks, begin, end, own: int32 (n_items + n_tiles,)."""
    b = cuda.blockIdx.x
    lo, hi = first[b], first[b + 1]
    _close(
        lo,
        hi - lo,
        rank,
        depth,
        n_levels,
        partner,
        step,
        n_open,
        ranks[lo + b : hi + b + 1],
        begin[lo:hi],
        end[lo:hi],
        own[lo:hi],
    )


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
    first, members, on_card = _leaf_tiles(n_rows, n_members)
    stages: list[Stage] = []
    while True:
        n_items, n_tiles = int(first[-1]), members.size
        partner, step = xp.empty(n_items, np.int32), xp.empty(n_items, np.int32)
        n_open = xp.empty(n_tiles, np.int32)
        given = (on_card[0], rank, depth, n_levels, partner, step, n_open)
        if long:
            room = [xp.empty(n_items + n_tiles, np.int32) for _ in range(4)]
            _close_long_tiles(n_tiles, *given, *room)
        else:
            _close_tiles(n_tiles, *given)
        starts, owners = on_card
        stages.append(Stage(rank, depth, place, partner, step, starts, owners, members, long))
        offset = np.zeros(n_tiles + 1, np.int32)
        np.cumsum(to_host(n_open), out=offset[1:])
        n_next = int(offset[-1])
        long = n_next > WORST * n_items
        ends = np.searchsorted(members, np.arange(n_members), side="right")
        first, members = _tiles(np.diff(offset[ends], prepend=0), long)
        offset_card, *on_card = upload(offset, first, members)
        next_rank = xp.empty(n_next + 1, np.int32)
        next_depth, next_place = xp.empty(n_next, np.int32), xp.empty(n_next, np.int32)
        found = (next_rank, next_depth, next_place)
        _gather_open(n_tiles, starts, rank, place, partner, offset_card, *found)
        if n_next == n_members:
            return Plan(tuple(stages), next_depth, n_rows, n_levels, n_members)
        rank, depth, place = next_rank, next_depth, next_place


@lru_cache(maxsize=16)
def _leaf_tiles(n_rows: int, n_members: int) -> tuple[Ints, Ints, list[Any]]:
    """Tables of the first stage, which do not depend on the data."""
    first, members = _tiles(np.full(n_members, n_rows), False)
    return first, members, upload(first, members)


def upload(*tables: npt.NDArray[Any]) -> list[Any]:
    """Several tables in one copy."""
    together = to_device(np.concatenate(tables), np.int32)
    parts, end = [], 0
    for table in tables:
        parts.append(together[end : end + table.size])
        end += table.size
    return parts


def _tiles(counts: npt.NDArray[Any], long: bool) -> tuple[Ints, Ints]:
    """Where tiles begin, and whose each is, for so many items a member."""
    begin = np.append(0, np.cumsum(counts))
    if long:
        return begin.astype(np.int32), np.arange(counts.size, dtype=np.int32)
    return cut_up(begin, TILE)


def cut_up(begin: npt.NDArray[Any], size: int) -> tuple[Ints, Ints]:
    """Cut runs begin[k]..begin[k + 1] into pieces of at most `size`: firsts, and whose each is."""
    if begin.size == 2:
        first = np.append(np.arange(begin[0], begin[1], size), begin[1]).astype(np.int32)
        return first, np.zeros(first.size - 1, np.int32)
    pieces = -(-np.diff(begin) // size)
    owner = np.repeat(np.arange(pieces.size, dtype=np.int32), pieces)
    within = np.arange(owner.size) - np.repeat(np.append(0, np.cumsum(pieces))[:-1], pieces)
    first = np.append(begin[owner] + size * within, begin[-1])
    return first.astype(np.int32), owner
