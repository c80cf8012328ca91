"""Products of the kernel between new and training rows with vectors: means of new rows.

A mean has the values a at the inducing rows and r of the remainder known (`triegp.smooth.points`).
It is a sum over kernel values with vectors that the new rows of a block share:

    mean(x) = k_U(x)' L^-T (a - Phi_N' w) + k_N(x)' w,      w = R_NN^-1 r_N.

So it costs O((m_i + m_v) d) per row, once the vectors of its block are there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.engines import blocked, lapack, low_rank, nearest, one_blas_thread, run_each
from triegp.smooth.induced import Induced, find_members, remainder
from triegp.smooth.points import InducedPoints
from triegp.smooth.products import multiply_rest

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

ROWS_AT_ONCE = 512  # new rows of a thread


class Prepared:
    """A vector, or the columns of a matrix, as new rows need it.

    The vectors of a block are made when a row belongs to it for the first time, and kept: O(m_i +
    m_v) numbers per block and column.

    Parameters
    ----------
    inducing : float64 (m_i,) or (m_i, k)
        Phi' alpha.
    rest : float64 (n,) or (n, k)
        R alpha.
    """

    def __init__(self, inducing: Floats, rest: Floats) -> None:
        self.inducing, self.rest = inducing, rest
        self._vectors: Vectors | None = None

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        return {"inducing": self.inducing, "rest": self.rest, "_vectors": None}

    def vectors(self, induced: Induced, cells: Ints) -> Vectors:
        """Vectors of all blocks; those of some are made if they are missing.

        Parameters
        ----------
        induced : Induced
            Training rows.
        cells : int32 (k,)
            Blocks whose vectors are needed.
        """
        if self._vectors is None:
            n_cells, k = induced.n_cells, self.rest[0].size
            self._vectors = Vectors(
                np.full((n_cells, induced.n_neighbours), -1, np.int32),
                np.empty((n_cells, k, induced.inducing.size)),
                np.empty((n_cells, k, induced.n_neighbours)),
                np.zeros(n_cells, bool),
            )
        kept = self._vectors
        missing = cells[~kept.made[cells]]
        if missing.size:
            _fill_vectors(induced, self.inducing, self.rest, missing, kept)
        return kept


class Vectors(NamedTuple):
    """For each block: its members and the vectors with which kernel values are multiplied.

    Attributes
    ----------
    members : int32 (n_cells, m_v)
        Places of the neighbours of new rows; -1 from the first unused entry on.
    by_inducing : float64 (n_cells, k, m_i)
        L^-T (a - Phi_N' w).
    by_member : float64 (n_cells, k, m_v)
        w.
    made : bool (n_cells,)
        Whether the block's vectors are there.
    """

    members: Ints
    by_inducing: Floats
    by_member: Floats
    made: npt.NDArray[np.bool_]


def _fill_vectors(
    induced: Induced, inducing: Floats, rest: Floats, cells: Ints, out: Vectors
) -> None:
    """Make the vectors of some blocks. O(m_i m_v^2 + m_v^3 + m_i^2) per block."""
    k = rest[0].size
    at_inducing, by_place = inducing.reshape(-1, k), rest.reshape(-1, k)[induced.order]
    near = find_members(induced, cells)

    def fill(at: int) -> None:
        b, places, values = cells[at], nearest.used_places(near[at]), at_inducing
        if places.size:
            lower = lapack.factorise(remainder(induced, places), induced.jitter)
            w = by_place[places]
            lapack.divide(lower, w)
            lapack.divide_transposed(lower, w)
            out.members[b] = near[at]
            out.by_member[b, :, : places.size] = w.T
            values = values - induced.phi[places].astype(np.float64, copy=False).T @ w
        if values.size:
            values = values.copy()
            lapack.divide_transposed(induced.root, values)
            out.by_inducing[b] = values.T
        out.made[b] = True

    with one_blas_thread():
        run_each(fill, range(cells.size), induced.n_threads)


def prepare(induced: Induced, alpha: Any) -> Prepared:
    """Phi' alpha and R alpha for alpha (n,) or (n, k), from which `mean` reads. One product.

    Parameters
    ----------
    induced : Induced
        Training rows.
    alpha : array-like (n,) or (n, k)
        Weights of the training rows.
    """
    at_inducing = low_rank.reduce(induced.phi, alpha[induced.order], induced.n_threads)
    return Prepared(at_inducing, multiply_rest(induced, alpha))


def mean(points: InducedPoints, prepared: Prepared) -> Floats:
    """K(new rows, training rows) alpha, (m,) or (m, k). O((m_i + m_v) d) per row and column.

    What a row gets does not depend on the other new rows.

    Parameters
    ----------
    points : InducedPoints
        New rows, as `read` returns them.
    prepared : Prepared
        Returned by `prepare`.
    """
    induced, cell = points.induced, points.cell
    vectors = prepared.vectors(induced, np.unique(cell))
    out = np.empty((cell.size, vectors.by_member.shape[1]))
    order = np.argsort(cell, kind="stable")
    given = (induced.kernel.code, induced.kernel.scale, induced.inducing_lines, induced.scaled)

    def fill(lo: int) -> None:
        rows = order[lo : lo + ROWS_AT_ONCE]
        blocked.fill_means(*given, *vectors[:3], cell, rows, points.scaled, out)

    run_each(fill, range(0, cell.size, ROWS_AT_ONCE), induced.n_threads)
    return out.reshape(cell.size, *prepared.rest.shape[1:])
