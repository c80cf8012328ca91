"""Kernels of the smooth part: stationary, with one lengthscale per feature.

k(x, z) = scale * rho(r), with r^2 = sum_j ((x_j - z_j) / lengthscale_j)^2. The functions work on
the arrays of any engine, but for `kernel_pairs`, `kernel_cross` and `kernel_means`, which are for
the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import matern

Floats = npt.NDArray[np.float64]

KERNELS = ("matern32", "matern52", "matern12", "rbf")


@dataclass(frozen=True, eq=False)
class Kernel:
    """A stationary kernel.

    Attributes
    ----------
    name : {"matern32", "matern52", "matern12", "rbf"}
        Which correlation function.
    lengthscale : float64 (d,)
        One per feature, > 0.
    scale : float
        Prior variance.
    """

    name: str
    lengthscale: Floats
    scale: float

    @property
    def code(self) -> int:
        """Number of the correlation function, as engines take it."""
        return KERNELS.index(self.name)

    def rescaled(self, factor: float) -> Kernel:
        """The kernel times a factor.

        Parameters
        ----------
        factor : float
            Factor of the variance.
        """
        return replace(self, scale=factor * self.scale)


def correlate(name: str, square: Any) -> Any:
    """rho(r) for r^2, elementwise."""
    if name == "rbf":
        return np.exp(-0.5 * square)
    r = np.sqrt(square)
    if name == "matern12":
        return np.exp(-r)
    if name == "matern32":
        r *= np.sqrt(3.0)
        return (1.0 + r) * np.exp(-r)
    r *= np.sqrt(5.0)
    return (1.0 + r + r * r / 3.0) * np.exp(-r)


def square_distances(U: Any, V: Any) -> Any:
    """|u_i - v_j|^2 of scaled inputs (n, d) and (m, d), (n, m)."""
    square = U @ (-2.0 * V.T)
    square += np.einsum("id,id->i", U, U)[:, None]
    square += np.einsum("id,id->i", V, V)
    return np.maximum(square, 0.0)


def kernel_matrix(kernel: Kernel, U: Any, V: Any = None) -> Any:
    """k between scaled inputs U (n, d) and V (m, d), by default U itself. O(n m d)."""
    square = square_distances(U, U if V is None else V)
    if V is None:
        np.fill_diagonal(square, 0.0)
    return kernel.scale * correlate(kernel.name, square)


def kernel_pairs(kernel: Kernel, U: Floats, n_threads: int) -> tuple[Floats, Floats]:
    """K of scaled inputs U (n, d), and what `kernel_gradient` needs, both (n, n). O(n^2 d)."""
    return matern.kernel_pairs(kernel.code, kernel.scale, U, n_threads)


def kernel_cross(kernel: Kernel, U: Floats, V: Floats, n_threads: int) -> Floats:
    """k between scaled inputs U (n, d) and V (m, d), (n, m). O(n m d)."""
    return matern.kernel_cross(kernel.code, kernel.scale, U, V, n_threads)


def kernel_means(kernel: Kernel, U: Floats, V: Floats, weights: Floats, n_threads: int) -> Floats:
    """k(U, V) weights for weights (m, k), (n, k); a row does not depend on the other rows of U."""
    return matern.kernel_means(kernel.code, kernel.scale, U, V, weights, n_threads)


def kernel_gradient(
    pairs: tuple[Floats, Floats], U: Floats, by_entry: Floats
) -> tuple[Floats, float]:
    """Derivatives of sum_ij by_entry_ij K_ij by log lengthscales, (d,), and by log scale.

    pairs: from `kernel_pairs`; U: scaled inputs, (n, d); by_entry: (n, n), symmetric.
    d K_ij / d log l_k is scale * slope_ij * (u_ik - u_jk)^2, slope = -rho'(r) / r. O(n^2 d).
    """
    values, slopes = pairs
    slope = by_entry * slopes
    by_length = 2.0 * (slope.sum(axis=1) @ (U * U) - np.einsum("id,id->d", U, slope @ U))
    return by_length, float(np.vdot(by_entry, values))
