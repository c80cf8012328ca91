"""Training a mixture: the order of each tree on its grid, then the mixture weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.engines import CpuEngine, choose, one_blas_thread
from triegp.engines.choice import CARD_ROW_BYTES
from triegp.mixture.batches import Batches, Start, evaluate_candidates, train_in_step
from triegp.mixture.calibration import Calibration
from triegp.mixture.members import Ensemble, Member, leave_out_members
from triegp.mixture.optimise import (
    MAX_DENSE_BITS,
    Follower,
    Problem,
    TrainedOrder,
    boltzmann_pick,
    draw_candidates,
    train_order,
)
from triegp.mixture.settings import Settings
from triegp.mixture.weights import average, soften, stack
from triegp.models.distribution import component_log_density
from triegp.models.interface import Trained
from triegp.models.jobs import run_jobs
from triegp.models.run import Run
from triegp.tree.likelihood import rows_likelihood
from triegp.tree.order import BitOrder
from triegp.tree.posterior import condition_rows
from triegp.tree.rows import Rows, check_range, refuse_zero_weights
from triegp.tree.trie import build_trie, with_engine

Item = TypeVar("Item")
Result = TypeVar("Result")

Floats = npt.NDArray[np.float64]

# Planning for a time budget. Times are in evaluations of one candidate.
CANDIDATE_SHARE = 1 / 3  # largest share of the time for candidates
LEAST_EVALUATIONS = 20  # with gradient, that every member can have
GRADIENT_EVALUATIONS = 1.5  # time of one of them
FINISH_EVALUATIONS = 5.0  # time of a member's posterior
WEIGH_EVALUATIONS = 1.5  # time of a member's leave-one-out, not in parallel
WEIGH_SECONDS = 0.3  # time of the mixture weights


@one_blas_thread()
def train_ensemble(
    encoders: Sequence[BitEncoder], rows: Rows, settings: Settings, run: Run
) -> Trained:
    """Train a mixture; the result does not depend on the number of threads.

    On an engine that evaluates many orders at once, candidates are evaluated in batches and all
    members are trained in lockstep. On other engines they run in parallel on threads. Members are
    always conditioned on the CPU, since a fitted model lies in the host's memory.

    If the watch stops training, members that had not begun are left out, and the others keep the
    best order evaluated. There is always at least one member. With a time budget, the number of
    candidates and members is planned from the measured time of one evaluation (`plan_ensemble`),
    and the members share the time for training.

    Parameters
    ----------
    encoders : sequence of BitEncoder
        Fitted, without shift; assigned to the grids in turn.
    rows : Rows
        Standardised targets, y (n, k), with their features.
    settings : Settings
        How to train.
    run : Run
        Random numbers, threads, clock, progress, engine.
    """
    check_encoders(encoders, settings)
    refuse_zero_weights(rows)
    check_range(rows)
    work = rows.n_rows * rows.n_targets * settings.all_candidates
    room = card_bytes(encoders, settings, rows.n_rows, rows.n_targets)
    engine = choose(run.engine, work, run.n_threads, room)
    streams = run.rng.spawn(settings.n_grids + 1)
    grids = [
        _grid(encoders[k % len(encoders)], settings, streams[k]) for k in range(settings.n_grids)
    ]
    targets = tuple(replace(rows.target(j), X=None) for j in range(rows.n_targets))
    codes = encode_grids(grids, rows.features, CpuEngine(n_threads=run.n_threads))
    problems = [Problem(own, tuple(part.for_training() for part in targets)) for own in codes]
    batches = Batches(problems, settings.noise, engine) if engine.batches else None
    starts, later = _choose_starts(settings, grids, problems, streams, run, batches)
    before = replace(run, watch=run.watch.before(later))
    found = _train_orders(starts, problems, settings, before, batches)
    run.raise_interrupt()
    ended = run.watch.interrupted or before.watch.stop
    stopped = ended and any(one is None or not one.converged for one in found)
    if found[0] is None:  # stopped before any member began: keep the best candidate
        grid, order = starts[0]
        value = _nll_per_row(problems[grid], order, settings.noise)
        found[0] = TrainedOrder(order, value, 0, 1, False)
    done = [(grid, one) for (grid, _), one in zip(starts, found, strict=True) if one is not None]
    floor = settings.floor(rows.count)
    members = _finish(
        lambda item: _member(grids[item[0]], codes[item[0]], targets, item[1], floor),
        done,
        run,
        run.tell("posteriors", len(done)),
    )
    run.raise_interrupt()
    usual = min(settings.n_members, settings.all_candidates)
    if len(members) < usual:
        run.leave_out(f"{usual - len(members)} of {usual} members")
    untrained = sum(one.n_iter == 0 for _, one in done)
    if stopped and untrained:
        run.leave_out(f"the training of {untrained} members")
    n_evaluations = sum(one.n_evaluations for _, one in done)
    mixed = weigh(tuple(members), rows, settings)
    residuals = None
    if settings.mixture == "calibrated":
        residuals = tuple(mixed.residuals(target) for target in range(rows.n_targets))
    run.progress("weights", 1, 1)
    run.raise_interrupt()
    return Trained(mixed, stopped, n_evaluations, residuals)


def plan_ensemble(
    left: float, seconds: float, n_threads: int, settings: Settings
) -> tuple[int, int, float]:
    """What fits into a time budget: candidates per grid, members, and seconds after training.

    left: seconds left. seconds: time of one evaluation of a candidate on one thread. Candidates
    take at most a third of the time, and there are only as many members as can be trained for 20
    evaluations each. There is at least one of both.
    """
    seconds = max(seconds, 1e-9)
    each = seconds * (FINISH_EVALUATIONS / n_threads + WEIGH_EVALUATIONS)
    trained = seconds * LEAST_EVALUATIONS * GRADIENT_EVALUATIONS / n_threads
    shortest = seconds / n_threads if settings.shift else 0.0  # one candidate per grid
    members = (left - WEIGH_SECONDS) / (each + trained + shortest)
    n_members = int(np.clip(members, 1, settings.n_members))
    n_grids = n_members if settings.shift else 1
    most = left * CANDIDATE_SHARE * n_threads / (seconds * n_grids)
    per_grid = int(np.clip(most, 1, settings.n_candidates))
    return per_grid, n_members, min(n_members * each + WEIGH_SECONDS, left / 2)


def turn_seconds(left: float, n_threads: int, n_waiting: int) -> float:
    """Seconds for the next of the members that wait, if they share the time that is left."""
    return left * min(1.0, n_threads / n_waiting)


def card_bytes(
    encoders: Sequence[BitEncoder], settings: Settings, n_rows: int, n_targets: int
) -> int:
    """Estimate of the GPU memory for training, in bytes; it holds the codes of all grids."""
    extra = encoders[0].n_features_in_ if settings.shift else 0  # a shift takes a bit per feature
    widths = [-(-(encoder.n_bits_ + extra) // 8) for encoder in encoders]
    codes = sum(widths[k % len(widths)] for k in range(settings.n_grids))
    return n_rows * (codes + CARD_ROW_BYTES + 24 * (n_targets - 1))


def check_encoders(encoders: Sequence[BitEncoder], settings: Settings) -> None:
    """Raise ValueError if there are more bits than the optimiser allows."""
    extra = encoders[0].n_features_in_ if settings.shift else 0  # a shift takes a bit per feature
    n_bits = extra + max(encoder.n_bits_ for encoder in encoders)
    if settings.optimizer == "bfgs" and n_bits > MAX_DENSE_BITS:
        raise ValueError(
            f"optimizer 'bfgs' keeps a q x q matrix and allows at most {MAX_DENSE_BITS} "
            f"bits, got {n_bits}: use 'lbfgs' or a lower precision"
        )


def weigh(members: tuple[Member, ...], rows: Rows, settings: Settings) -> Ensemble:
    """Mix the members by the method settings.mixture; members of weight 0 are left out."""
    nll = np.array([member.trained.nll_per_row for member in members])
    if settings.mixture == "best":
        best = members[int(np.argmin(nll))]
        return Ensemble((best,), (Calibration(np.ones(1)),) * rows.n_targets)
    if settings.mixture == "softmax":
        weight = soften(nll, settings.temperature)
        return Ensemble(members, (Calibration(weight),) * rows.n_targets)
    found = []
    for target in range(rows.n_targets):
        left = leave_out_members(members, target)
        # Observations at one input are left out together: they count once.
        count = rows.weight if rows.copies is None or rows.pulling else None
        y, var = members[0].posteriors[target].rows.y, left.var + left.noise
        if settings.mixture == "calibrated":
            weight = average(left.mean, var, y, count)
        else:
            weight = stack(component_log_density(left.mean, var, y), count)
        found.append(Calibration(weight))
    used = np.flatnonzero(np.any([part.weight > 0 for part in found], axis=0))
    kept = tuple(replace(part, weight=part.weight[used]) for part in found)
    calibrated = settings.mixture == "calibrated"
    return Ensemble(tuple(members[k] for k in used), kept, calibrated, calibrated)


def _train_orders(
    starts: Sequence[Start],
    problems: Sequence[Problem],
    settings: Settings,
    run: Run,
    batches: Batches | None,
) -> list[TrainedOrder | None]:
    alone = CpuEngine(n_threads=max(1, run.n_threads // len(starts)))

    def train(turn: int) -> TrainedOrder:
        grid, order = starts[turn]
        problem = problems[grid]
        follow = Follower(problem, settings.noise, alone)
        seconds = turn_seconds(run.watch.left(), run.n_threads, len(starts) - turn)
        watch = run.watch.within(seconds) if run.watch.limited else run.watch
        return train_order(order, problem.n_terms, settings, watch, follow)

    tell = run.tell("fits", len(starts))

    with warnings.catch_warnings():
        # An optimiser whose line search ends at rounding error has converged.
        warnings.filterwarnings("ignore", r".*line search", RuntimeWarning)
        if batches is not None:
            return train_in_step(starts, batches, settings, run.watch, tell)
        return run_jobs(train, range(len(starts)), run.n_threads, run.watch, tell)


def _choose_starts(
    settings: Settings,
    grids: Sequence[BitEncoder],
    problems: Sequence[Problem],
    streams: Sequence[np.random.Generator],
    run: Run,
    batches: Batches | None,
) -> tuple[list[Start], float]:
    """Evaluate the candidates of every grid, and choose the orders to train.

    Also returns the seconds to reserve for what follows training; 0 without a time budget.
    """
    candidates = [
        (grid, order)
        for grid, encoder in enumerate(grids)
        for order in draw_candidates(encoder.precision_, settings, streams[grid])
    ]

    def evaluate(candidate: Start) -> float:
        grid, order = candidate
        return _nll_per_row(problems[grid], order, settings.noise)

    per_grid, n_members, later = settings.n_candidates, settings.n_members, 0.0
    if run.watch.limited:
        at_once = run.n_threads if batches is None else 1
        measured = []
        for _ in range(3):  # the first ones may find cold caches
            began = run.watch.elapsed()
            if batches is None:
                evaluate(candidates[0])
            else:
                batches.evaluate(candidates[:1], gradient=False)
            measured.append(run.watch.elapsed() - began)
            if run.watch.left() < 10 * measured[-1]:
                break
        seconds = min(measured)
        per_grid, n_members, later = plan_ensemble(run.watch.left(), seconds, at_once, settings)
    n_seen = n_members if settings.shift else 1
    asked = [k for k in range(len(candidates)) if k % settings.n_candidates < per_grid]
    asked = [k for k in asked if k // settings.n_candidates < n_seen]
    some = [candidates[k] for k in asked]
    if len(some) < len(candidates):
        run.leave_out(f"{len(candidates) - len(some)} of {len(candidates)} candidates")
    tell = run.tell("candidates", len(some))
    found_values: list[float | None]
    if batches is not None:
        found_values = evaluate_candidates(some, batches, run.watch, tell)
    else:
        found_values = run_jobs(evaluate, some, run.n_threads, run.watch, tell)
    values: list[float | None] = [None] * len(candidates)
    for k, value in zip(asked, found_values, strict=True):
        values[k] = value
    if all(value is None for value in values):
        values[0] = 0.0
    nll = np.array([np.inf if value is None else value for value in values])
    if settings.shift:
        by_grid = nll.reshape(len(grids), -1)
        seen = [grid for grid in range(len(grids)) if np.isfinite(by_grid[grid]).any()]
        best = [grid * settings.n_candidates + int(np.argmin(by_grid[grid])) for grid in seen]
        return [candidates[k] for k in best], later
    found = np.flatnonzero(np.isfinite(nll))
    picks = boltzmann_pick(-nll[found], n_members, streams[-1])
    return [candidates[int(found[i])] for i in picks], later


def _finish(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    run: Run,
    progress: Callable[[int], None],
) -> list[Result]:
    """Run all jobs that `run.last_watch` allows, at least the first; results of those that ran."""
    results = run_jobs(work, items, run.n_threads, run.last_watch, progress)
    run.raise_interrupt()
    return [r for r in results if r is not None] or [work(items[0])]


def _grid(encoder: BitEncoder, settings: Settings, rng: np.random.Generator) -> BitEncoder:
    return encoder.with_shift(rng.random(encoder.n_features_in_)) if settings.shift else encoder


def _nll_per_row(problem: Problem, order: BitOrder, noise: float) -> float:
    """Nll of a candidate, divided by the number of observations; targets share one trie."""
    codes, targets = problem
    trie = build_trie(codes, order, engine=CpuEngine(n_threads=1))
    nll = sum(rows_likelihood(trie, order, rows, noise).nll for rows in targets)
    return nll / problem.n_terms


def _member(
    encoder: BitEncoder,
    codes: Codes,
    targets: Sequence[Rows],
    trained: TrainedOrder,
    noise: float,
) -> Member:
    trie = build_trie(codes, trained.order, engine=CpuEngine(n_threads=1))
    posteriors = tuple(condition_rows(trie, codes, trained.order, rows, noise) for rows in targets)
    free = with_engine(trie, CpuEngine())
    return Member(encoder, trained, tuple(replace(p, trie=free) for p in posteriors))
