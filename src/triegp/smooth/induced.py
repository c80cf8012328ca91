"""The smooth part in linear time: inducing rows, and neighbours of blocks for what they leave.

With m_i inducing rows U, L L' = K_UU and Phi = K_XU L^-T, (n, m_i), the kernel matrix is

    K ~ Phi Phi' + S S'.

The second term is a factorisation of R = K - Phi Phi'. Rows that are close to each other form
blocks of about 32, in random order. Each block is regressed on the m_v rows of earlier blocks that
are nearest to its centre, in inputs divided by their lengthscales, under R; within the block R is
kept as it is (`triegp.smooth.factor`). Blocks share the work and the memory of their neighbours, so
that each row can have more of them. A new row belongs to the block whose centre is nearest, and is
regressed on the m_v rows nearest to this centre, of all blocks. Prior variances of the
approximation are near the scale of the kernel, but not equal to it.

Making it costs O(n (m_i^2 + m_i (m_v + w)^2 / w + (m_v + w)^3 / w)) for blocks of w rows, a product
O(n (m_i + m_v + w)) per column.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import blocked, computed_once, lapack, matern, nearest, one_blas_thread
from triegp.smooth.buffers import Buffer
from triegp.smooth.division import divide_rows
from triegp.smooth.factor import Factor, regress_blocks
from triegp.smooth.kernel import Kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]

JITTER = 1e-10  # of the scale, added to the diagonals of K_UU and R
SINGLE_JITTER = 1e-7  # the same for R if Phi is stored in float32
DOUBLE_FLOATS = 1 << 25  # largest n * m_i at which a new Phi is float64


@dataclass(frozen=True, eq=False)
class Induced:
    """A smooth Gaussian process over rows, approximated in linear time.

    Use `make_induced` to make one; the constructor checks nothing. What follows from the fields is
    computed on first use and not pickled. A place is a position in the order.

    Attributes
    ----------
    kernel : Kernel
        The kernel that is approximated.
    X : float64 (n, d)
        Inputs, not divided by lengthscales.
    order : int64 (n,)
        Rows in the order of the factorisation, block by block; rows that came later are at the end.
    starts : int64 (n_blocks + 1,)
        Where each block starts, and n.
    inducing : int64 (m_i,)
        Inducing rows.
    n_neighbours : int
        Neighbours of a block, m_v.
    single : bool
        Whether Phi is float32. R is what its rounded values leave of the kernel.
    n_threads : int
        Threads; results do not depend on it.
    """

    kernel: Kernel
    X: Floats
    order: Ids
    starts: Ids
    inducing: Ids
    n_neighbours: int
    single: bool
    n_threads: int

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.X.shape[0])

    @computed_once
    def scaled(self) -> Floats:
        """Inputs divided by their lengthscales, by place, (n, d)."""
        return np.ascontiguousarray(scale_inputs(self.kernel, self.X[self.order]))

    @computed_once
    def scaled_inducing(self) -> Floats:
        """Those of the inducing rows, (m_i, d)."""
        return scale_inputs(self.kernel, self.X[self.inducing])

    @computed_once
    def inducing_lines(self) -> Floats:
        """The same with a line per input, (d, m_i)."""
        return np.ascontiguousarray(self.scaled_inducing.T)

    @computed_once
    def root(self) -> Floats:
        """L, lower triangular, of K_UU and a little jitter, (m_i, m_i). O(m_i^3)."""
        values = triangle(self.kernel, self.scaled_inducing)
        values[np.diag_indices_from(values)] += JITTER * self.kernel.scale
        with one_blas_thread():  # more of them round in other ways
            return np.asarray(np.linalg.cholesky(values))

    @computed_once
    def phi(self) -> npt.NDArray[Any]:
        """Phi by place, (n, m_i), with space for rows that `extend` appends. O(n m_i^2)."""
        like = np.empty((0, self.inducing.size), np.float32 if self.single else np.float64)
        buffer = Buffer(self.n_rows, like)
        self.__dict__.setdefault("_buffers", {})["phi"] = buffer
        out: Floats = buffer.take(self.n_rows)
        project(self, self.scaled, out)
        return out

    @computed_once
    def centres(self) -> Floats:
        """Mean of the scaled inputs of each block, (d, n_blocks)."""
        return nearest.find_centres(self.scaled, self.starts)

    @computed_once
    def groups(self) -> nearest.Groups:
        """The centres, or the first of them, in groups in which the nearest is searched."""
        return nearest.group_centres(self.centres, self.n_threads)

    @computed_once
    def neighbours(self) -> Ints:
        """Places of the neighbours of each block, (n_blocks, m_v). O(n_blocks^2 d + n m_v d)."""
        blocks = np.arange(self.starts.size - 1)
        return find_neighbours(self, blocks, blocks)

    @computed_once
    def factor(self) -> Factor:
        """The factorisation of R."""
        blocks = (self.starts, self.neighbours, partial(remainder, self), self.jitter)
        return Factor(
            self.order, self.starts, self.neighbours, *regress_blocks(*blocks, 0, self.n_threads)
        )

    @property
    def n_cells(self) -> int:
        """Blocks that a new row may belong to: one if there are no neighbours."""
        return self.starts.size - 1 if self.n_neighbours else 1

    @property
    def jitter(self) -> float:
        """What is added to the diagonal of R, if that makes it positive definite."""
        return (SINGLE_JITTER if self.single else JITTER) * self.kernel.scale

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
    """Draw inducing rows, and divide the rows into blocks in random order.

    X: float64 (n, d), n >= 1. last: rows that come last in the order, in smaller blocks, and so are
    predicted from earlier rows as new rows are. With n_inducing >= n the approximation is exact, up
    to the jitter. With n_neighbours >= n it is, too, unless the kernel matrix is nearly singular.
    Without neighbours all rows are independent given the inducing rows.

    Parameters
    ----------
    kernel : Kernel
        Kernel with its lengthscales and variance.
    X : float64 (n, d)
        Rows.
    n_inducing : int, default=512
        Inducing rows, m_i.
    n_neighbours : int, default=40
        Neighbours of a block, m_v.
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
    >>> induced.phi.shape
    (50, 10)
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
    rng = np.random.default_rng(seed)
    late = np.zeros(X.shape[0], bool)
    if last is not None:
        late[last] = True
    drawn = rng.permutation(X.shape[0])
    inducing = drawn[np.argsort(late[drawn], kind="stable")][:n_inducing]
    single = inducing.size * X.shape[0] > DOUBLE_FLOATS
    if n_neighbours:
        order, starts = divide_rows(scale_inputs(kernel, X), late, rng, n_threads)
    else:  # each row is a block
        order, starts = np.argsort(late, kind="stable"), np.arange(late.size + 1)
    return Induced(kernel, X, order, starts, inducing, n_neighbours, single, n_threads)


