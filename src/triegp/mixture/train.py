"""Training an ensemble: each tree on its own grid, with its own order; then the mixture."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.encoding.encoder import BitEncoder
from triegp.engines import CpuEngine, Engine
from triegp.engines.choice import ROW_BYTES
from triegp.mixture.batches import Batches, evaluate_candidates, fit_in_step
from triegp.mixture.calibration import Calibration, calibrate
from triegp.mixture.members import Ensemble, Member, loo_members
from triegp.mixture.optimise import (
    MAX_DENSE_BITS,
    Data,
    Fit,
    Plan,
    boltzmann_pick,
    draw_candidates,
    fit_order,
)
from triegp.mixture.settings import Settings
from triegp.models.contract import Trained
from triegp.models.distribution import Mixture, member_log_density, soften, stack
from triegp.models.jobs import Stopwatch, run_jobs
from triegp.models.rows import Rows
from triegp.tree.likelihood import likelihood
from triegp.tree.order import BitOrder
from triegp.tree.posterior import condition
from triegp.tree.trie import build_trie, with_engine

Item = TypeVar("Item")
Result = TypeVar("Result")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Recipe:
    """How an ensemble is trained.

    Attributes
    ----------
    plan : Plan
        How a member is.
    n_members : int
        How many.
    own_grids : bool
        Whether every member has a random shift of its own, and candidates of its own; otherwise
        all are picked from the same candidates.
    mixture : {"calibrated", "stacking", "softmax", "best"}
        Weights of the members: by leave-one-out density, with or without shrinkage, scale and
        strays; by training nll; or all on one.
    temperature : float
        Of the softmax.
    noise : float
        Noise floor while training.
    final_noise : float
        Noise floor afterwards.
    """

    plan: Plan
    n_members: int
    own_grids: bool
    mixture: str
    temperature: float
    noise: float
    final_noise: float

    @property
    def n_candidates(self) -> int:
        """Random orders to be evaluated, of all grids."""
        return self.plan.n_candidates * (self.n_members if self.own_grids else 1)


def recipe_of(settings: Settings, n_effective: float) -> Recipe:
    """The recipe of an estimator's settings, for so many rows (weights counted)."""
    return Recipe(
        plan=Plan(
            n_candidates=settings.n_candidates,
            last_weights=settings.last_weights,
            optimizer=settings.optimizer,
            max_iter=settings.max_iter,
            tolerance=settings.tolerance,
            learn_scale=settings.learn_scale,
            nugget=settings.nugget,
        ),
        n_members=settings.n_members,
        own_grids=settings.shift,
        mixture=settings.mixture,
        temperature=settings.temperature,
        noise=settings.noise,
        final_noise=1.0 / n_effective if settings.final_noise is None else settings.final_noise,
    )


