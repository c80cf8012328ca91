"""The smooth part in linear time, with the interface that models use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.smooth import means, products
from triegp.smooth import points as new_rows
from triegp.smooth.draws import SmoothDraws, draw_known, evaluate
from triegp.smooth.induced import Induced
from triegp.smooth.kernel import Kernel
from triegp.smooth.means import Prepared
from triegp.smooth.points import InducedPoints
from triegp.smooth.stream import extend

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Linear:
    """Inducing rows and neighbours; implements `HostSmooth`.

    The factorisation is that of the kernel before it was rescaled. So nothing is computed again
    when the scale changes, and a model read from a file has the same bits.

    Attributes
    ----------
    induced : Induced
        The rows and their factorisation.
    gain : float
        Factor of the kernel.
    """

    induced: Induced
    gain: float = 1.0

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.induced.kernel.rescaled(self.gain)

    def multiply(self, x: Floats) -> Floats:
        """K x for x (n, k)."""
        return self._times(products.multiply(self.induced, x))

    def columns(self, rows: npt.NDArray[Any]) -> Floats:
        """K[:, rows], (n, r)."""
        return self._times(products.columns(self.induced, rows))

    def blocks(self, members: npt.NDArray[np.int32]) -> Floats:
        """Values of the kernel itself within blocks of rows, (n_blocks, size, size)."""
        return self._times(products.blocks(self.induced, members))

    def rescaled(self, factor: float) -> Linear:
        """The smooth part with its kernel times a factor."""
        return Linear(self.induced, factor * self.gain)

    def extend(self, inputs: Floats) -> Linear:
        """The smooth part with more rows, after the others."""
        return Linear(extend(self.induced, inputs), self.gain)

    def read(self, inputs: Floats) -> InducedPoints:
        """New rows with their neighbours."""
        return new_rows.read(self.induced, inputs)

    def prepare(self, alpha: Floats) -> Prepared:
        """Vectors (n,) or (n, k), prepared for `mean`."""
        return means.prepare(self.induced, alpha)

    def mean(self, points: InducedPoints, prepared: Prepared) -> Floats:
        """K(new rows, rows) alpha, (m,) or (m, k)."""
        return self._times(means.mean(points, prepared))

    def cross(self, points: InducedPoints) -> Floats:
        """Covariance of the rows with new rows, (n, m)."""
        return self._times(new_rows.cross(self.induced, points))

    def own(self, points: InducedPoints) -> Floats:
        """Covariance among new rows, (m, m)."""
        return self._times(new_rows.own(self.induced, points))

    def draw(
        self, n_samples: int, rng: np.random.Generator, points: InducedPoints | None
    ) -> tuple[Floats, Floats]:
        """Joint prior samples at the rows, (n, s), and at new rows, (m, s)."""
        rows, new = new_rows.draw(self.induced, n_samples, rng, points)
        root = float(np.sqrt(self.gain))
        return root * rows, root * new

    def start_draws(self, seeds: npt.NDArray[np.uint64]) -> tuple[SmoothDraws, Floats]:
        """Functions drawn from the prior with these seeds (k,), and their values at the rows."""
        root = float(np.sqrt(self.gain))
        known, at_rows = draw_known(self.induced, seeds)
        known = Prepared(root * known.inducing, root * known.rest)
        return SmoothDraws(seeds, known, root), root * at_rows

    def finish_draws(self, draws: SmoothDraws, weights: Floats) -> SmoothDraws:
        """The functions of `start_draws` plus K(x, rows) weights, with weights (n, k)."""
        known, more = draws.known, self.prepare(weights)
        inducing = known.inducing + self.gain * more.inducing
        return replace(draws, known=Prepared(inducing, known.rest + self.gain * more.rest))

    def evaluate_draws(self, draws: SmoothDraws, inputs: Floats, points: InducedPoints) -> Floats:
        """Functions at new rows, (m, k); a value does not depend on the other rows."""
        return evaluate(draws, inputs, points)

    def _times(self, product: Floats) -> Floats:
        """The product times the gain, in place."""
        if self.gain != 1.0:
            product *= self.gain
        return product
