"""One stage of training a forest: stochastic gradients of the marginal likelihood.

Each step solves for the targets and a few probes, starting from the solutions of the step before,
and updates the parameters. Tries are sorted again if their orders change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triegp.additive.evidence import EXACT_ROWS, estimate_evidence, exact_evidence
from triegp.additive.forest import Forest, build_forest
from triegp.additive.gradient import gradient_held
from triegp.additive.optimiser import Optimiser
from triegp.additive.preconditioner import Nystrom, make_preconditioner
from triegp.additive.settings import Settings
from triegp.additive.solve import solve_held
from triegp.additive.start import EncodedRows, Parameters, features_of, rescale, row_noise
from triegp.encoding.codes import hold_codes
from triegp.engines import Engine
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run

Floats = npt.NDArray[np.float64]

MAX_SOLVE_STEPS = 60
MAX_RESIDUAL = 0.1  # largest relative residual at which a gradient is used
LOOK_PROBES = 2  # probes for the likelihood during training
LOOK_SECONDS = 1.0  # a stopped stage evaluates the likelihood once more if that takes less


@dataclass(frozen=True, eq=False)
class Stage:
    """Result of a stage of training.

    Attributes
    ----------
    parameters : Parameters
        Those of the highest likelihood on the training rows that was evaluated. If the watch ended
        the stage and another evaluation would take more than a second, those of the last step.
    nll_per_row : tuple of float
        Nll per row, recorded during training.
    n_steps : int
        Steps taken.
    stopped : bool
        Whether the watch ended it before all steps were taken.
    diverged : bool
        Whether it was stopped because the likelihood fell below its initial value by more than two
        standard errors, or because solves failed.
    """

    parameters: Parameters
    nll_per_row: tuple[float, ...]
    n_steps: int
    stopped: bool
    diverged: bool


class Walk:
    """A forest during training: parameters, tries, solutions, preconditioner.

    Codes, probes and solutions lie in the engine's memory.
    """

    def __init__(
        self,
        data: EncodedRows,
        parameters: Parameters,
        settings: Settings,
        engine: Engine,
        rng: np.random.Generator,
        watch: Stopwatch | None = None,
    ) -> None:
        self._watch = watch or Stopwatch()
        self.parameters, self._settings = parameters, settings
        rows = self._rows = data.rows
        self._codes = [hold_codes(part, engine.hold) for part in data.codes]
        self._engine, self._rng = engine, rng
        probes = rng.choice([-1.0, 1.0], size=(rows.y.size, settings.n_probes))
        self._y, self._probes = engine.hold(rows.y), engine.hold(probes)
        self._right = np.column_stack([self._y, self._probes])
        self._solution = np.zeros_like(self._right)
        self._nystrom: Nystrom | None = None
        self._evidence_seed = int(rng.integers(2**62))
        features = [features_of(encoder) for encoder in data.encoders]
        self._optimiser = Optimiser(features, settings)
        self.n_steps = 0
        self.place()

    def place(self, before: Forest | None = None) -> None:
        """Build the forest of the current parameters."""
        self.orders = self.parameters.orders()
        self.forest = build_forest(self._codes, self.orders, self._engine, before)
        self._noisy = row_noise(self._rows, self.orders, self.parameters.noise)

    @property
    def variance(self) -> Floats:
        """Variance of each row's target given f, (n,)."""
        return self._noisy.variance

    def optimise_scale(self) -> None:
        """Scale kernel and noise to maximise the likelihood, unless there is known noise."""
        self._renew(self._watch)
        if not self._solve() <= MAX_RESIDUAL or self._rows.known_noise is not None:
            return
        square = float(self._y @ self._solution[:, 0]) + self._noisy.within
        square /= self._rows.count
        if np.isfinite(square) and square > 1e-12:
            self.parameters = rescale(self.parameters, square)
            self._solution /= square
            self.place(self.forest)  # the old preconditioner still works: only its scale is off

    def step(self) -> bool:
        """Take one step; return False if the solves failed and there is no gradient.

        If the watch stops before there is a gradient, no step is taken.
        """
        if self.n_steps and self.n_steps % self._settings.renew_every == 0:
            self._renew(self._watch)
        if not self._solve() <= MAX_RESIDUAL:  # also true for NaN
            if self._watch.stop:
                return True
            self._renew(self._watch)
            if not self._solve() <= MAX_RESIDUAL:
                return self._watch.stop
        gradient = gradient_held(
            self.forest,
            self.orders,
            self._solution[:, :1],
            self._probes,
            self._solution[:, 1:],
            self._rows.weight,
            None if self._rows.weight is None else self._noisy.noise_offset,
        )
        self.parameters = self._optimiser.step(self.parameters, gradient)
        self.place(self.forest)
        self.n_steps += 1
        return True

    def evaluate(self) -> tuple[float, float]:
        """Nll per row and its standard error; every call uses the same probes."""
        self._renew()
        assert self._nystrom is not None
        given = (self.forest, self.variance, self._rows.y)
        if self._rows.y.size <= EXACT_ROWS:
            found = exact_evidence(*given)
        else:
            rng = np.random.default_rng(self._evidence_seed)
            limits = (LOOK_PROBES, MAX_SOLVE_STEPS, self._settings.solve_tol)
            found, _ = estimate_evidence(*given, self._nystrom, rng, *limits)
        count = self._rows.count
        return (self._noisy.constant - found.log_likelihood) / count, found.error / count

    def _renew(self, watch: Stopwatch | None = None) -> None:
        self._nystrom = make_preconditioner(
            self.forest, self.variance, self._settings.rank, self._rng, watch
        )

    def _solve(self) -> float:
        """Solve, starting from the last solutions; return the largest relative residual."""
        found = solve_held(
            self.forest,
            self.variance,
            self._right,
            preconditioner=self._nystrom,
            start=self._solution,
            tolerance=self._settings.solve_tol,
            max_steps=MAX_SOLVE_STEPS,
            watch=self._watch,
        )
        self._solution = found.x
        return float(found.residual.max())