def find_neighbours(induced: Induced, blocks: Ids, limits: Ids) -> Ints:
    """The m_v places nearest to the centres of blocks, among the blocks before the limits."""
    rows = (induced.scaled, induced.starts, induced.centres, blocks, limits)
    return nearest.nearest_places(*rows, induced.n_neighbours, induced.n_threads)


def find_cells(induced: Induced, scaled: Floats) -> Ints:
    """The blocks that new rows belong to, scaled inputs (m, d): those of nearest centre."""
    if not induced.n_neighbours:
        return np.zeros(len(scaled), np.int32)
    centres = (induced.centres, induced.groups)
    return nearest.nearest_centres(*centres, scaled, induced.n_threads)


def find_members(induced: Induced, cells: Ints) -> Ints:
    """Places of the neighbours of new rows that belong to some blocks, (n_cells, m_v)."""
    every = np.full(cells.size, induced.starts.size - 1)
    return find_neighbours(induced, cells.astype(np.int64), every)


def remainder(induced: Induced, places: Ints) -> Floats:
    """R at some places, (k, k): its lower triangle. O(k^2 (m_i + d))."""
    values = triangle(induced.kernel, induced.scaled[places])
    phi = induced.phi[places].astype(np.float64, copy=False)
    if not phi.size:
        return values
    lapack.subtract_squares(phi, values)
    return values


def triangle(kernel: Kernel, scaled: Floats) -> Floats:
    """Lower triangle of the kernel matrix of scaled inputs (k, d).

    Distances are sums of squared differences, here and for new rows: R must not be negative.
    """
    return matern.kernel_triangle(kernel.code, kernel.scale, scaled)


def project(induced: Induced, scaled: Floats, out: npt.NDArray[Any]) -> None:
    """Write phi(x) = L^-1 k_U(x) of scaled inputs (m, d) to out (m, m_i). O(m m_i^2)."""
    rows = (induced.scaled_inducing, induced.root, scaled, out)
    blocked.project(induced.kernel.code, induced.kernel.scale, *rows, induced.n_threads)


def scale_inputs(kernel: Kernel, X: Floats) -> Floats:
    """Inputs divided by their lengthscales."""
    return X / kernel.lengthscale
