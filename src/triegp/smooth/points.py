"""New rows under the smooth part, given its training rows: means, covariances and joint samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import nearest, vecchia
from triegp.smooth.copies import first_equal
from triegp.smooth.factor import colour, halve
from triegp.smooth.induced import (
    Induced,
    is_left,
    multiply_rest,
    project,
    regress,
    row_numbers,
    scale_inputs,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class InducedPoints:
    """New rows.

    Attributes
    ----------
    phi : float64 (m, m_i)
        L^-1 k_U(x) in the rows.
    neighbours : int32 (m, m_v)
        Training rows, nearest first; -1 from the first unused entry on.
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
class Prepared:
    """A vector, or the columns of a matrix, as new rows need it.

    Attributes
    ----------
    inducing : float64 (m_i,) or (m_i, k)
        Phi' alpha.
    rest : float64 (n,) or (n, k)
        R alpha.
    """

    inducing: Floats
    rest: Floats


def read(induced: Induced, X_new: Any) -> InducedPoints:
    """Find the neighbours of new rows (m, d), and regress the rows on them.

    What a row gets does not depend on the other new rows. O(m_i^2 + m_i m_v^2 + m_v^3) per row.

    Parameters
    ----------
    induced : Induced
        Training rows.
    X_new : array-like (m, d)
        New rows.
    """
    X_new = np.ascontiguousarray(X_new, dtype=np.float64)
    m, k = X_new.shape[0], induced.n_neighbours
    scaled = scale_inputs(induced.kernel, X_new)
    phi = project(induced, scaled)
    live = np.flatnonzero(is_left(induced.kernel, phi))
    searched = induced.searched
    args = (searched.index, searched.scaled, scaled[live], k, induced.n_threads)
    neighbours = np.full((m, k), -1, dtype=np.int32)
    neighbours[live] = row_numbers(searched, nearest.nearest_rows(*args))
    same = first_equal(X_new)
    weights, variances = np.empty((m, k)), np.empty(m)
    near = nearest.by_leaf(searched.index, scaled)  # neighbours are shared
    regress(induced, phi, scaled, near, neighbours, weights, variances)
    return InducedPoints(phi, neighbours, weights, variances, same)


def prepare(induced: Induced, alpha: Any) -> Prepared:
    """Phi' alpha and R alpha for alpha (n,) or (n, k), from which `mean` reads. One product.

    Parameters
    ----------
    induced : Induced
        Training rows.
    alpha : array-like (n,) or (n, k)
        Weights of the training rows.
    """
    return Prepared(induced.phi.T @ alpha, multiply_rest(induced, alpha))


def mean(points: InducedPoints, prepared: Prepared) -> Floats:
    """K(new rows, training rows) alpha, (m,) or (m, k). O(m_i + m_v) per row and column.

    What a row gets does not depend on the other new rows.

    Parameters
    ----------
    points : InducedPoints
        New rows, as `read` returns them.
    prepared : Prepared
        Returned by `prepare`.
    """
    out = _gather(points, prepared.rest)
    if out.ndim == 1:
        out += np.einsum("ij,j->i", points.phi, prepared.inducing)
    else:
        for c in range(out.shape[1]):
            out[:, c] += np.einsum("ij,j->i", points.phi, prepared.inducing[:, c].copy())
    return out


def cross(induced: Induced, points: InducedPoints) -> Floats:
    """Covariance of training rows with new rows, (n, m). O(n (m_i + m_v) m).

    Parameters
    ----------
    induced : Induced
        Training rows.
    points : InducedPoints
        New rows, as `read` returns them.
    """
    out = multiply_rest(induced, _scatter(induced, points))
    out += induced.phi @ points.phi.T
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
    half = halve(induced.factor, _scatter(induced, points))
    equal = points.same[:, None] == points.same
    out: Floats = half.T @ half + points.phi @ points.phi.T
    out += np.where(equal, points.variances, 0.0)
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
        new = rng.standard_normal((points.same.size, n_samples))[points.same]
        new *= np.sqrt(points.variances)[:, None]
        new += points.phi @ inducing + _gather(points, rest)
    rest += induced.phi @ inducing
    return rest, new


def _gather(points: InducedPoints, x: Floats) -> Floats:
    """b' x_N of each new row, for x (n,) or (n, k)."""
    out = np.empty((points.same.size, *x.shape[1:]))
    m, n = out.shape[0], x.shape[0]
    args = (points.neighbours, points.weights, x.reshape(n, -1))
    vecchia.gather_rows(*args, out.reshape(m, x[0].size))
    return out


def _scatter(induced: Induced, points: InducedPoints) -> Floats:
    """The weights of new rows in the columns of a matrix (n, m)."""
    out = np.zeros((induced.n_rows, points.same.size))
    column, entry = np.nonzero(points.neighbours >= 0)
    out[points.neighbours[column, entry], column] = points.weights[column, entry]
    return out
