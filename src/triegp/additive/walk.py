"""Training a forest: stochastic gradients of the marginal likelihood, orders and weights at once.

Every step solves for the targets and a few probes, from where the last step ended, and moves by
Adam along four kinds of directions: all trees' phi of a feature together (which features matter),
all phi by a factor (how rough the function is), every phi of every tree by itself, and scales and
noise. The shared directions have little noise and learn fast; those of single trees learn slowly,
which keeps thousands of parameters from fitting the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.evidence import EXACT_ROWS, estimate_evidence, exact_evidence
from triegp.additive.forest import Forest
from triegp.additive.gradient import gradient_held
from triegp.additive.preconditioner import Nystrom, fit_nystrom
from triegp.additive.solve import solve_held
from triegp.additive.start import Parameters, rescale
from triegp.encoding.codes import Codes
from triegp.engines import CpuEngine, Engine
from triegp.models.jobs import Stopwatch
from triegp.tree.observations import Measured, Observations
from triegp.tree.order import BitOrder
from triegp.tree.trie import Trie, build_trie, check_codes, rebuild_trie, with_engine

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_LOG_NOISE = float(np.log(1e-6))
MAX_SOLVE_STEPS = 60
MAX_RESIDUAL = 0.1  # beyond it a gradient says nothing
LOOK_PROBES = 2
SLOPE_RATE = 0.2  # of the shared rate: all phi move together


@dataclass(frozen=True)
class Schedule:
    """How a forest is trained.

    Attributes
    ----------
    n_steps : int
        Steps of Adam.
    n_probes : int
        For the traces.
    rate : float
        Of the shared directions, scales and noise.
    tree_rate : float
        Of every tree's own phi.
    rank : int
        Of the preconditioner.
    renew_every : int
        Steps after which the preconditioner is made anew.
    check_every : int
        Steps after which the likelihood is looked at.
    tolerance : float
        Of the solves.
    """

    n_steps: int
    n_probes: int = 7
    rate: float = 0.1
    tree_rate: float = 0.02
    rank: int = 200
    renew_every: int = 8
    check_every: int = 50
    tolerance: float = 1e-2


@dataclass(frozen=True, eq=False)
class Learned:
    """What training found.

    Attributes
    ----------
    parameters : Parameters
        The best seen, by the likelihood of the rows trained on.
    nll_per_row : tuple of float
        At every look.
    n_steps : int
        Steps taken.
    stopped : bool
        Whether the watch ended it before all steps were taken.
    diverged : bool
        Whether it was given up because the likelihood fell below that of the start, by more than
        two standard errors, or solves failed.
    worst_residual : float
        Largest relative residual of any solve on the way; beyond 0.1 there is no step.
    """

    parameters: Parameters
    nll_per_row: tuple[float, ...]
    n_steps: int
    stopped: bool
    diverged: bool
    worst_residual: float


def build_forest(
    codes: Sequence[Codes],
    orders: Sequence[BitOrder],
    engine: Engine,
    before: Forest | None = None,
) -> Forest:
    """The forest of these orders.

    Tries of `before` are sorted where their orders changed; all of them, if any did, by an engine
    that sorts many at once.
    """
    levels = tuple(order.levels for order in orders)
    old: Sequence[Trie | None] = [None] * len(orders) if before is None else before.tries
    if engine.batches:
        return Forest(_build_batch(codes, orders, engine, old), levels)
    alone = CpuEngine(n_threads=1)

    def build(_: Engine, t: int) -> Trie:
        trie = old[t]
        if trie is None:
            found = build_trie(codes[t], orders[t], engine=alone)
        else:
            found = rebuild_trie(with_engine(trie, alone), codes[t], orders[t])
        return with_engine(found, engine)

    return Forest(tuple(engine.each(build, range(len(orders)))), levels)


def _build_batch(
    codes: Sequence[Codes],
    orders: Sequence[BitOrder],
    engine: Engine,
    old: Sequence[Trie | None],
) -> tuple[Trie, ...]:
    """The tries of these orders, sorted at once if any order is new."""
    bits = [order.key_bits for order in orders]
    same = (a is not None and np.array_equal(a.bits, b) for a, b in zip(old, bits, strict=True))
    if all(same):
        return tuple(trie for trie in old if trie is not None)
    for part, order in zip(codes, orders, strict=True):
        check_codes(part, order)
    found = engine.link_many([part.packed for part in codes], bits)
    return tuple(Trie(own, *linked, engine) for own, linked in zip(bits, found, strict=True))


def hold_codes(codes: Sequence[Codes], engine: Engine) -> list[Codes]:
    """The codes in the engine's memory."""
    return [replace(part, packed=engine.hold(part.packed)) for part in codes]


