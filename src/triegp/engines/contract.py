"""The engine contract: the stages from packed codes to posterior, as methods on flat arrays.

Arrays named m, s, mo and so have 2n entries, one per id. Leaf i, the i-th row in key order, has id
i. Node i, between leaves i - 1 and i, has id n + i. Id n is not used. `levels` is R(0..D), float64
(D + 1,). Engines accept any non-increasing levels, so that a sum of trees can use them too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from triegp.engines.records import (
    Adjoints,
    Array,
    Bytes,
    Candidate,
    Evaluated,
    Floats,
    GridMap,
    Ids,
    Ints,
    Linked,
    Links,
    Located,
    Sums,
    Tree,
    Woodbury,
    Words,
)

Item = TypeVar("Item")
Result = TypeVar("Result")


class Descent(Protocol):
    """A running conjugate gradient solve of several columns at once."""

    def advance(self) -> tuple[Floats, Floats, Floats]:
        """Take one step in every remaining column.

        Returns three arrays on the host, one entry per remaining column: `|r|` after the step, the
        step length, and r'M^-1 r before the step. The step length is 0 if p'Ap <= 0, with A = K +
        variance.
        """

    def keep(self, some: npt.NDArray[np.bool_]) -> None:
        """Continue with the remaining columns selected by the mask `some`, and drop the others."""

    def turn(self) -> None:
        """Compute the next search direction after a step: p = M^-1 r + beta p."""


class Engine(Protocol):
    """The contract. An engine never changes its arguments, unless the docstring says so."""

    @property
    def batches(self) -> bool:
        """Whether one call for many orders costs less than one call per order."""

    @property
    def on_host(self) -> bool:
        """Whether this engine works in host memory."""

    @property
    def columns_at_once(self) -> int:
        """Number of columns that each call of `kernel_columns` should have."""

    def free_bytes(self) -> int:
        """Free memory of the device, in bytes; 0 for an engine on the host."""

    def block_slices(self, n_blocks: int) -> list[slice]:
        """Slices of n_blocks diagonal blocks to process in turn. Depends on n_blocks alone."""

    def hold(self, array: Array) -> Array:
        """Return the array in this engine's memory: itself if it is there, otherwise a copy."""

    def fetch(self, array: Array) -> Array:
        """Return an array of this engine in host memory."""

    def sort_rows(self, packed: Bytes, bits: Ints) -> tuple[Ids, Ids]:
        """Rows in key order and the lcp of neighbours, both int32 (n,); lcp[0] = -1.

        packed: uint8 (n, width), packed codes; bits: int64 (D,), the canonical bits of a key.
        """

    def link_many(
        self,
        packed: Sequence[Bytes],
        bits: Sequence[Ints],
        before: Sequence[Linked] | None = None,
    ) -> list[tuple[Ids, Links]]:
        """Rows in key order and the trie over them, for each pair of packed codes and key bits.

        before: tries of the same rows for other bits. Engines may use them to sort fewer rows.
        """

    def resort_rows(
        self, packed: Bytes, bits: Ints, row_idx: Ids, lcp: Ids, first_change: int
    ) -> tuple[Ids, Ids]:
        """Return the same as `sort_rows`, given the rows sorted by an order with the same prefix.

        row_idx, lcp: int32 (n,), result for that order; first_change: first key bit that differs.
        """

    def keys(self, packed: Bytes, bits: Ints, row_idx: Ids) -> Words:
        """Keys of the given rows, uint64 (len(row_idx), ceil(D / 64)).

        The first bit of a key is the most significant bit of its first word.
        """

    def merge_keys(
        self, keys: Words, lcp: Ids, added: Words, added_lcp: Ids, n_levels: int
    ) -> tuple[Ints, Ids]:
        """Merge two sorted sets of keys: return (source, lcp) of their union.

        keys, lcp: n old keys and the lcp of neighbours; added, added_lcp: the same for k new keys.
        source: int64 (n + k,), i for old key i and -1 - j for new key j, old before equal new ones.
        lcp: int32 (n + k,).
        """

    def link(self, lcp: Ids, n_levels: int, cuts: Ints) -> Links:
        """The trie over n sorted keys, given the lcp of neighbours, int32 (n,).

        cuts: int64 (n_shards,), the first leaf of each shard, cuts[0] = 0.
        """

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
        """Terms of the likelihood and, if requested and if they are finite, its derivatives.

        row_idx: int32 (n,), rows in key order; y: float64 (n,) and variance: float64 (n,) or (1,),
        in row order; dtype: of the messages.
        """

    def evaluate_many(
        self,
        candidates: Sequence[Candidate],
        dtype: np.dtype[Any],
        gradient: bool,
        rows: bool = False,
    ) -> list[Evaluated]:
        """Sort, link and evaluate many orders.

        gradient: also compute the derivatives; rows: with the gradient, also return by_var. dtype:
        of the messages. Each result has the same bits as if its candidate were evaluated alone.
        """

    def leaves(
        self, row_idx: Ids, y: Floats, variance: Floats, dtype: np.dtype[Any]
    ) -> tuple[Array, Array]:
        """Messages (m, s), both (2n,) of dtype: leaves filled from the rows, nodes uninitialised.

        row_idx: int32 (n,), rows in key order; y: (n,) and variance: (n,) or (1,), in row order.
        """

    def inside(self, links: Links, levels: Floats, m: Array, s: Array) -> Sums:
        """Merge messages upwards and return the terms of the likelihood.

        m, s: (2n,). The leaves are read and the nodes are overwritten with the inside messages.
        """

    def outside(self, links: Links, levels: Floats, m: Array, s: Array) -> tuple[Array, Array, Ids]:
        """Outside messages (mo, so) of all ids, and the depth at which each is held; all (2n,).

        m, s: (2n,), inside messages.
        """

    def leave_out(
        self,
        links: Links,
        levels: Floats,
        outside: tuple[Array, Array, Ids],
        y: Array,
        stays: Floats,
    ) -> tuple[Floats, Floats]:
        """Mean and variance of f at each leaf given all other rows, both (n,) in key order.

        outside: result of `outside`. y: (n,), means of the leaves' messages, in key order. stays:
        (n,) or (1,), variance of the part of each row's message that remains when the row is left
        out; inf if nothing remains.
        """

    def locate(self, links: Links, keys: Words, query: Words, row_idx: Ids) -> Located:
        """Where each of m sorted query keys leaves the trie.

        keys: uint64 (n, words), the keys of the trie, sorted; query: uint64 (m, words), sorted;
        row_idx: int32 (m,), the row of each query key.
        """

    def predict(
        self,
        links: Links,
        levels: Floats,
        located: Located,
        inside: tuple[Array, Array],
        outside: tuple[Array, Array],
        with_var: bool,
    ) -> tuple[Floats, Floats | None]:
        """Mean and, if with_var, variance of f at located keys.

        Both are (m,), in the order of the new rows. inside: (m, s) of all ids; outside: (mo, so) of
        all ids.
        """

    def product(self, links: Links, levels: Floats, x: Floats) -> Floats:
        """K x for x (n, k) in key order."""

    def path_sums(self, links: Links, levels: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Sums of x (n,) below each id, and partial sums of K x along the path to it, both (2n,).

        x is in key order. The partial sum of an id adds up edge variance times the sum of x below
        the edge, over all edges from depth 0 down to the id. At leaf i it is (K x)[i].
        """

    def solve(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """(K + noise)^-1 x for x (n, k) in key order.

        s: (2n,), inside variances, with the noise at the leaves.
        """

    def whiten(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """T x with T'T = (K + noise)^-1, for x (n, k) in key order; s as in `solve`.

        Row i of the result belongs to node i, row 0 to the root.
        """

    def level_products(self, links: Links, x: Floats, z: Floats) -> Floats:
        """x' K_l z for l = 0..D and each column, (D + 1, k), for x and z (n, k) in key order.

        K_l is 1 for two rows that share at least l bits, otherwise 0.
        """

    def plant(self, trees: Sequence[Tree]) -> Sequence[Tree]:
        """Return the trees, prepared for repeated use together."""

    def sum_products(
        self, trees: Sequence[Tree], x: Floats, variance: Floats | None = None
    ) -> Floats:
        """(K + variance) x for x (n, k) in row order, where K is the sum of the trees' kernels.

        variance: (n,), in this engine's memory; None means 0.
        """

    def sum_level_products(self, trees: Sequence[Tree], x: Floats, z: Floats) -> list[Floats]:
        """x' K_l z for l = 0..D, summed over the columns: one array (D + 1,) per tree.

        x, z: (n, k) in row order. K_l as in `level_products`.
        """

    def kernel_matrix(self, trees: Sequence[Tree]) -> Floats:
        """K, summed over the trees, float64 (n, n), for few rows. O(n^2 T)."""

    def kernel_columns(self, trees: Sequence[Tree], rows: Ints) -> Floats:
        """K[:, rows], summed over the trees, float64 (n, r). O(n T r)."""

    def block_kernels(self, trees: Sequence[Tree], members: Ids) -> Floats:
        """K, summed over trees, between rows of the same block, float64 (n_blocks, size, size).

        members: int32 (n_blocks, size), the rows of each block. -1 marks an unused entry; these
        come last in a block, and their kernel values are 0.
        """

    def contract(
        self, links: Links, levels: Floats, m: Array, s: Array, chosen: Ids, n_chosen: int
    ) -> Floats:
        """Edges of the tree over the k chosen leaves: (gain, shift, var), float64 (2k, 3), by id.

        m, s: (2n,), inside messages. chosen: int32 (n,), number 0..k-1 of a chosen leaf, increasing
        in key order, or -1. Along an edge, f_low | f_up ~ N(gain f_up + shift, var). f is 0 above
        the root.
        """

    def covariance_product(self, links: Links, edges: Floats, x: Floats) -> Floats:
        """Covariance of f at all k leaves times x (k, c), in key order.

        links: the trie over these leaves; edges: float64 (2k, 3), result of `contract`.
        """

    def draw(self, links: Links, edges: Floats, normals: Floats) -> Floats:
        """Samples of f at all k leaves, (k, c), in key order.

        links and edges as in `covariance_product`. normals: float64 (2k, c), standard normals, may
        be overwritten.
        """

    # Small dense algebra on arrays in this engine's memory

    def norms(self, x: Floats) -> Floats:
        """Euclidean norms of the columns of x (n, k): (k,), on the host."""

    def cholesky(self, matrices: Floats) -> Floats:
        """Lower Cholesky factors, (..., m, m).

        Raises numpy's LinAlgError if a matrix is not positive definite.
        """

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
        more: Callable[[Floats], Floats] | None = None,
    ) -> Descent:
        """Start to solve (K + variance) x = b for the given columns of x, in place.

        variance: (n,). columns: the columns of x to solve. r: (n, k), b - (K + variance) x of these
        columns, may be overwritten. woodbury: inverse of the preconditioner, or None. more: product
        with a further matrix that is added to K, if any. All arrays are in this engine's memory.
        """

    def apply_woodbury(self, woodbury: Woodbury, x: Floats) -> Floats:
        """(S - G G') x for x (n, k)."""

    def each(self, work: Callable[[Engine, Item], Result], items: Sequence[Item]) -> list[Result]:
        """Results of work(engine, item) for all items, computed in parallel if this engine can."""


class DeviceEngine(Engine, Protocol):
    """An engine with memory of its own; it encodes rows and mixes predictions there, too.

    On the host, these stages are numpy's, in the modules that need them.
    """

    def encode(self, values: Floats, beyond: Array | None, maps: Sequence[GridMap]) -> list[Bytes]:
        """Packed codes of m rows on every grid, uint8 (m, ceil(q / 8)) each.

        values: float64 (m, d), finite. beyond: bool (m, d), values whose code is 0, or None.
        """

    def place(self, values: Floats, one: GridMap) -> Floats:
        """Positions of m rows in [0, 1], float64 (m, d), before any shift."""

    def hash_rows(self, values: Words, right: Ints) -> Words:
        """Hashes of m rows of words, uint64 (m,), as `encoding.precision.hash_rows` has them.

        values: uint64 (m, d); right: int64 (d,), bits by which each column is shifted first.
        """
