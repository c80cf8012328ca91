"""Gaussian process regression with a binary tree kernel, using SROS algebra only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from triegp.checks import Floats, finite_vector, non_negative_vector, positive_number
from triegp.sros.forms import Sros, SymmetricSros
from triegp.sros.inversion import coarsening_steps, invert, invert_general, level_traces
from triegp.sros.partitions import Nesting, check_bits, kernel_partitions, nest
from triegp.sros.products import diagonal, matvec

_ONE = np.ones((1, 1))  # factor U of a kernel matrix, broadcast


@dataclass(frozen=True, eq=False)
class GpRegression:
    """Predictions and likelihood (paper, Algorithm 3).

    Attributes
    ----------
    mean : float64 array (n_new,)
        Predictive means.
    var : float64 array (n_new,)
        Predictive variances of a new observation, noise included.
    nll : float
        Negative log likelihood of the training data.
    """

    mean: Floats
    var: Floats
    nll: float


@dataclass(frozen=True, eq=False)
class GpLikelihood:
    """Negative log likelihood and its gradient.

    Attributes
    ----------
    nll : float
        Negative log likelihood of all rows.
    weights_gradient : float64 array (n_bits,) or None
        Derivative of the nll with respect to each weight; None if `gradient=False`.
    noise_gradient : float or None
        Derivative of the nll with respect to the noise; None if `gradient=False`.
    """

    nll: float
    weights_gradient: Floats | None
    noise_gradient: float | None


def kernel_sros(bits: Any, weights: Any) -> SymmetricSros:
    """Build the binary tree kernel matrix of a data set in SROS form.

    Parameters
    ----------
    bits : bool or integer array (n_rows, n_bits)
        Key bits, 0 or 1, most important first.
    weights : float array (n_bits,)
        Weight of each bit, >= 0; the sum need not be one.

    Returns
    -------
    SymmetricSros
        K = L(P, C, U) with P from `kernel_partitions`, C = 1 w^T and U = 1.

    Examples
    --------
    >>> from triegp.sros import to_dense
    >>> to_dense(kernel_sros([[0, 0], [0, 1], [1, 1]], [0.75, 0.25]))
    array([[1.  , 0.75, 0.  ],
           [0.75, 1.  , 0.  ],
           [0.  , 0.  , 1.  ]])

    Notes
    -----
    Paper, Proposition 2 (SROS form kernel). O(n q + n log n).
    """
    bits = check_bits("bits", bits)
    weights = non_negative_vector("weights", weights, bits.shape[1])
    return SymmetricSros(kernel_partitions(bits), weights, _ONE)


def gp_regression(bits: Any, y: Any, new_bits: Any, weights: Any, noise: Any) -> GpRegression:
    """Compute predictive means and variances at new rows, and the nll of the training data.

    Parameters
    ----------
    bits : bool or integer array (n_rows, n_bits)
        Key bits of the training rows, most important first.
    y : float array (n_rows,)
        Targets.
    new_bits : bool or integer array (n_new, n_bits)
        Key bits of the rows to predict at.
    weights : float array (n_bits,)
        Weight of each bit, >= 0; the sum need not be one.
    noise : float
        Noise variance, > 0: lambda of the paper.

    Returns
    -------
    GpRegression
        Means, variances of a new observation, and nll. Subtract `noise` from the variances to get
        those of the latent function.

    Examples
    --------
    >>> result = gp_regression([[0, 0], [0, 1]], [1.0, 3.0], [[0, 1], [1, 1]], [0.5, 0.5], 1.0)
    >>> print(result.mean.round(4), result.var.round(4), round(result.nll, 4))
    [1.5333 0.    ] [1.4667 2.    ] 4.7654

    Notes
    -----
    Paper, Algorithm 3, with the second inverse that of (P~, C~ / noise, U~).
    O((n + m) q + (n + m) log(n + m) + m q^2) for m new rows. The variances are computed by block
    inversion: the block of the new rows in the inverse of the joint covariance is their predictive
    precision matrix. If the noise is small, digits are lost to cancellation: see `invert`, with
    L = K / noise.
    """
    bits, new_bits = check_bits("bits", bits), check_bits("new_bits", new_bits)
    n_rows, n_bits = bits.shape
    if new_bits.shape[1] != n_bits:
        raise ValueError(f"new_bits must have {n_bits} columns, got {new_bits.shape[1]}")
    y = finite_vector("y", y, n_rows)
    weights, noise, ratio = _check_parameters(weights, noise, n_bits)

    joint = kernel_partitions(np.concatenate([bits, new_bits]))
    old, new = joint[:n_rows], joint[n_rows:]
    _, z, nll = _solve(SymmetricSros(old, ratio, _ONE), y, noise)
    mean = matvec(Sros(new, old, _ONE, weights), z)

    precision = invert(SymmetricSros(joint, ratio, _ONE)).symmetric
    block = SymmetricSros(new, precision.coefficient[n_rows:], precision.factor[n_rows:])
    var = noise * (1.0 + diagonal(invert_general(block).symmetric))
    return GpRegression(mean, var, nll)


def gp_likelihood(
    bits: Any, y: Any, weights: Any, noise: Any, gradient: bool = True
) -> GpLikelihood:
    """Compute the nll, and its gradient with respect to the weights and the noise.

    Parameters
    ----------
    bits : bool or integer array (n_rows, n_bits)
        Key bits, 0 or 1, most important first.
    y : float array (n_rows,)
        Targets.
    weights : float array (n_bits,)
        Weight of each bit, >= 0; the sum need not be one.
    noise : float
        Noise variance, > 0: lambda of the paper.
    gradient : bool, default=True
        Whether to compute the gradient too.

    Returns
    -------
    GpLikelihood

    Examples
    --------
    >>> result = gp_likelihood([[0, 0], [0, 1], [1, 1]], [1.0, 3.0, 0.0], [0.5, 0.5], 1.0)
    >>> print(round(result.nll, 4), result.weights_gradient.round(4))
    6.0309 [-0.63   -0.3011]

    Notes
    -----
    The nll takes O(n q + n log n) (paper, Algorithm 3), the gradient O(n q^2) (paper, Appendix B).
    The derivative with respect to weight i is (Tr[K_i (K + noise I)^-1] - z^T K_i z) / 2, with
    z = (K + noise I)^-1 y. An entry of K_i is 1 if the two rows share their first i bits, otherwise
    0.
    """
    bits = check_bits("bits", bits)
    y = finite_vector("y", y, len(bits))
    weights, noise, ratio = _check_parameters(weights, noise, bits.shape[1])

    scaled = SymmetricSros(kernel_partitions(bits), ratio, _ONE)
    nesting = nest(scaled.partition)
    inverse, z, nll = _solve(scaled, y, noise, nesting)
    if not gradient:
        return GpLikelihood(nll, None, None)
    traces = level_traces(inverse, identity=1.0, nesting=nesting) / noise
    by_weights = 0.5 * (traces - _level_forms(nesting, z))
    trace = (len(y) + float(diagonal(inverse).sum())) / noise
    return GpLikelihood(nll, by_weights, 0.5 * (trace - float(z @ z)))


def _check_parameters(weights: Any, noise: Any, n_bits: int) -> tuple[Floats, float, Floats]:
    """Return weights, noise and weights / noise; raise ValueError unless all are finite."""
    weights = non_negative_vector("weights", weights, n_bits)
    noise = positive_number("noise", noise)
    with np.errstate(over="ignore"):
        ratio = weights / noise
    if not np.isfinite(ratio).all():
        raise ValueError(f"weights / noise must be finite, got noise {noise}")
    return weights, noise, ratio


def _solve(
    scaled: SymmetricSros, y: Floats, noise: float, nesting: Nesting | None = None
) -> tuple[SymmetricSros, Floats, float]:
    """Solve and compute the nll, given K / noise.

    Returns L with (K + noise I)^-1 = (I + L) / noise, z = (K + noise I)^-1 y, and the nll.
    """
    inverse = invert(scaled, nesting)
    z = (y + matvec(inverse.symmetric, y)) / noise
    log_det = inverse.log_det + y.size * np.log(noise)
    nll = 0.5 * (float(y @ z) + log_det + y.size * np.log(2.0 * np.pi))
    return inverse.symmetric, z, float(nll)


def _level_forms(nesting: Nesting, z: Floats) -> Floats:
    """Compute z^T L(P_i, 1, 1) z for each column i: the sum over its cells of (sum of z)^2."""
    steps = coarsening_steps(nesting)
    by_level = np.empty(len(steps))
    sums = z[nesting.order]
    for level in reversed(range(len(steps))):
        sums = np.add.reduceat(sums, steps[level])
        by_level[level] = sums @ sums
    forms = np.empty(nesting.n_columns)
    forms[nesting.columns] = by_level[nesting.level]
    return forms
