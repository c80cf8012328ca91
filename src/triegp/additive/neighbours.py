"""Preconditioner of K + noise from inducing rows, columns of the trees, and neighbours.

Phi comes from the inducing rows of the smooth part. With C = K_trees[:, J] for r random rows J and
C[J] = L L', let Q = (Phi, C L^-T). Each row is regressed on its neighbours of the smooth part under
what Q leaves of the whole kernel, noise included: K + noise - Q Q' ~ B^-1 D B^-T, with B unit lower
triangular in the order of the smooth part. With R = D^-1/2 B and V = R Q, M = R^-1 (I + V V') R^-T
is inverted by Woodbury's formula: M^-1 = R' (I - V (core core')^-1 V') R, core core' = I + V' V.

Q and V are stored in float32. Everything else follows from the rounded values in float64, so that M
is positive definite and its inverse exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.additive.forest import Forest
from triegp.additive.preconditioner import JITTER, check_noise
from triegp.checks import whole_number
from triegp.engines import Engine, low_rank, one_blas_thread, threads_of, vecchia
from triegp.imports import scipy
from triegp.smooth.factor import (
    Factor,
    colour,
    in_order,
    neighbour_rows,
    unwhiten,
    whiten,
)
from triegp.smooth.induced import Induced
from triegp.smooth.kernel import Kernel

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

ROWS = 2_048  # rows of a triangular solve
PAIR_FLOATS = 1 << 24  # kernel values between neighbours that are held at a time
MOST_NEIGHBOURS = 16  # per row, the nearest of those of the smooth part
PANEL, PANEL_FLOATS = 64, 1 << 23  # columns multiplied at a time: at most, and so many values


@dataclass(frozen=True, eq=False)
class Neighbours:
    """M = Q Q' + B^-1 D B^-T, factored for products with its inverse.

    Attributes
    ----------
    factor : Factor
        B and D.
    basis : float32 (n, q)
        V.
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
        z = whiten(self.factor, x)
        z -= low_rank.multiply(self.basis, z, self.n_threads, self._divide)
        return unwhiten(self.factor, z)

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
        return colour(self.factor, scatter + self.basis @ normals)

    def _divide(self, x: Floats) -> Floats:
        """(core core')^-1 x for x (q,) or (q, k)."""
        return np.asarray(scipy.linalg.cho_solve((self.core, True), x, check_finite=False))


def precondition_neighbours(
    forest: Forest,
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
    O(n (q^2 + q m_v^2 + m_v^2 T)) with q = m_i + r. It takes 4 n q bytes, and some more
    while it is computed.
    """
    engine, n = forest.engine, forest.n_rows
    variance = check_noise(noise, n)
    n_columns = whole_number("n_columns", n_columns)
    n_threads, tell = threads_of(engine), tell or (lambda _: None)
    kernel = _kernel(forest)
    root = float(np.sqrt(kernel.scale / induced.kernel.scale))  # the kernel may be rescaled
    with one_blas_thread():
        m_i = induced.inducing.size
        basis: Singles = np.empty((n, m_i + min(n_columns, n)), np.float32)
        np.multiply(root, induced.phi, out=basis[:, :m_i], casting="same_kind")
        basis[:, m_i:] = _tree_basis(forest, min(n_columns, n), rng)
        tell(0.3)
        factor = _regress(forest, induced, basis, variance)
        tell(0.6)

        width = max(1, min(PANEL, PANEL_FLOATS // n))

        def whiten_some(_: Engine, first: int) -> None:
            some = slice(first, first + width)
            basis[:, some] = whiten(factor, basis[:, some])

        engine.each(whiten_some, range(0, basis.shape[1], width))
        inner = low_rank.gram(basis, n_threads)
        inner[np.diag_indices_from(inner)] += 1.0
        core = engine.cholesky(inner)
    tell(1.0)
    log_det = 2.0 * float(np.log(np.diag(core)).sum()) + float(np.log(factor.variances).sum())
    return Neighbours(factor, basis, core, log_det, n_threads)


def _kernel(forest: Forest) -> Kernel:
    assert forest.smooth is not None
    return forest.smooth.kernel


def _tree_basis(forest: Forest, n_columns: int, rng: np.random.Generator) -> Floats:
    """C L^-T of the trees, (n, r)."""
    engine, n = forest.engine, forest.n_rows
    chosen = np.sort(rng.choice(n, n_columns, replace=False))
    columns = engine.kernel_columns(forest.trees, chosen)
    corner = columns[chosen]
    corner[np.diag_indices_from(corner)] += JITTER * max(forest.tree_variance, 1e-300)
    lower = engine.cholesky(corner)

    def divide(_: Engine, first: int) -> None:
        some = slice(first, first + ROWS)
        columns[some] = engine.solve_lower(lower, columns[some].T).T

    engine.each(divide, range(0, n, ROWS))
    return columns


def _regress(forest: Forest, induced: Induced, basis: Singles, variance: Floats) -> Factor:
    """B and D of what the basis leaves of the whole kernel, noise included."""
    n, kernel = forest.n_rows, _kernel(forest)
    neighbours = neighbour_rows(induced.factor, MOST_NEIGHBOURS)
    weights, variances = np.empty(neighbours.shape), np.empty(n)
    members = np.concatenate([np.arange(n, dtype=np.int32)[:, None], neighbours], axis=1)
    every = np.arange(members.shape[1])
    near = induced.searched.rows[induced.searched.index.rows[0]]
    rows = np.concatenate([near, np.setdiff1d(np.arange(n), near)])  # neighbours are shared
    step = max(1, PAIR_FLOATS // every.size**2)
    for first in range(0, n, step):
        some = rows[first : first + step]
        own = members[some]
        added = forest.engine.block_kernels(forest.trees, own)
        added[:, every, every] += np.where(own >= 0, variance[own], 0.0)
        vecchia.fill_factor(
            kernel.code,
            kernel.scale,
            basis,
            induced.scaled,
            basis,
            induced.scaled,
            some,
            neighbours,
            weights,
            variances,
            induced.n_threads,
            added,
        )
    return in_order(induced.order, neighbours, weights, np.maximum(variances, variance))
