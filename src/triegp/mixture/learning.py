"""Learning the order of every tree: candidates, then optimisation on growing parts of the rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.engines import CpuEngine, Engine
from triegp.mixture.batches import Batches, Start, train_in_step
from triegp.mixture.candidates import choose_starts, nll_per_row
from triegp.mixture.optimise import Follower, Problem, TrainedOrder, train_order
from triegp.mixture.parts import LEAST_GAIN, Parts, part_sizes
from triegp.mixture.settings import Settings
from triegp.models.jobs import run_jobs
from triegp.models.run import Run
from triegp.tree.rows import Rows

Learned = tuple[int, TrainedOrder]  # index of a grid, and an order on it


def learn_orders(
    grids: Sequence[BitEncoder],
    rows: Rows,
    settings: Settings,
    streams: Sequence[np.random.Generator],
    run: Run,
    engine: Engine,
) -> tuple[list[Learned], bool]:
    """Learn orders, one per member.

    Candidates are evaluated on the first part of the rows, and the chosen ones are trained on it.
    Then each is trained on the next part, four times as large, and so on, as long as the part
    before gained 0.003 of nll per row. So every order has as many rows as it needs, whatever the
    others have.

    Parameters
    ----------
    grids : sequence of BitEncoder
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

    Returns
    -------
    learned : list of (grid, TrainedOrder)
        At least one. Orders that the watch stopped before they began are left out.
    stopped : bool
        Whether the watch stopped training.
    """
    sizes = part_sizes(rows.n_rows) if settings.by_parts else [rows.n_rows]
    parts = Parts(rows, sizes, streams[0].spawn(1)[0])  # the same for any number of members
    reader = CpuEngine(n_threads=run.n_threads) if engine.on_host else engine
    problems = make_problems(grids, range(len(grids)), parts.rows(0), reader)
    batches = Batches(problems, settings.noise, engine) if engine.batches else None
    share = sizes[0] / rows.n_rows
    starts, later = choose_starts(settings, grids, problems, streams, run, batches, share)
    before = replace(run, watch=run.watch.before(later))
    found = _train_orders(starts, problems, settings, before, batches)
    if found[0] is None:  # stopped before any member began: keep the best candidate
        grid, order = starts[0]
        value = nll_per_row(problems[grid], order, settings.noise)
        found[0] = TrainedOrder(order, value, 0, 1, False)
    pairs = zip(starts, found, strict=True)
    learned = [(grid, one) for (grid, _), one in pairs if one is not None]
    waiting: list[int] = []  # members that were to see more rows, and did not
    for part in range(1, len(parts)):
        going = [k for k, (_, one) in enumerate(learned) if one.gain >= LEAST_GAIN]
        if not going or before.watch.stop:
            waiting = going
            break
        starts = [(learned[k][0], learned[k][1].order) for k in going]
        used = sorted({grid for grid, _ in starts})
        del problems, batches
        problems = make_problems(grids, used, parts.rows(part), reader)
        batches = Batches(problems, settings.noise, engine) if engine.batches else None
        for k, more in zip(
            going, _train_orders(starts, problems, settings, before, batches), strict=True
        ):
            if more is None:
                waiting.append(k)
            else:
                grid, one = learned[k]
                learned[k] = grid, _joined(one, more)
        if waiting:
            break
    if waiting:
        run.leave_out(f"larger parts of the rows for {len(waiting)} members")
    ended = run.watch.interrupted or before.watch.stop
    whole = len(learned) == len(found) and all(one.converged for _, one in learned)
    return learned, bool(waiting) or (ended and not whole)


def make_problems(
    grids: Sequence[BitEncoder], used: Sequence[int], rows: Rows, engine: Engine
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
    return replace(
        more,
        n_iter=one.n_iter + more.n_iter,
        n_evaluations=one.n_evaluations + more.n_evaluations,
    )
