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
from triegp.models.jobs import Stopwatch, run_jobs
from triegp.models.run import Run
from triegp.tree.likelihood import rows_likelihood
from triegp.tree.order import BitOrder
from triegp.tree.posterior import condition_rows
from triegp.tree.rows import Rows, check_range, refuse_zero_weights
from triegp.tree.trie import build_trie, with_engine

Item = TypeVar("Item")
Result = TypeVar("Result")

Floats = npt.NDArray[np.float64]


@one_blas_thread()
def train_ensemble(
    encoders: Sequence[BitEncoder], rows: Rows, settings: Settings, run: Run
) -> Trained:
    """Train a mixture; the result does not depend on the number of threads.

    On an engine that evaluates many orders at once, candidates are evaluated in batches and all
    members are trained in lockstep. On other engines they run in parallel on threads. Members are
    always conditioned on the CPU, since a fitted model lies in the host's memory.

    If the watch stops training, members that had not begun are left out, and the others keep the
    best order evaluated. There is always at least one member.

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
    starts = _choose_starts(settings, grids, problems, streams, run, batches)
    found = _train_orders(starts, problems, settings, run, batches)
    run.raise_interrupt()
    stopped = run.watch.stop and any(one is None or not one.converged for one in found)
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
        lambda count: run.progress("posteriors", count, len(done)),
    )
    run.raise_interrupt()
    n_evaluations = sum(one.n_evaluations for _, one in done)
    mixed = weigh(tuple(members), rows, settings)
    residuals = None
    if settings.mixture == "calibrated":
        residuals = tuple(mixed.residuals(target) for target in range(rows.n_targets))
    return Trained(mixed, stopped, n_evaluations, residuals)


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
        y, var = members[0].posteriors[target].rows.y, left.var + left.noise
        if settings.mixture == "calibrated":
            weight = average(left.mean, var, y, rows.weight)
        else:
            weight = stack(component_log_density(left.mean, var, y), rows.weight)
        found.append(Calibration(weight))
    used = np.flatnonzero(np.any([part.weight > 0 for part in found], axis=0))
    kept = tuple(replace(part, weight=part.weight[used]) for part in found)
    return Ensemble(tuple(members[k] for k in used), kept, settings.mixture == "calibrated")


def _train_orders(
    starts: Sequence[Start],
    problems: Sequence[Problem],
    settings: Settings,
    run: Run,
    batches: Batches | None,
) -> list[TrainedOrder | None]:
    alone = CpuEngine(n_threads=max(1, run.n_threads // len(starts)))

    def train(start: Start) -> TrainedOrder:
        problem = problems[start[0]]
        follow = Follower(problem, settings.noise, alone)
        return train_order(start[1], problem.n_terms, settings, run.watch, follow)

    def tell(done: int) -> None:
        run.progress("fits", done, len(starts))

    with warnings.catch_warnings():
        # An optimiser whose line search ends at rounding error has converged.
        warnings.filterwarnings("ignore", r".*line search", RuntimeWarning)
        if batches is not None:
            return train_in_step(starts, batches, settings, run.watch, tell)
        return run_jobs(train, starts, run.n_threads, run.watch, tell)


def _choose_starts(
    settings: Settings,
    grids: Sequence[BitEncoder],
    problems: Sequence[Problem],
    streams: Sequence[np.random.Generator],
    run: Run,
    batches: Batches | None,
) -> list[Start]:
    """Evaluate the candidates of every grid, and choose the orders to train."""
    candidates = [
        (grid, order)
        for grid, encoder in enumerate(grids)
        for order in draw_candidates(encoder.precision_, settings, streams[grid])
    ]

    def evaluate(candidate: Start) -> float:
        grid, order = candidate
        return _nll_per_row(problems[grid], order, settings.noise)

    def tell(done: int) -> None:
        run.progress("candidates", done, len(candidates))

    values: list[float | None]
    if batches is not None:
        values = evaluate_candidates(candidates, batches, run.watch, tell)
    else:
        values = run_jobs(evaluate, candidates, run.n_threads, run.watch, tell)
    if all(value is None for value in values):
        values[0] = 0.0
    nll = np.array([np.inf if value is None else value for value in values])
    if settings.shift:
        by_grid = nll.reshape(len(grids), -1)
        seen = [grid for grid in range(len(grids)) if np.isfinite(by_grid[grid]).any()]
        best = [grid * settings.n_candidates + int(np.argmin(by_grid[grid])) for grid in seen]
        return [candidates[k] for k in best]
    found = np.flatnonzero(np.isfinite(nll))
    picks = boltzmann_pick(-nll[found], settings.n_members, streams[-1])
    return [candidates[int(found[i])] for i in picks]


def _finish(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    run: Run,
    progress: Callable[[int], None],
) -> list[Result]:
    """Run all jobs to the end, even if the watch has stopped; Ctrl-C sets `watch.interrupted`."""
    last = Stopwatch()
    results = run_jobs(work, items, run.n_threads, last, progress)
    if last.interrupted:
        run.watch.interrupt()
    return [work(item) if r is None else r for item, r in zip(items, results, strict=True)]


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
