"""A sparse factorisation R ~ B^-1 D B^-T over rows, stored in its own order.

B is unit lower triangular with a few entries per row. Rows that are close to each other lie close
in memory (`spread_order`), so that products read it about as fast as memory allows. Vectors come
and go in the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import computed_once, nearest, vecchia

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]

FIRST_ROWS = 1_024  # a part of the order with fewer rows stays as it was drawn


@dataclass(frozen=True, eq=False)
class Factor:
    """B and D, in the order of the factorisation.

    Attributes
    ----------
    order : int64 (n,)
        The rows in this order.
    neighbours : int32 (n, m_v)
        Places in the order, nearest first, all before the row's own; -1 from the first unused
        entry on.
    weights : float64 (n, m_v)
        Their weights, 0 if unused.
    variances : float64 (n,)
        The diagonal of D, > 0.
    """

    order: Ids
    neighbours: Ints
    weights: Floats
    variances: Floats

    @computed_once
    def place(self) -> Ints:
        """Place of each row in the order, (n,)."""
        out = np.empty(self.order.size, np.int32)
        out[self.order] = np.arange(self.order.size, dtype=np.int32)
        return out

    @computed_once
    def _deviations(self) -> Floats:
        return np.asarray(np.sqrt(self.variances)[:, None])


def spread_order(drawn: Ids, scaled: Floats, seed: int, n_threads: int) -> Ids:
    """A random order (n,), rearranged so that rows close in memory are close in space.

    The rows of the second half, of the second quarter, and so on, keep these places together, but
    each part is sorted by the leaves of a search tree over scaled inputs (n, d). O(n log n d).
    """
    n = drawn.size
    if n <= FIRST_ROWS:
        return drawn
    leaves = nearest.build_index(scaled, n_trees=1, seed=seed, n_threads=n_threads).rows[0]
    rank = np.empty(n, np.int64)
    rank[leaves] = np.arange(n)
    order, last = drawn.copy(), n
    while last > FIRST_ROWS:
        part = order[last // 2 : last]
        order[last // 2 : last] = part[np.argsort(rank[part], kind="stable")]
        last //= 2
    return order


def in_order(order: Ids, neighbours: Ints, weights: Floats, variances: Floats) -> Factor:
    """The factorisation whose arrays are given by row, and whose neighbours are row numbers."""
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    return Factor(order, places_of(place, neighbours[order]), weights[order], variances[order])


def places_of(place: Ints, rows: Ints) -> Ints:
    """Places of rows, given the place of each row (n,); -1 stays -1."""
    return np.where(rows >= 0, place[rows], np.int32(-1))


def neighbour_rows(factor: Factor, count: int) -> Ints:
    """Row numbers of the nearest neighbours of each row, by row, int32 (n, at most count)."""
    near = factor.neighbours[:, :count]
    out = np.empty(near.shape, np.int32)
    out[factor.order] = np.where(near >= 0, factor.order[near], -1)
    return out


def multiply(factor: Factor, x: Any) -> Floats:
    """B^-1 D B^-T x for x (n,) or (n, k). O(n m_v k)."""
    z = _gather(factor, x)
    vecchia.solve_upper(factor.neighbours, factor.weights, z)
    z *= factor.variances[:, None]
    vecchia.solve_lower(factor.neighbours, factor.weights, z)
    return _scatter(factor, z, x)


def colour(factor: Factor, x: Any) -> Floats:
    """B^-1 D^1/2 x for x (n,) or (n, k): of covariance R if x is white. O(n m_v k)."""
    z = _gather(factor, x)
    z *= factor._deviations
    vecchia.solve_lower(factor.neighbours, factor.weights, z)
    return _scatter(factor, z, x)


def halve(factor: Factor, x: Any) -> Floats:
    """H = D^1/2 B^-T x for x (n,) or (n, k), so that H'H = x' R x. O(n m_v k)."""
    z = _gather(factor, x)
    vecchia.solve_upper(factor.neighbours, factor.weights, z)
    z *= factor._deviations
    return _scatter(factor, z, x)


def whiten(factor: Factor, x: Any) -> Floats:
    """D^-1/2 B x for x (n,) or (n, k): white if x has covariance R. O(n m_v k)."""
    z = _gather(factor, x)
    vecchia.multiply_lower(factor.neighbours, factor.weights, z)
    z /= factor._deviations
    return _scatter(factor, z, x)


def unwhiten(factor: Factor, x: Any) -> Floats:
    """B' D^-1/2 x for x (n,) or (n, k), the transpose of `whiten`. O(n m_v k)."""
    z = _gather(factor, x)
    z /= factor._deviations
    vecchia.multiply_upper(factor.neighbours, factor.weights, z)
    return _scatter(factor, z, x)


def _gather(factor: Factor, x: Any) -> Floats:
    """x in the order of the factorisation, (n, k), a copy."""
    found = np.asarray(x, dtype=np.float64).reshape(factor.order.size, -1)[factor.order]
    return np.ascontiguousarray(found)


def _scatter(factor: Factor, z: Floats, like: Any) -> Floats:
    """z in the order of the rows, of the shape of `like`."""
    out = np.empty(np.shape(like))
    out.reshape(z.shape)[factor.order] = z
    return out
