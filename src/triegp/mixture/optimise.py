"""Training: random candidates, a pick among them, and a fit of phi (order and weights at once)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from triegp.encoding.codes import Codes
from triegp.engines import Engine
from triegp.models.jobs import Stopwatch
from triegp.models.rows import Rows
from triegp.tree.likelihood import Likelihood, measured_likelihood
from triegp.tree.observations import Measured, measure, refuse_silence
from triegp.tree.order import BitOrder, random_bits, uniform_weights
from triegp.tree.trie import Trie, build_trie, rebuild_trie

LOG_SCALE_BOUNDS = (-20.0, 20.0)
MAX_DENSE_BITS = 5_000  # BFGS keeps a q x q matrix

Floats = npt.NDArray[np.float64]
Ask = Callable[[BitOrder], list[Likelihood]]  # likelihoods with gradient, one a target


@dataclass(frozen=True)
class Plan:
    """How a member is trained.

    Attributes
    ----------
    n_candidates : int
        Random orders to begin with.
    last_weights : tuple of float or None
        Last weights of the candidates, in turns; None is uniform.
    optimizer : {"lbfgs", "bfgs"}
        "bfgs" keeps a q x q matrix and is the paper's.
    max_iter : int
        Steps at most.
    tolerance : float
        Largest entry of the gradient of the nll a row at which a fit has converged.
    learn_scale : bool
        Whether the prior variance is learned, too.
    nugget : {"row", "bit"}
        What the last weight means.
    """

    n_candidates: int
    last_weights: tuple[float | None, ...]
    optimizer: str
    max_iter: int
    tolerance: float
    learn_scale: bool
    nugget: str


@dataclass(frozen=True, eq=False)
class Data:
    """What a member is trained on.

    Attributes
    ----------
    codes : Codes
        The rows, on the member's own grid.
    targets : float64 (n, k)
        One column a target; the fit is to all of them.
    noise : float
        Noise floor.
    known_noise : float64 (n, k) or None
        Known variances, which add to the noise.
    weight : float64 (n,) or None
        Sample weights.
    """

    codes: Codes
    targets: Floats
    noise: float
    known_noise: Floats | None = None
    weight: Floats | None = None

    @property
    def n_terms(self) -> float:
        """Number of observations, weights counted."""
        rows = float(self.codes.n_rows if self.weight is None else self.weight.sum())
        return rows * int(self.targets.shape[1])

    def measured(self) -> list[Measured]:
        """What `measured_likelihood` takes, target by target."""
        rows = [measure(n_rows=self.codes.n_rows, **column) for column in self.columns()]
        for row in rows:
            refuse_silence(row)
        return rows

    def columns(self) -> list[dict[str, Any]]:
        """What `measure` and `condition` take, target by target."""
        return Rows(self.targets, self.known_noise, self.weight).columns()


@dataclass(frozen=True, eq=False)
class Fit:
    """A trained order.

    Attributes
    ----------
    order : BitOrder
        Bits, weights and scale.
    nll_per_row : float
        Of the training data.
    n_evaluations : int
        Likelihoods with gradient that it took.
    converged : bool
        Whether the optimiser was done, not stopped.
    """

    order: BitOrder
    nll_per_row: float
    n_evaluations: int
    converged: bool


class _Stop(Exception):  # noqa: N818
    """Ends an optimiser from inside its objective."""


class Follower:
    """Likelihoods of one order after another, on one trie that follows them."""

    def __init__(self, data: Data, engine: Engine) -> None:
        self._data, self._engine = data, engine
        self._measured = data.measured()
        self._trie: Trie | None = None

    def __call__(self, order: BitOrder) -> list[Likelihood]:
        """With gradient, one a target."""
        if self._trie is None:
            trie = build_trie(self._data.codes, order, engine=self._engine)
        else:
            trie = rebuild_trie(self._trie, self._data.codes, order)
        self._trie = trie
        return [
            measured_likelihood(trie, order, rows, self._data.noise, gradient=True)
            for rows in self._measured
        ]


class Objective:
    """The nll a row as a function of (phi, log scale).

    `ask` gives the likelihoods of an order; by default they come from a `Follower`.
    """

    def __init__(
        self, data: Data, plan: Plan, engine: Engine, watch: Stopwatch, ask: Ask | None = None
    ) -> None:
        self.data, self.plan, self.watch = data, plan, watch
        self._ask = ask or Follower(data, engine)
        self.n_evaluations = 0
        self.best: tuple[float, BitOrder] | None = None

    def order(self, z: Floats) -> BitOrder:
        """The order at a point."""
        phi, scale = z, 1.0
        if self.plan.learn_scale:
            phi, scale = z[:-1], float(np.exp(z[-1]))
        return BitOrder.from_phi(phi, scale=scale, nugget=self.plan.nugget)

    def start(self, order: BitOrder) -> Floats:
        """The point of an order."""
        phi = order.phi
        return np.append(phi, np.log(order.scale)) if self.plan.learn_scale else phi

    def __call__(self, z: Floats) -> tuple[float, Floats]:
        """Value and gradient at a point; raises _Stop when the watch says so."""
        if self.watch.stop and self.best is not None:
            raise _Stop
        order = self.order(z)
        value, gradient = 0.0, np.zeros_like(z)
        for part in self._ask(order):
            value += part.nll
            assert part.gradient is not None
            by_level, by_noise = part.gradient.by_level, part.gradient.by_noise
            gradient[: order.n_bits] += order.phi_gradient(by_level, by_noise)
            if self.plan.learn_scale:
                gradient[-1] += order.log_scale_gradient(by_level, by_noise)
        self.n_evaluations += 1
        value /= self.data.n_terms
        if self.best is None or value < self.best[0]:
            self.best = (value, order)
        return value, gradient / self.data.n_terms


def draw_candidates(
    precision: npt.NDArray[np.int64], plan: Plan, rng: np.random.Generator
) -> list[BitOrder]:
    """Random orders with uniform weights, the last weight in turns as the plan says."""
    n_bits = int(precision.sum())
    weights = [uniform_weights(n_bits, last if n_bits > 1 else None) for last in plan.last_weights]
    return [
        BitOrder.from_weights(
            random_bits(precision, rng), weights[i % len(weights)], nugget=plan.nugget
        )
        for i in range(plan.n_candidates)
    ]


def boltzmann_pick(log_likelihood: Floats, n_picks: int, rng: np.random.Generator) -> list[int]:
    """Draw candidates without replacement, with probability proportional to exp(z).

    z is the standardised log likelihood; the best candidate is always among them, and first.
    """
    best = int(np.argmax(log_likelihood))
    spread = float(np.std(log_likelihood))
    z = (log_likelihood - np.mean(log_likelihood)) / (spread if spread > 0 else 1.0)
    # The order of z + Gumbel noise is the order of drawing without replacement.
    drawn = np.argsort(-(z + rng.gumbel(size=z.size)))
    others = [int(i) for i in drawn if i != best]
    return [best, *others[: n_picks - 1]]


def fit_order(
    start: BitOrder,
    data: Data,
    plan: Plan,
    engine: Engine,
    watch: Stopwatch,
    ask: Ask | None = None,
) -> Fit:
    """Minimise the nll over phi (and scale), from an order on.

    Stopped early, it returns the best order seen. O(n) an evaluation, O(q) a step of "lbfgs" and
    O(q^2) of "bfgs". `ask` as in `Objective`.
    """
    objective = Objective(data, plan, engine, watch, ask)
    options: dict[str, float] = {"maxiter": plan.max_iter, "gtol": plan.tolerance}
    method, bounds = "BFGS", None
    if plan.optimizer == "lbfgs":
        method = "L-BFGS-B"
        if plan.learn_scale:
            bounds = [(None, None)] * (start.n_bits) + [LOG_SCALE_BOUNDS]
        options |= {"maxcor": 20, "ftol": plan.tolerance * 1e-3, "maxfun": 10 * plan.max_iter}
    converged = False
    try:
        found = minimize(
            objective,
            objective.start(start),
            jac=True,
            method=method,
            bounds=bounds,
            options=options,
        )
        converged = found.status in (0, 2)  # 2: no step gains anything, to rounding
    except _Stop:
        pass
    assert objective.best is not None
    value, order = objective.best
    return Fit(order, value, objective.n_evaluations, converged)
