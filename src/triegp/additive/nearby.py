"""Posterior variance of f from the training rows near a row, without solves.

The variance of f at x given only some training rows is an upper bound of its posterior variance.
If they are the rows nearest to x, the bound is too large by a factor that hardly depends on x. One
factor is learned (`learn_factor`), and the model's variance is that factor times this bound.

The rows are clustered into cells of about 24 rows. The rows nearest to a cell's centre answer all
queries in that cell, so that their covariance matrix is factorised once. A query costs O(M T + M^2)
with M = 256 members, whatever n. Blocks are computed when first used, and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import available_cores, nearby
from triegp.engines import cells as rows_in
from triegp.imports import scipy
from triegp.smooth.kernel import Kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

LOG_SQUARE = -np.euler_gamma - np.log(2.0)  # mean of log z^2 for a standard normal z
TINY = 1e-300
CELL_ROWS = 24
MAX_BYTES = 1 << 30  # of all blocks together: cells have more rows if there are many
SINGLE_NOISE = 1e-2  # smallest noise / prior variance at which blocks are stored in float32
GROWTH = 1.2  # rows are clustered again if they have become this many times more
FACTORS = (0.01, 2.0)


@dataclass(frozen=True, eq=False)
class Nearby:
    """Training rows in cells. Use `make_nearby` to make one.

    Attributes
    ----------
    process : nearby.Process
        The rows, their noise and the covariance between them.
    cells : rows_in.Cells
        The rows by cell.
    n_members : int
        Rows that answer a query, M; fewer if there are fewer rows.
    n_clustered : int
        Number of rows when the cells were made.
    blocks : dict of int to nearby.Block
        Blocks computed so far, by cell; not stored in files.
    """

    process: nearby.Process
    cells: rows_in.Cells
    n_members: int
    n_clustered: int
    blocks: dict[int, nearby.Block] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without the blocks."""
        kept = {part.name: getattr(self, part.name) for part in fields(self)}
        return {**kept, "blocks": {}}

    @property
    def n_rows(self) -> int:
        """Number of training rows, n."""
        return int(self.process.noise.size)

    @property
    def dtype(self) -> type:
        """Data type of the stored factors: float64 if the noise is small."""
        return _dtype(self.process)

    @property
    def n_bytes(self) -> int:
        """Memory of the blocks computed so far."""
        return sum(block.factor.nbytes + block.members.nbytes for block in self.blocks.values())


def make_nearby(
    U: Floats,
    keys: Words,
    levels: Sequence[Floats],
    noise: Floats,
    kernel: Kernel | None = None,
    *,
    n_members: int = 256,
    n_threads: int | None = None,
) -> Nearby:
    """Cluster training rows; blocks are computed on first use. O(n (log n + sqrt(n)) d).

    Parameters
    ----------
    U : float64 (n, d)
        Inputs divided by their lengthscales. Without a smooth part, any inputs whose distances tell
        which rows are near.
    keys : uint64 (n, w, T)
        Keys of the rows in all trees.
    levels : sequence of float64 (D + 1,)
        For each tree, the prior variance that remains below each depth.
    noise : float64 (n,)
        Noise variance of each row.
    kernel : Kernel, optional
        The smooth part; None if there is none.
    n_members : int, default 256
        Rows that answer a query.
    n_threads : int, optional
        Threads to use, by default all cores.
    """
    process = make_process(U, keys, levels, noise, kernel)
    return _cluster(process, n_members, _threads(n_threads))


def make_process(
    U: Floats, keys: Words, levels: Sequence[Floats], noise: Floats, kernel: Kernel | None
) -> nearby.Process:
    """Training rows, for covariances between any of them; arguments as of `make_nearby`."""
    prior = float(sum(part[0] - part[-1] for part in levels))
    return nearby.Process(
        keys=np.ascontiguousarray(keys),
        tables=_tables(levels, keys.shape[1]),
        inputs=np.ascontiguousarray(U, dtype=np.float64),
        code=-1 if kernel is None else kernel.code,
        scale=0.0 if kernel is None else float(kernel.scale),
        noise=np.array(noise, dtype=np.float64),  # kernels are compiled again for read-only arrays
        prior=prior + (0.0 if kernel is None else float(kernel.scale)),
    )


