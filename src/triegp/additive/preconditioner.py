"""Preconditioner of K + noise: a Nystrom approximation plus a block-diagonal correction.

With C = K[:, J] for r random rows J and C[J] = L L', B = C L^-T gives K ~ B B'. Rows are grouped
into blocks of 64 neighbours in the key order of one tree. S is the noise plus the block-diagonal
part of K - B B'. The preconditioner M = B B' + S is inverted by Woodbury's formula. The Nystrom
part captures smooth variation, the blocks capture rows that are almost equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.checks import non_negative_vector, whole_number
from triegp.devices import to_host
from triegp.engines import Engine, Woodbury, one_blas_thread
from triegp.models.jobs import Stopwatch

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int32]

BLOCK_ROWS = 64
JITTER = 1e-10  # added to diagonals, relative to the prior variance


class Preconditioner(Protocol):
    """A positive definite M near K + noise."""

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""

    @property
    def log_det(self) -> float:
        """log det M."""

    @property
    def inverse(self) -> Any:
        """M^-1, in the form that engines take."""

    def apply(self, x: Floats) -> Floats:
        """M^-1 x for x (n, k), in the engine's memory.

        Parameters
        ----------
        x : float64 (n, k)
            Vectors.
        """

    def draw(self, n_samples: int, rng: np.random.Generator) -> Floats:
        """Samples of N(0, M), (n, n_samples), in the engine's memory.

        Parameters
        ----------
        n_samples : int
            Number of samples.
        rng : Generator
            Source of random numbers.
        """


@dataclass(frozen=True, eq=False)
class Nystrom:
    """M = B B' + S, factored for products with its inverse.

    Rows are stored in block order, and the last block is padded to full size. Arrays lie in the
    engine's memory.

    Attributes
    ----------
    rows : int32 (n,)
        The rows in block order.
    local : float64 (n_blocks, 64, 64)
        S^-1.
    gain : float64 (64 n_blocks, r)
        G = S^-1 B core^-T; M^-1 = S^-1 - G G'.
    core : float64 (r, r)
        Lower Cholesky factor of I + B' S^-1 B.
    log_det : float
        log det M.
    engine : Engine
        The engine that computes.
    """

    rows: Ids
    local: Floats
    gain: Floats
    core: Floats
    log_det: float
    engine: Engine

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.rows.size)

    @property
    def inverse(self) -> Woodbury:
        """M^-1, in the form that engines take."""
        return Woodbury(self.rows, self.local, self.gain)

    def apply(self, x: Floats) -> Floats:
        """M^-1 x for x (n, k), in the engine's memory. O(n (r + 64) k).

        The result does not depend on the number of threads.

        Parameters
        ----------
        x : float64 (n, k)
            Vectors.
        """
        return self.engine.apply_woodbury(self.inverse, self.engine.hold(x))

    def draw(self, n_samples: int, rng: np.random.Generator) -> Floats:
        """Samples of N(0, M), (n, n_samples), in the engine's memory.

        O(n (r + 64) n_samples + n 64^2).

        Parameters
        ----------
        n_samples : int
            Number of samples.
        rng : Generator
            Source of random numbers.
        """
        n_blocks, size, _ = self.local.shape
        within: Any = np.linalg.inv(self.local)  # S
        roots = self.engine.cholesky(within)
        normals = self.engine.hold(rng.standard_normal((self.core.shape[0], n_samples)))
        scatter = self.engine.hold(rng.standard_normal((n_blocks * size, n_samples)))
        through = self.gain @ (self.core.T @ normals)
        draws = _within(within, through) + _within(roots, scatter)
        out = np.empty_like(draws, shape=(self.n_rows, n_samples), order="C")
        out[self.rows] = draws[: self.n_rows]
        return out


def make_preconditioner(
    forest: Forest,
    noise: Any,
    rank: int,
    rng: np.random.Generator,
    watch: Stopwatch | None = None,
    tell: Callable[[float], None] | None = None,
) -> Nystrom:
    """Preconditioner of K + noise, from `rank` random rows and blocks of 64 rows.

    Parameters
    ----------
    forest : Forest
        Its kernel matrix is K.
    noise : float or array (n,)
        Variances, > 0.
    rank : int
        Number of random rows, r; at most n are used.
    rng : numpy.random.Generator
        Draws these rows.
    watch : Stopwatch, optional
        If it stops, the rows reached so far are used, at least one block of columns.
    tell : callable, optional
        Called with the share of the rows that are done, from 0 to 1.

    Notes
    -----
    O(n T (r + 64)) for the entries of the kernel, O(n (r + 64)^2) for the rest. It takes
    8 n (r + 64) bytes, and twice that while it is computed.
    """
    rank = whole_number("rank", rank)
    n, engine = forest.n_rows, forest.engine
    variance = engine.hold(check_noise(noise, n))
    chosen = engine.hold(np.sort(rng.choice(n, size=min(rank, n), replace=False)))
    size = min(BLOCK_ROWS, n)
    members = _make_blocks(forest, size)
    n_blocks = members.shape[0]
    rows = members.ravel()[:n]
    basis = np.zeros_like(variance, shape=(n_blocks * size, chosen.size))
    corner = np.empty_like(variance, shape=(chosen.size, chosen.size))
    numbers = engine.hold(np.arange(max(size, chosen.size)))
    at_a_time = engine.columns_at_once
    for start in range(0, chosen.size, at_a_time):
        some = chosen[start : start + at_a_time]
        columns = engine.kernel_columns(forest.trees, some)
        if forest.smooth is not None:
            columns += forest.smooth.columns(some)
        corner[:, start : start + some.size] = columns[chosen]
        basis[:n, start : start + some.size] = columns[rows]
        done = start + some.size
        if tell is not None:
            tell(done / chosen.size)
        if watch is not None and watch.stop and done < chosen.size:
            chosen, basis = chosen[:done], basis[:, :done].copy()
            corner = corner[:done, :done]
            break
    jitter = JITTER * max(forest.prior_variance, 1e-300)
    corner[numbers[: chosen.size], numbers[: chosen.size]] += jitter
    local = engine.block_kernels(forest.trees, members)
    if forest.smooth is not None:
        local += forest.smooth.blocks(members)
    spare = np.ones_like(variance, shape=(n_blocks * size,))  # 1 for the padding of the last block
    spare[:n] = variance[rows] + jitter
    local[:, numbers[:size], numbers[:size]] += spare.reshape(n_blocks, size)
    slices, least = engine.block_slices(n_blocks), float(variance.min())
    with one_blas_thread():
        lower = _factor(engine, corner, jitter)

        def reduce_blocks(_: Engine, some: slice) -> tuple[Floats, float]:
            """Terms of some blocks in B' S^-1 B and in log det S; replaces S by S^-1."""
            part = slice(some.start * size, some.stop * size)
            basis[part] = engine.solve_lower(lower, basis[part].T).T
            own = basis[part].reshape(-1, size, chosen.size)
            left = local[some] - own @ own.transpose(0, 2, 1)
            roots = _factor_blocks(engine, left, least)
            log_det = 2.0 * float(np.log(np.einsum("bii->bi", roots)).sum())
            inverse = np.linalg.inv(roots)
            local[some] = inverse.transpose(0, 2, 1) @ inverse
            flat = basis[part]
            return flat.T @ _within(local[some], flat), log_det

        parts = engine.each(reduce_blocks, slices)
        inner = sum((part for part, _ in parts), engine.hold(np.eye(chosen.size)))
        core = engine.cholesky(inner)

        def gain_blocks(_: Engine, some: slice) -> None:
            part = slice(some.start * size, some.stop * size)
            scaled = _within(local[some], basis[part])
            basis[part] = engine.solve_lower(core, scaled.T).T

        engine.each(gain_blocks, slices)
    log_det = 2.0 * float(np.log(np.diag(core)).sum()) + sum(value for _, value in parts)
    return Nystrom(rows, local, basis, core, log_det, engine)