def train_stage(
    data: EncodedRows,
    parameters: Parameters,
    n_steps: int,
    settings: Settings,
    engine: Engine,
    run: Run,
) -> Stage:
    """Maximise the marginal likelihood over a forest's parameters.

    Parameters
    ----------
    data : EncodedRows
        The rows to train on.
    parameters : Parameters
        Where to begin.
    n_steps : int
        Largest number of steps.
    settings : Settings
        How to train.
    engine : Engine
        The engine that computes.
    run : Run
        Random numbers, clock, progress.

    Returns
    -------
    Stage
        With the parameters of the highest likelihood that was recorded.

    Notes
    -----
    O(n T p) with p probes for each of about 10 to 30 products per step.
    """
    watch = run.watch
    walk = Walk(data, parameters, settings, engine, run.rng, watch)
    best, looks = parameters, list[float]()
    n_looked, diverged, ended = 0, False, False  # n_looked: steps at the last look
    try:
        walk.optimise_scale()
        best = walk.parameters
        began = watch.elapsed()
        if not (watch.interrupted or watch.out_of_time):
            looks.append(walk.evaluate()[0])
        look_seconds = watch.elapsed() - began
        ended = watch.stop
        while walk.n_steps < n_steps and not (ended or diverged):
            began = watch.elapsed()
            failed = not _step(walk, watch)
            run.progress("steps", walk.n_steps, n_steps)
            seconds = watch.elapsed() - began
            quick = look_seconds <= LOOK_SECONDS
            ended = watch.stop or watch.left() < seconds + (look_seconds if quick else 0.0)
            if ended and not failed:
                if walk.n_steps == n_looked:
                    break
                if not quick:
                    n_looked, best = walk.n_steps, walk.parameters
                    break
            if (
                failed
                or ended
                or walk.n_steps == n_steps
                or walk.n_steps % settings.check_every == 0
            ):
                began = watch.elapsed()
                nll, error = _evaluate(walk)
                look_seconds, n_looked = watch.elapsed() - began, walk.n_steps
                if nll < min(looks):
                    best = walk.parameters
                # The negated comparison is also true for NaN.
                diverged = failed or not nll <= looks[0] + 2.0 * error
                looks.append(nll)
    except KeyboardInterrupt:
        watch.interrupt()
        if walk.n_steps > n_looked:
            best = walk.parameters
    stopped = walk.n_steps < n_steps and not diverged
    return Stage(best, tuple(looks), walk.n_steps, stopped, diverged)


def _step(walk: Walk, watch: Stopwatch) -> bool:
    """Take a step; Ctrl-C during it stops the watch and leaves the walk consistent."""
    try:
        return walk.step()
    except np.linalg.LinAlgError:
        return False
    except KeyboardInterrupt:
        watch.interrupt()
        walk.place()
        return True


def _evaluate(walk: Walk) -> tuple[float, float]:
    """Nll per row and its error; infinite if the matrix is no longer positive definite."""
    try:
        return walk.evaluate()
    except np.linalg.LinAlgError:
        return float("inf"), 0.0
