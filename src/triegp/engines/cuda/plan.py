"""The merge plan of a trie: which runs of items merge, tile by tile, and in which round.

A tile is a run of adjacent items that one block of threads holds in shared memory. The items of the
first stage are the leaves. In a tile, every separator merges the two runs of items beside it, deep
ones first, as long as the separators that bound the merged run on both sides are less deep. The
runs that stay open, a few per tile, are the items of the next stage. The last stage leaves one item
per member, its root. This applies the shards of docs/notation.md repeatedly. The plan depends on
the ranks alone and serves all sweeps over the same trie.
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
CHOSEN = 1 << 29  # marks a separator that merges now; more than any position in a tile
ENOUGH = TILE  # a member with at most this many items is one tile
WORST = 0.75  # if a stage leaves a larger share of a member open, the member's next tile is long


@dataclass(frozen=True, eq=False)
class Stage:
    """Items of one stage, their tiles, and the merges in each tile.

    Attributes
    ----------
    rank : int32 (n_items + 1,)
        Rank of the separator in front of each item; -1 in front of a member, and at the end.
    depth : int32 (n_items,) or (1,)
        Depth of the top of each item; of size 1 if all items are leaves.
    place : int32 (n_items,) or (1,)
        First leaf of each item, numbered within the batch; of size 1 if the items are leaves.
    partner : int32 (n_items,)
        Position in the tile where the left run of this item's merge begins. The right run begins at
        this item. If the separator stays open: -1 - j, and the run that begins here is item j of
        the next stage.
    step : int32 (n_items,)
        Round of this merge, from 1 on, after all merges inside both runs; 0 if it stays open.
    first : int32 (n_tiles + 1,)
        First item of each tile.
    member : int32 (n_tiles,)
        Member that each tile belongs to.
    members : int32 (n_tiles,), on the host
        Same as member.
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
        """The arguments of all sweeps about the items: ranks, depths, partners and rounds."""
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
        Leaves per member, length of a key, number of members.
    """

    stages: tuple[Stage, ...]
    root_depth: Any
    n_rows: int
    n_levels: int
    n_members: int


@device
def _close(lo, count, rank, depth, n_levels, partner, step, n_open, ranks, begin, end, own):
    """Merge a tile in rounds; each round takes the separators deeper than both bounds.

    The bounds of a separator are those of the run that its merge would give.
    """
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
    """Compile `close_tiles` for tiles in shared memory, or in `room` if long."""

    @kernel
    def close_tiles(first, rank, depth, n_levels, partner, step, n_open, room):
        """Merge each tile as far as possible; partner of an open run is -1 - the depth of its top.

        depth: int32 (n_items,), or of size 1 if all items are leaves. n_open: int32 (n_tiles,),
        receives the number of open runs. room: if long, four arrays int32 (n_items + n_tiles,),
        else empty.
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
    """Make the open runs the items of the next stage, and partner their numbers there.

    offset: int32 (n_tiles + 1,), number of the first open run of each tile.
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
    """The last round of a tile, returned to all threads; last: shared int32 (1,)."""
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
    """The merge plan of a batch from its ranks, int32 (n_members * n_rows + 1,).

    O(N). Each of the few stages copies one number per tile to the host, and a table back.
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
        poor = (counts > WORST * before) & (counts > ENOUGH)  # decided for each member alone
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
    """Tables of the first stage, which do not depend on the data; cached per device."""
    first, members = cut_up(np.full(n_members, n_rows), TILE)
    return first, members, upload(first, members)


def upload(*tables: npt.NDArray[Any]) -> list[Any]:
    """Copy several int32 tables to the device in one transfer."""
    together = to_device(np.concatenate(tables), np.int32)
    parts, end = [], 0
    for table in tables:
        parts.append(together[end : end + table.size])
        end += table.size
    return parts


def cut_up(counts: npt.NDArray[Any], sizes: Any) -> tuple[Ints, Ints]:
    """Cut runs of counts[i] items into pieces of at most sizes[i]: starts and owners of pieces."""
    sizes = np.broadcast_to(sizes, counts.shape)
    pieces = -(-counts // sizes)
    ends, begin = np.cumsum(pieces), np.cumsum(counts) - counts
    owner = np.repeat(np.arange(counts.size, dtype=np.int32), pieces)
    within = np.arange(owner.size) - (ends - pieces)[owner]
    first = np.append(begin[owner] + sizes[owner] * within, counts.sum())
    return first.astype(np.int32), owner
