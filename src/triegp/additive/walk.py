"""Training of all parameters together: exact gradients of the likelihood of small parts of rows.

Every step draws two parts of about 500 rows: some clusters of neighbours, which tell what happens
over short distances at the density of all rows, and random rows, which tell what happens over long
ones. The marginal likelihood of a part and its gradient are exact; gradients are averaged. Step
sizes fall to a twentieth, so that their noise averages out. A prior (`triegp.additive.prior`) keeps
together what fewer than 5,000 rows do not tell apart, and up to 640 rows single phi are not
learned. If several targets share the parameters, their likelihoods are added up, and the prior
counts once for each: targets of the same rows are rarely independent.

From 1,000 rows on, some rows are held out. The parameters that predict them best, given training
rows near them, are kept. With fewer rows, the most likely parameters are kept: of all rows, or of
one part if there are more than 640.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.additive.gradient import Gradient, exact_gradient, held_scores, mean_gradient
from triegp.additive.optimiser import Optimiser
from triegp.additive.prior import Prior
from triegp.additive.settings import Settings
from triegp.additive.start import EncodedRows, Parameters, features_of, rescale, row_noise
from triegp.engines import Engine, run_each, threads_of
from triegp.models.curve import ALL_TARGETS, TARGET, TrainingCurve, make_curve, make_line
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PARTS = 2  # of a step, each for one thread
N_CLUSTERS, CLUSTER_ROWS, RANDOM_ROWS = 4, 96, 128  # of a part
WHOLE_ROWS = 640  # up to this many rows, every step takes all of them
POOL_ROWS = 50_000  # clusters are drawn from so many rows, at most
N_LOOKS = 10  # evaluations of the parameters in all steps, after the first
FALL_SHARE = 0.6  # of the steps, while step sizes fall
LOOK_PARTS, LOOK_ROWS, LOOK_NEAREST, LOOK_RANDOM = 12, 50, 8, 96  # held-out rows of an evaluation
PRIOR_ROWS = 5_000  # from this many rows on, the likelihood alone decides
FEW_RATE = 4 / 3  # factor of the step size if every step takes all rows: gradients have no noise
LEAST_SHARE = 0.05  # of the step size, at the end
STUDENT = float(np.log(0.5 * np.pi * np.sqrt(3.0)))  # -log density of Student's t3 at 0
SCALES = np.exp(np.linspace(-4.0, 4.0, 321))  # of its scores
SCALE_RANGE = 1e-12  # a smaller factor of all variances is not applied


@dataclass(frozen=True, eq=False)
class Stage:
    """Result of training.

    Attributes
    ----------
    parameters : Parameters
        Those that predicted held-out rows best; the most likely ones if no row is held out.
    nll_per_row : tuple of float
        Nll per held-out row and target, recorded during training; with the prior and per row of
        the part that is looked at if no row is held out.
    n_steps : int
        Steps taken.
    stopped : bool
        Whether the watch ended it before all steps were taken.
    diverged : bool
        Whether it was stopped because a matrix was not positive definite, or because all
        parameters found are worse than the initial ones.
    curve : TrainingCurve
        Nll per row before each step, and of the held-out rows.
    smooth_gain : float or None
        What the smooth part saves of the nll per row; None if it was not asked for.
    """

    parameters: Parameters
    nll_per_row: tuple[float, ...]
    n_steps: int
    stopped: bool
    diverged: bool
    curve: TrainingCurve
    smooth_gain: float | None = None


class Walk:
    """Parameters during training, and the rows that they are learned from.

    Parameters
    ----------
    data : EncodedRows
        All rows.
    parameters : Parameters
        Where to begin.
    seen, held : int64
        Rows to learn from, and rows that are held out.
    settings : Settings
        Step sizes.
    engine : Engine
        The engine that computes.
    rng : Generator
        Draws the parts.
    """

    def __init__(
        self,
        data: EncodedRows,
        parameters: Parameters,
        seen: Ints,
        held: Ints,
        settings: Settings,
        engine: Engine,
        rng: np.random.Generator,
    ) -> None:
        self.parameters = parameters
        self._data, self._seen, self._engine, self._rng = data, seen, engine, rng
        self._pool = seen
        if seen.size > POOL_ROWS:
            self._pool = rng.choice(seen, POOL_ROWS, replace=False)
        self._inputs = data.inputs[self._pool]
        self._squares = np.square(self._inputs)
        features = [features_of(encoder) for encoder in data.encoders]
        if not held.size and seen.size <= WHOLE_ROWS:
            settings = replace(settings, rate=FEW_RATE * settings.rate, tree_rate=0.0)
        self._optimiser, self._prior = Optimiser(features, settings), Prior(parameters, features)
        self._few = not held.size
        if self._few:
            part = data.select(self._draw())
            self._looks = [(part, part.rows.n_rows)]
        else:
            n_parts = min(LOOK_PARTS, -(-held.size // LOOK_ROWS))
            self._looks = [self._make_look(held) for _ in range(n_parts)]
        self.n_steps = 0

    def optimise_scale(self) -> None:
        """Scale kernel and noise to maximise the likelihood of a part, unless noise is known."""
        part = self._data.select(self._draw())
        if part.rows.known_noise is not None:
            return
        _, scores = held_scores(part, self.parameters, part.rows.n_rows, self._engine)
        square = float(np.vdot(scores, scores))
        noisy = row_noise(part.rows, self.parameters.orders(), self.parameters.noise)
        factor = (square + noisy.within) / (noisy.count * noisy.n_targets)
        if np.isfinite(factor) and factor > SCALE_RANGE:
            self.parameters = rescale(self.parameters, factor)

    def step(self, share: float) -> float:
        """Take one step; return the nll per row and target before it; share: of the step size."""
        n_parts = PARTS if self._seen.size > WHOLE_ROWS else 1
        parts = [self._draw() for _ in range(n_parts)]

        def learn(rows: Ints) -> tuple[float, Gradient]:
            part = self._data.select(rows)
            nll, gradient = exact_gradient(part, self.parameters, self._engine)
            n_targets = part.rows.n_targets
            if self._seen.size < PRIOR_ROWS:
                weight = part.rows.n_rows / self._seen.size * n_targets
                gradient = self._prior.add(gradient, self.parameters, weight)
            return nll / (part.rows.count * n_targets), gradient

        nll, gradients = zip(*run_each(learn, parts, threads_of(self._engine)), strict=True)
        gradient = mean_gradient(gradients)
        self.parameters = self._optimiser.step(self.parameters, gradient, share)
        self.n_steps += 1
        return float(np.mean(nll))

    def look(self) -> float:
        """Nll per held-out row and target, given training rows near it; always of the same rows.

        By a Student distribution, as a few outliers must not decide: calibration learns tails and
        scale later. If no row is held out: nll per row of a part and of the prior together.
        """
        if self._few:
            return self._part_nll(self._looks[0][0])
        return self._student_nll(self.parameters)

    def smooth_gain(self) -> float:
        """What the smooth part saves of the nll per row and target, by Student distributions.

        Of held-out rows given others near them or, if none is held out, of the rows of a part.
        Infinity if a matrix is not positive definite.
        """
        try:
            less = self._student_nll(replace(self.parameters, smooth=None))
            return less - self._student_nll(self.parameters)
        except np.linalg.LinAlgError:
            return float("inf")

    def _student_nll(self, parameters: Parameters) -> float:
        """Nll per row and target of the rows that are looked at, at its best scale."""

        def ask(look: tuple[EncodedRows, int]) -> tuple[float, Floats]:
            return held_scores(look[0], parameters, look[1], self._engine)

        answers = run_each(ask, self._looks, threads_of(self._engine))
        scores = np.concatenate([part for _, part in answers])
        log_det = sum(part for part, _ in answers) / len(scores)
        fixed = self._data.rows.known_noise is not None  # variances are not to be scaled
        return 0.5 * log_det + student_nll(scores, SCALES[160:161] if fixed else SCALES)

    def _part_nll(self, part: EncodedRows) -> float:
        parameters, n, n_targets = self.parameters, part.rows.n_rows, part.rows.n_targets
        log_det, scores = held_scores(part, parameters, n, self._engine)
        noisy = row_noise(part.rows, parameters.orders(), parameters.noise)
        nll = 0.5 * (
            n_targets * (log_det + n * float(np.log(2.0 * np.pi))) + np.square(scores).sum()
        )
        nll += noisy.constant
        nll += n_targets * (n / self._seen.size) * self._prior.nll(parameters)
        return float(nll) / (part.rows.count * n_targets)

    def _near(self, points: Floats, count: int) -> Ints:
        """Rows of the pool nearest to each of the points (k, p), together. O(pool p k)."""
        kernel, count = self.parameters.smooth, min(count, self._pool.size)
        weight = np.ones(points.shape[1]) if kernel is None else kernel.lengthscale**-2.0
        apart = self._squares @ weight - 2.0 * ((weight * points) @ self._inputs.T)
        found = np.argpartition(apart, count - 1, axis=1)[:, :count]  # |point|^2 is left out
        return self._pool[found.ravel()]

    def _draw(self) -> Ints:
        """Rows of one part."""
        seen, rng = self._seen, self._rng
        if seen.size <= WHOLE_ROWS:
            return seen
        centers = rng.choice(self._pool.size, N_CLUSTERS, replace=False)
        near = self._near(self._inputs[centers], CLUSTER_ROWS)
        return np.unique(np.append(near, rng.choice(seen, RANDOM_ROWS, replace=False)))

    def _make_look(self, held: Ints) -> tuple[EncodedRows, int]:
        """Training rows followed by held-out rows, and the number of the latter."""
        rng = self._rng
        chosen = rng.choice(held, min(LOOK_ROWS, held.size), replace=False)
        near = self._near(self._data.inputs[chosen], LOOK_NEAREST)
        more = rng.choice(self._seen, min(LOOK_RANDOM, self._seen.size), replace=False)
        rows = np.append(np.unique(np.append(near, more)), chosen)
        return self._data.select(rows), chosen.size


def student_nll(scores: Floats, scales: Floats = SCALES) -> float:
    """Mean nll of scores under Student's t3, at the best of the scales."""
    scale = scales[:, None]
    loss = np.log(scale) + 2.0 * np.log1p(np.square(scores.ravel() / scale) / 3.0)
    return STUDENT + float(loss.mean(axis=1).min())


