"""The smooth part in linear time: inducing rows, and neighbours for what they leave.

With m_i inducing rows U, L L' = K_UU and Phi = K_XU L^-T, (n, m_i), the kernel matrix is

    K ~ Phi Phi' + B^-1 D B^-T.

The second term is a factorisation of R = K - Phi Phi'. In an order that is random but for what
`spread_order` sorts, each row is regressed on
the m_v nearest earlier rows N, in inputs divided by their lengthscales: its weights are
b_i = R_NN^-1 R_Ni and its variance d_i = R_ii - b_i' R_Ni. B = I - (weights) is unit lower
triangular in that order. Rows that the inducing rows determine have no neighbours and are nobody's
neighbours. A copy of an earlier row has that row for its only neighbour, and is nobody's. A new row
has its neighbours among all training rows, and the same formulas. Prior variances of the
approximation are near the scale of the kernel, but not equal to it.

Making it costs O(n (m_i^2 + m_i m_v^2 + m_v^3)), a product O(n (m_i + m_v)) per column.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import computed_once, low_rank, nearest, one_blas_thread, vecchia
from triegp.smooth.buffers import Buffer
from triegp.smooth.copies import first_equal
from triegp.smooth.factor import Factor, in_order, spread_order
from triegp.smooth.factor import multiply as multiply_factor
from triegp.smooth.kernel import Kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]

JITTER = 1e-10  # of the scale, added to the diagonal of K_UU
DETERMINED = 1e-8  # of the scale: rows with less residual variance have no neighbours


@dataclass(frozen=True, eq=False)
class Searched:
    """Rows that can be neighbours, in the order of the factorisation, and a search index.

    They are all different.

    Attributes
    ----------
    rows : int32 (n_live,)
        Their row numbers.
    scaled : float64 (n_live, d)
        Their scaled inputs.
    index : nearest.Index
        Trees over the first of them; later ones are compared one by one.
    """

    rows: Ints
    scaled: Floats
    index: nearest.Index


@dataclass(frozen=True, eq=False)
class Induced:
    """A smooth Gaussian process over rows, approximated in linear time.

    Use `make_induced` to make one; the constructor checks nothing. What follows from the fields is
    computed on first use and not pickled.

    Attributes
    ----------
    kernel : Kernel
        The kernel that is approximated.
    X : float64 (n, d)
        Inputs, not divided by lengthscales.
    order : int64 (n,)
        Rows in the order of the factorisation; rows that came later are at the end.
    inducing : int64 (m_i,)
        Inducing rows, all different.
    n_neighbours : int
        Neighbours per row, m_v.
    seed : int
        Seed of the search for neighbours.
    n_threads : int
        Threads; results do not depend on it.
    """

    kernel: Kernel
    X: Floats
    order: Ids
    inducing: Ids
    n_neighbours: int
    seed: int
    n_threads: int

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.X.shape[0])

    @computed_once
    def scaled(self) -> Floats:
        """Inputs divided by their lengthscales, (n, d)."""
        return scale_inputs(self.kernel, self.X)

    @computed_once
    def root(self) -> Floats:
        """L, lower triangular, of K_UU and a little jitter, (m_i, m_i). O(m_i^3)."""
        U = self.scaled[self.inducing]
        out = np.empty((len(U), len(U)))
        vecchia.fill_kernel(self.kernel.code, self.kernel.scale, U, U, out, self.n_threads)
        out[np.diag_indices(len(U))] += JITTER * self.kernel.scale
        with one_blas_thread():  # more of them round in other ways
            return np.asarray(np.linalg.cholesky(out), dtype=np.float64)

    @computed_once
    def phi(self) -> Floats:
        """Phi, (n, m_i), with space for rows that `extend` appends. O(n m_i^2)."""
        buffer = Buffer(self.n_rows, np.empty((0, self.inducing.size)))
        self.__dict__.setdefault("_buffers", {})["phi"] = buffer
        out: Floats = buffer.take(self.n_rows)
        fill_phi(self, self.scaled, out)
        return out

    @computed_once
    def copied(self) -> Ints:
        """The row that each row is a copy of, the first in the order; -1 if there is none. (n,)."""
        first = first_equal(self.scaled[self.order])
        is_copy = first < np.arange(self.n_rows)
        out = np.full(self.n_rows, -1, dtype=np.int32)
        out[self.order[is_copy]] = self.order[first[is_copy]]
        return out

    @computed_once
    def searched(self) -> Searched:
        """Rows that can be neighbours, and an index of them. O(n log n)."""
        useful = is_left(self.kernel, self.phi) & (self.copied < 0)
        order = self.order[useful[self.order]]
        scaled = self.scaled[order]
        index = nearest.build_index(scaled, seed=self.seed, n_threads=self.n_threads)
        return Searched(order.astype(np.int32), scaled, index)

    @computed_once
    def factor(self) -> Factor:
        """The factorisation of R. O(n (m_i m_v^2 + m_v^3))."""
        k, rows = self.n_neighbours, np.arange(self.n_rows)
        neighbours = np.full((self.n_rows, k), -1, dtype=np.int32)
        if k:
            searched = self.searched
            found = nearest.earlier_rows(searched.scaled, k, self.seed, self.n_threads)
            neighbours[:, :1] = copied_neighbours(self.copied, is_left(self.kernel, self.phi))
            neighbours[searched.rows] = row_numbers(searched, found)
            live = searched.rows[searched.index.rows[0]]  # rows that share neighbours come together
            rows = np.concatenate([live, np.setdiff1d(rows, live, assume_unique=True)])
        weights, variances = np.empty((self.n_rows, k)), np.empty(self.n_rows)
        regress(self, self.phi, self.scaled, rows, neighbours, weights, variances)
        return in_order(self.order, neighbours, weights, variances)

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def make_induced(
    kernel: Kernel,
    X: Any,
    n_inducing: int = 512,
    n_neighbours: int = 40,
    seed: int = 0,
    n_threads: int = 1,
    last: Ids | None = None,
) -> Induced:
    """Draw inducing rows and the order of the factorisation.

    X: float64 (n, d), n >= 1. last: rows that come last in the order, and so are predicted from
    earlier rows as new rows are. Of equal inducing rows one is kept. With n_inducing >= n the
    approximation is exact, up to the jitter. With n_neighbours >= n it is, too, unless the kernel
    matrix is nearly singular: of up to 39 rows, covariances were wrong by up to 2e-6 of the
    scale with "matern32", 2e-4 with "matern52" and 9e-3 with "rbf".

    Parameters
    ----------
    kernel : Kernel
        Kernel with its lengthscales and variance.
    X : float64 (n, d)
        Rows.
    n_inducing : int, default=512
        Inducing rows, m_i.
    n_neighbours : int, default=40
        Neighbours per row, m_v.
    seed : int, default=0
        Seed of the draw.
    n_threads : int, default=1
        Threads; the result does not depend on them.
    last : int array, optional
        Rows that come last.

    Examples
    --------
    >>> X = np.linspace(0.0, 1.0, 50)[:, None]
    >>> induced = make_induced(Kernel("matern32", np.array([0.3]), 2.0), X, 10, 5)
    >>> multiply(induced, np.ones(50)).shape
    (50,)
    """
    X = np.ascontiguousarray(X, dtype=np.float64)
    if X.ndim != 2 or not X.shape[0]:
        raise ValueError(f"X must be a matrix of at least one row, got shape {X.shape}")
    if kernel.lengthscale.shape != X.shape[1:]:
        raise ValueError(
            f"kernel must have one lengthscale per feature, got {kernel.lengthscale.size} "
            f"for {X.shape[1]}"
        )
    for name, value in (("n_inducing", n_inducing), ("n_neighbours", n_neighbours)):
        if value < 0:
            raise ValueError(f"{name} must be at least 0, got {value}")
    order = _with_last(np.random.default_rng(seed).permutation(X.shape[0]), last)
    drawn = order[:n_inducing]
    different = first_equal(X[drawn]) == np.arange(drawn.size)
    if n_neighbours:
        spread = spread_order(order, scale_inputs(kernel, X), seed, n_threads)
        order = _with_last(spread, last)
    return Induced(kernel, X, order, drawn[different], n_neighbours, seed, n_threads)


def _with_last(order: Ids, last: Ids | None) -> Ids:
    """The order with some rows moved to its end."""
    if last is None:
        return order
    late = np.isin(order, last)
    return np.concatenate([order[~late], order[late]])


def multiply(induced: Induced, x: Any) -> Floats:
    """K x for x (n,) or (n, k). O(n (m_i + m_v) k).

    Parameters
    ----------
    induced : Induced
        Returned by `make_induced`.
    x : array-like (n,) or (n, k)
        Vectors to multiply.
    """
    product = low_rank.multiply(induced.phi, x, induced.n_threads)
    product += multiply_rest(induced, x)
    return product


def multiply_rest(induced: Induced, x: Any) -> Floats:
    """B^-1 D B^-T x for x (n,) or (n, k). O(n m_v k).

    Parameters
    ----------
    induced : Induced
        Returned by `make_induced`.
    x : array-like (n,) or (n, k)
        Vectors to multiply.
    """
    return multiply_factor(induced.factor, x)


def columns(induced: Induced, rows: Any) -> Floats:
    """K[:, rows], (n, r). O(n (m_i + m_v) r).

    Parameters
    ----------
    induced : Induced
        Returned by `make_induced`.
    rows : int array (r,)
        Rows whose columns are asked for.
    """
    rows = np.asarray(rows)
    unit = np.zeros((induced.n_rows, rows.size))
    unit[rows, np.arange(rows.size)] = 1.0
    out = multiply_rest(induced, unit)
    out += induced.phi @ induced.phi[rows].T
    return out


def blocks(induced: Induced, members: Ints) -> Floats:
    """Values of the kernel itself within blocks of rows, (n_blocks, size, size).

    members: int32 (n_blocks, size), rows; -1 marks an unused entry, whose row and column are 0.

    Parameters
    ----------
    induced : Induced
        Returned by `make_induced`.
    members : int32 (n_blocks, size)
        Rows of each block.
    """
    out = np.empty((*members.shape, members.shape[1]))
    kernel = induced.kernel
    args = (kernel.code, kernel.scale, induced.scaled, members)
    vecchia.fill_blocks(*args, out, induced.n_threads)
    return out


def scale_inputs(kernel: Kernel, X: Floats) -> Floats:
    """Inputs divided by their lengthscales."""
    return X / kernel.lengthscale


def project(induced: Induced, scaled: Floats) -> Floats:
    """L^-1 k_U(x) in rows, (m, m_i), for scaled inputs (m, d)."""
    out = np.empty((scaled.shape[0], induced.inducing.size))
    fill_phi(induced, scaled, out)
    return out


def fill_phi(induced: Induced, scaled: Floats, out: Floats) -> None:
    """Write the projection of scaled inputs (m, d) to out (m, m_i); see `project`."""
    kernel = induced.kernel
    args = (kernel.code, kernel.scale, induced.scaled[induced.inducing], induced.root, scaled)
    vecchia.fill_phi(*args, out, induced.n_threads)


def is_left(kernel: Kernel, phi: Floats) -> npt.NDArray[np.bool_]:
    """Whether the inducing rows leave variance to each row, (m,)."""
    left: Floats = kernel.scale - np.einsum("ij,ij->i", phi, phi)
    return left > DETERMINED * kernel.scale


def row_numbers(searched: Searched, found: Ints) -> Ints:
    """Row numbers of what was found, by its place in the search; -1 stays -1."""
    if not searched.rows.size:
        return found
    return np.where(found >= 0, searched.rows[found], np.int32(-1))


def copied_neighbours(copied: Ints, live: npt.NDArray[np.bool_]) -> Ints:
    """The only neighbour of rows that are copies, (m, 1); -1 for the others."""
    return np.where(live, copied, np.int32(-1))[:, None]


def regress(
    induced: Induced,
    phi: Floats,
    scaled: Floats,
    rows: Any,
    neighbours: Ints,
    weights: Floats,
    variances: Floats,
) -> None:
    """Fill in weights (m, m_v) and variances (m,) of the given rows of phi and scaled inputs."""
    vecchia.fill_factor(
        induced.kernel.code,
        induced.kernel.scale,
        induced.phi,
        induced.scaled,
        phi,
        scaled,
        rows,
        neighbours,
        weights,
        variances,
        induced.n_threads,
    )