def row_noise(orders: Sequence[BitOrder], noise: float, rows: Measured) -> Floats:
    """Variance of a new observation at each row, (n,): noise, nuggets and known noise."""
    total = noise + sum(order.nugget_variance for order in orders)
    known = 0.0 if rows.known_noise is None else rows.known_noise
    return np.broadcast_to(total + known, rows.y.shape).astype(np.float64)


class Adam:
    """Steps against a gradient, of a size that does not depend on its scale."""

    def __init__(self, rate: float) -> None:
        self.rate, self.n_steps = rate, 0
        self._mean: Any = 0.0
        self._square: Any = 0.0

    def step(self, gradient: Any) -> Any:
        """How far to go."""
        self.n_steps += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.98 * self._square + 0.02 * np.square(gradient)
        mean = self._mean / (1.0 - 0.9**self.n_steps)
        size = np.sqrt(self._square / (1.0 - 0.98**self.n_steps))
        return -self.rate * mean / (size + 1e-12)


class Walk:
    """A forest on its way: parameters, tries, solutions, preconditioner.

    What has an entry a row is held by the engine: codes, probes, solutions.
    """

    def __init__(
        self,
        parameters: Parameters,
        codes: Sequence[Codes],
        features: Sequence[Ints],
        rows: Measured,
        schedule: Schedule,
        engine: Engine,
        rng: np.random.Generator,
    ) -> None:
        self.parameters, self.schedule = parameters, schedule
        self._codes, self._features, self._rows = hold_codes(codes, engine), features, rows
        self._engine, self._rng = engine, rng
        probes = rng.choice([-1.0, 1.0], size=(rows.y.size, schedule.n_probes))
        self._y, self._probes = engine.hold(rows.y), engine.hold(probes)
        self._right = np.column_stack([self._y, self._probes])
        self._solution = np.zeros_like(self._right)
        self._nystrom: Nystrom | None = None
        self._evidence_seed = int(rng.integers(2**62))
        n_trees = len(parameters.phi)
        self._shared, self._slope = Adam(schedule.rate), Adam(SLOPE_RATE * schedule.rate)
        self._scale, self._noise = Adam(schedule.rate), Adam(schedule.rate)
        self._own = [Adam(schedule.tree_rate) for _ in range(n_trees)]
        self.n_steps, self.worst_residual = 0, 0.0
        self.place()

    def place(self, before: Forest | None = None) -> None:
        """Make the forest of the parameters."""
        self.orders = self.parameters.orders()
        self.forest = build_forest(self._codes, self.orders, self._engine, before)
        self._row_noise = row_noise(self.orders, self.parameters.noise, self._rows)

    @property
    def variance(self) -> Floats:
        """Of each row's target given f, (n,)."""
        weight = self._rows.weight
        return self._row_noise if weight is None else self._row_noise / weight

    def settle_scale(self) -> None:
        """Scale kernel and noise to where the likelihood is best; not beside known noise."""
        self._renew()
        if not self._solve() <= MAX_RESIDUAL or self._rows.known_noise is not None:
            return
        square = float(self._y @ self._solution[:, 0]) / self._rows.count
        if np.isfinite(square) and square > 1e-12:
            self.parameters = rescale(self.parameters, square)
            self._solution /= square
            self.place(self.forest)  # steps do not mind a preconditioner that is off by a factor

    def step(self) -> bool:
        """One step; False where the solves failed and there is no gradient."""
        if self.n_steps and self.n_steps % self.schedule.renew_every == 0:
            self._renew()
        if not self._solve() <= MAX_RESIDUAL:  # also where it is not a number
            self._renew()
            if not self._solve() <= MAX_RESIDUAL:
                return False
        gradient = gradient_held(
            self.forest,
            self.orders,
            self._solution[:, :1],
            self._probes,
            self._solution[:, 1:],
            self._rows.weight,
            self._row_noise,
        )
        self._move(gradient.phi, gradient.log_scale, gradient.noise)
        self.n_steps += 1
        return True

    def _move(self, by_phi: Sequence[Floats], by_scale: Floats, by_noise: float) -> None:
        old = self.parameters
        n_features = 1 + max(int(features.max()) for features in self._features)
        pooled = np.zeros(n_features)
        for features, gradient in zip(self._features, by_phi, strict=True):
            pooled += np.bincount(features, gradient, minlength=n_features)
        shared = self._shared.step(pooled)
        by_slope = sum(float(p @ g) for p, g in zip(old.phi, by_phi, strict=True))
        factor = float(np.exp(self._slope.step(by_slope)))
        phi = tuple(
            factor * p + own.step(g) + shared[features]
            for p, own, g, features in zip(old.phi, self._own, by_phi, self._features, strict=True)
        )
        noise = old.log_noise + float(self._noise.step(by_noise * old.noise))
        scale = old.log_scale + self._scale.step(by_scale)
        self.parameters = Parameters(phi, scale, max(noise, LEAST_LOG_NOISE))
        self.place(self.forest)

    def look(self) -> tuple[float, float]:
        """The nll a row and its standard error, by probes of the same seed every time."""
        self._renew()
        assert self._nystrom is not None
        given = (self.forest, self.variance, self._rows.y)
        if self._rows.y.size <= EXACT_ROWS:
            found = exact_evidence(*given)
        else:
            rng = np.random.default_rng(self._evidence_seed)
            limits = (LOOK_PROBES, MAX_SOLVE_STEPS, self.schedule.tolerance)
            found, _ = estimate_evidence(*given, self._nystrom, rng, *limits)
        constant = Observations(self._rows.y, self._row_noise, self._rows.weight).constant
        n = self._rows.y.size
        return (constant - found.log_likelihood) / n, found.error / n

    def _renew(self) -> None:
        self._nystrom = fit_nystrom(self.forest, self.variance, self.schedule.rank, self._rng)

    def _solve(self) -> float:
        """Solve from where the last step ended; the largest relative residual."""
        found = solve_held(
            self.forest,
            self.variance,
            self._right,
            preconditioner=self._nystrom,
            start=self._solution,
            tolerance=self.schedule.tolerance,
            max_steps=MAX_SOLVE_STEPS,
        )
        self._solution = found.x
        residual = float(found.residual.max())
        self.worst_residual = max(self.worst_residual, residual)
        return residual


