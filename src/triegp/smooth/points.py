"""New rows under the smooth part, given its training rows: means, covariances and joint samples.

A new row belongs to the block whose centre is nearest. Its neighbours N are the rows nearest to
that centre, of all blocks. It is phi(x)' a + b(x)' r_N plus something of its own, with b(x) =
R_NN^-1 R_N(x), for the values a at the inducing rows and r of the rest. For a mean, which has a and
r known, this is a sum over kernel values with vectors that the rows of a block share:

    mean(x) = k_U(x)' L^-T (a - Phi_N' w) + k_N(x)' w,      w = R_NN^-1 r_N.

So it costs O((m_i + m_v) d) per row, once the vectors of its block are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.engines import blocked, computed_once, low_rank, one_blas_thread, run_each
from triegp.imports import scipy
from triegp.smooth.copies import first_equal
from triegp.smooth.factor import colour, factorise, halve
from triegp.smooth.induced import Induced, multiply_rest, scale_inputs
from triegp.smooth.kernel import kernel_matrix

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]

ROWS_AT_ONCE = 512  # new rows of a thread


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
        induced, (m, k) = self.induced, (self.cell.size, self.induced.n_neighbours)
        kernel, scaled = induced.kernel, self.scaled
        given = (induced.scaled_inducing, induced.root, scaled, induced.n_threads)
        phi = blocked.project(kernel.code, kernel.scale, *given)
        left = kernel.scale - np.einsum("ij,ij->i", phi, phi)
        neighbours, weights = np.full((m, k), -1, np.int32), np.zeros((m, k))
        order = np.argsort(self.cell, kind="stable")
        cells, first = np.unique(self.cell[order], return_index=True)
        nearest = members_of(induced, cells)
        parts = np.split(order, first[1:])

        def regress(at: int) -> None:
            places = blocked.kept_places(nearest[at])
            if not places.size:
                return
            identity = np.eye(places.size)
            lower = factorise(induced.left(places), induced.jitter)
            inverse, _ = scipy.linalg.lapack.dpotrs(lower, identity, lower=1, overwrite_b=1)
            inverse = np.ascontiguousarray(inverse)
            near, own = induced.scaled[places], induced.phi[places].astype(np.float64)
            for i in parts[at]:
                between = kernel_row(induced, near, scaled[i]) - own @ phi[i]
                b = inverse @ between
                neighbours[i, : places.size], weights[i, : places.size] = induced.order[places], b
                left[i] -= b @ between

        with one_blas_thread():
            run_each(regress, range(cells.size), induced.n_threads)
        return Regressed(
            phi, neighbours, weights, np.maximum(left, induced.jitter), first_equal(scaled)
        )


class Prepared:
    """A vector, or the columns of a matrix, as new rows need it.

    The vectors of a block are made when a row belongs to it for the first time, and kept: O(m_i +
    m_v) numbers per block and column.

    Attributes
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
        """Vectors of all blocks; those of the given blocks are made if they are missing."""
        if self._vectors is None:
            n_cells, k = induced.starts.size - 1, self.rest[0].size
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
    at_inducing = inducing[:, None] if inducing.ndim == 1 else inducing
    by_place = (rest[:, None] if rest.ndim == 1 else rest)[induced.order]
    nearest = members_of(induced, cells)

    def fill(at: int) -> None:
        b, places, known = cells[at], blocked.kept_places(nearest[at]), at_inducing
        if places.size:
            lower = factorise(induced.left(places), induced.jitter)
            w, _ = scipy.linalg.lapack.dpotrs(lower, by_place[places], lower=1)
            out.members[b] = nearest[at]
            out.by_member[b, :, : places.size] = w.T
            known = known - induced.phi[places].astype(np.float64, copy=False).T @ w
        if known.size:
            out.by_inducing[b] = scipy.linalg.lapack.dtrtrs(induced.root, known, 1, 1)[0].T
        out.made[b] = True

    with one_blas_thread():
        run_each(fill, range(cells.size), induced.n_threads)


def members_of(induced: Induced, cells: Ints) -> Ints:
    """Places of the neighbours of new rows that belong to some blocks, (n_cells, m_v)."""
    every = np.full(cells.size, induced.starts.size - 1)
    return induced.nearest(cells.astype(np.int64), every)


def kernel_row(induced: Induced, near: Floats, query: Floats) -> Floats:
    """k between scaled inputs (k, d) and one row (d,), (k,)."""
    return np.asarray(kernel_matrix(induced.kernel, near, query[None])[:, 0])


def read(induced: Induced, X_new: Any) -> InducedPoints:
    """Find the blocks that new rows (m, d) belong to. O(n_blocks d) per row.

    Parameters
    ----------
    induced : Induced
        Training rows.
    X_new : array-like (m, d)
        New rows.
    """
    X_new = np.ascontiguousarray(X_new, dtype=np.float64)
    scaled = scale_inputs(induced.kernel, X_new)
    cell = blocked.nearest_centres(induced.centres, scaled, induced.n_threads)
    return InducedPoints(induced, scaled, cell)


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
