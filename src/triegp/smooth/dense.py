"""The smooth part without approximation; its interface is that of the models.

The matrix is kept if it fits; otherwise a few rows of it are computed at a time. Arrays lie in the
memory of one engine, and numpy's functions dispatch to its library. What concerns new rows is
computed on the host, where a row does not depend on the others.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.engines import available_cores, computed_once
from triegp.smooth.draws import SmoothDraws, draw_known, evaluate
from triegp.smooth.induced import Induced, make_induced
from triegp.smooth.kernel import Kernel, correlate, kernel_cross, kernel_matrix, kernel_means
from triegp.smooth.points import draw, read

Floats = npt.NDArray[np.float64]

MATRIX_SHARE = 0.4  # of the free memory of a device, for the matrix
N_INDUCING, N_NEIGHBOURS = 1_024, 40  # for samples of the prior
AT_ONCE = 1 << 24  # entries of the matrix that are computed at a time, if it is not kept


@dataclass(frozen=True, eq=False)
class Dense:
    """A smooth Gaussian process over rows, exact.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    scaled : float64 (n, p)
        Inputs divided by their lengthscales.
    matrix : float64 (n, n) or None
        The kernel matrix; None if it is computed again for every product.
    """

    kernel: Kernel
    scaled: Floats
    matrix: Floats | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.scaled.shape[0])

    def multiply(self, x: Floats) -> Floats:
        """K x for x (n, k). O(n^2 (p + k)), O(n^2 k) if the matrix is kept."""
        if self.matrix is not None:
            return self.matrix @ x
        out = np.empty_like(x)
        for some in _slices(self.n_rows, self.n_rows):
            out[some] = kernel_matrix(self.kernel, self.scaled[some], self.scaled) @ x
        return out

    def columns(self, rows: npt.NDArray[Any]) -> Floats:
        """K[:, rows], (n, r)."""
        found: Floats = kernel_matrix(self.kernel, self.scaled, self.scaled[rows])
        return found

    def blocks(self, members: npt.NDArray[np.int32]) -> Floats:
        """K within blocks of rows, (n_blocks, size, size); 0 for members -1."""
        out = np.empty_like(self.scaled, shape=(*members.shape, members.shape[1]))
        used = members >= 0
        for some in _slices(members.shape[0], members.shape[1] ** 2):
            own = self.scaled[np.maximum(members[some], 0)]
            apart = own[:, :, None, :] - own[:, None, :, :]
            square = np.einsum("bijp,bijp->bij", apart, apart)
            both = used[some][:, :, None] & used[some][:, None, :]
            out[some] = np.where(both, self.kernel.scale * correlate(self.kernel.name, square), 0.0)
        return out

    def rescaled(self, factor: float) -> Dense:
        """The smooth part with its kernel times a factor."""
        matrix = None if self.matrix is None else factor * self.matrix
        return replace(self, kernel=self.kernel.rescaled(factor), matrix=matrix)

    def extend(self, inputs: Floats) -> Dense:
        """The smooth part with more rows, after the others."""
        return Dense(self.kernel, np.concatenate([self.scaled, self.read(inputs)]))

    def lend(self, engine: Any) -> Dense:
        """The same in the memory of an engine on a device, with its matrix if that fits."""
        scaled = engine.hold(self.scaled)
        keep = 8 * self.n_rows**2 <= MATRIX_SHARE * engine.free_bytes()
        return make_dense(self.kernel, scaled, keep=keep)

    def read(self, inputs: Floats) -> Floats:
        """New rows: their inputs over lengthscales, (m, p)."""
        return np.asarray(inputs / self.kernel.lengthscale)

    def prepare(self, alpha: Floats) -> Floats:
        """Vectors (n,) or (n, k), prepared for `mean`: themselves."""
        return alpha

    def mean(self, points: Floats, prepared: Floats) -> Floats:
        """K(new rows, rows) alpha, (m,) or (m, k). O(n (p + k)) per new row."""
        columns = prepared.reshape(self.n_rows, -1)
        found = kernel_means(self.kernel, points, self.scaled, columns, available_cores())
        return found.reshape(points.shape[0], *prepared.shape[1:])

    def cross(self, points: Floats) -> Floats:
        """Covariance of the rows with new rows, (n, m)."""
        return kernel_cross(self.kernel, self.scaled, points, available_cores())

    def own(self, points: Floats) -> Floats:
        """Covariance among new rows, (m, m)."""
        return kernel_cross(self.kernel, points, points, available_cores())

    def draw(
        self, n_samples: int, rng: np.random.Generator, points: Floats | None
    ) -> tuple[Floats, Floats]:
        """Joint prior samples at the rows, (n, s), and at new rows, (m, s).

        By inducing rows and neighbours: samples of the kernel itself would take O(n^3).
        """
        induced = self.induced
        return draw(induced, n_samples, rng, None if points is None else read(induced, points))

    def start_draws(self, seeds: npt.NDArray[np.uint64]) -> tuple[SmoothDraws, Floats]:
        """Functions drawn from the prior with these seeds (k,), and their values at the rows.

        By inducing rows and neighbours, as in `draw`.
        """
        known, at_rows = draw_known(self.induced, seeds)
        return SmoothDraws(seeds, known), at_rows

    def finish_draws(self, draws: SmoothDraws, weights: Floats) -> SmoothDraws:
        """The functions of `start_draws` plus K(x, rows) weights, with weights (n, k)."""
        return replace(draws, weights=weights)

    def evaluate_draws(self, draws: SmoothDraws, inputs: Floats, points: Floats) -> Floats:
        """Functions at new rows, (m, k). O(n p k) per new row."""
        found = evaluate(draws, inputs, read(self.induced, points))
        assert draws.weights is not None
        return found + self.mean(points, draws.weights)

    @computed_once
    def induced(self) -> Induced:
        """The same by inducing rows and neighbours, for samples of the prior."""
        plain = replace(self.kernel, lengthscale=np.ones(self.scaled.shape[1]))
        return make_induced(plain, self.scaled, N_INDUCING, N_NEIGHBOURS, 0, available_cores())

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without what can be computed again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def make_dense(kernel: Kernel, scaled: Floats, *, keep: bool) -> Dense:
    """The smooth part over rows; scaled: inputs over lengthscales, (n, p).

    keep: whether to keep the matrix.
    """
    return Dense(kernel, scaled, kernel_matrix(kernel, scaled) if keep else None)


def _slices(n: int, width: int) -> list[slice]:
    step = max(1, AT_ONCE // max(width, 1))
    return [slice(lo, min(lo + step, n)) for lo in range(0, n, step)]
