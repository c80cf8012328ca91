"""A sparse factorisation R ~ S S' over rows in blocks, stored in the order of the blocks.

Each block of rows is regressed on its neighbours, rows of earlier blocks (`triegp.engines.cpu.
blocked`): S = B^-1 diag(L_D), with B = I - (weights) and the Cholesky factor L_D of what the
neighbours leave of each block. Whatever the rounding of the stored weights, R is positive definite
and its inverse exact. Vectors come and go in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import blocked, one_blas_thread, run_each
from triegp.imports import scipy

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]

BLOCKS_AT_ONCE = 8  # of a thread


@dataclass(frozen=True, eq=False)
class Factor:
    """S, in the order of the blocks.

    Attributes
    ----------
    order : int64 (n,)
        The rows, block by block.
    starts : int64 (n_blocks + 1,)
        Block b holds the places starts[b] to starts[b + 1] of the order.
    neighbours : int32 (n_blocks, m_v)
        Places of each block's neighbours, nearest first, all before the block; -1 from the first
        unused entry on.
    weights : float32 (n, m_v)
        Weights of the neighbours, by place; 0 if unused.
    roots : float32 (n, width)
        L_D: the line of each place, 0 above its diagonal.
    """

    order: Ids
    starts: Ids
    neighbours: Ints
    weights: Singles
    roots: Singles

    @property
    def log_det(self) -> float:
        """log det R."""
        within = np.arange(self.order.size) - np.repeat(self.starts[:-1], np.diff(self.starts))
        return 2.0 * float(np.log(self.roots[np.arange(within.size), within]).sum())

    def sweep(self, x: Any, *kernels: Any) -> Floats:
        """Sweeps over the blocks, one after the other, for x (n,) or (n, k)."""
        z = np.asarray(x, dtype=np.float64).reshape(self.order.size, -1)[self.order]
        for kernel in kernels:
            kernel(self.starts, self.neighbours, self.weights, self.roots, z)
        out = np.empty(np.shape(x))
        out.reshape(z.shape)[self.order] = z
        return out


def regress_blocks(
    order: Ids,
    starts: Ids,
    neighbours: Ints,
    covariance: Callable[[Ints], Floats],
    jitter: float,
    first: int,
    n_threads: int,
) -> tuple[Singles, Singles]:
    """Weights and roots of the blocks from `first` on, for the places from starts[first] on.

    O(w (m_v + w)^2) per row for blocks of w rows, and the covariances.

    Parameters
    ----------
    order, starts, neighbours : arrays
        As in `Factor`.
    covariance : callable
        R at some places, (k, k), of which the lower triangle is read; it may be overwritten.
    jitter : float
        Smallest number that is added to a diagonal, ten times as much as long as a matrix is not
        positive definite.
    first : int
        First block.
    n_threads : int
        Threads; the result does not depend on them.
    """
    begin, width = int(starts[first]), int(np.diff(starts).max())
    n = order.size - begin
    weights = np.zeros((n, neighbours.shape[1]), np.float32)
    roots = np.zeros((n, width), np.float32)

    def regress(lo: int) -> None:
        for b in range(lo, min(lo + BLOCKS_AT_ONCE, starts.size - 1)):
            near = blocked.kept_places(neighbours[b])
            places = np.append(near, np.arange(starts[b], starts[b + 1], dtype=np.int32))
            lower, k = factorise(covariance(places), jitter), near.size
            here = slice(int(starts[b]) - begin, int(starts[b + 1]) - begin)
            roots[here, : places.size - k] = np.tril(lower[k:, k:])
            if k:
                solved, _ = scipy.linalg.lapack.dtrtrs(lower[:k, :k], lower[k:, :k].T, 1, 1)
                weights[here, :k] = solved.T

    with one_blas_thread():
        run_each(regress, range(first, starts.size - 1, BLOCKS_AT_ONCE), n_threads)
    return weights, roots


def factorise(matrix: Floats, jitter: float) -> Floats:
    """Lower Cholesky factor of a matrix plus jitter; its upper triangle is not to be read.

    The jitter is ten times as large as long as the matrix is not positive definite.
    """
    added = jitter
    while True:
        trial = matrix.copy(order="F")
        trial[np.diag_indices_from(trial)] += added
        lower, info = scipy.linalg.lapack.dpotrf(trial, lower=1, clean=0, overwrite_a=1)
        if info == 0:
            return np.asarray(lower)
        if info < 0 or not np.isfinite(added):
            raise np.linalg.LinAlgError("a covariance matrix is not finite")
        added *= 10.0


def multiply(factor: Factor, x: Any) -> Floats:
    """R x for x (n,) or (n, k). O(n m_v k)."""
    return factor.sweep(x, blocked.halve, blocked.colour)


def colour(factor: Factor, x: Any) -> Floats:
    """S x for x (n,) or (n, k): of covariance R if x is white. O(n m_v k)."""
    return factor.sweep(x, blocked.colour)


def halve(factor: Factor, x: Any) -> Floats:
    """S' x for x (n,) or (n, k), so that its square is x' R x. O(n m_v k)."""
    return factor.sweep(x, blocked.halve)


def whiten(factor: Factor, x: Any) -> Floats:
    """S^-1 x for x (n,) or (n, k): white if x has covariance R. O(n m_v k)."""
    return factor.sweep(x, blocked.whiten)


def unwhiten(factor: Factor, x: Any) -> Floats:
    """S^-T x for x (n,) or (n, k), the transpose of `whiten`. O(n m_v k)."""
    return factor.sweep(x, blocked.unwhiten)
