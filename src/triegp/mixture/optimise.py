"""Training of one tree: optimisation of phi, the order and the weights together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.engines import Engine
from triegp.imports import scipy
from triegp.mixture.settings import Settings
from triegp.models.curve import Line, make_line
from triegp.models.jobs import Stopwatch
from triegp.tree.likelihood import Likelihood, rows_likelihood
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows
from triegp.tree.trie import Trie, build_trie, rebuild_trie

LARGEST_TOL = 1e100  # scipy divides it by the rounding error
LOG_SCALE_BOUNDS = (-20.0, 20.0)
MAX_DENSE_BITS = 5_000  # for BFGS, which keeps a q x q matrix

Floats = npt.NDArray[np.float64]
Ask = Callable[[BitOrder], list[Likelihood]]  # likelihoods with gradient, one per target


class Problem(NamedTuple):
    """Training data of a member.

    Attributes
    ----------
    codes : Codes
        Codes of the rows on the member's grid.
    targets : tuple of Rows
        One per target, checked; the nll is summed over them.
    """

    codes: Codes
    targets: tuple[Rows, ...]

    @property
    def n_terms(self) -> float:
        """Number of observations over all targets; a row of weight c counts as c."""
        return self.targets[0].count * len(self.targets)


@dataclass(frozen=True, eq=False)
class TrainedOrder:
    """A trained order.

    Attributes
    ----------
    order : BitOrder
        Bits, weights and scale.
    nll_per_row : float
        Nll of the training rows, divided by their number; of the last part of the rows, if there
        were parts.
    n_iter : int
        Steps of the optimiser.
    n_evaluations : int
        Evaluations of the likelihood with gradient.
    converged : bool
        Whether the optimiser converged; False if it was stopped before.
    gain : float
        Nll per row that training gained; 0 if it is not known.
    line : Line or None
        Nll per row after each step; None in models from files, which hold it in one place.
    """

    order: BitOrder
    nll_per_row: float
    n_iter: int
    n_evaluations: int
    converged: bool
    gain: float = 0.0
    line: Line | None = None


class _Stop(Exception):  # noqa: N818
    """Raised by the objective to end the optimiser."""


class Follower:
    """Likelihoods of successive orders; each trie is built from the one before."""

    def __init__(self, problem: Problem, noise: float, engine: Engine) -> None:
        self._problem, self._noise, self._engine = problem, noise, engine
        self._trie: Trie | None = None

    def __call__(self, order: BitOrder) -> list[Likelihood]:
        """Likelihoods with gradient, one per target."""
        codes, targets = self._problem
        if self._trie is None:
            trie = build_trie(codes, order, engine=self._engine)
        else:
            trie = rebuild_trie(self._trie, codes, order)
        self._trie = trie
        return [rows_likelihood(trie, order, rows, self._noise, gradient=True) for rows in targets]


class Objective:
    """Nll per row as a function of (phi, log scale).

    ask: returns the likelihoods of an order with their gradients, one per target. n_terms: number
    of observations, by which the nll is divided.
    """

    def __init__(self, n_terms: float, settings: Settings, watch: Stopwatch, ask: Ask) -> None:
        self.n_terms, self.settings, self.watch = n_terms, settings, watch
        self._ask = ask
        self.n_iter = self.n_evaluations = 0
        self.points = list[tuple[int, float]]()  # (step, nll per row)
        self.best: tuple[float, BitOrder] | None = None

    def order(self, z: Floats) -> BitOrder:
        """The order at a point z."""
        phi, scale = z, 1.0
        if self.settings.learn_scale:
            phi, scale = z[:-1], float(np.exp(z[-1]))
        return BitOrder.from_phi(phi, scale=scale, nugget=self.settings.nugget)

    def start(self, order: BitOrder) -> Floats:
        """The point z of an order."""
        phi = order.phi
        return np.append(phi, np.log(order.scale)) if self.settings.learn_scale else phi

    def count_step(self, intermediate_result: Any) -> None:
        """Callback of the optimiser, called after every step with the value there."""
        self.n_iter += 1
        self.points.append((self.n_iter, float(intermediate_result.fun)))

    def __call__(self, z: Floats) -> tuple[float, Floats]:
        """Value and gradient at a point; raises _Stop if the watch has stopped."""
        if self.watch.stop and self.best is not None:
            raise _Stop
        order = self.order(z)
        value, gradient = 0.0, np.zeros_like(z)
        for part in self._ask(order):
            value += part.nll
            assert part.gradient is not None
            by_level, by_noise = part.gradient.by_level, part.gradient.by_noise
            gradient[: order.n_bits] += order.phi_gradient(by_level, by_noise)
            if self.settings.learn_scale:
                gradient[-1] += order.log_scale_gradient(by_level, by_noise)
        self.n_evaluations += 1
        value /= self.n_terms
        if not self.points:
            self.points.append((0, value))
        if self.best is None or value < self.best[0]:
            self.best = (value, order)
        return value, gradient / self.n_terms


def train_order(
    start: BitOrder, n_terms: float, settings: Settings, watch: Stopwatch, ask: Ask
) -> TrainedOrder:
    """Minimise the nll over phi, and over the scale if it is learned, from a start order.

    Returns the best order evaluated, also if the watch stops it early. O(n) per evaluation, O(q)
    per step of "lbfgs" and O(q^2) per step of "bfgs". n_terms and ask as in `Objective`.
    """
    objective = Objective(n_terms, settings, watch, ask)
    options: dict[str, float] = {"maxiter": settings.max_iter, "gtol": settings.tol}
    method, bounds = "BFGS", None
    if settings.optimizer == "lbfgs":
        method = "L-BFGS-B"
        if settings.learn_scale:
            bounds = [(None, None)] * (start.n_bits) + [LOG_SCALE_BOUNDS]
        ftol = min(settings.tol, LARGEST_TOL) * 1e-3
        options |= {"maxcor": 20, "ftol": ftol, "maxfun": 10 * settings.max_iter}
    converged = False
    try:
        found = scipy.optimize.minimize(
            objective,
            objective.start(start),
            jac=True,
            method=method,
            bounds=bounds,
            callback=objective.count_step,
            options=options,
        )
        converged = found.status in (0, 2)  # 2: no step improves beyond rounding error
    except _Stop:
        pass
    assert objective.best is not None
    value, order = objective.best
    gain, line = objective.points[0][1] - value, make_line(objective.points)
    n_iter, n_evaluations = objective.n_iter, objective.n_evaluations
    return TrainedOrder(order, value, n_iter, n_evaluations, converged, gain, line)
