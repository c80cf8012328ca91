"""Training a mixture: the order of each tree on its grid, then the mixture weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from triegp.devices import to_host
from triegp.encoding.grids import encode_grids
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine, Engine, choose, one_blas_thread
from triegp.engines.choice import CARD_ROW_BYTES
from triegp.mixture.calibration import Calibration
from triegp.mixture.cells import cell_rows, condition_cells
from triegp.mixture.learning import learn_in_pool, learn_orders
from triegp.mixture.members import (
    Ensemble,
    Member,
    average_left_out,
    leave_out_held,
    leave_out_members,
)
from triegp.mixture.optimise import (
    MAX_DENSE_BITS,
    TrainedOrder,
)
from triegp.mixture.selection import Learned
from triegp.mixture.settings import MANY_ROWS, Settings
from triegp.mixture.weights import average, soften, stack
from triegp.mixture.whole import Whole
from triegp.models.curve import make_curve
from triegp.models.distribution import component_log_density
from triegp.models.folds import held_rows
from triegp.models.interface import Trained
from triegp.models.jobs import run_jobs
from triegp.models.run import Run
from triegp.tree.posterior import condition_rows, own_rows
from triegp.tree.rows import Rows, check_range, move_rows, refuse_zero_weights
from triegp.tree.trie import build_trie, with_engine

Item = TypeVar("Item")
Result = TypeVar("Result")

Floats = npt.NDArray[np.float64]

POOL_ROWS = 2_000  # with fewer, sending them takes longer than learning from them
SHORT_NOISE, SHORT_TARGET = 1e-20, 1e10  # least noise and largest target of float32 messages
TRIE_BYTES = 44  # of a trie on a device, per row


@one_blas_thread()
def train_ensemble(
    encoders: Sequence[Quantiser],
    rows: Rows,
    settings: Settings,
    run: Run,
    whole: Whole | None = None,
) -> Trained:
    """Train a mixture; the result does not depend on the number of threads.

    On an engine that evaluates many orders at once, candidates are evaluated in batches and all
    members are trained in lockstep. On other engines they run in parallel on threads. The members
    are conditioned where they are trained, and stay in the memory of that engine.

    If the watch stops training, members that had not begun are left out, and the others keep the
    best order evaluated. There is always at least one member. With a time budget, the number of
    candidates and members is planned from the measured time of one evaluation (`plan_ensemble`),
    and the members share the time for training.

    The orders of a mixture that will be calibrated are learned without `held_rows`.

    Parameters
    ----------
    encoders : sequence of Quantiser
        Fitted, without shift; assigned to the grids in turn.
    rows : Rows
        Standardised targets, y (n, k), with their features.
    settings : Settings
        How to train.
    run : Run
        Random numbers, threads, clock, progress, engine.
    whole : Whole, optional
        All rows, if `rows` are only some of them: those that the model holds, for leave-one-out.
        Orders are then learned from `whole.sample`, and members hold cells of all rows.
    """
    check_encoders(encoders, settings)
    refuse_zero_weights(rows)
    check_range(rows)
    learned = rows if whole is None else whole.sample
    seen = slice(learned.n_rows)
    if whole is None and settings.mixture == "calibrated":
        seen = slice(rows.n_rows - held_rows(rows.n_rows).size)
    work = learned.n_rows * rows.n_targets * settings.all_candidates
    room = card_bytes(encoders, settings, learned.n_rows, rows.n_targets)
    engine = choose(run.engine, work, run.n_threads, room)
    streams = run.rng.spawn(settings.n_grids + 1)
    grids = [
        _grid(encoders[k % len(encoders)], settings, streams[k]) for k in range(settings.n_grids)
    ]
    parts_rng = streams[0].spawn(1)[0]  # the same for any number of members
    alone = settings.shift and not engine.batches and not run.watch.limited
    if run.pool is not None and alone and learned.n_rows >= POOL_ROWS:
        learned = learned.select(seen)
        done, stopped, n_useless = learn_in_pool(
            grids, learned, settings, streams, run, run.pool, parts_rng
        )
    else:
        learned = _hold(learned, engine)
        if whole is None:
            rows, learned = learned, learned.select(seen)
        done, stopped, n_useless = learn_orders(
            grids, learned, settings, streams, run, engine, parts_rng
        )
    run.raise_interrupt()
    if whole is None:
        members = _condition(grids, rows, done, settings, run, engine)
    else:
        members = _sum_up(grids, whole, done, settings, run)
    run.raise_interrupt()
    usual = min(settings.n_members, settings.all_candidates) - n_useless
    if len(members) < usual:
        run.leave_out(f"{usual - len(members)} of {usual} members")
    untrained = sum(one.n_iter == 0 for _, one in done)
    if stopped and untrained:
        run.leave_out(f"the training of {untrained} members")
    n_evaluations = sum(one.n_evaluations for _, one in done)
    n_summed = None if whole is None else whole.n_summed
    mixed = weigh(members, rows, settings, n_summed)
    del members  # those without weight
    residuals = mixed.fold_residuals() if settings.mixture == "calibrated" else None
    run.progress("weights", 1, 1)
    run.raise_interrupt()
    lines = [one.trained.line for one in mixed.members if one.trained.line is not None]
    curve = make_curve(lines, [f"member {k}" for k in range(len(lines))])
    return Trained(mixed, stopped, n_evaluations, residuals, curve)


def card_bytes(
    encoders: Sequence[Quantiser], settings: Settings, n_rows: int, n_targets: int
) -> int:
    """Estimate of the GPU memory for training and for the trained members, in bytes.

    Training holds the features and the codes of all grids on the last part of the rows. Members
    keep their tries, keys and messages. Leave-one-out takes 16 bytes per row and member. Members
    are conditioned after the codes are freed.
    """
    extra = encoders[0].n_working if settings.shift else 0  # a shift takes a bit per feature
    bits = [encoder.n_bits_ + extra for encoder in encoders]
    codes = sum(-(-bits[k % len(bits)] // 8) for k in range(settings.n_grids))
    n_members = min(settings.n_members, settings.all_candidates)
    short = settings.short and n_rows > MANY_ROWS
    words = -(-max(bits) // 64)
    member = TRIE_BYTES + 8 * words + n_targets * (40 if short else 72)
    work = CARD_ROW_BYTES + 24 * (n_targets - 1) + 8 * encoders[0].n_working
    return n_rows * (work + max(codes, n_members * (member + 16)))


def message_dtype(rows: Rows, settings: Settings) -> np.dtype[Any]:
    """Storage type of messages: float32 if there are very many rows, all within its range."""
    short = settings.short and rows.n_rows > MANY_ROWS and rows.known_noise is None
    if short and settings.floor(rows.count) >= SHORT_NOISE and np.abs(rows.y).max() < SHORT_TARGET:
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def check_encoders(encoders: Sequence[Quantiser], settings: Settings) -> None:
    """Raise ValueError if there are more bits than the optimiser allows."""
    extra = encoders[0].n_working if settings.shift else 0  # a shift takes a bit per feature
    n_bits = extra + max(encoder.n_bits_ for encoder in encoders)
    if settings.optimizer == "bfgs" and n_bits > MAX_DENSE_BITS:
        raise ValueError(
            f"optimizer 'bfgs' keeps a q x q matrix and allows at most {MAX_DENSE_BITS} "
            f"bits, got {n_bits}: use 'lbfgs' or a lower precision"
        )


def weigh(
    members: Sequence[Member], rows: Rows, settings: Settings, n_summed: int | None = None
) -> Ensemble:
    """Mix the members by the method settings.mixture; members of weight 0 are left out.

    n_summed: number of rows that are in the cells of the members only; None if their leaves are the
    rows.
    """
    held = None if n_summed is None else rows
    nll = np.array([member.trained.nll_per_row for member in members])
    if settings.mixture == "best":
        best = members[int(np.argmin(nll))]
        return Ensemble((best,), (Calibration(np.ones(1)),) * rows.n_targets)
    if settings.mixture == "softmax":
        weight = soften(nll, settings.temperature)
        return Ensemble(tuple(members), (Calibration(weight),) * rows.n_targets)
    found = []
    for target in range(rows.n_targets):
        if held is not None:
            left = leave_out_held(members, target, held)
        elif settings.mixture == "calibrated":
            left = average_left_out(members, target)
        else:
            left = leave_out_members(members, target)
        # Observations at one input are left out together: they count once.
        count = rows.weight if rows.copies is None or rows.pulling else None
        y = rows.target(target).y
        if settings.mixture == "calibrated":
            weight = average(left.mean, left.var, y, count, left.noise)
        else:
            density = component_log_density(left.mean, left.observed_var(), y)
            weight = stack(to_host(density), to_host(count))
        found.append(Calibration(weight))
    used = np.flatnonzero(np.any([part.weight > 0 for part in found], axis=0))
    kept = tuple(replace(part, weight=part.weight[used]) for part in found)
    calibrated = settings.mixture == "calibrated"
    return Ensemble(
        tuple(members[k] for k in used.tolist()), kept, calibrated, calibrated, held, n_summed or 0
    )


def _condition(
    grids: Sequence[Quantiser],
    rows: Rows,
    done: Sequence[Learned],
    settings: Settings,
    run: Run,
    engine: Engine,
) -> list[Member]:
    """Members whose leaves are the rows, in the memory of the engine, without messages."""
    alone = CpuEngine(n_threads=1) if engine.on_host else engine
    targets = tuple(own_rows(rows.target(j)) for j in range(rows.n_targets))  # all members share
    floor = settings.floor(rows.count)
    dtype = message_dtype(rows, settings)
    return _finish(
        lambda item: _member(grids[item[0]], rows.features, targets, item[1], floor, dtype, alone),
        done,
        replace(run, n_threads=run.n_threads if engine.on_host else 1),
        run.tell("posteriors", len(done)),
    )


def _sum_up(
    grids: Sequence[Quantiser],
    whole: Whole,
    done: Sequence[Learned],
    settings: Settings,
    run: Run,
) -> list[Member]:
    """Members whose leaves are cells of all rows."""
    floor = settings.floor(whole.n_rows)
    short = settings.short and whole.n_rows > MANY_ROWS and floor >= SHORT_NOISE
    dtype = np.dtype(np.float32 if short and max(whole.units.target) < SHORT_TARGET else np.float64)
    tell = run.tell("cells", 2)
    tell(0)
    used = [grids[grid] for grid, _ in done]
    found = whole.sum(used, [one.order for _, one in done])
    tell(1)

    def condition(k: int) -> Member:
        cells, trained = found.cells[k], done[k][1]
        sums = (cells, found.squares, whole.units)
        rows = cell_rows(*sums, unit=whole.unit, divided=whole.divided)
        order, posteriors = condition_cells(cells, trained.order, rows, floor, dtype)
        return Member(used[k], replace(trained, order=order), posteriors)

    members = _finish(condition, range(len(done)), run, lambda _: None)
    tell(2)
    return members


def _hold(rows: Rows, engine: Engine) -> Rows:
    """The rows in the engine's memory; features that are not float32 become float64 there."""
    if engine.on_host:
        return replace(rows, X=to_host(rows.features))
    if rows.features.dtype not in (np.float32, np.float64):
        rows = replace(rows, X=rows.features.astype(np.float64))
    return move_rows(rows, engine.hold)


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


def _member(
    encoder: Quantiser,
    data: npt.NDArray[Any],
    targets: Sequence[Rows],
    trained: TrainedOrder,
    noise: float,
    dtype: np.dtype[Any],
    alone: Engine,
) -> Member:
    (codes,) = encode_grids([encoder], data, alone)
    trie = build_trie(codes, trained.order, engine=alone)
    posteriors = tuple(
        condition_rows(trie, codes, trained.order, rows, noise, dtype=dtype) for rows in targets
    )
    free = with_engine(trie, CpuEngine()) if alone.on_host else trie
    return Member(encoder, trained, tuple(replace(p, trie=free) for p in posteriors))


def _grid(encoder: Quantiser, settings: Settings, rng: np.random.Generator) -> Quantiser:
    return encoder.with_shift(rng.random(encoder.n_working)) if settings.shift else encoder
