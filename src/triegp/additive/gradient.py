"""Likelihood of some rows under trees and a smooth part, and its gradient: exact, dense algebra.

With A = K + noise, a = A^-1 y and P = (A^-1 - a a') / 2, the derivative of the nll by a parameter
is sum_ij P_ij dK_ij. For a tree this needs the sums of P over pairs of rows by the depth at which
they part. The chain rule from weights to phi is the same as for a single tree.

Several targets share A, so that their nll together takes one factorisation. P is then the sum of
those of the targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.additive.ranking import Ranking, chain_rule, rank_bits
from triegp.additive.start import EncodedRows, Parameters, add_variance
from triegp.engines import Engine, lapack, threads_of
from triegp.engines import dense as dense_engine
from triegp.smooth.kernel import kernel_gradient, kernel_pairs
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gradient:
    """Derivatives of the nll.

    Attributes
    ----------
    phi : tuple of float64 (q,)
        By the phi of each tree.
    log_scale : float64 (T,)
        By the logarithm of the scale of each tree.
    noise : float
        By the noise variance that all rows share.
    log_lengthscale : float64 (p,) or None
        By the logarithm of each lengthscale of the smooth part; None without smooth part.
    log_smooth : float
        By the logarithm of the scale of the smooth part; 0 without one.
    """

    phi: tuple[Floats, ...]
    log_scale: Floats
    noise: float
    log_lengthscale: Floats | None = None
    log_smooth: float = 0.0


def mean_gradient(gradients: Sequence[Gradient]) -> Gradient:
    """The mean of gradients by the same parameters."""
    by_length = [g.log_lengthscale for g in gradients if g.log_lengthscale is not None]
    return Gradient(
        tuple(np.mean(parts, axis=0) for parts in zip(*(g.phi for g in gradients), strict=True)),
        np.mean([g.log_scale for g in gradients], axis=0),
        float(np.mean([g.noise for g in gradients])),
        np.mean(by_length, axis=0) if by_length else None,
        float(np.mean([g.log_smooth for g in gradients])),
    )


class Matrix(NamedTuple):
    """A = K + noise of some rows, with what its gradient needs.

    dense: float64 (n, n), symmetric; ranking, trees: of the rows; rows: with noise; pairs: of the
    smooth part, if any, from `kernel_pairs`.
    """

    dense: Floats
    ranking: Ranking
    trees: dense_engine.Sorted
    rows: Rows
    pairs: tuple[Floats, Floats] | None


def exact_gradient(
    data: EncodedRows, parameters: Parameters, engine: Engine
) -> tuple[float, Gradient]:
    """Nll of the targets and its gradient, exact. O(n^2 (T + p + k) + n^3) for k targets.

    Raises numpy's LinAlgError if the matrix is not positive definite to rounding.

    Parameters
    ----------
    data : EncodedRows
        Rows, their codes and targets.
    parameters : Parameters
        Parameters of the trees and of the smooth part.
    engine : Engine
        Who computes.
    """
    dense, ranking, trees, noisy, pairs = make_matrix(data, parameters, engine)
    n, k, y = noisy.n_rows, noisy.n_targets, noisy.y
    _factor(dense)
    log_det = 2.0 * float(np.log(np.diag(dense)).sum())
    alpha = y.reshape(n, -1).copy()
    lapack.divide(dense, alpha)
    lapack.divide_transposed(dense, alpha)
    if not lapack.invert(dense):
        raise np.linalg.LinAlgError("the matrix has no inverse")
    square = float(np.vdot(y, alpha))
    nll = 0.5 * (k * log_det + square + n * k * float(np.log(2.0 * np.pi))) + noisy.constant
    n_threads = threads_of(engine)
    by_entry = dense_engine.nll_entries(dense, alpha, n_threads)
    by_noise = float(noisy.noise_gradient(np.diag(by_entry)).sum())
    by_depth = dense_engine.sum_by_depth(trees, by_entry, n_threads)
    by_trees = (*chain_rule(ranking, by_depth, by_noise), by_noise)
    kernel = parameters.smooth
    if kernel is None or pairs is None:
        return nll, Gradient(*by_trees)
    by_smooth = kernel_gradient(pairs, data.inputs / kernel.lengthscale, by_entry)
    return nll, Gradient(*by_trees, *by_smooth)


def held_scores(
    data: EncodedRows, parameters: Parameters, n_held: int, engine: Engine
) -> tuple[float, Floats]:
    """Log determinant and scores of the last n_held rows given the others, each given those before.

    With scores z, (n_held, k), and all variances times s, twice the nll of the k targets is
    n_held k log(2 pi s) + k log_det + |z|^2 / s. Weights are not taken into account.
    """
    dense, _, _, noisy, _ = make_matrix(data, parameters, engine)
    _factor(dense)
    white = noisy.y.reshape(noisy.n_rows, -1).copy()
    lapack.divide(dense, white)
    white, log_det = white[-n_held:], 2.0 * float(np.log(np.diag(dense)[-n_held:]).sum())
    return log_det, white


def make_matrix(data: EncodedRows, parameters: Parameters, engine: Engine) -> Matrix:
    """A = K + noise of the rows. O(n^2 (T + p))."""
    ranking, n_threads = rank_bits(parameters.phi, parameters.log_scale), threads_of(engine)
    packed = [part.packed for part in data.codes]
    given = (ranking.key_bits(), ranking.levels, ranking.first)
    trees = dense_engine.sort_trees(packed, *given, n_threads)
    dense, pairs = dense_engine.sum_matrices(trees, n_threads), None
    if parameters.smooth is not None:
        kernel = parameters.smooth
        pairs = kernel_pairs(kernel, data.inputs / kernel.lengthscale, n_threads)
        dense += pairs[0]
    noisy = add_variance(data.rows, parameters.noise + ranking.nugget)
    dense[np.diag_indices_from(dense)] += noisy.variance
    return Matrix(dense, ranking, trees, noisy, pairs)


def _factor(dense: Floats) -> None:
    """Write the lower factor of a symmetric matrix over it; its upper triangle means nothing."""
    if not lapack.cholesky(dense):
        raise np.linalg.LinAlgError("the kernel matrix is not positive definite to rounding")
