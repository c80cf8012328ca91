"""The interface between the smooth part and the models that it is part of."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from triegp.smooth.kernel import Kernel

Floats = npt.NDArray[np.float64]


class Smooth(Protocol):
    """Products with the kernel matrix of n rows, in the memory of one engine."""

    @property
    def kernel(self) -> Kernel:
        """The kernel."""

    def multiply(self, x: Floats) -> Floats:
        """K x for x (n, k)."""

    def columns(self, rows: npt.NDArray[Any]) -> Floats:
        """K[:, rows], (n, r)."""

    def blocks(self, members: npt.NDArray[np.int32]) -> Floats:
        """Kernel values within blocks of rows, (n_blocks, size, size); 0 for members -1."""


class HostSmooth(Smooth, Protocol):
    """A smooth part in the host's memory, which also predicts new rows.

    Inputs are coordinates (m, p), not divided by lengthscales. Points are what `read` returns.
    """

    def rescaled(self, factor: float) -> Self:
        """The smooth part with its kernel times a factor."""

    def extend(self, inputs: Floats) -> Self:
        """The smooth part with more rows, after the others."""

    def read(self, inputs: Floats) -> Any:
        """New rows, prepared for the following methods."""

    def prepare(self, alpha: Floats) -> Any:
        """Vectors (n,) or (n, k), prepared for `mean`."""

    def mean(self, points: Any, prepared: Any) -> Floats:
        """K(new rows, rows) alpha, (m,) or (m, k)."""

    def cross(self, points: Any) -> Floats:
        """Covariance of the rows with new rows, (n, m)."""

    def own(self, points: Any) -> Floats:
        """Covariance among new rows, (m, m)."""

    def draw(self, n_samples: int, rng: np.random.Generator, points: Any) -> tuple[Floats, Floats]:
        """Joint prior samples at the rows, (n, s), and at new rows, (m, s); points may be None."""

    def start_draws(self, seeds: npt.NDArray[np.uint64]) -> tuple[Any, Floats]:
        """Functions drawn from the prior with these seeds (k,), and their values at the rows."""

    def finish_draws(self, draws: Any, weights: Floats) -> Any:
        """The functions of `start_draws` plus K(x, rows) weights, with weights (n, k).

        The result can be pickled, and has a method `select(some)`.
        """

    def evaluate_draws(self, draws: Any, inputs: Floats, points: Any) -> Floats:
        """Functions at new rows, (m, k); a value does not depend on the other rows."""