def nearby_variance(
    near: Nearby,
    U: Floats,
    keys: Words,
    fade: Floats | None = None,
    anchors: Floats | None = None,
    *,
    n_threads: int | None = None,
) -> Floats:
    """Variance of f at new rows given the training rows near them, (m,). O(m (M T + M^2)).

    U: float64 (m, d), scaled as the training rows; keys: uint64 (m, w, T). fade: float64
    (m,), correlation of each tree at the new row with the tree at its key; by default 1. anchors:
    float64 (m, d), where to look for near rows; by default at U. Outside the box it is the nearest
    row of the box, so that the members do not change on the way out. The result for a row does not
    depend on the other rows.
    """
    n_threads = _threads(n_threads)
    inputs = np.ascontiguousarray(U, dtype=np.float64)
    m = inputs.shape[0]
    queries = nearby.Queries(
        keys,
        inputs,
        np.ones(m) if fade is None else np.ascontiguousarray(fade, dtype=np.float64),
    )
    centre = inputs if anchors is None else np.ascontiguousarray(anchors, dtype=np.float64)
    cell = rows_in.find_cells(near.cells, centre, n_threads)
    return nearby.variances(
        near.process, near.cells, near.blocks, queries, cell, near.n_members, near.dtype, n_threads
    )


def left_out_variance(
    near: Nearby, rows: Ints | None = None, *, n_threads: int | None = None
) -> Floats:
    """Variance of f at training rows given the rows near them but themselves, (m,).

    rows: int64 (m,), by default all n rows. Computes the blocks of all cells that the rows lie in.
    """
    cells = near.cells
    cell = np.empty(near.n_rows, np.int32)
    cell[cells.rows] = np.repeat(np.arange(cells.starts.size - 1), np.diff(cells.starts))
    chosen = np.arange(near.n_rows) if rows is None else np.asarray(rows)
    return nearby.left_out_variances(
        near.process,
        cells,
        near.blocks,
        chosen.astype(np.int32),
        cell[chosen],
        near.n_members,
        near.dtype,
        _threads(n_threads),
    )


def learn_factor(v: Floats, noise: Floats, inverse: Floats, *, drawn: bool) -> float:
    """The factor c, between 0.01 and 2, by which variances from near rows are multiplied.

    v: left-out variances, (n,); noise: (n,); inverse: the diagonal of (K + noise)^-1 at these rows,
    (n,), which is 1 / (c v_i + noise_i) if c v_i is the left-out variance of f. If `drawn`, squares
    of draws with this variance, (n,) or (n, k). The result makes the logarithms agree on average.
    Errors of a row's variance enter its left-out residual as well, so that calibration would double
    those of the mean.
    """
    target = -float(np.log(np.maximum(inverse, TINY)).mean()) + (LOG_SQUARE if drawn else 0.0)

    def excess(log_factor: float) -> float:
        return float(np.log(np.exp(log_factor) * v + noise).mean()) - target

    low, high = np.log(FACTORS)
    if excess(low) >= 0.0:
        return FACTORS[0]
    if excess(high) <= 0.0:
        return FACTORS[1]
    return float(np.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-12)))


def insert_nearby(
    near: Nearby,
    U: Floats,
    keys: Words,
    noise: Floats,
    *,
    n_threads: int | None = None,
) -> Nearby:
    """Training rows with k more, numbered from n on. O(n T) to copy the rows.

    Blocks that a new row belongs to are computed again on next use; the others are kept. Rows are
    clustered again once they have become 1.2 times as many.
    """
    n_threads, old = _threads(n_threads), near.process
    inputs = np.ascontiguousarray(U, dtype=np.float64)
    process = old._replace(
        keys=np.concatenate([old.keys, keys]),
        inputs=np.concatenate([old.inputs, inputs]),
        noise=np.concatenate([old.noise, noise]),
    )
    if process.noise.size > GROWTH * near.n_clustered:
        return _cluster(process, near.n_members, n_threads)
    cells = rows_in.add_rows(near.cells, rows_in.find_cells(near.cells, inputs, n_threads))
    kept = dict(near.blocks) if _dtype(process) is near.dtype else {}
    for b, block in list(kept.items()):
        if np.square(inputs - cells.centres[b]).sum(axis=1).min(initial=np.inf) <= block.radius:
            del kept[b]
    return Nearby(process, cells, near.n_members, near.n_clustered, kept)


