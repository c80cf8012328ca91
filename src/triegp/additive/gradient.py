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

from triegp.additive.forest import Forest, build_forest
from triegp.additive.start import EncodedRows, Parameters, row_noise
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

    dense: float64 (n, n); forest: the trees; rows: with noise; pairs: of the smooth part, if any,
    from `kernel_pairs`.
    """

    dense: Floats
    forest: Forest
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
    orders = parameters.orders()
    dense, forest, noisy, pairs = make_matrix(data, parameters, engine)
    n, k, y = noisy.n_rows, noisy.n_targets, noisy.y
    lower = _factor(dense)
    log_det = 2.0 * float(np.log(np.diag(lower)).sum())
    alpha = scipy.linalg.cho_solve((lower, True), y, check_finite=False)
    inverse, info = scipy.linalg.lapack.dpotri(lower, lower=1, overwrite_c=1)
    if info != 0:
        raise np.linalg.LinAlgError("the matrix has no inverse")
    square = float(np.vdot(y, alpha))
    nll = 0.5 * (k * log_det + square + n * k * float(np.log(2.0 * np.pi))) + noisy.constant
    by_entry = dense_engine.nll_entries(inverse, alpha, threads_of(engine))
    by_noise = float(noisy.noise_gradient(np.diag(by_entry)).sum())
    phi, log_scale = [], np.empty(len(orders))
    by_level = engine.level_traces(forest.trees, by_entry)
    for t, (order, by_weight) in enumerate(zip(orders, by_level, strict=True)):
        by_weight[0] = 0.0  # depth 0 has no weight
        by_total = by_weight - np.append(by_weight[1:], 0.0)
        phi.append(order.phi_gradient(by_total, by_noise))
        log_scale[t] = order.log_scale_gradient(by_total, by_noise)
    found = Gradient(tuple(phi), log_scale, by_noise)
    kernel = parameters.smooth
    if kernel is not None and pairs is not None:
        by_length, by_scale = kernel_gradient(pairs, data.inputs / kernel.lengthscale, by_entry)
        found = Gradient(tuple(phi), log_scale, by_noise, by_length, by_scale)
    return nll, found


def held_nll(
    data: EncodedRows, parameters: Parameters, n_held: int, engine: Engine
) -> tuple[float, float]:
    """Nll of the last n_held targets given the others, and their squares, for the best scale.

    Returns the log determinant part and the square part of twice the nll: with all variances times
    s, it is n_held log(2 pi s) + first + second / s. Weights are not taken into account. Several
    targets are added up: n_held is then the number of their values.
    """
    dense, _, noisy, _ = make_matrix(data, parameters, engine)
    lower = _factor(dense)
    white = scipy.linalg.solve_triangular(lower, noisy.y, lower=True)[-n_held:]
    log_det = 2.0 * float(np.log(np.diag(lower)[-n_held:]).sum())
    return noisy.n_targets * log_det, float(np.vdot(white, white))


def make_matrix(data: EncodedRows, parameters: Parameters, engine: Engine) -> Matrix:
    """A = K + noise of the rows. O(n^2 (T + p))."""
    orders = parameters.orders()
    forest = build_forest(data.codes, orders, engine)
    dense, pairs = engine.kernel_matrix(forest.trees), None
    if parameters.smooth is not None:
        kernel = parameters.smooth
        pairs = kernel_pairs(kernel, data.inputs / kernel.lengthscale, threads_of(engine))
        dense += pairs[0]
    noisy = row_noise(data.rows, orders, parameters.noise)
    dense[np.diag_indices_from(dense)] += noisy.variance
    return Matrix(dense, forest, noisy, pairs)


def _factor(dense: Floats) -> Floats:
    lower, info = scipy.linalg.lapack.dpotrf(dense, lower=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError("the kernel matrix is not positive definite to rounding")
    return np.asarray(lower)
