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

from triegp.engines import blocked, lapack, nearest, one_blas_thread, run_each

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]

BLOCKS_AT_ONCE = 8  # of a thread
ROWS_AT_ONCE = 64  # of a thread, if each row is a block


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
        diagonal = self.roots[np.arange(within.size), within].astype(np.float64)
        return 2.0 * float(np.log(diagonal).sum())

    def sweep(self, x: Any, *kernels: Any) -> Floats:
        """Sweeps over the blocks, one after the other, for x (n,) or (n, k)."""
        z = np.asarray(x, dtype=np.float64).reshape(self.order.size, -1)[self.order]
        for kernel in kernels:
            kernel(self.starts, self.neighbours, self.weights, self.roots, z)
        out = np.empty(np.shape(x))
        out.reshape(z.shape)[self.order] = z
        return out


def regress_blocks(
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
    starts, neighbours : arrays
        As in `Factor`.
    covariance : callable
        R at some places, (k, k), of which the lower triangle is read.
    jitter : float
        Smallest number that is added to a diagonal.
    first : int
        First block.
    n_threads : int
        Threads; the result does not depend on them.
    """
    begin, width = int(starts[first]), int(np.diff(starts[first:]).max(initial=1))
    weights = np.zeros((int(starts[-1]) - begin, neighbours.shape[1]), np.float32)
    roots = np.zeros((len(weights), width), np.float32)

    def regress(b: int) -> None:
        near, rows = nearest.used_places(neighbours[b]), slice(*(starts[b : b + 2] - begin))
        places, k = np.append(near, np.arange(*starts[b : b + 2], dtype=np.int32)), near.size
        lower = lapack.factorise(covariance(places), jitter)
        roots[rows, : places.size - k] = np.tril(lower[k:, k:])
        if k:  # W L_NN = L_CN
            lapack.divide_right(lower[:k, :k], lower[k:, :k])
            weights[rows, :k] = lower[k:, :k]

    def regress_all(lo: int) -> None:
        for b in range(lo, min(lo + BLOCKS_AT_ONCE, starts.size - 1)):
            regress(b)

    def scale_rows(lo: int) -> None:
        """Roots of blocks of one row without neighbours, many at once."""
        places = np.arange(begin + lo, min(begin + lo + ROWS_AT_ONCE, starts[-1]), dtype=np.int32)
        variance = np.diag(covariance(places))
        roots[places - begin, 0] = np.sqrt(np.maximum(variance, 0.0) + jitter)

    with one_blas_thread():
        if neighbours.shape[1] or width > 1:
            run_each(regress_all, range(first, starts.size - 1, BLOCKS_AT_ONCE), n_threads)
        else:
            run_each(scale_rows, range(0, len(roots), ROWS_AT_ONCE), n_threads)
    return weights, roots


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
