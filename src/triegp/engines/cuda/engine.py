"""The CUDA engine: everything from packed codes to posterior in device memory.

Arguments may be on the host or on the device. Results are on the device, except sums and
derivatives by level. Results have the same bits in every run: no sum depends on the order in which
threads finish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from triegp.devices import adopt, is_exhausted
from triegp.engines.contract import Descent, Engine
from triegp.engines.cuda import (
    algebra,
    blocks,
    descent,
    encoding,
    forests,
    keys,
    linking,
    search,
    sweeps,
)
from triegp.engines.cuda.card import SMALL_BYTES, TILE, free_bytes, to_device, to_host, xp
from triegp.engines.cuda.groves import Planted
from triegp.engines.cuda.linking import CardLinks, Origin
from triegp.engines.cuda.plan import make_plan
from triegp.engines.cuda.tiles import evaluate_plan
from triegp.engines.cuda.woodbury import apply_woodbury
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

MOST_PLACES = 1 << 29  # maximum rows times members of a batch; kernels use higher bits as flags
ROW_BYTES = 100  # maximum per row and member for sorting, planning and evaluating


class CudaEngine:
    """The CUDA engine, on the current device."""

    @property
    def batches(self) -> bool:
        """Whether one call for many orders costs less than one call per order: True."""
        return True

    @property
    def on_host(self) -> bool:
        """Whether this engine works in host memory: False."""
        return False

    @property
    def columns_at_once(self) -> int:
        """Number of columns that each call of `kernel_columns` should have."""
        return 128

    def free_bytes(self) -> int:
        """Free memory of the device, in bytes."""
        return free_bytes()

    def block_slices(self, n_blocks: int) -> list[slice]:
        """One slice with all blocks."""
        return [slice(0, n_blocks)]

    def hold(self, array: Array) -> Array:
        """Return the array in device memory."""
        return to_device(adopt(array))  # type: ignore[no-any-return]

    def fetch(self, array: Array) -> Array:
        """Return the array in host memory."""
        return to_host(array)

    # Rows to sorted keys

    def encode(self, values: Floats, beyond: Array | None, maps: Sequence[GridMap]) -> list[Bytes]:
        """Packed codes of rows on every grid, with the bits of the CPU's encoder."""
        return encoding.encode(values, beyond, maps)

    def place(self, values: Floats, one: GridMap) -> Floats:
        """Positions of rows in [0, 1], float64 (m, d), before any shift."""
        return encoding.place(values, one)

    def hash_rows(self, values: Words, right: Ints) -> Words:
        """Hashes of rows of words, uint64 (m,)."""
        return encoding.hash_rows(values, right)

    def sort_rows(self, packed: Bytes, bits: Ints) -> tuple[Ids, Ids]:
        """Rows in key order and the lcp of neighbours, both int32 (n,); lcp[0] = -1."""
        refuse_too_large(packed.shape[0], packed.shape[1], len(bits))
        return keys.sort_rows(to_device(packed, np.uint8), bits)

    def resort_rows(
        self,
        packed: Bytes,
        bits: Ints,
        row_idx: Ids,
        lcp: Ids,
        first_change: int,
    ) -> tuple[Ids, Ids]:
        """Same as `sort_rows`: on the device, a given order does not make the sort faster."""
        return self.sort_rows(packed, bits)

    def keys(self, packed: Bytes, bits: Ints, row_idx: Ids) -> Words:
        """Keys of the given rows, uint64 (len(row_idx), ceil(D / 64))."""
        return keys.fill_keys(packed, bits, to_device(row_idx))

    def merge_keys(
        self, keys: Words, lcp: Ids, added: Words, added_lcp: Ids, n_levels: int
    ) -> tuple[Ints, Ids]:
        """Merge two sorted sets of keys: source (i old, -1 - j new) and lcp of their union."""
        old, new = (to_device(keys), to_device(lcp)), (to_device(added), to_device(added_lcp))
        return search.merge_keys(*old, *new, n_levels)

    # The trie

    def link(self, lcp: Ids, n_levels: int, cuts: Ints) -> CardLinks:
        """The trie over sorted keys. It does not depend on cuts: the device uses its own tiles."""
        if cuts[0] != 0:
            raise ValueError(f"cuts[0] must be 0, got {cuts[0]}")
        return linking.link(lcp, n_levels)

    def link_many(
        self,
        packed: Sequence[Bytes],
        bits: Sequence[Ints],
        before: Sequence[Linked] | None = None,
    ) -> list[tuple[Ids, Links]]:
        """Rows in key order and the trie over them, for each pair; pairs of equal shape in batches.

        If any of the bits differ from `before`, all pairs are sorted again.
        """
        if before is not None:
            pairs = zip(before, bits, strict=True)
            if all(np.array_equal(old.bits, own) for old, own in pairs):
                return [(old.row_idx, old.links) for old in before]
        results: list[tuple[Ids, Links] | None] = [None] * len(packed)
        shapes = [(*one.shape, len(own)) for one, own in zip(packed, bits, strict=True)]

        def link_batch(batch: list[int]) -> None:
            rows = _stack([packed[k] for k in batch], np.uint8)
            found = keys.sort_batch(rows, np.stack([np.asarray(bits[k]) for k in batch]))
            n = found.n_rows
            for at, k in enumerate(batch):
                # These are views, and each keeps the whole batch alive. A member's ranks include
                # the -1 in front of the next member.
                own = found.rank[at * n : (at + 1) * n + 1]
                row_idx = found.row_idx[at * n : (at + 1) * n]
                origin = Origin(found, at, row_idx)
                results[k] = (row_idx, CardLinks(own, found.n_levels, origin))

        for batch in _batches(shapes):
            _do(link_batch, batch)
        return [one for one in results if one is not None]

    # Likelihood

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
        """Terms of the likelihood and, if requested and if they are finite, its derivatives."""
        if not isinstance(links, CardLinks):
            raise TypeError(f"links must be made by CudaEngine.link, got {type(links).__name__}")
        y, variance, levels = (to_device(a, np.float64)[None] for a in (y, variance, levels))
        (sums,), found, by_mean, by_var = evaluate_plan(
            links.plan, to_device(row_idx), y, variance, levels, dtype, gradient, rows=gradient
        )
        if found is None or math.isinf(sums.square):
            return sums, None
        return sums, Adjoints(found[0, :-1], by_mean, by_var)

    def evaluate_many(
        self,
        candidates: Sequence[Candidate],
        dtype: np.dtype[Any],
        gradient: bool,
        rows: bool = False,
    ) -> list[Evaluated]:
        """Sort, link and evaluate many orders, in batches as large as memory allows."""
        results: list[Evaluated | None] = [None] * len(candidates)

        def evaluate_batch(batch: list[int]) -> None:
            found = _evaluate_batch([candidates[k] for k in batch], dtype, gradient, rows)
            for k, one in zip(batch, found, strict=True):
                results[k] = one

        for batch in _batches([(*one.packed.shape, len(one.bits)) for one in candidates]):
            _do(evaluate_batch, batch)
        return [one for one in results if one is not None]

    def leaves(
        self, row_idx: Ids, y: Floats, variance: Floats, dtype: np.dtype[Any]
    ) -> tuple[Array, Array]:
        """Messages (m, s), both (2n,): leaves filled from the rows, nodes uninitialised."""
        row_idx, y, variance = to_device(row_idx), to_device(y), to_device(variance)
        n = row_idx.size
        m, s = xp.empty(2 * n, dtype), xp.empty(2 * n, dtype)
        m[:n] = y[row_idx]
        s[:n] = variance[row_idx] if variance.size > 1 else variance
        return m, s

    def inside(self, links: Links, levels: Floats, m: Array, s: Array) -> Sums:
        """Merge messages upwards; the leaves of m and s are read, the nodes are overwritten."""
        return sweeps.inside(links, levels, m, s)

    # Posterior

    def outside(self, links: Links, levels: Floats, m: Array, s: Array) -> tuple[Array, Array, Ids]:
        """Outside messages (mo, so) of all ids and the depth at which each is held."""
        return sweeps.outside(links, levels, m, s)

    def leave_out(
        self,
        links: Links,
        levels: Floats,
        outside: tuple[Array, Array, Ids],
        y: Array,
        stays: Floats,
    ) -> tuple[Floats, Floats]:
        """Mean and variance of f at each leaf given all other rows, in key order."""
        return sweeps.leave_out(links, levels, outside, y, stays)

    def locate(self, links: Links, keys: Words, query: Words, row_idx: Ids) -> Located:
        """Where each of the sorted query keys leaves the trie."""
        return search.locate(links, to_device(keys), to_device(query), to_device(row_idx))

    def predict(
        self,
        links: Links,
        levels: Floats,
        located: Located,
        inside: tuple[Array, Array],
        outside: tuple[Array, Array],
        with_var: bool,
    ) -> tuple[Floats, Floats | None]:
        """Mean and variance of f at located keys, in the order of the new rows."""
        return search.predict(links, levels, located, inside, outside, with_var)

    # Operators

    def product(self, links: Links, levels: Floats, x: Floats) -> Floats:
        """K x for x (n, k) in key order."""
        return sweeps.product(links, levels, to_device(x))

    def path_sums(self, links: Links, levels: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Sums of x (n,) below each id, and partial sums of K x on the path to it, both (2n,)."""
        return sweeps.path_sums(links, levels, to_device(x))

    def solve(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """(K + noise)^-1 x for x (n, k) in key order; s: inside variances, noise at the leaves."""
        return sweeps.solve(links, levels, s, to_device(x))

    def whiten(self, links: Links, levels: Floats, s: Array, x: Floats) -> Floats:
        """T x with T'T = (K + noise)^-1. Row i belongs to node i, row 0 to the root."""
        return sweeps.whiten(links, levels, s, to_device(x))

    def level_products(self, links: Links, x: Floats, z: Floats) -> Floats:
        """x' K_l z for l = 0..D, (D + 1, k); K_l is 1 if two rows share at least l bits, else 0."""
        return sweeps.level_products(links, to_device(x), to_device(z))

    # Many trees over the same rows

    def plant(self, trees: Sequence[Tree]) -> Sequence[Tree]:
        """Return the trees in a list that keeps their batches and plans for the next call."""
        return Planted(trees)

    def sum_products(
        self, trees: Sequence[Tree], x: Floats, variance: Floats | None = None
    ) -> Floats:
        """(K + variance) x for x (n, k) in row order, where K is the sum of the trees' kernels."""
        return forests.sum_products(trees, to_device(x, np.float64), variance)

    def sum_level_products(self, trees: Sequence[Tree], x: Floats, z: Floats) -> list[Floats]:
        """x' K_l z for l = 0..D, summed over the columns, (D + 1,) per tree; x, z in row order."""
        pair = (to_device(x, np.float64), to_device(z, np.float64))
        return forests.sum_level_products(trees, *pair)

    def kernel_matrix(self, trees: Sequence[Tree]) -> Floats:
        """K, summed over the trees, float64 (n, n)."""
        return self.sum_products(trees, xp.eye(trees[0].row_idx.size))

    def kernel_columns(self, trees: Sequence[Tree], rows: Ints) -> Floats:
        """K[:, rows], summed over the trees, float64 (n, r), by products with unit vectors."""
        units = xp.zeros((trees[0].row_idx.size, rows.size))
        units[rows, xp.arange(rows.size)] = 1.0
        return self.sum_products(trees, units)

    def block_kernels(self, trees: Sequence[Tree], members: Ids) -> Floats:
        """K between rows of the same block, float64 (n_blocks, size, size)."""
        return blocks.block_kernels(trees, members)

    # The joint distribution of f at chosen leaves

    def contract(
        self, links: Links, levels: Floats, m: Array, s: Array, chosen: Ids, n_chosen: int
    ) -> Floats:
        """Edges of the tree over the chosen leaves: (gain, shift, var), float64 (2k, 3)."""
        return sweeps.contract(links, levels, to_device(m), to_device(s), chosen, n_chosen)

    def covariance_product(self, links: Links, edges: Floats, x: Floats) -> Floats:
        """Covariance of f at all leaves times x (k, c), in key order; edges from `contract`."""
        return sweeps.covariance_product(links, to_device(edges), to_device(x))

    def draw(self, links: Links, edges: Floats, normals: Floats) -> Floats:
        """Samples of f at all leaves, (k, c). normals (2k, c) is overwritten if on the device."""
        return sweeps.draw(links, to_device(edges), to_device(normals))

    # Small dense algebra on device arrays

    def norms(self, x: Floats) -> Floats:
        """Euclidean norms of the columns of x (n, k): (k,), on the host."""
        x = to_device(x)
        return np.asarray(np.sqrt(to_host(descent.dots(x, x))))

    def cholesky(self, matrices: Floats) -> Floats:
        """Lower Cholesky factors, (..., m, m). LinAlgError if one is not positive definite."""
        return algebra.cholesky(matrices)

    def solve_lower(self, lower: Floats, x: Floats) -> Floats:
        """L^-1 x for a lower triangular L (m, m) and x (m,) or (m, k)."""
        return algebra.solve_lower(lower, x)

    # Conjugate gradients

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
        """Start to solve (K + variance) x = b by conjugate gradients."""
        return descent.CardDescent(trees, variance, x, columns, r, woodbury, more)

    def apply_woodbury(self, woodbury: Woodbury, x: Floats) -> Floats:
        """(S - G G') x for x (n, k)."""
        return apply_woodbury(woodbury, to_device(x))

    # Many jobs at once

    def each(self, work: Callable[[Engine, Item], Result], items: Sequence[Item]) -> list[Result]:
        """Results of work(engine, item), one item after another: each uses the whole device."""
        return [work(self, item) for item in items]


def refuse_too_large(n_rows: int, width: int, n_levels: int) -> None:
    """Raise MemoryError if so many rows do not fit on the device, before they are sorted."""
    if n_rows > MOST_PLACES:
        raise MemoryError(f"the CUDA engine supports at most {MOST_PLACES} rows, got {n_rows}")
    needed = n_rows * _row_bytes(width, n_levels)
    if needed > SMALL_BYTES and needed > (there := free_bytes()):
        raise MemoryError(
            f"{n_rows} rows need {needed / 1e9:.1f} GB on the device, {there / 1e9:.1f} GB are "
            "free: use fewer rows or the CPU engine"
        )


def _row_bytes(width: int, n_levels: int) -> int:
    """Bytes per row: its codes, work arrays, and its share of its tile's sums by level."""
    return ROW_BYTES + width + 16 * n_levels // TILE


def _batches(shapes: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Indices of equal (rows, width, levels), in batches as large as memory allows."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for k, shape in enumerate(shapes):
        groups.setdefault(shape, []).append(k)
    for (n_rows, width, n_levels), alike in groups.items():
        most, bytes_each = len(alike), n_rows * _row_bytes(width, n_levels)
        if most * bytes_each > SMALL_BYTES:
            refuse_too_large(n_rows, width, n_levels)
            most = max(1, min(MOST_PLACES // n_rows, free_bytes() // bytes_each))
        yield from (alike[k : k + most] for k in range(0, len(alike), most))


def _do(work: Callable[[list[int]], None], batch: list[int]) -> None:
    """Do a batch; if memory runs out, one half after the other.

    Batches are as large as the memory that was free: other processes may have taken some since.
    """
    try:
        work(batch)
        return
    except Exception as error:
        if len(batch) == 1 or not is_exhausted(error):
            raise
    middle = len(batch) // 2  # not in the handler, where the arrays of the error are still held
    _do(work, batch[:middle])
    _do(work, batch[middle:])


def _evaluate_batch(
    candidates: Sequence[Candidate], dtype: np.dtype[Any], gradient: bool, rows: bool
) -> list[Evaluated]:
    """Sort, link and evaluate candidates of equal shape as one batch."""
    found = keys.sort_batch(
        _stack([one.packed for one in candidates], np.uint8),
        np.stack([np.asarray(one.bits) for one in candidates]),
    )
    n, n_members = found.n_rows, found.n_members
    sums, by_level, _, by_var = evaluate_plan(
        make_plan(found.rank, n, found.n_levels, n_members),
        found.row_idx,
        _stack([one.y for one in candidates], np.float64),
        _stack([one.variance for one in candidates], np.float64),
        to_device(np.stack([one.levels for one in candidates])),
        dtype,
        gradient,
        rows,
    )
    results = []
    for b in range(n_members):
        if by_level is None or math.isinf(sums[b].square):
            results.append(Evaluated(sums[b]))
            continue
        by_row = None
        if rows:
            by_row = xp.empty(n)
            by_row[found.row_idx[b * n : (b + 1) * n]] = by_var[b * n : (b + 1) * n]
        results.append(Evaluated(sums[b], by_level[b, :-1], float(by_level[b, -1]), by_row))
    return results


def _stack(arrays: Sequence[Any], dtype: Any) -> Any:
    """Stack arrays on the device, (members, ...), or (1, ...) if all are the same object."""
    if all(array is arrays[0] for array in arrays):
        return to_device(arrays[0], dtype)[None]
    if len({array.shape for array in arrays}) > 1:  # variances per row and for all rows
        size = max(array.size for array in arrays)
        arrays = [xp.broadcast_to(to_device(array, dtype), (size,)) for array in arrays]
    if all(isinstance(array, np.ndarray) for array in arrays):  # one copy instead of many
        return to_device(np.stack(arrays), dtype)
    return xp.stack([to_device(array, dtype) for array in arrays])