def train_stage(
    data: EncodedRows,
    parameters: Parameters,
    seen: Ints,
    held: Ints,
    settings: Settings,
    engine: Engine,
    run: Run,
) -> Stage:
    """Maximise the likelihood over all parameters.

    Parameters
    ----------
    data : EncodedRows
        All rows.
    parameters : Parameters
        Where to begin.
    seen, held : int64
        Rows to learn from, and rows that are held out of training.
    settings : Settings
        Number of steps and step sizes.
    engine : Engine
        The engine that computes.
    run : Run
        Random numbers, clock, progress. If a time budget ends training early, step sizes fall
        in time.

    Notes
    -----
    O(b^2 (T + p) + b^3) per step, b = 512 rows: 15 to 20 milliseconds of one core with 64 trees,
    whatever the number of rows. Finding neighbours adds O(p) per row, for at most 50,000 rows.
    """
    watch, n_steps = run.watch, settings.max_iter
    walk = Walk(data, parameters, seen, held, settings, engine, run.rng)
    best, looks, looked_at = parameters, list[float](), list[int]()
    points = list[tuple[int, float]]()
    diverged = False
    began, between = watch.elapsed(), max(1, -(-n_steps // N_LOOKS))
    try:
        walk.optimise_scale()
        best = walk.parameters
        if not watch.stop:
            looks.append(walk.look())
            looked_at.append(0)
        while walk.n_steps < n_steps and not watch.stop:
            nll = walk.step(_share(walk.n_steps, n_steps, watch, began))
            points.append((walk.n_steps - 1, nll))
            run.progress("steps", walk.n_steps, n_steps)
            last = walk.n_steps == n_steps or watch.stop
            if last or walk.n_steps - (looked_at or [0])[-1] >= between:
                looks.append(walk.look())
                looked_at.append(walk.n_steps)
                if looks[-1] <= min(looks):
                    best = walk.parameters
        complete = walk.n_steps == n_steps >= N_LOOKS
        worse = complete and not held.size and min(looks[1:]) > looks[0]
        diverged = worse or not np.isfinite(looks).all()
    except np.linalg.LinAlgError:
        diverged = True
    except KeyboardInterrupt:
        watch.interrupt()
    stopped = walk.n_steps < n_steps and not diverged
    walk.parameters, gain = best, None
    if settings.smooth == "auto" and best.smooth is not None and not watch.stop:
        try:
            gain = walk.smooth_gain()
        except KeyboardInterrupt:
            watch.interrupt()
    seen_by_look = [make_line(zip(looked_at, looks, strict=False))] if held.size else None
    name = TARGET if data.rows.n_targets == 1 else ALL_TARGETS
    curve = make_curve([make_line(points)], [name], seen_by_look)
    return Stage(best, tuple(looks), walk.n_steps, stopped, diverged, curve, gain)


def _share(step: int, n_steps: int, watch: Stopwatch, began: float) -> float:
    """Factor of the step size: 1, then half a cosine to 0.05, by steps or by time."""
    done = step / n_steps
    if watch.limited and step:  # a budget that is not used changes nothing
        spent = watch.elapsed() - began
        done = max(done, spent / max(spent + watch.left(), 1e-9))
    fallen = max(0.0, 1.0 - (1.0 - done) / FALL_SHARE)
    return max(LEAST_SHARE, 0.5 * (1.0 + float(np.cos(np.pi * fallen))))
