"""What an engine does: the stages from packed codes to posterior, over flat arrays.

Arrays named m, s, mo, so have 2n entries, one an id: leaf i, the i-th row in key order, is id i;
node i, the one between leaves i - 1 and i, is id n + i; id n is not used. levels is R(0..D), never
rising: the engines take any such levels, so that a sum of trees can use them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.int32]
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Links:
    """Who meets whom, and where: the compressed trie over n sorted keys of D bits.

    Attributes
    ----------
    depth : int32 (2n,)
        Depth of every id; D for leaves, the lcp of its two neighbours for a node.
    left, right : int32 (n,)
        The children of node i, as ids; entry 0 is not used.
    order : int32 (n,)
        The nodes of shard k, children first, are order[starts[k]:stops[k]].
    starts, stops : int64 (n_shards,)
        See order; starts are also the first leaves of the shards.
    spine : int32 (n_spine,)
        The nodes whose subtrees cross a cut, children first, after all shards.
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
    def n_levels(self) -> int:
        """Length of a key, D."""
        return int(self.depth[0])


class Tree(NamedTuple):
    """One tree of many over the same rows.

    row_idx: int32 (n,), the rows in key order; levels: float64 (D + 1,).
    """

    row_idx: Ids
    links: Links
    levels: Floats


class Linked(NamedTuple):
    """A trie with the bits it was sorted by.

    bits: int64 (D,), the canonical bits that make a key; row_idx: int32 (n,), rows in key order.
    """

    bits: Ints
    row_idx: Ids
    links: Links


class Sums(NamedTuple):
    """What a likelihood is made of: 2 nll = log_det + square + n_terms log(2 pi)."""

    log_det: float
    square: float
    n_terms: int

    @property
    def nll(self) -> float:
        """Half of all that."""
        return 0.5 * (self.log_det + self.square + self.n_terms * math.log(2.0 * math.pi))


class Adjoints(NamedTuple):
    """Derivatives of the nll: by W(0..D), and by the mean and variance of every leaf's message.

    The last two, (n,) in key order, may live in the engine's own memory: copy what you keep.
    """

    by_level: Floats
    by_mean: Array
    by_var: Array


class Candidate(NamedTuple):
    """One order over one set of rows, to be evaluated beside others.

    Arrays may lie in the engine's own memory (`Engine.hold`).

    Attributes
    ----------
    packed : uint8 (n, width)
        Packed codes; the same object in several candidates where they share rows.
    bits : int64 (D,)
        The canonical bits that make a key, first bit first.
    levels : float64 (D + 1,)
        R(0..D).
    y : float64 (n,)
        Targets, in the order of the rows.
    variance : float64 (n,) or (1,)
        Of each row's message.
    """

    packed: Bytes
    bits: Ints
    levels: Floats
    y: Floats
    variance: Floats


class Evaluated(NamedTuple):
    """What became of a candidate.

    Attributes
    ----------
    sums : Sums
        Of its likelihood.
    by_level : float64 (D + 1,) or None
        d nll / d W(0..D), in the host's memory; None where no gradient was wanted or the sums are
        not finite.
    by_noise : float
        d nll / d variance, summed over the rows; nan where there is no gradient.
    by_var : float64 (n,) or None
        d nll / d variance of every row, in the order of the rows and in the memory where the
        engine holds arrays; only where it was asked for.
    """

    sums: Sums
    by_level: Floats | None = None
    by_noise: float = math.nan
    by_var: Array | None = None


@dataclass(frozen=True, eq=False)
class Located:
    """Where m new keys leave the trie, in key order.

    Attributes
    ----------
    row_idx : int32 (m,)
        Which row each entry belongs to.
    node : int32 (m,)
        The id on the edge above which the key leaves (or the leaf it ends on).
    above, leaves_at : int32 (m,)
        Depth at which that edge begins, and at which the key leaves it.
    """

    row_idx: Ids
    node: Ids
    above: Ids
    leaves_at: Ids


class Woodbury(NamedTuple):
    """M^-1 = S - G G', S block-diagonal, G of few columns.

    Attributes
    ----------
    rows : int32 (n,)
        The rows in the order of the blocks.
    local : float64 (n_blocks, size, size)
        S.
    gain : float64 (n_blocks size, r)
        G, rows in that order, filled up to whole blocks.
    """

    rows: Ids
    local: Floats
    gain: Floats


