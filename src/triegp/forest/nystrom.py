"""A preconditioner: the kernel through a few rows, the rest of the variance on the diagonal.

With C = K[:, J] for r random rows J and C[J] = L L', B = C L^-T gives K ~ B B'. What that leaves of
each row's variance joins the noise: M = B B' + diag(rest), which is inverted by Woodbury's formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from triegp.blas import one_blas_thread
from triegp.engines import Engine
from triegp.forest.operators import Forest, forest_diagonal, forest_product
from triegp.validation import non_negative_vector, whole_number

Floats = npt.NDArray[np.float64]

COLUMNS_AT_A_TIME = 32
BLOCK_ROWS = 2048
JITTER = 1e-10  # of the prior variance, on the diagonal of C[J]


@dataclass(frozen=True, eq=False)
class Nystrom:
    """M = B B' + diag(rest), and what its inverse takes.

    Attributes
    ----------
    gain : float64 (n, r)
        G = diag(rest)^-1 B core^-T; M^-1 = diag(rest)^-1 - G G'.
    rest : float64 (n,)
        Noise and the variance that the basis leaves; positive.
    core : float64 (r, r)
        Lower Cholesky factor of I + B' diag(rest)^-1 B.
    log_det : float
        log det M.
    engine : Engine
        Whose threads share the work.
    """

    gain: Floats
    rest: Floats
    core: Floats
    log_det: float
    engine: Engine


def fit_nystrom(forest: Forest, noise: Any, rank: int, rng: np.random.Generator) -> Nystrom:
    """Nystrom preconditioner of K + noise from `rank` random rows.

    Parameters
    ----------
    forest : Forest
        Whose K.
    noise : float or array (n,)
        Variances, > 0.
    rank : int
        Rows to go through; at most n are used.
    rng : numpy.random.Generator
        Draws them.

    Notes
    -----
    O(n T r) for the columns, O(n r^2) for the rest; 8 n r bytes, and as much again on the way.
    """
    rank = whole_number("rank", rank)
    variance = check_noise(noise, forest.n_rows)
    rows = np.sort(rng.choice(forest.n_rows, size=min(rank, forest.n_rows), replace=False))
    columns = np.empty((forest.n_rows, rows.size))
    for start in range(0, rows.size, COLUMNS_AT_A_TIME):
        some = rows[start : start + COLUMNS_AT_A_TIME]
        units = np.zeros((forest.n_rows, some.size))
        units[some, np.arange(some.size)] = 1.0
        columns[:, start : start + some.size] = forest_product(forest, units)
    corner = columns[rows]
    corner[np.diag_indices_from(corner)] += JITTER * max(forest.prior_variance, 1e-300)
    prior, engine = forest_diagonal(forest), forest.engine
    rest = np.empty(forest.n_rows)
    with one_blas_thread():
        lower = np.linalg.cholesky(corner)

        def reduce_block(_: Engine, block: slice) -> Floats:
            """Columns become the basis, in place; what the block adds to the inner matrix."""
            basis = solve_triangular(lower, columns[block].T, lower=True).T
            left = prior[block] - np.square(basis).sum(axis=1)
            rest[block] = variance[block] + np.maximum(left, 0.0)
            columns[block] = basis
            return np.asarray(basis.T @ (basis / rest[block, None]))

        inner = sum(engine.each(reduce_block, _blocks(forest.n_rows)), np.eye(rows.size))
        core = np.asarray(np.linalg.cholesky(inner), np.float64)

        def gain_block(_: Engine, block: slice) -> None:
            scaled = columns[block] / rest[block, None]
            columns[block] = solve_triangular(core, scaled.T, lower=True).T

        engine.each(gain_block, _blocks(forest.n_rows))
    log_det = 2.0 * float(np.log(np.diag(core)).sum()) + float(np.log(rest).sum())
    return Nystrom(columns, rest, core, log_det, engine)


def apply_inverse(nystrom: Nystrom, x: Floats) -> Floats:
    """M^-1 x for x (n, k). O(n r k); the same for any number of threads."""
    blocks = _blocks(nystrom.rest.size)
    gain, engine = nystrom.gain, nystrom.engine
    with one_blas_thread():
        inner = sum(engine.each(lambda _, block: gain[block].T @ x[block], blocks))
        out = np.empty_like(x)

        def fill(_: Engine, block: slice) -> None:
            out[block] = x[block] / nystrom.rest[block, None] - gain[block] @ inner

        engine.each(fill, blocks)
    return out


def draw_like(nystrom: Nystrom, n_samples: int, rng: np.random.Generator) -> Floats:
    """Samples of N(0, M), (n, n_samples). O(n r n_samples)."""
    n, rank = nystrom.gain.shape
    through = nystrom.core.T @ rng.standard_normal((rank, n_samples))
    scatter = rng.standard_normal((n, n_samples))
    rest = nystrom.rest[:, None]
    return np.asarray(rest * (nystrom.gain @ through) + np.sqrt(rest) * scatter)


def _blocks(n_rows: int) -> list[slice]:
    """Rows in blocks that depend on their number alone."""
    return [slice(k, k + BLOCK_ROWS) for k in range(0, n_rows, BLOCK_ROWS)]


def check_noise(noise: Any, n_rows: int) -> Floats:
    """Noise variances as a vector (n,), all positive."""
    variance = np.broadcast_to(np.asarray(noise, np.float64), (n_rows,))
    variance = non_negative_vector("noise", variance, n_rows)
    if not (variance > 0).all():
        i = int(np.argmin(variance))
        raise ValueError(f"noise must be positive, got {variance[i]} at row {i}")
    return variance
