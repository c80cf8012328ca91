"""Preconditioner of K + noise from inducing rows, columns of the trees, and neighbours.

Phi comes from the inducing rows of the smooth part. With C = K_trees[:, J] for r random rows J and
C[J] = L L', let Q = (Phi, C L^-T). The blocks of the smooth part are regressed on the nearest of
their neighbours under what Q leaves of the whole kernel, noise included: K + noise - Q Q' ~ S S'
(`triegp.smooth.factor`). With V = S^-1 Q, M = S (I + V V') S' is inverted by Woodbury's formula:
M^-1 = S^-T (I - V (core core')^-1 V') S^-1, core core' = I + V' V.

Q and V are stored in float32. Everything else follows from the rounded values in float64, so that M
is positive definite and its inverse exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.additive.preconditioner import JITTER, check_noise
from triegp.checks import whole_number
from triegp.engines import blocked, lapack, low_rank, nearby, one_blas_thread, run_each, threads_of
from triegp.imports import scipy
from triegp.smooth.factor import Factor, colour, regress_blocks
from triegp.smooth.induced import Induced

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

ROWS = 2_048  # rows of a triangular solve
MOST_NEIGHBOURS = 96  # of a block, the nearest of those of the smooth part
PANEL = 256  # columns of a thread


@dataclass(frozen=True, eq=False)
class Neighbours:
    """M = Q Q' + S S', factored for products with its inverse.

    Attributes
    ----------
    factor : Factor
        S.
    basis : float32 (n, q)
        V, by place.
    core : float64 (q, q)
        Lower Cholesky factor of I + V' V.
    log_det : float
        log det M.
    n_threads : int
        Threads; results do not depend on it.
    """

    factor: Factor
    basis: Singles
    core: Floats
    log_det: float
    n_threads: int

    def rescaled(self, factor: float) -> Neighbours:
        """The preconditioner of all variances times a factor.

        Parameters
        ----------
        factor : float
            Factor of the variances.
        """
        root = np.float32(np.sqrt(factor))
        roots = replace(self.factor, roots=root * self.factor.roots)
        log_det = self.log_det + self.n_rows * float(np.log(np.square(root, dtype=np.float64)))
        return replace(self, factor=roots, log_det=log_det)

    def without_last(self, count: int) -> Neighbours:
        """The preconditioner of the rows before the last ones, which fill the last blocks.

        No row leans on later ones, so that it is a part of this one. O(n q^2 + q^3).

        Parameters
        ----------
        count : int
            Number of the last rows.
        """
        factor, n = self.factor, self.n_rows - count
        n_blocks = int(np.searchsorted(factor.starts, n))
        less = Factor(
            factor.order[:n],
            factor.starts[: n_blocks + 1],
            factor.neighbours[:n_blocks],
            factor.weights[:n],
            factor.roots[:n],
        )
        inner = low_rank.gram(self.basis[:n], self.n_threads)
        inner[np.diag_indices_from(inner)] += 1.0
        core: Floats = np.asarray(np.linalg.cholesky(inner), np.float64)
        log_det = 2.0 * float(np.log(np.diag(core)).sum()) + less.log_det
        return Neighbours(less, self.basis[:n], core, log_det, self.n_threads)

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.factor.order.size)

    @property
    def inverse(self) -> Callable[[Floats], Floats]:
        """Product with M^-1, in the form that engines take."""
        return self.apply

    def apply(self, x: Floats) -> Floats:
        """M^-1 x for x (n, k). O(n (q + m_v) k). The result does not depend on the threads.

        Parameters
        ----------
        x : float64 (n, k)
            Vectors.
        """

        def divide(*given: Any) -> None:
            z = given[-1]
            z -= low_rank.multiply(self.basis, z, self.n_threads, self._divide)

        return self.factor.sweep(x, blocked.whiten, divide, blocked.unwhiten)

    def draw(self, n_samples: int, rng: np.random.Generator) -> Floats:
        """Samples of N(0, M), (n, n_samples). O(n (q + m_v) n_samples).

        Parameters
        ----------
        n_samples : int
            Number of samples.
        rng : Generator
            Source of random numbers.
        """
        normals = rng.standard_normal((self.core.shape[0], n_samples))
        scatter = rng.standard_normal((self.n_rows, n_samples))
        scatter[self.factor.order] += low_rank.expand(self.basis, normals, self.n_threads)
        return colour(self.factor, scatter)

    def _divide(self, x: Floats) -> Floats:
        """(core core')^-1 x for x (q,) or (q, k)."""
        return np.asarray(scipy.linalg.cho_solve((self.core, True), x, check_finite=False))


def precondition_neighbours(
    forest: Forest,
    process: nearby.Process,
    induced: Induced,
    noise: Floats,
    n_columns: int,
    rng: np.random.Generator,
    tell: Callable[[float], None] | None = None,
) -> Neighbours:
    """Preconditioner of K + noise, for trees and a smooth part in linear time.

    Parameters
    ----------
    forest : Forest
        Its kernel matrix is K.
    process : Process
        The same rows, for covariances between any of them.
    induced : Induced
        Its smooth part.
    noise : float64 (n,)
        Variances, > 0.
    n_columns : int
        Random rows of the trees, r; at most n are used.
    rng : numpy.random.Generator
        Draws these rows.
    tell : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Notes
    -----
    O(n (q^2 + (m_v + w)^2 (q + T) / w)) with q = m_i + r, for blocks of w rows. It takes 8 n q
    bytes while it is computed, half of them later.
    """
    engine, n = forest.engine, forest.n_rows
    variance = check_noise(noise, n)
    n_columns = min(whole_number("n_columns", n_columns), n)
    n_threads, tell = threads_of(engine), tell or (lambda _: None)
    assert forest.smooth is not None
    root = float(np.sqrt(forest.smooth.kernel.scale / induced.kernel.scale))  # it may be rescaled
    m_i, order = induced.inducing.size, induced.order
    with one_blas_thread():
        basis: Singles = np.empty((n, m_i + n_columns), np.float32)
        np.multiply(root, induced.phi, out=basis[:, :m_i], casting="same_kind")
        _fill_tree_basis(forest, process, order, rng, basis[:, m_i:])
        tell(0.3)
        factor = _regress(process, induced, basis, float(variance.min()))
        tell(0.6)
        panels = range(0, basis.shape[1], PANEL)
        run_each(lambda lo: _whiten(factor, basis[:, lo : lo + PANEL]), panels, n_threads)
        inner = low_rank.gram(basis, n_threads)
        inner[np.diag_indices_from(inner)] += 1.0
        core = engine.cholesky(inner)
    tell(1.0)
    log_det = 2.0 * float(np.log(np.diag(core)).sum()) + factor.log_det
    return Neighbours(factor, basis, core, log_det, n_threads)


def _fill_tree_basis(
    forest: Forest, process: nearby.Process, order: Ids, rng: np.random.Generator, out: Singles
) -> None:
    """Write C L^-T of the trees by place, (n, r)."""
    trees, n = process._replace(code=-1, scale=0.0), order.size
    chosen = np.sort(rng.choice(n, out.shape[1], replace=False)).astype(np.int32)
    corner = nearby.covariances_of(trees, chosen, chosen)
    corner[np.diag_indices_from(corner)] += JITTER * max(forest.tree_variance, 1e-300)
    lower = forest.engine.cholesky(corner)

    def divide(first: int) -> None:
        rows = order[first : first + ROWS].astype(np.int32)
        columns = nearby.covariances_of(trees, rows, chosen)
        lapack.divide_right_transposed(lower, columns)
        out[first : first + ROWS] = columns

    run_each(divide, range(0, n, ROWS), threads_of(forest.engine))


def _whiten(factor: Factor, columns: Singles) -> None:
    """S^-1 times columns by place, (n, c), in place: neighbours of a block lie before it."""
    starts = factor.starts.tolist()
    for b in range(len(starts) - 2, -1, -1):
        rows, near = slice(starts[b], starts[b + 1]), factor.neighbours[b]
        near = near[near >= 0]
        block = columns[rows] - factor.weights[rows, : near.size] @ columns[near]
        root = factor.roots[rows, : block.shape[0]]
        lapack.divide(root, block)
        columns[rows] = block


def _regress(process: nearby.Process, induced: Induced, basis: Singles, least: float) -> Factor:
    """S of what the basis leaves of the whole kernel, noise included."""
    neighbours = np.ascontiguousarray(induced.neighbours[:, :MOST_NEIGHBOURS])
    order, starts = induced.order, induced.starts

    def remainder(places: npt.NDArray[np.int32]) -> Floats:
        values = nearby.covariance_of(process, order[places].astype(np.int32))
        columns = basis[places].astype(np.float64)
        lapack.subtract_squares(columns, values)
        return values

    blocks = (starts, neighbours, remainder, 1e-10 * least)
    return Factor(order, starts, neighbours, *regress_blocks(*blocks, 0, induced.n_threads))