class Descent(Protocol):
    """Conjugate gradients on their way, some columns at once."""

    def advance(self) -> tuple[Floats, Floats, Floats]:
        """One step: |r| of every column that is left, how far it went, and r'M^-1 r before it.

        All in the host's memory. It goes nowhere, 0, where the matrix does not look positive.
        """

    def keep(self, some: npt.NDArray[np.bool_]) -> None:
        """Go on with some of the columns that are left."""

    def turn(self) -> None:
        """The next direction, after a step: M^-1 r, and a part of the last."""


class Engine(Protocol):
    """The contract. An engine never changes what it is given, unless the docstring says so."""

    @property
    def batches(self) -> bool:
        """Whether many orders in one call cost less than one call for each."""

    @property
    def on_host(self) -> bool:
        """Whether this engine works in the host's memory."""

    @property
    def columns_at_once(self) -> int:
        """Columns that a product with the sum of many trees should have."""

    def block_slices(self, n_blocks: int) -> list[slice]:
        """Parts of so many diagonal blocks to work on at a time; depends on n_blocks alone."""

    def hold(self, array: Array) -> Array:
        """Return the array, wherever it lies, in this engine's memory: itself if it is there."""

    def fetch(self, array: Array) -> Array:
        """Return an array of this engine's in the host's memory."""

    def sort_rows(self, packed: Bytes, bits: Ints) -> tuple[Ids, Ids]:
        """Rows in key order and the lcp of neighbours, both int32 (n,); lcp[0] = -1."""

    def link_many(
        self,
        packed: Sequence[Bytes],
        bits: Sequence[Ints],
        before: Sequence[Linked] | None = None,
    ) -> list[tuple[Ids, Links]]:
        """Rows in key order and the trie over them, for each pair of codes and key bits.

        before: the tries of the same rows for other bits; only what changed is sorted again.
        """

    def resort_rows(
        self, packed: Bytes, bits: Ints, row_idx: Ids, lcp: Ids, first_change: int
    ) -> tuple[Ids, Ids]:
        """Return the same as `sort_rows`, from the rows sorted by an order that shares a prefix."""

    def keys(self, packed: Bytes, bits: Ints, row_idx: Ids) -> Words:
        """Keys of the given rows, uint64 (len(row_idx), ceil(D / 64)), first bit on top."""

    def merge_keys(
        self, keys: Words, lcp: Ids, added: Words, added_lcp: Ids, n_levels: int
    ) -> tuple[Ints, Ids]:
        """Interleave sorted keys: source (i old, -1 - j new) and lcp of the union."""

    def link(self, lcp: Ids, n_levels: int, cuts: Ints) -> Links:
        """The trie over sorted keys; cuts are the first leaves of the shards, cuts[0] = 0."""

    def evaluate(
        self,
        links: Links,
        levels: Floats,
        row_idx: Ids,
        y: Floats,
        variance: Floats,
        dtype: np.dtype[Any],
        gradient: bool,
    ) -> tuple[Sums, Adjoints | None]:
        """Sums of the likelihood and, if wanted and the sums are finite, its derivatives."""

    def evaluate_many(
        self,
        candidates: Sequence[Candidate],
        dtype: np.dtype[Any],
        gradient: bool,
        rows: bool = False,
    ) -> list[Evaluated]:
        """Sort, link and evaluate many orders; with the gradient, and by_var if rows is True.

        Each as if alone: what is beside it makes no difference, to the last bit.
        """

    def leaves(
        self, row_idx: Ids, y: Floats, variance: Floats, dtype: np.dtype[Any]
    ) -> tuple[Array, Array]:
        """Messages (m, s), (2n,): leaves filled from rows, nodes empty; variance (n,) or (1,)."""

    def inside(self, links: Links, levels: Floats, m: Array, s: Array) -> Sums:
        """Merge messages up; the leaves of m and s are given, the nodes are written."""

    def outside(self, links: Links, levels: Floats, m: Array, s: Array) -> tuple[Array, Array, Ids]:
        """Outside messages (mo, so) of all ids and the depth at which each is held."""

    def leave_out(
        self,
        links: Links,
        levels: Floats,
        outside: tuple[Array, Array, Ids],
        y: Array,
        stays: Floats,
    ) -> tuple[Floats, Floats]:
        """Mean and variance of f at each leaf given all others, in key order.

        stays: (n,) or (1,), variance of the message y of what stays of a row that is left out; inf
        where nothing does.
        """

    def locate(self, links: Links, keys: Words, query: Words, row_idx: Ids) -> Located:
        """Where sorted query keys leave the trie."""

    def predict(
        self,
        links: Links,
        levels: Floats,
        located: Located,
        inside: tuple[Array, Array],
        outside: tuple[Array, Array],
        with_var: bool,
    ) -> tuple[Floats, Floats | None]:
        """Mean and variance of f at located keys, in the order of their rows."""

    def product(self, links: Links, levels: Floats, x: Floats) -> Floats:
        """K x for x (n, k) in key order."""

    def path_sums(self, links: Links, levels: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Of x (n,) in key order, by id (2n,): sums below, and K x on the path down to it."""

    def solve(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """(K + noise)^-1 x for x (n, k) in key order; s: inside variances, leaves the noise."""

    def whiten(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """T x with T'T = (K + noise)^-1: row i belongs to node i, row 0 to the root."""

    def level_products(self, links: Links, x: Floats, z: Floats) -> Floats:
        """x' K_l z for l = 0..D, (D + 1, k), K_l being 1 where two rows share l bits."""

    def plant(self, trees: Sequence[Tree]) -> Sequence[Tree]:
        """Return the trees, made ready to be used together again and again."""

    def sum_products(
        self, trees: Sequence[Tree], x: Floats, variance: Floats | None = None
    ) -> Floats:
        """(K + variance) x for x (n, k), in the order of the rows; K is the sum of the trees'.

        variance: (n,), in this engine's memory; none is 0.
        """

    def sum_level_products(self, trees: Sequence[Tree], x: Floats, z: Floats) -> list[Floats]:
        """x' K_l z for l = 0..D, summed over the columns, (D + 1,) a tree; rows in their order."""

    def block_kernels(self, trees: Sequence[Tree], members: Ids) -> Floats:
        """K, summed over trees, between rows of the same block, float64 (n_blocks, size, size).

        members: int32 (n_blocks, size), rows; -1, after all others of a block, is none.
        """

    def contract(
        self, links: Links, levels: Floats, m: Array, s: Array, chosen: Ids, n_chosen: int
    ) -> Floats:
        """Edges of the tree over the chosen leaves: (gain, shift, var), float64 (2k, 3), by id.

        chosen: int32 (n,), the number 0..k-1 of a chosen leaf, rising, or -1. Along an edge,
        f_low | f_up ~ N(gain f_up + shift, var); above the root f is 0.
        """

    def covariance_product(self, links: Links, edges: Floats, x: Floats) -> Floats:
        """Covariance of f at all leaves times x (k, c), in key order; edges as of `contract`."""

    def draw(self, links: Links, edges: Floats, normals: Floats) -> Floats:
        """Samples of f at all leaves, (k, c); normals (2k, c) are overwritten."""

    # Small dense algebra with arrays in this engine's own memory

    def norms(self, x: Floats) -> Floats:
        """Lengths of the columns of x (n, k), (k,), in the host's memory."""

    def cholesky(self, matrices: Floats) -> Floats:
        """Lower factors, (..., m, m); numpy's LinAlgError where one is not positive."""

    def solve_lower(self, lower: Floats, x: Floats) -> Floats:
        """L^-1 x for a lower triangular L (m, m) and x (m,) or (m, k)."""

    # Solves with the sum of many trees

    def descend(
        self,
        trees: Sequence[Tree],
        variance: Floats,
        x: Floats,
        columns: Ints,
        r: Floats,
        woodbury: Woodbury | None,
    ) -> Descent:
        """Begin to solve (K + variance) x = b for some columns of x, which change in place.

        variance: (n,); r: (n, k), b - (K + variance) x of the columns, which may change, too;
        woodbury: the preconditioner's inverse. All in this engine's memory.
        """

    def apply_woodbury(self, woodbury: Woodbury, x: Floats) -> Floats:
        """(S - G G') x for x (n, k)."""

    def each(self, work: Callable[[Engine, Item], Result], items: Sequence[Item]) -> list[Result]:
        """work(engine, item) for all items, side by side where this engine can."""