def _make_blocks(forest: Forest, size: int) -> Ids:
    """Blocks of neighbours in the tree of largest prior variance, int32 (n_blocks, size).

    The last block is padded with -1.
    """
    spans = [float(levels[0] - levels[-1]) for levels in forest.levels]
    rows = forest.tries[int(np.argmax(spans))].row_idx
    members: Ids = np.full_like(rows, -1, shape=(-(-rows.size // size) * size,))
    members[: rows.size] = rows
    return members.reshape(-1, size)


def _factor(engine: Engine, matrices: Floats, jitter: float) -> Floats:
    """Lower Cholesky factors; adds to the diagonal if rounding has made a matrix indefinite."""
    eye = engine.hold(np.eye(matrices.shape[-1]))
    for more in (0.0, 1e2, 1e4, 1e6):
        try:
            return engine.cholesky(matrices + more * jitter * eye)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("the preconditioner is not positive definite: noise is too small")


def _factor_blocks(engine: Engine, blocks: Floats, least: float) -> Floats:
    """Lower Cholesky factors of blocks; where one is not positive definite, of the nearest one.

    The smooth part is approximated, so that what the Nystrom part leaves of a block can have
    negative eigenvalues. Those below `least` are raised to it.
    """
    try:
        return engine.cholesky(blocks)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(blocks)
        raised = np.maximum(values, least)
        return engine.cholesky((vectors * raised[..., None, :]) @ vectors.transpose(0, 2, 1))


def _within(blocks: Floats, x: Floats) -> Floats:
    """Block-diagonal matrix (n_blocks, size, size) times x (n_blocks * size, k)."""
    n_blocks, size, _ = blocks.shape
    out: Floats = (blocks @ x.reshape(n_blocks, size, -1)).reshape(x.shape)
    return out


def check_noise(noise: Any, n_rows: int) -> Floats:
    """Noise variances as a vector (n,) in the host's memory; raises ValueError unless all > 0."""
    variance = np.broadcast_to(np.asarray(to_host(noise), np.float64), (n_rows,))
    variance = non_negative_vector("noise", variance, n_rows)
    if not (variance > 0).all():
        i = int(np.argmin(variance))
        raise ValueError(f"noise must be positive, got {variance[i]} at row {i}")
    return variance
