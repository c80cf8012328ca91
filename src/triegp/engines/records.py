"""Records of flat arrays that pass between the engines and their callers.

Arrays have one entry per id: leaf i, the i-th row in key order, is id i; node i, the one between
leaves i - 1 and i, is id n + i; id n is not used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Links:
    """The compressed trie over n sorted keys of D bits: depth and children of every node.

    Attributes
    ----------
    depth : int32 (2n,)
        Depth of every id: D for a leaf, the lcp of its two neighbouring leaves for a node.
    left, right : int32 (n,)
        Children of node i, as ids. Entry 0 is not used.
    order : int32 (n,)
        order[starts[k]:stops[k]] are the nodes of shard k, children before parents.
    starts, stops : int64 (n_shards,)
        Bounds of each shard in order. starts[k] is also the first leaf of shard k.
    spine : int32 (n_spine,)
        Nodes whose subtrees cross a cut, children before parents. They merge after all shards.
    root : int
        Id of the root.
    """

    depth: Ids
    left: Ids
    right: Ids
    order: Ids
    starts: Ints
    stops: Ints
    spine: Ids
    root: int

    @property
    def n_rows(self) -> int:
        """Number of leaves, n."""
        return int(self.left.size)

    @property
    def lcp(self) -> Ids:
        """The lcp of leaves i - 1 and i, int32 (n,); entry 0 is -1."""
        return self.depth[self.n_rows :]

    @property
    def above_leaves(self) -> Ids:
        """Depth of the parent of each leaf, int32 (n,); 0 for a single leaf."""
        lcp = self.lcp
        above = lcp.copy()
        above[:-1] = np.maximum(lcp[:-1], lcp[1:])
        return np.maximum(above, 0)

    @property
    def n_levels(self) -> int:
        """Length of a key, D."""
        return int(self.depth[0])


class Steps(NamedTuple):
    """The n - 1 nodes of a tree in an order in which children come before their parents.

    Attributes
    ----------
    first, second : int32 (n - 1,)
        Ids of the children: a leaf's number, or n plus the place of a node in this order.
    to_first, to_second : float64 (n - 1,)
        Prior variance of the edges to them.
    to_root : float
        Prior variance above the root, which is the last node.
    """

    first: Ids
    second: Ids
    to_first: Floats
    to_second: Floats
    to_root: float


class Tree(NamedTuple):
    """One of several trees over the same rows.

    row_idx: int32 (n,), the rows in key order; levels: float64 (D + 1,); steps: made by the CPU
    engine for products.
    """

    row_idx: Ids
    links: Links
    levels: Floats
    steps: Steps | None = None


class Linked(NamedTuple):
    """A trie with the bits that its rows were sorted by.

    bits: int64 (D,), the canonical bits that make a key; row_idx: int32 (n,), rows in key order.
    """

    bits: Ints
    row_idx: Ids
    links: Links


class Sums(NamedTuple):
    """The terms of a negative log likelihood: 2 nll = log_det + square + n_terms log(2 pi)."""

    log_det: float
    square: float
    n_terms: int

    @property
    def nll(self) -> float:
        """Negative log likelihood."""
        return 0.5 * (self.log_det + self.square + self.n_terms * math.log(2.0 * math.pi))


class Adjoints(NamedTuple):
    """Derivatives of the nll by W(0..D) and by the mean and variance of every leaf's message.

    by_level: float64 (D + 1,). by_mean and by_var: (n,) in key order. The last two may be buffers
    that the engine uses again: copy what you keep.
    """

    by_level: Floats
    by_mean: Array
    by_var: Array


class Candidate(NamedTuple):
    """One bit order over one set of rows, to be evaluated together with others.

    Arrays may be in the engine's memory (`Engine.hold`).

    Attributes
    ----------
    packed : uint8 (n, width)
        Packed codes. Candidates over the same rows should hold the same object.
    bits : int64 (D,)
        The canonical bits that make a key, first bit first.
    levels : float64 (D + 1,)
        R(0..D).
    y : float64 (n,)
        Targets, in row order.
    variance : float64 (n,) or (1,)
        Variance of each row's message, or one for all rows.
    """

    packed: Bytes
    bits: Ints
    levels: Floats
    y: Floats
    variance: Floats


class Evaluated(NamedTuple):
    """Likelihood of a candidate and, if requested, its derivatives.

    Attributes
    ----------
    sums : Sums
        Terms of the likelihood.
    by_level : float64 (D + 1,) or None
        d nll / d W(0..D), on the host. None if no gradient was requested or the sums are not
        finite.
    by_noise : float
        d nll / d variance, summed over the rows; nan if there is no gradient.
    by_var : float64 (n,) or None
        d nll / d variance per row, in row order and in the engine's memory. None if not requested.
    """

    sums: Sums
    by_level: Floats | None = None
    by_noise: float = math.nan
    by_var: Array | None = None


class GridMap(NamedTuple):
    """How one grid turns features into bits. Grids with the same map should hold the same arrays.

    Attributes
    ----------
    low, high : float64 (d,)
        Range of each feature that is mapped onto [0, 1]; values outside are clipped.
    knots, heights : float64 (d, 11), or (0, 0) for the linear map
        Percentiles of each feature, and their positions in tenths.
    shift, scale : float64 (d,)
        The code of a position u is floor((u + shift) * scale), at most 2**width - 1.
    widths : int64 (d,)
        Bits per feature.
    """

    low: Floats
    high: Floats
    knots: Floats
    heights: Floats
    shift: Floats
    scale: Floats
    widths: Ints


@dataclass(frozen=True, eq=False)
class Located:
    """Where each of m new keys leaves the trie. Entries are in key order of the new keys.

    Attributes
    ----------
    row_idx : int32 (m,)
        The new row that each entry belongs to.
    node : int32 (m,)
        The id at the lower end of the edge on which the key leaves, or the leaf it ends on.
    above, leaves_at : int32 (m,)
        Depth at which that edge begins, and depth at which the key leaves it.
    """

    row_idx: Ids
    node: Ids
    above: Ids
    leaves_at: Ids


class Woodbury(NamedTuple):
    """M^-1 = S - G G', with S block-diagonal and G of low rank r.

    Attributes
    ----------
    rows : int32 (n,)
        The rows in block order.
    local : float64 (n_blocks, size, size)
        The diagonal blocks of S.
    gain : float64 (n_blocks size, r)
        G, rows in block order, padded to whole blocks.
    """

    rows: Ids
    local: Floats
    gain: Floats
