"""Kernels of the smooth part: stationary, with one lengthscale per feature.

k(x, z) = scale * rho(r), with r^2 = sum_j ((x_j - z_j) / lengthscale_j)^2. The functions work on
the arrays of any engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

KERNELS = ("matern32", "matern52", "matern12", "rbf")
TINY = 1e-30


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
        """The kernel times a factor."""
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


def correlation_slope(name: str, square: Any) -> Any:
    """-rho'(r) / r for r^2, elementwise; for "matern12", which has none at 0, 0 there."""
    if name == "rbf":
        return np.exp(-0.5 * square)
    r = np.sqrt(square)
    if name == "matern12":
        return np.where(r > 0, np.exp(-r) / np.maximum(r, TINY), 0.0)
    if name == "matern32":
        return 3.0 * np.exp(-np.sqrt(3.0) * r)
    r *= np.sqrt(5.0)
    return 5.0 / 3.0 * (1.0 + r) * np.exp(-r)


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


def kernel_gradient(kernel: Kernel, U: Any, by_entry: Any) -> tuple[Any, float]:
    """Derivatives of sum_ij by_entry_ij K_ij by log lengthscales, (d,), and by log scale.

    U: scaled inputs, (n, d); by_entry: (n, n), symmetric. d K_ij / d log l_k is
    scale * slope_ij * (u_ik - u_jk)^2. O(n^2 d).
    """
    square = square_distances(U, U)
    np.fill_diagonal(square, 0.0)
    by_scale = kernel.scale * float((by_entry * correlate(kernel.name, square)).sum())
    slope = kernel.scale * by_entry * correlation_slope(kernel.name, square)
    by_length = 2.0 * (slope.sum(axis=1) @ (U * U) - np.einsum("id,id->d", U, slope @ U))
    return by_length, by_scale
