"""Parallel walks over a trie: all shards in parallel, then the spine, or the reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from triegp.engines.cpu.threads import available_cores, run_each
from triegp.engines.records import Array, Floats, Ids, Links

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Spread:
    """The number of threads, and the two ways to walk over a trie with them."""

    n_threads: int = 0

    @property
    def _threads(self) -> int:
        return self.n_threads or available_cores()

    def _run(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return run_each(work, items, self._threads)

    def _up(self, links: Links, work: Callable[[Ids, int], Result]) -> list[Result]:
        """Results of work(nodes, piece) for all shards in parallel, then for the spine."""
        results = self._run(lambda k: work(shard(links, k), k), range(links.starts.size))
        if links.spine.size:
            results.append(work(links.spine, links.starts.size))
        return results

    def _down(self, links: Links, work: Callable[[Ids, int], None]) -> None:
        """Call work(nodes, piece) for the spine, then for all shards in parallel."""
        if links.spine.size:
            work(links.spine, links.starts.size)
        self._run(lambda k: work(shard(links, k), k), range(links.starts.size))


def shard(links: Links, k: int) -> Ids:
    """Nodes of shard k, children before parents."""
    return links.order[links.starts[k] : links.stops[k]]


def lifted_root(links: Links, levels: Floats, s: Array) -> float:
    """Variance of the root's message, lifted to depth 0."""
    return float(s[links.root] + (levels[0] - levels[links.depth[links.root]]))


def with_nodes(x: Floats) -> Floats:
    """Leaf values x (n, k) extended to all ids, (2n, k); the node entries are uninitialised."""
    out = np.empty((2 * x.shape[0], x.shape[1]))
    out[: x.shape[0]] = x
    return out
