"""Learning the order of every tree: candidates, then optimisation on growing parts of the rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from triegp.encoding.grids import encode_grids
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine, Engine, one_blas_thread
from triegp.mixture.batches import Batches, Start, train_in_step
from triegp.mixture.candidates import choose_starts, nll_per_row
from triegp.mixture.optimise import Follower, Problem, TrainedOrder, train_order
from triegp.mixture.parts import LEAST_GAIN, Parts, part_sizes
from triegp.mixture.selection import Learned, select_useful
from triegp.mixture.settings import Settings
from triegp.models.curve import join_lines, make_line
from triegp.models.jobs import Pool, Stopwatch, run_jobs
from triegp.models.run import Run
from triegp.tree.rows import Rows


def learn_orders(
    grids: Sequence[Quantiser],
    rows: Rows,
    settings: Settings,
    streams: Sequence[np.random.Generator],
    run: Run,
    engine: Engine,
    parts_rng: np.random.Generator,
) -> tuple[list[Learned], bool, int]:
    """Learn orders, one per member.

    Candidates are evaluated on the first part of the rows, and the chosen ones are trained on it.
    Those that get no weight in the average over it are left out (`select_useful`). Then each is
    trained on the next part, four times as large, and so on, as long as the part
    before gained 0.003 of nll per row. So every order has as many rows as it needs, whatever the
    others have.

    Parameters
    ----------
    grids : sequence of Quantiser
        The grids, with their shifts.
    rows : Rows
        All rows, with their features.
    settings : Settings
        How to train.
    streams : sequence of Generator
        One per grid, and one for all.
    run : Run
        Threads, clock, progress.
    engine : Engine
        Where likelihoods are evaluated.
    parts_rng : Generator
        Draws the parts of the rows.

    Returns
    -------
    learned : list of (grid, TrainedOrder)
        At least one. Orders that the watch stopped before they began are left out.
    stopped : bool
        Whether the watch stopped training.
    n_useless : int
        Number of orders that were left out because they got no weight.
    """
    parts = _draw_parts(rows, settings, parts_rng)
    reader = CpuEngine(n_threads=run.n_threads) if engine.on_host else engine
    problems = make_problems(grids, range(len(grids)), parts.rows(0), reader)
    batches = Batches(problems, settings.noise, engine) if engine.batches else None
    share = parts.sizes[0] / rows.n_rows
    starts, later = choose_starts(settings, grids, problems, streams, run, batches, share)
    before = replace(run, watch=run.watch.before(later))
    found = _train_orders(starts, problems, settings, before, batches)
    if found[0] is None:  # stopped before any member began: keep the best candidate
        grid, order = starts[0]
        value = nll_per_row(problems[grid], order, settings.noise)
        found[0] = TrainedOrder(order, value, 0, 1, False, line=make_line([(0, value)]))
    pairs = zip(starts, found, strict=True)
    learned = [(grid, one) for (grid, _), one in pairs if one is not None]
    n_begun, whole = len(learned), len(learned) == len(found)
    if len(parts) > 1 and not before.watch.stop:
        learned = select_useful(learned, grids, problems, settings, reader)
    del problems, batches
    learned, waiting = _learn_more(learned, grids, parts, settings, before, engine)
    if waiting:
        run.leave_out(f"larger parts of the rows for {len(waiting)} members")
    ended = run.watch.interrupted or before.watch.stop
    whole = whole and all(one.converged for _, one in learned)
    return learned, bool(waiting) or (ended and not whole), n_begun - len(learned)


class Lesson(NamedTuple):
    """What a worker needs to train the order of any one of the trees on a part of the rows.

    Several jobs may share the record, so they copy its generators before they use them.
    """

    grids: Sequence[Quantiser]
    rows: Rows
    settings: Settings
    streams: Sequence[np.random.Generator]


def learn_in_pool(
    grids: Sequence[Quantiser],
    rows: Rows,
    settings: Settings,
    streams: Sequence[np.random.Generator],
    run: Run,
    pool: Pool,
    parts_rng: np.random.Generator,
) -> tuple[list[Learned], bool, int]:
    """`learn_orders` by the workers of a pool, one order per job; the same bits.

    Every grid has its own candidates and stream. Only the choice of useful orders compares them.
    Workers are sent one part of the rows after the other, as long as an order needs the next one.
    Arguments and results are those of `learn_orders`.
    """
    parts = _draw_parts(rows, settings, parts_rng)
    turns, first = range(len(grids)), parts.rows(0)
    lesson = Lesson(grids, first, settings, streams)
    found = pool.run(learn_first, lesson, turns, _tell_part(run, first, turns))
    learned = list(zip(turns, found, strict=True))
    n_begun = len(learned)
    if len(parts) > 1:
        engine = CpuEngine(n_threads=run.n_threads)
        problems = make_problems(grids, turns, first, engine)
        learned = select_useful(learned, grids, problems, settings, engine)
        del problems
    for part in range(1, len(parts)):
        going = [k for k, (_, one) in enumerate(learned) if one.gain >= LEAST_GAIN]
        if not going:
            break
        some = parts.rows(part)
        items = [learned[k] for k in going]
        lesson = Lesson(grids, some, settings, ())
        for k, more in zip(
            going, pool.run(learn_next, lesson, items, _tell_part(run, some, items)), strict=True
        ):
            learned[k] = learned[k][0], more
    return learned, False, n_begun - len(learned)


def learn_first(lesson: Lesson, grid: int) -> TrainedOrder:
    """The best candidate of one grid, trained on the rows of the lesson, on one thread."""
    settings, grids = replace(lesson.settings, n_members=1), [lesson.grids[grid]]
    run, streams = _alone(), deepcopy([lesson.streams[grid], lesson.streams[-1]])
    with one_blas_thread():
        problems = make_problems(grids, [0], lesson.rows, CpuEngine(n_threads=1))
        starts, _ = choose_starts(settings, grids, problems, streams, run, None, 1.0)
        (found,) = _train_orders(starts, problems, settings, run, None)
    assert found is not None
    return found


def learn_next(lesson: Lesson, item: Learned) -> TrainedOrder:
    """One order trained further on the rows of the lesson, on one thread."""
    grid, one = item
    with one_blas_thread():
        problems = make_problems([lesson.grids[grid]], [0], lesson.rows, CpuEngine(n_threads=1))
        (more,) = _train_orders([(0, one.order)], problems, lesson.settings, _alone(), None)
    assert more is not None
    return _joined(one, more)


def _tell_part(run: Run, rows: Rows, items: Sequence[Any]) -> Callable[[int], None]:
    return run.tell(f"fits on {rows.n_rows:,} rows", len(items))


def _alone() -> Run:
    """A run on one thread without limits; what it learns from draws its own random numbers."""
    return Run(np.random.default_rng(0), 1, Stopwatch())


def _draw_parts(rows: Rows, settings: Settings, rng: np.random.Generator) -> Parts:
    sizes = part_sizes(rows.n_rows) if settings.by_parts else [rows.n_rows]
    return Parts(rows, sizes, rng)


def _learn_more(
    learned: list[Learned],
    grids: Sequence[Quantiser],
    parts: Parts,
    settings: Settings,
    run: Run,
    engine: Engine,
) -> tuple[list[Learned], list[int]]:
    """Train each order on the next parts, as long as the part before gained enough.

    Also returns the places of orders that were to see more rows, and did not.
    """
    for part in range(1, len(parts)):
        going = [k for k, (_, one) in enumerate(learned) if one.gain >= LEAST_GAIN]
        if not going or run.watch.stop:
            return learned, going
        starts = [(learned[k][0], learned[k][1].order) for k in going]
        used = sorted({grid for grid, _ in starts})
        reader = CpuEngine(n_threads=run.n_threads) if engine.on_host else engine
        problems = make_problems(grids, used, parts.rows(part), reader)
        batches = Batches(problems, settings.noise, engine) if engine.batches else None
        found = _train_orders(starts, problems, settings, run, batches)
        del problems, batches
        waiting = [k for k, more in zip(going, found, strict=True) if more is None]
        for k, more in zip(going, found, strict=True):
            if more is not None:
                grid, one = learned[k]
                learned[k] = grid, _joined(one, more)
        if waiting:
            return learned, waiting
    return learned, []


def make_problems(
    grids: Sequence[Quantiser], used: Sequence[int], rows: Rows, engine: Engine
) -> dict[int, Problem]:
    """Training data on some of the grids, in the engine's memory; all targets share the codes."""
    targets = tuple(replace(rows.target(j), X=None).for_training() for j in range(rows.n_targets))
    codes = encode_grids([grids[grid] for grid in used], rows.features, engine)
    return {grid: Problem(own, targets) for grid, own in zip(used, codes, strict=True)}


def turn_seconds(left: float, n_threads: int, n_waiting: int) -> float:
    """Seconds for the next of the members that wait, if they share the time that is left."""
    return left * min(1.0, n_threads / n_waiting)


def _train_orders(
    starts: Sequence[Start],
    problems: Mapping[int, Problem],
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

    n_rows = problems[starts[0][0]].codes.n_rows
    tell = run.tell(f"fits on {n_rows:,} rows", len(starts))

    with warnings.catch_warnings():
        # An optimiser whose line search ends at rounding error has converged.
        warnings.filterwarnings("ignore", r".*line search", RuntimeWarning)
        if batches is not None:
            return train_in_step(starts, batches, settings, run.watch, tell)
        return run_jobs(train, range(len(starts)), run.n_threads, run.watch, tell)


def _joined(one: TrainedOrder, more: TrainedOrder) -> TrainedOrder:
    """What more rows made of an order; steps and evaluations are those of both."""
    assert one.n_iter is not None
    assert more.n_iter is not None
    assert one.line is not None
    assert more.line is not None
    return replace(
        more,
        n_iter=one.n_iter + more.n_iter,
        n_evaluations=one.n_evaluations + more.n_evaluations,
        line=join_lines(one.line, more.line, one.n_iter),
    )