def card_bytes(encoders: Sequence[BitEncoder], recipe: Recipe, n_rows: int, n_targets: int) -> int:
    """Memory of a card that training takes, about: the codes of all grids stay there."""
    n_grids = recipe.n_members if recipe.own_grids else 1
    extra = encoders[0].n_features_in_ if recipe.own_grids else 0  # a shift takes a bit a feature
    widths = [-(-(encoder.n_bits_ + extra) // 8) for encoder in encoders]
    codes = sum(widths[k % len(widths)] for k in range(n_grids))
    return n_rows * (codes + ROW_BYTES + 24 * (n_targets - 1))


def check_encoders(encoders: Sequence[BitEncoder], settings: Settings) -> None:
    """Refuse more bits than the optimiser can take."""
    extra = encoders[0].n_features_in_ if settings.shift else 0  # a shift takes a bit a feature
    n_bits = extra + max(encoder.n_bits_ for encoder in encoders)
    if settings.optimizer == "bfgs" and n_bits > MAX_DENSE_BITS:
        raise ValueError(
            f"optimizer 'bfgs' keeps a q x q matrix and must have at most {MAX_DENSE_BITS} "
            f"bits, got {n_bits}: use 'lbfgs' or less precision"
        )


def train_ensemble(
    encoders: Sequence[BitEncoder],
    X: npt.NDArray[Any],
    rows: Rows,
    recipe: Recipe,
    rng: np.random.Generator,
    n_jobs: int,
    watch: Stopwatch,
    progress: Callable[[str, int, int], None],
    keep: bool = True,
    engine: Engine | None = None,
) -> Trained:
    """Train an ensemble; the same for any n_jobs.

    On an engine that works on many orders at once, candidates are evaluated in batches and all fits
    go in step; otherwise, and where no engine is given, they run side by side on n_jobs threads of
    the CPU. Members are conditioned on the CPU in any case: a fitted model lives in the host's
    memory.

    The members take the encoders in turns, where every member has a grid of its own.
    Stopped by the watch, it returns what it has: members not begun are left out, members begun keep
    the best order they saw. At least one member is always there. Ctrl-C, which the watch
    remembers, is raised unless it is to keep what was found. X as `real_array` gives it.
    """
    n_grids = recipe.n_members if recipe.own_grids else 1
    streams = rng.spawn(n_grids + 1)
    grids = [_grid(encoders[k % len(encoders)], recipe, streams[k]) for k in range(n_grids)]
    encoded: list[Codes | None] = [None] * n_grids

    def data(grid: int) -> Data:
        codes = encoded[grid]
        if codes is None:
            codes = encoded[grid] = grids[grid].encode_array(X)
        return Data(codes, rows.targets, recipe.noise, rows.known_noise, rows.weight)

    run_jobs(data, range(n_grids), n_jobs, watch)  # what is not begun is encoded when it is needed
    batches = Batches(data, engine) if engine is not None and engine.batches else None
    starts = _choose_starts(recipe, grids, data, streams, n_jobs, watch, progress, batches)
    alone = CpuEngine(n_threads=max(1, n_jobs // len(starts)))

    def tell(done: int) -> None:
        progress("fits", done, len(starts))

    with warnings.catch_warnings():
        # A line search that ends at rounding error is where a fit ends, and no news to anyone.
        warnings.filterwarnings("ignore", r".*line search", RuntimeWarning)
        if batches is not None:
            fits = fit_in_step(starts, batches, recipe.plan, watch, tell)
        else:
            fits = run_jobs(
                lambda start: fit_order(start[1], data(start[0]), recipe.plan, alone, watch),
                starts,
                n_jobs,
                watch,
                tell,
            )
    if watch.interrupted and not keep:
        raise KeyboardInterrupt
    cut = watch.stop and any(fit is None or not fit.converged for fit in fits)
    if fits[0] is None:  # no time for any fit: the best candidate as it is
        first = data(starts[0][0])
        value = _nll_per_row(first, starts[0][1], alone)
        fits[0] = Fit(starts[0][1], value, 1, False)
    done = [(grid, fit) for (grid, _), fit in zip(starts, fits, strict=True) if fit is not None]
    members = _finish(
        lambda item: _member(grids[item[0]], data(item[0]), item[1], recipe),
        done,
        n_jobs,
        watch,
        lambda count: progress("posteriors", count, len(done)),
    )
    if watch.interrupted and not keep:
        raise KeyboardInterrupt
    n_evaluations = sum(fit.n_evaluations for _, fit in done)
    return Trained(weigh(tuple(members), rows, recipe), cut, n_evaluations)


def weigh(members: tuple[Member, ...], rows: Rows, recipe: Recipe) -> Ensemble:
    """Give the members their weights; members without any are left out."""
    n_targets = rows.targets.shape[1]
    nll = np.array([member.fit.nll_per_row for member in members])
    if recipe.mixture == "best":
        best = members[int(np.argmin(nll))]
        return Ensemble((best,), (Calibration(np.ones(1)),) * n_targets)
    if recipe.mixture == "softmax":
        return Ensemble(members, (Calibration(soften(nll, recipe.temperature)),) * n_targets)
    found = []
    for target in range(n_targets):
        mean, var = loo_members(members, target)
        y = members[0].posteriors[target].rows.y
        if recipe.mixture == "calibrated":
            found.append(calibrate(mean, var, y, rows.weight))
        else:
            density = member_log_density(Mixture(np.empty(0), mean, var), y)
            found.append(Calibration(stack(density, rows.weight)))
    used = np.flatnonzero(np.any([part.weight > 0 for part in found], axis=0))
    kept = tuple(replace(part, weight=part.weight[used]) for part in found)
    return Ensemble(tuple(members[k] for k in used), kept)


def _choose_starts(
    recipe: Recipe,
    grids: list[BitEncoder],
    data: Callable[[int], Data],
    streams: list[np.random.Generator],
    n_jobs: int,
    watch: Stopwatch,
    progress: Callable[[str, int, int], None],
    batches: Batches | None,
) -> list[tuple[int, BitOrder]]:
    """Candidates of every grid, evaluated; and the ones to fit, (grid, order)."""
    plan = recipe.plan
    candidates = [
        (grid, order)
        for grid, encoder in enumerate(grids)
        for order in draw_candidates(encoder.precision_, plan, streams[grid])
    ]

    def tell(done: int) -> None:
        progress("candidates", done, len(candidates))

    if batches is not None:
        values = evaluate_candidates(candidates, batches, watch, tell)
    else:
        alone = CpuEngine(n_threads=1)
        values = run_jobs(
            lambda item: _nll_per_row(data(item[0]), item[1], alone),
            candidates,
            n_jobs,
            watch,
            tell,
        )
    if all(value is None for value in values):
        values[0] = 0.0
    nll = np.array([np.inf if value is None else value for value in values])
    by_grid = nll.reshape(len(grids), -1)
    if recipe.own_grids:
        seen = [grid for grid in range(len(grids)) if np.isfinite(by_grid[grid]).any()]
        best = [grid * plan.n_candidates + int(np.argmin(by_grid[grid])) for grid in seen]
        return [candidates[k] for k in best]
    found = np.flatnonzero(np.isfinite(nll))
    picks = boltzmann_pick(-nll[found], recipe.n_members, streams[-1])
    return [candidates[int(found[i])] for i in picks]


def _finish(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    n_jobs: int,
    watch: Stopwatch,
    progress: Callable[[int], None],
) -> list[Result]:
    """Do all jobs, whatever the watch says; Ctrl-C meanwhile is remembered there."""
    last = Stopwatch()
    results = run_jobs(work, items, n_jobs, last, progress)
    if last.interrupted:
        watch.interrupt()
    return [work(item) if r is None else r for item, r in zip(items, results, strict=True)]


def _grid(encoder: BitEncoder, recipe: Recipe, rng: np.random.Generator) -> BitEncoder:
    return encoder.with_shift(rng.random(encoder.n_features_in_)) if recipe.own_grids else encoder


def _nll_per_row(data: Data, order: BitOrder, engine: CpuEngine) -> float:
    trie = build_trie(data.codes, order, engine=engine)
    columns = data.columns()
    return sum(likelihood(trie, order, noise=data.noise, **c).nll for c in columns) / data.n_terms


def _member(encoder: BitEncoder, data: Data, fit: Fit, recipe: Recipe) -> Member:
    trie = build_trie(data.codes, fit.order, engine=CpuEngine(n_threads=1))
    posteriors = tuple(
        condition(trie, data.codes, fit.order, noise=recipe.final_noise, **column)
        for column in data.columns()
    )
    free = with_engine(trie, CpuEngine())
    return Member(encoder, fit, tuple(replace(p, trie=free) for p in posteriors))
