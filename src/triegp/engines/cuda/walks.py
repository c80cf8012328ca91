"""Walks over the trie: how a function of one node runs over all nodes, bucket by bucket.

Nodes are in buckets, deepest first, and no node is above another of its bucket, so all nodes of a
bucket are processed at once. On a GPU one launch does the whole walk: its blocks wait for each
other between buckets. The simulator runs blocks one after another, so there each bucket is a
launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numba import cuda

from triegp.engines.cuda import card
from triegp.engines.cuda.card import to_device, to_host, xp
from triegp.engines.records import Links

FUSED = not card.SIMULATED  # one launch per walk
MOST_SIMULATED = 3  # blocks per simulated launch: several, but often fewer than items need
SLOTS = 7  # maximum number of arrays that a step uses


@dataclass(frozen=True, eq=False)
class Walk:
    """A kernel that processes all buckets, children before parents (up) or after them."""

    kernel: Any
    up: bool


@dataclass(frozen=True, eq=False)
class Buckets:
    """The part of the links that a walk needs, on the device.

    Attributes
    ----------
    arrays : tuple
        order, int32 (n - 1,): nodes, bucket after bucket; starts, stops, int64 (n_buckets,): bucket
        k is order[starts[k]:stops[k]].
    tree : tuple
        left, right, depth.
    sizes : list of int
        Number of nodes in every bucket.
    """

    arrays: tuple[Any, ...]
    tree: tuple[Any, ...]
    sizes: list[int]


_known: WeakKeyDictionary[Links, Buckets] = WeakKeyDictionary()


def upwards(step: Any, n_arrays: int) -> Walk:
    """A walk that runs the device function step(node, column, tree, data), children first.

    tree: (left, right, depth); data: the n_arrays arrays given to `run`. A step may write only to
    its own node or its children, and only to its own column.
    """
    return Walk(_kernel(step, n_arrays, True), True)


def downwards(step: Any, n_arrays: int) -> Walk:
    """Same as `upwards`, parents first."""
    return Walk(_kernel(step, n_arrays, False), False)


def _kernel(step: Any, n_arrays: int, up: bool) -> Any:
    """Compile the kernel of a walk; it processes turns lo..hi-1, one bucket per turn."""

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
    """Wait until `goal` arrivals of blocks are counted; what they wrote before is then visible."""
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.threadfence()
        cuda.atomic.add(arrived, 0, 1)
        while cuda.atomic.add(arrived, 0, 0) < goal:
            pass
        cuda.threadfence()
    cuda.syncthreads()


def run(walk: Walk, links: Links, width: int, *data: Any) -> None:
    """Walk over the whole trie, for `width` columns; data: the arrays of the step."""
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
    """Buckets of a trie, computed once per trie."""
    found = _known.get(links)
    if found is None:
        arrays = tuple(to_device(array) for array in (links.order, links.starts, links.stops))
        tree = tuple(to_device(array) for array in (links.left, links.right, links.depth))
        found = Buckets(arrays, tree, (to_host(links.stops) - to_host(links.starts)).tolist())
        _known[links] = found
    return found


def _blocks(n_items: int) -> int:
    """Number of blocks with one thread per item."""
    return -(-n_items // card.THREADS)
