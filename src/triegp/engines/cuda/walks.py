"""Walks over the trie, level by level: how a function of one node runs over all of them.

Nodes come in buckets, deepest first, and no node stands above another of its own bucket, so all
nodes of a bucket go at once. On a card one cooperative launch does the whole walk: its threads wait
for each other between buckets. The simulator has no such barrier: there every bucket is a launch.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from numba import cuda

from triegp.engines.cuda import card
from triegp.engines.protocol import Links

FUSED = not card.SIMULATED  # one launch a walk
MOST_SIMULATED = 3  # blocks of a launch in the simulator: several, often too few for all items


@dataclass(frozen=True, eq=False)
class Walk:
    """A kernel that goes through all buckets, children first (up) or last."""

    kernel: Any
    up: bool


@dataclass(frozen=True, eq=False)
class Buckets:
    """What a walk needs of the links, as kernels take it.

    Attributes
    ----------
    order : int32 (n - 1,)
        Nodes, bucket after bucket.
    starts, stops : int64 (n_buckets,)
        Bucket k is order[starts[k]:stops[k]].
    sizes : list of int
        Nodes of every bucket.
    tree : tuple
        left, right, depth.
    """

    order: Any
    starts: Any
    stops: Any
    sizes: list[int]
    tree: tuple[Any, Any, Any]


_buckets: WeakKeyDictionary[Links, Buckets] = WeakKeyDictionary()
_most_blocks: dict[Any, int] = {}


def upwards(step: Any) -> Walk:
    """A walk that does step(node, column, tree, data), compiled for the card, children first.

    tree: (left, right, depth); data: the arrays given to `run`. A step writes to its own node or to
    its children, and to its own column, only.
    """
    return Walk(_kernel(step, True), True)


def downwards(step: Any) -> Walk:
    """The same, children last."""
    return Walk(_kernel(step, False), False)


def _kernel(step: Any, up: bool) -> Any:
    @card.kernel
    def walk(order, starts, stops, lo, hi, width, tree, data):
        first, stride = cuda.grid(1), cuda.gridsize(1)
        for turn in range(lo, hi):
            if turn > lo:
                cuda.cg.this_grid().sync()
            bucket = turn if up else starts.size - 1 - turn
            begin = starts[bucket]
            for item in range(first, (stops[bucket] - begin) * width, stride):
                step(order[begin + item // width], item % width, tree, data)

    return walk


def run(walk: Walk, links: Links, width: int, *data: Any) -> None:
    """Walk over the whole trie, for `width` columns."""
    buckets = _buckets_of(links)
    n_buckets = len(buckets.sizes)
    if n_buckets == 0 or width == 0:
        return
    head = (buckets.order, buckets.starts, buckets.stops)
    tail = (width, buckets.tree, tuple(native(array) for array in data))
    if FUSED:
        arguments = (*head, 0, n_buckets, *tail)
        most = _cooperating(walk.kernel, tuple(array.dtype for array in data), arguments)
        _launch(walk.kernel, min(most, _blocks(max(buckets.sizes) * width)), arguments)
        return
    for turn, size in enumerate(buckets.sizes if walk.up else buckets.sizes[::-1]):
        blocks = min(MOST_SIMULATED, _blocks(size * width))
        _launch(walk.kernel, blocks, (*head, turn, turn + 1, *tail))


def native(array: Any) -> Any:
    """An array of the card as kernels take it inside a tuple, without waiting for its contents."""
    return array if card.SIMULATED else cuda.as_cuda_array(array, sync=False)


def _buckets_of(links: Links) -> Buckets:
    """Made once for every trie."""
    found = _buckets.get(links)
    if found is None:
        arrays = (links.order, links.starts, links.stops, links.left, links.right, links.depth)
        order, starts, stops, *tree = (native(card.to_device(array)) for array in arrays)
        sizes = (card.to_host(links.stops) - card.to_host(links.starts)).tolist()
        found = Buckets(order, starts, stops, sizes, tuple(tree))
        _buckets[links] = found
    return found


def _blocks(n_items: int) -> int:
    return -(-n_items // card.THREADS)


def _cooperating(kernel: Any, dtypes: tuple[Any, ...], arguments: tuple[Any, ...]) -> int:
    """How many blocks of a kernel can wait for each other, for these dtypes."""
    if card.SIMULATED:
        return 1
    most = _most_blocks.get((kernel, dtypes))
    if most is None:
        compiled = kernel.compile(tuple(kernel.typeof_pyval(value) for value in arguments))
        most = compiled.max_cooperative_grid_blocks(card.THREADS)
        _most_blocks[kernel, dtypes] = most
    return most


def _launch(kernel: Any, blocks: int, arguments: tuple[Any, ...]) -> None:
    """Run it; overflow is no error on a card, so it is none in the simulator."""
    if card.SIMULATED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            kernel[blocks, card.THREADS](*arguments)
    else:
        kernel[blocks, card.THREADS](*arguments)
