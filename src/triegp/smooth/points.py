"""New rows under the smooth part, given its training rows: means, covariances and joint samples.

A new row belongs to the block whose centre is nearest. Its neighbours N are the rows nearest to
that centre, of all blocks. It is phi(x)' a + b(x)' r_N plus a rest that is independent of all other
rows, with b(x) = R_NN^-1 R_N(x), for the values a at the inducing rows and r of the remainder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.engines import (
    blocked,
    computed_once,
    lapack,
    low_rank,
    nearest,
    one_blas_thread,
    run_each,
)
from triegp.smooth.copies import first_equal
from triegp.smooth.factor import colour, halve
from triegp.smooth.induced import (
    Induced,
    find_cells,
    find_members,
    project,
    remainder,
    scale_inputs,
)
from triegp.smooth.kernel import kernel_cross
from triegp.smooth.products import multiply_rest

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]


class Regressed(NamedTuple):
    """New rows as functions of the training rows.

    Attributes
    ----------
    phi : float64 (m, m_i)
        L^-1 k_U(x) in the rows.
    neighbours : int32 (m, m_v)
        Training rows, nearest to the centre first; -1 from the first unused entry on.
    weights : float64 (m, m_v)
        Their weights, 0 if unused.
    variances : float64 (m,)
        What inducing rows and neighbours leave of the variance, > 0.
    same : int64 (m,)
        The first new row that equals each new row.
    """

    phi: Floats
    neighbours: Ints
    weights: Floats
    variances: Floats
    same: Ids


@dataclass(frozen=True, eq=False)
class InducedPoints:
    """New rows.

    Attributes
    ----------
    induced : Induced
        The training rows.
    scaled : float64 (m, d)
        Inputs over lengthscales.
    cell : int32 (m,)
        Number of the block each row belongs to.
    """

    induced: Induced
    scaled: Floats
    cell: Ints

    @computed_once
    def regressed(self) -> Regressed:
        """The rows as functions of the training rows; a row does not depend on the others.

        O(m_i^2 + m_v^2) per row, O(m_i m_v^2 + m_v^3) per block.
        """
        induced, m = self.induced, self.cell.size
        kernel, scaled = induced.kernel, self.scaled
        phi = np.empty((m, induced.inducing.size))
        project(induced, scaled, phi)
        variances = kernel.scale - np.einsum("ij,ij->i", phi, phi)
        neighbours = np.full((m, induced.n_neighbours), -1, np.int32)
        weights = np.zeros(neighbours.shape)
        cells, order = np.unique(self.cell), np.argsort(self.cell, kind="stable")
        rows = np.split(order, np.searchsorted(self.cell[order], cells[1:]))
        near = find_members(induced, cells)

        def regress(at: int) -> None:
            places = nearest.used_places(near[at])
            if not places.size:
                return
            lower = lapack.factorise(remainder(induced, places), induced.jitter)
            here, phi_here = induced.scaled[places], induced.phi[places].astype(np.float64)
            for i in rows[at]:
                across = kernel_cross(kernel, scaled[i : i + 1], here, 1)[0] - phi_here @ phi[i]
                b = across.copy()
                lapack.divide(lower, b[:, None])
                lapack.divide_transposed(lower, b[:, None])
                neighbours[i, : b.size], weights[i, : b.size] = induced.order[places], b
                variances[i] -= b @ across

        with one_blas_thread():
            run_each(regress, range(cells.size), induced.n_threads)
        least = np.maximum(variances, induced.jitter)
        return Regressed(phi, neighbours, weights, least, first_equal(scaled))


def read(induced: Induced, X_new: Any) -> InducedPoints:
    """Find the blocks that new rows (m, d) belong to. O(n_blocks d) per row at most.

    Parameters
    ----------
    induced : Induced
        Training rows.
    X_new : array-like (m, d)
        New rows.
    """
    X_new = np.ascontiguousarray(X_new, dtype=np.float64)
    scaled = scale_inputs(induced.kernel, X_new)
    return InducedPoints(induced, scaled, find_cells(induced, scaled))


def cross(induced: Induced, points: InducedPoints) -> Floats:
    """Covariance of training rows with new rows, (n, m). O(n (m_i + m_v) m).

    Parameters
    ----------
    induced : Induced
        Training rows.
    points : InducedPoints
        New rows, as `read` returns them.
    """
    out = multiply_rest(induced, _scatter(induced, points.regressed))
    out[induced.order] += low_rank.expand(induced.phi, points.regressed.phi.T, induced.n_threads)
    return out


def own(induced: Induced, points: InducedPoints) -> Floats:
    """Covariance among new rows, (m, m). O(n m_v m + n m^2).

    Two new rows share what neighbours leave if they are equal, and only then.

    Parameters
    ----------
    induced : Induced
        Training rows.
    points : InducedPoints
        New rows, as `read` returns them.
    """
    made = points.regressed
    half = halve(induced.factor, _scatter(induced, made))
    equal = made.same[:, None] == made.same
    out: Floats = half.T @ half + made.phi @ made.phi.T
    out += np.where(equal, made.variances, 0.0)
    return out


def draw(
    induced: Induced, n_samples: int, rng: np.random.Generator, points: InducedPoints | None = None
) -> tuple[Floats, Floats]:
    """Joint prior samples at training rows, (n, s), and at new rows, (m, s).

    Without points, m is 0. O((n + m) (m_i + m_v) s).

    Parameters
    ----------
    induced : Induced
        Training rows.
    n_samples : int
        Number of samples, s.
    rng : Generator
        Source of random numbers.
    points : InducedPoints, optional
        New rows, as `read` returns them.
    """
    inducing = rng.standard_normal((induced.inducing.size, n_samples))
    rest = colour(induced.factor, rng.standard_normal((induced.n_rows, n_samples)))
    if points is None:
        new = np.empty((0, n_samples))
    else:
        made = points.regressed
        new = rng.standard_normal((made.same.size, n_samples))[made.same]
        new *= np.sqrt(made.variances)[:, None]
        new += continue_known(points, inducing, rest)
    rest[induced.order] += low_rank.expand(induced.phi, inducing, induced.n_threads)
    return rest, new


def continue_known(points: InducedPoints, inducing: Floats, rest: Floats) -> Floats:
    """phi(x)' a + b(x)' r of new rows for a (m_i, k) and r (n, k), by row, (m, k).

    A row does not depend on the others, to the last bit.
    """
    made = points.regressed
    out = np.empty((made.same.size, rest.shape[1]))
    blocked.gather_rows(made.neighbours, made.weights, rest, out)
    for c in range(rest.shape[1]):
        out[:, c] += np.einsum("ij,j->i", made.phi, inducing[:, c].copy())
    return out


def _scatter(induced: Induced, made: Regressed) -> Floats:
    """The weights of new rows in the columns of a matrix (n, m)."""
    out = np.zeros((induced.n_rows, made.same.size))
    column, entry = np.nonzero(made.neighbours >= 0)
    out[made.neighbours[column, entry], column] = made.weights[column, entry]
    return out