def _step(walk: Walk, watch: Stopwatch) -> bool:
    """A step; Ctrl-C meanwhile is remembered by the watch, and the walk stays whole."""
    try:
        return walk.step()
    except np.linalg.LinAlgError:
        return False
    except KeyboardInterrupt:
        watch.interrupt()
        walk.place()
        return True


def train_stage(
    parameters: Parameters,
    codes: Sequence[Codes],
    features: Sequence[Ints],
    rows: Measured,
    schedule: Schedule,
    engine: Engine,
    rng: np.random.Generator,
    watch: Stopwatch,
    progress: Callable[[str, int, int], None],
) -> Learned:
    """Maximise the marginal likelihood over a forest's parameters.

    Parameters
    ----------
    parameters : Parameters
        Where to begin.
    codes : sequence of Codes
        The rows, one a tree.
    features : sequence of int64 (q,)
        Of every tree, the feature of each bit.
    rows : Measured
        Targets, weights and known noise; no weight is 0.

    Returns
    -------
    Learned
        With the parameters of the best look at the likelihood.

    Notes
    -----
    O(n T p) with p probes for each of about 10 to 30 products a step.
    """
    walk = Walk(parameters, codes, features, rows, schedule, engine, rng)
    best, looks = parameters, []
    diverged = False
    try:
        walk.settle_scale()
        best = walk.parameters
        looks.append(walk.look()[0])
        while walk.n_steps < schedule.n_steps and not (watch.stop or diverged):
            failed = not _step(walk, watch)
            progress("steps", walk.n_steps, schedule.n_steps)
            last = failed or watch.stop or walk.n_steps == schedule.n_steps
            if last or walk.n_steps % schedule.check_every == 0:
                nll, error = _look(walk)
                if nll < min(looks):
                    best = walk.parameters
                # Also where it is not a number.
                diverged = failed or not nll <= looks[0] + 2.0 * error
                looks.append(nll)
    except KeyboardInterrupt:
        watch.interrupt()
    cut = walk.n_steps < schedule.n_steps and not diverged
    return Learned(best, tuple(looks), walk.n_steps, cut, diverged, walk.worst_residual)


def _look(walk: Walk) -> tuple[float, float]:
    """A look at the likelihood; infinite where the matrix is no longer positive."""
    try:
        return walk.look()
    except np.linalg.LinAlgError:
        return float("inf"), 0.0
