"""Walks over the trie, level by level: how a function of one node runs over all of them.

Nodes come in buckets, deepest first, and no node stands above another of its own bucket, so all
nodes of a bucket go at once. On a card one launch does the whole walk: between buckets its blocks
wait for each other. The simulator runs one block after the other: there every bucket is a launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numba import cuda

from triegp.engines.contract import Links
from triegp.engines.cuda import card
from triegp.engines.cuda.card import to_device, to_host, xp

FUSED = not card.SIMULATED  # one launch a walk
MOST_SIMULATED = 3  # blocks of a launch in the simulator: several, often too few for all items
SLOTS = 7  # most arrays that a step works on


@dataclass(frozen=True, eq=False)
class Walk:
    """A kernel that goes through all buckets, children first (up) or last."""

    kernel: Any
    up: bool


@dataclass(frozen=True, eq=False)
class Buckets:
    """What a walk needs of the links, on the card.

    Attributes
    ----------
    arrays : tuple
        order, int32 (n - 1,): nodes, bucket after bucket; starts, stops, int64 (n_buckets,): bucket
        k is order[starts[k]:stops[k]].
    tree : tuple
        left, right, depth.
    sizes : list of int
        Nodes of every bucket.
    """

    arrays: tuple[Any, ...]
    tree: tuple[Any, ...]
    sizes: list[int]


_known: WeakKeyDictionary[Links, Buckets] = WeakKeyDictionary()


def upwards(step: Any, n_arrays: int) -> Walk:
    """A walk that does step(node, column, tree, data), compiled for the card, children first.

    tree: (left, right, depth); data: the n_arrays arrays given to `run`. A step writes to its own
    node or to its children, and to its own column, only.
    """
    return Walk(_kernel(step, n_arrays, True), True)


def downwards(step: Any, n_arrays: int) -> Walk:
    """The same, children last."""
    return Walk(_kernel(step, n_arrays, False), False)


def _kernel(step: Any, n_arrays: int, up: bool) -> Any:
    @card.kernel
    def walk(order, starts, stops, left, right, depth, lo, hi, width, arrived, a, b, c, d, e, f, g):
        tree = (left, right, depth)
        data = (a, b, c, d, e, f, g)[:n_arrays]
        first, stride = cuda.grid(1), cuda.gridsize(1)
        for turn in range(lo, hi):
            if turn > lo:
                _wait(arrived, (turn - lo) * cuda.gridDim.x)
            bucket = turn if up else starts.size - 1 - turn
            begin = starts[bucket]
            for item in range(first, (stops[bucket] - begin) * width, stride):
                step(order[begin + item // width], item % width, tree, data)

    return walk


@card.device
def _wait(arrived, goal):
    """Wait until so many blocks have come here; what they wrote before can then be read."""
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.threadfence()
        cuda.atomic.add(arrived, 0, 1)
        while cuda.atomic.add(arrived, 0, 0) < goal:
            pass
        cuda.threadfence()
    cuda.syncthreads()


def run(walk: Walk, links: Links, width: int, *data: Any) -> None:
    """Walk over the whole trie, for `width` columns."""
    buckets = _buckets(links)
    n_buckets = len(buckets.sizes)
    if n_buckets == 0 or width == 0:
        return
    arrived = xp.zeros(1, np.int32)
    head = (*buckets.arrays, *buckets.tree)
    tail = (width, arrived, *data, *(arrived[:0] for _ in range(SLOTS - len(data))))
    if FUSED:
        n_blocks = _blocks(max(buckets.sizes) * width)
        walk.kernel(n_blocks, *head, 0, n_buckets, *tail, together=True)
        return
    for turn, size in enumerate(buckets.sizes if walk.up else buckets.sizes[::-1]):
        n_blocks = min(_blocks(size * width), MOST_SIMULATED)
        walk.kernel(n_blocks, *head, turn, turn + 1, *tail)


def _buckets(links: Links) -> Buckets:
    """Made once for every trie."""
    found = _known.get(links)
    if found is None:
        arrays = tuple(to_device(array) for array in (links.order, links.starts, links.stops))
        tree = tuple(to_device(array) for array in (links.left, links.right, links.depth))
        found = Buckets(arrays, tree, (to_host(links.stops) - to_host(links.starts)).tolist())
        _known[links] = found
    return found


def _blocks(n_items: int) -> int:
    return -(-n_items // card.THREADS)
