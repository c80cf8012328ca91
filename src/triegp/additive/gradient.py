"""Likelihood of some rows under trees and a smooth part, and its gradient: exact, dense algebra.

With A = K + noise, a = A^-1 y and P = (A^-1 - a a') / 2, the derivative of the nll by a parameter
is sum_ij P_ij dK_ij. For a tree this needs the sums of P over pairs of rows by the depth at which
they part. The chain rule from weights to phi is the same as for a single tree.

Several targets share A, so that their nll together takes one factorisation. P is then the sum of
those of the targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.additive.ranking import Ranking, chain_rule, rank_bits
from triegp.additive.start import EncodedRows, Parameters, add_variance
from triegp.engines import Engine, threads_of
from triegp.engines import dense as dense_engine
from triegp.imports import scipy
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
    lower = _factor(dense)
    log_det = 2.0 * float(np.log(np.diag(lower)).sum())
    alpha, _ = scipy.linalg.lapack.dpotrs(lower, y, lower=1)
    inverse, info = scipy.linalg.lapack.dpotri(lower, lower=1, overwrite_c=1)
    if info != 0:
        raise np.linalg.LinAlgError("the matrix has no inverse")
    square = float(np.vdot(y, alpha))
    nll = 0.5 * (k * log_det + square + n * k * float(np.log(2.0 * np.pi))) + noisy.constant
    n_threads = threads_of(engine)
    by_entry = dense_engine.nll_entries(inverse, alpha, n_threads)
    by_noise = float(noisy.noise_gradient(np.diag(by_entry)).sum())
    by_depth = dense_engine.sum_by_depth(trees, by_entry, n_threads)
    by_trees = (*chain_rule(ranking, by_depth, by_noise), by_noise)
    kernel = parameters.smooth
    if kernel is None or pairs is None:
        return nll, Gradient(*by_trees)
    by_smooth = kernel_gradient(pairs, data.inputs / kernel.lengthscale, by_entry)
    return nll, Gradient(*by_trees, *by_smooth)


def held_nll(
    data: EncodedRows, parameters: Parameters, n_held: int, engine: Engine
) -> tuple[float, float]:
    """Nll of the last n_held targets given the others, and their squares, for the best scale.

    Returns the log determinant part and the square part of twice the nll: with all variances times
    s, it is n_held log(2 pi s) + first + second / s. Weights are not taken into account. Several
    targets are added up: n_held is then the number of their values.
    """
    dense, _, _, noisy, _ = make_matrix(data, parameters, engine)
    lower = _factor(dense)
    white = scipy.linalg.lapack.dtrtrs(lower, noisy.y, lower=1)[0][-n_held:]
    log_det = 2.0 * float(np.log(np.diag(lower)[-n_held:]).sum())
    return noisy.n_targets * log_det, float(np.vdot(white, white))


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


def _factor(dense: Floats) -> Floats:
    """Lower factor of a symmetric matrix, which it overwrites; its upper triangle means nothing."""
    lower, info = scipy.linalg.lapack.dpotrf(dense.T, lower=1, clean=0, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError("the kernel matrix is not positive definite to rounding")
    return np.asarray(lower)