def _cluster(process: nearby.Process, n_members: int, n_threads: int) -> Nearby:
    n = process.noise.size
    m = min(n, n_members)
    n_bytes = m * (m + 1) // 2 * np.dtype(_dtype(process)).itemsize
    n_cells = max(1, min(n // CELL_ROWS, MAX_BYTES // n_bytes))
    cells = rows_in.make_cells(process.inputs, n_cells, n_threads)
    return Nearby(process, cells, n_members, n)


def _dtype(process: nearby.Process) -> type:
    """float32 if rounding the factors changes the variance of an observation by less than 1 %."""
    enough = process.noise.min() >= SINGLE_NOISE * process.prior
    return np.float32 if enough else np.float64


def stack_keys(keys: Sequence[Words], n_rows: int, n_words: int) -> Words:
    """Keys of all trees as uint64 (n, w, T), given (n, w) per tree; shorter ones end in 0."""
    out: Words = np.zeros((n_rows, n_words, len(keys)), np.uint64)
    for t, part in enumerate(keys):
        out[:, : part.shape[1], t] = part
    return out


def _tables(levels: Sequence[Floats], n_words: int) -> Floats:
    """Covariance in each tree by the number of shared bits, (T, 64 w + 1)."""
    out: Floats = np.empty((len(levels), 64 * n_words + 1))
    for t, part in enumerate(levels):
        out[t] = part[0] - part[np.minimum(np.arange(out.shape[1]), part.size - 1)]
    return out


def _threads(n_threads: int | None) -> int:
    return available_cores() if n_threads is None else n_threads


def nearby_weights(near: Nearby, U: Floats, keys: Words) -> tuple[Ints, Floats, float]:
    """The members that answer for one new row, A^-1 k at them, and the variance of f there.

    U: float64 (1, d); keys: uint64 (1, w, T). A is the covariance of the members'
    targets, k that of the members with f at the new row.
    """
    queries = nearby.Queries(keys, U, np.ones(1))
    cell = int(rows_in.find_cells(near.cells, U, 1)[0])
    block = near.blocks.get(cell)
    if block is None:
        given = (near.process, near.cells, cell, near.n_members, near.dtype)
        block = near.blocks[cell] = nearby.make_block(*given)
    k = nearby.local_covariances(near.process, block.members, queries)[0]
    root: Floats = np.zeros((k.size, k.size))  # A^-1 = root root'
    root[np.triu_indices(k.size)] = block.factor
    white = root.T @ k
    var = max(near.process.prior - float(white @ white), 0.0)
    return block.members.astype(np.int64), root @ white, var


def tree_covariances(near: Nearby, keys: Words, fade: Floats) -> Floats:
    """Covariance of the trees at all training rows with new rows, (n, m). O(n m T).

    keys: uint64 (m, w, T); fade: float64 (m,), as for `nearby_variance`.
    """
    process = near.process._replace(code=-1)  # without smooth part
    queries = nearby.Queries(keys, np.empty((fade.size, process.inputs.shape[1])), fade)
    every = np.arange(near.n_rows, dtype=np.int32)
    return nearby.local_covariances(process, every, queries).T


def rows_of_cells(near: Nearby, n_rows: int, rng: np.random.Generator, first: Ints) -> Ints:
    """At least n_rows training rows, all those of some cells: these need few blocks.

    The cells of the rows `first` come first, in random order, then others.
    """
    cells = near.cells
    sizes = np.diff(cells.starts)
    of_row = np.empty(near.n_rows, np.int64)
    of_row[cells.rows] = np.repeat(np.arange(sizes.size), sizes)
    preferred = np.zeros(sizes.size, bool)
    preferred[of_row[first]] = True
    order = rng.permutation(sizes.size)
    order = order[np.argsort(~preferred[order], kind="stable")]
    last = int(np.searchsorted(np.cumsum(sizes[order]), n_rows)) + 1
    parts = [cells.rows[cells.starts[b] : cells.starts[b + 1]] for b in order[:last].tolist()]
    return np.sort(np.concatenate(parts)).astype(np.int64)
