"""A preconditioner: the kernel through a few rows, the rest of the variance on the diagonal.

With C = K[:, J] for r random rows J and C[J] = L L', B = C L^-T gives K ~ B B'. What that leaves of
each row's variance joins the noise: M = B B' + diag(rest), which is inverted by Woodbury's formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from triegp.forest.operators import Forest, forest_diagonal, forest_product
from triegp.validation import non_negative_vector, whole_number

Floats = npt.NDArray[np.float64]

COLUMNS_AT_A_TIME = 32
JITTER = 1e-10  # of the prior variance, on the diagonal of C[J]


@dataclass(frozen=True, eq=False)
class Nystrom:
    """M = B B' + diag(rest), and what its inverse takes.

    Attributes
    ----------
    basis : float64 (n, r)
        B.
    rest : float64 (n,)
        Noise and the variance that the basis leaves; positive.
    core : float64 (r, r)
        Lower Cholesky factor of I + B' diag(rest)^-1 B.
    log_det : float
        log det M.
    """

    basis: Floats
    rest: Floats
    core: Floats
    log_det: float


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
    O(n T r) for the columns, O(n r^2) for the rest; 8 n r bytes, and about three times that on the
    way.
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
    lower = np.linalg.cholesky(corner)
    basis = solve_triangular(lower, columns.T, lower=True, overwrite_b=True).T
    left = forest_diagonal(forest) - np.square(basis).sum(axis=1)
    rest = variance + np.maximum(left, 0.0)
    inner = basis.T @ (basis / rest[:, None])
    inner[np.diag_indices_from(inner)] += 1.0
    core, _ = cho_factor(inner, lower=True)
    log_det = 2.0 * float(np.log(np.diag(core)).sum()) + float(np.log(rest).sum())
    return Nystrom(basis, rest, core, log_det)


def apply_inverse(nystrom: Nystrom, x: Floats) -> Floats:
    """M^-1 x for x (n, k). O(n r k)."""
    scaled = x / nystrom.rest[:, None]
    inner = cho_solve((nystrom.core, True), nystrom.basis.T @ scaled)
    return np.asarray(scaled - (nystrom.basis @ inner) / nystrom.rest[:, None])


def check_noise(noise: Any, n_rows: int) -> Floats:
    """Noise variances as a vector (n,), all positive."""
    variance = np.broadcast_to(np.asarray(noise, np.float64), (n_rows,))
    variance = non_negative_vector("noise", variance, n_rows)
    if not (variance > 0).all():
        i = int(np.argmin(variance))
        raise ValueError(f"noise must be positive, got {variance[i]} at row {i}")
    return variance
