"""Exact samples of the prior: the sum of independent samples of every tree and the smooth part."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.engines import Engine
from triegp.smooth.interface import HostSmooth
from triegp.tree.trie import Trie

Floats = npt.NDArray[np.float64]

DRAWN_BYTES = 1 << 28  # target for the samples of several trees that are held at once
ROWS_AT_ONCE = 4096


def draw_prior(forest: Forest, n_samples: int, rng: np.random.Generator) -> Floats:
    """Joint samples of f at all rows of a forest, (n, n_samples). O(n T n_samples).

    Every tree has its own random stream, so the result does not depend on the number of threads.
    """
    streams = rng.spawn(len(forest.tries))

    def draw(alone: Engine, t: int) -> Floats:
        trie, levels = forest.tries[t], forest.levels[t]
        normals = streams[t].standard_normal((2 * trie.n_rows, n_samples))
        return np.asarray(trie.unsort(alone.draw(trie.links, _edges(trie, levels), normals)))

    total: Floats = np.zeros((forest.n_rows, n_samples))
    n_trees, each = len(forest.tries), forest.engine.each

    def add_some(trees: range) -> None:
        parts = each(draw, trees)

        def add(_: Engine, start: int) -> None:
            rows = slice(start, start + ROWS_AT_ONCE)
            for part in parts:
                total[rows] += part[rows]

        each(add, range(0, forest.n_rows, ROWS_AT_ONCE))

    at_once = min(64, max(8, DRAWN_BYTES // max(total.nbytes, 1)))
    for first in range(0, n_trees, at_once):
        add_some(range(first, min(first + at_once, n_trees)))
    if forest.smooth is not None:
        total += cast(HostSmooth, forest.smooth).draw(n_samples, rng, None)[0]
    return total


def _edges(trie: Trie, levels: Floats) -> Floats:
    """(gain, shift, var) of the edge above each id of a tree, float64 (2n, 3)."""
    links = trie.links
    n = links.n_rows
    above = np.zeros(2 * n, np.int32)  # depth of each id's parent
    nodes = np.arange(1, n)
    above[links.left[nodes]] = above[links.right[nodes]] = links.depth[n + nodes]
    above[links.root] = 0
    edges = np.zeros((2 * n, 3))
    edges[:, 0] = 1.0
    edges[:, 2] = np.maximum(levels[above] - levels[links.depth], 0.0)
    return edges
