"""The CPU engine: numba kernels on our own thread pool.

Results do not depend on the number of threads: the work is cut by the number of rows alone, and the
pieces are summed in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from triegp.devices import to_host
from triegp.engines.contract import Descent, Engine
from triegp.engines.cpu import dense, forests, search
from triegp.engines.cpu import keys as key_sort
from triegp.engines.cpu.algebra import Operators
from triegp.engines.cpu.descent import CpuDescent, apply_woodbury, block_slices
from triegp.engines.cpu.trees import Trees
from triegp.engines.cuts import default_cuts
from triegp.engines.records import (
    Array,
    Bytes,
    Candidate,
    Evaluated,
    Floats,
    Ids,
    Ints,
    Linked,
    Links,
    Tree,
    Woodbury,
    Words,
)
from triegp.imports import scipy

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class CpuEngine(Trees, Operators):
    """The CPU engine.

    Attributes
    ----------
    n_threads : int
        Threads to use; 0 means all cores this process may run on.
    """

    n_threads: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.n_threads, int) or self.n_threads < 0:
            raise ValueError(f"n_threads must be an integer, 0 or more, got {self.n_threads!r}")

    @property
    def batches(self) -> bool:
        """Whether one call for many orders costs less than one call per order: False."""
        return False

    @property
    def on_host(self) -> bool:
        """Whether this engine works in host memory: True."""
        return True

    @property
    def columns_at_once(self) -> int:
        """Number of columns that each call of `kernel_columns` should have."""
        return 128

    def free_bytes(self) -> int:
        """Free memory of a device: there is none."""
        return 0

    def block_slices(self, n_blocks: int) -> list[slice]:
        """Slices of a few blocks each, so that threads can share them."""
        return block_slices(n_blocks)

    def hold(self, array: Array) -> Array:
        """Return the array itself if it is on the host, otherwise a copy on the host."""
        return to_host(array)  # type: ignore[no-any-return]

    def fetch(self, array: Array) -> Array:
        """Return the array itself: it is on the host."""
        return array

    # Rows to sorted keys

    def sort_rows(self, packed: Bytes, bits: Ints) -> tuple[Ids, Ids]:
        """Rows in key order and the lcp of neighbours, both int32 (n,); lcp[0] = -1."""
        return key_sort.sort_rows(packed, bits, self._threads)

    def resort_rows(
        self, packed: Bytes, bits: Ints, row_idx: Ids, lcp: Ids, first_change: int
    ) -> tuple[Ids, Ids]:
        """Same as `sort_rows`, given the rows sorted by an order with the same prefix."""
        return key_sort.resort_rows(packed, bits, row_idx, lcp, first_change, self._threads)

    def keys(self, packed: Bytes, bits: Ints, row_idx: Ids) -> Words:
        """Keys of the given rows, uint64 (len(row_idx), ceil(D / 64))."""
        return key_sort.fill_keys(packed, bits, row_idx, self._threads)

    def merge_keys(
        self, keys: Words, lcp: Ids, added: Words, added_lcp: Ids, n_levels: int
    ) -> tuple[Ints, Ids]:
        """Merge two sorted sets of keys: source (i old, -1 - j new) and lcp of their union."""
        total = len(keys) + len(added)
        source, out = np.empty(total, np.int64), np.empty(total, np.int32)
        positions = self._upper_bounds(keys, added)
        search.merge_sorted(keys, added, positions, lcp, added_lcp, source, out, n_levels)
        out[0] = -1
        return source, out

    # Many trees over the same rows

    def link_many(
        self,
        packed: Sequence[Bytes],
        bits: Sequence[Ints],
        before: Sequence[Linked] | None = None,
    ) -> list[tuple[Ids, Links]]:
        """Rows in key order and the trie over them, for each pair, in parallel.

        Given `before`, only rows that share the unchanged prefix of the key are sorted again.
        """

        def build(alone: Engine, t: int) -> tuple[Ids, Links]:
            if before is None:
                row_idx, lcp = alone.sort_rows(packed[t], bits[t])
            else:
                old = before[t]
                differ = np.flatnonzero(bits[t] != old.bits)
                if not differ.size:
                    return old.row_idx, old.links
                row_idx, lcp = alone.resort_rows(
                    packed[t], bits[t], old.row_idx, old.links.lcp, int(differ[0])
                )
            return row_idx, alone.link(lcp, int(bits[t].size), default_cuts(row_idx.size))

        return self.each(build, range(len(packed)))

    def evaluate_many(
        self,
        candidates: Sequence[Candidate],
        dtype: np.dtype[Any],
        gradient: bool,
        rows: bool = False,
    ) -> list[Evaluated]:
        """Sort, link and evaluate many orders in parallel, each on one thread."""
        return self.each(
            lambda alone, candidate: _evaluate_alone(alone, candidate, dtype, gradient, rows),
            candidates,
        )

    def plant(self, trees: Sequence[Tree]) -> Sequence[Tree]:
        """Return the trees with their nodes in the order that products take them."""

        def order(_: Engine, t: int) -> Tree:
            return trees[t]._replace(steps=forests.make_steps(trees[t]))

        return self.each(order, range(len(trees)))

    def sum_products(
        self, trees: Sequence[Tree], x: Floats, variance: Floats | None = None
    ) -> Floats:
        """(K + variance) x for x (n, k) in row order, where K is the sum of the trees' kernels."""
        found = forests.sum_products(trees, x, self._threads)
        return found if variance is None else found + variance[:, None] * x

    def sum_level_products(self, trees: Sequence[Tree], x: Floats, z: Floats) -> list[Floats]:
        """x' K_l z for l = 0..D, summed over the columns, (D + 1,) per tree; x, z in row order."""
        return forests.sum_level_products(trees, x, z, self._threads)

    def kernel_matrix(self, trees: Sequence[Tree]) -> Floats:
        """K, summed over the trees, float64 (n, n)."""
        return dense.kernel_matrix(trees, self._threads)

    def kernel_columns(self, trees: Sequence[Tree], rows: Ints) -> Floats:
        """K[:, rows], summed over the trees, float64 (n, r)."""
        return dense.kernel_columns(trees, rows, self._threads)

    def block_kernels(self, trees: Sequence[Tree], members: Ids) -> Floats:
        """K between rows of the same block, float64 (n_blocks, size, size)."""
        return forests.block_kernels(trees, members, self._threads)

    # Small dense algebra

    def norms(self, x: Floats) -> Floats:
        """Euclidean norms of the columns of x (n, k): (k,)."""
        return np.asarray(np.linalg.norm(x, axis=0))

    def cholesky(self, matrices: Floats) -> Floats:
        """Lower Cholesky factors, (..., m, m). LinAlgError if one is not positive definite."""
        return np.asarray(np.linalg.cholesky(matrices), np.float64)

    def solve_lower(self, lower: Floats, x: Floats) -> Floats:
        """L^-1 x for a lower triangular L (m, m) and x (m,) or (m, k)."""
        return np.asarray(scipy.linalg.solve_triangular(lower, x, lower=True), np.float64)

    # Conjugate gradients

    def descend(
        self,
        trees: Sequence[Tree],
        variance: Floats,
        x: Floats,
        columns: Ints,
        r: Floats,
        inverse: Woodbury | Callable[[Floats], Floats] | None,
        more: Callable[[Floats], Floats] | None = None,
    ) -> Descent:
        """Start to solve (K + variance) x = b by conjugate gradients."""
        multiply = partial(self._multiply, trees, variance, more)
        if isinstance(inverse, Woodbury):
            inverse = partial(self.apply_woodbury, inverse)
        return CpuDescent(multiply, x, columns, r, inverse)

    def _multiply(
        self,
        trees: Sequence[Tree],
        variance: Floats,
        more: Callable[[Floats], Floats] | None,
        x: Floats,
    ) -> Floats:
        """(K + variance) x, with `more` as in `descend`."""
        found = self.sum_products(trees, x, variance)
        if more is not None:
            found += more(x)
        return found

    def apply_woodbury(self, woodbury: Woodbury, x: Floats) -> Floats:
        """(S - G G') x for x (n, k), the same bits for any number of threads."""
        return apply_woodbury(woodbury, x, self._threads)

    # Many jobs at once

    def each(self, work: Callable[[Engine, Item], Result], items: Sequence[Item]) -> list[Result]:
        """Results of work(engine, item) in parallel; each item gets an engine of one thread."""
        alone = CpuEngine(n_threads=1)
        return self._run(lambda item: work(alone, item), items)


def _evaluate_alone(
    engine: Engine, candidate: Candidate, dtype: np.dtype[Any], gradient: bool, rows: bool
) -> Evaluated:
    """Sort, link and evaluate one candidate, with the same bits as through a trie."""
    packed, bits, levels, y, variance = candidate
    row_idx, lcp = engine.sort_rows(packed, bits)
    n_rows, n_levels = row_idx.size, int(bits.size)
    links = engine.link(lcp, n_levels, default_cuts(n_rows))
    sums, adjoints = engine.evaluate(links, levels, row_idx, y, variance, dtype, gradient)
    if adjoints is None:
        return Evaluated(sums)
    by_var: Floats | None = None
    with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for overflow
        by_noise = float(adjoints.by_var.sum(dtype=np.float64))
    if rows:
        by_var = np.empty(n_rows)
        by_var[row_idx] = adjoints.by_var
    return Evaluated(sums, adjoints.by_level, by_noise, by_var)
