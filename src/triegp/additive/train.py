"""Training a forest: initial parameters, training on some rows, conditioning on all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from triegp.additive.budget import (
    FEW_STEPS,
    STAGE_UNITS,
    STEP_UNITS,
    Plan,
    fitting_rank,
    measure_unit,
    plan_forest,
    stage_seconds,
    start_rows,
    tail_rows,
)
from triegp.additive.conditioning import (
    Limits,
    check_extremes,
    condition_forest,
    move_model,
    residuals_of,
)
from triegp.additive.fitted import FittedForest
from triegp.additive.model import TOLERANCE, ForestModel, rank_for
from triegp.additive.preconditioner import BLOCK_ROWS
from triegp.additive.settings import Settings
from triegp.additive.start import (
    EncodedRows,
    Parameters,
    draw_grids,
    start_even,
    start_random,
)
from triegp.additive.walk import Stage, train_stage
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.engines import CpuEngine, Engine, choose, one_blas_thread
from triegp.engines.choice import CARD_ROW_BYTES
from triegp.mixture.members import Ensemble
from triegp.mixture.settings import Settings as MixtureSettings
from triegp.mixture.settings import settings_of
from triegp.mixture.train import card_bytes, train_ensemble
from triegp.models.interface import Residuals, Trained
from triegp.models.run import Progress, Run
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows, check_range, refuse_zero_weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

START_NOISE = 0.1  # relative to the variance of y, before the scale is found
HELD_ROWS = 2_000  # at most; held out of training, tails are learned from them
MANY_ROWS = 60_000  # from this many rows, tails are learned from a forest of fewer rows
SOME_ROWS = 20_000  # rows of that smaller forest
FEW_ROWS = 1_000  # below, no rows are held out: tails are learned from all rows
CARD_TREE_BYTES = 48  # GPU memory per row and tree, codes not included
SOLVED_COLUMNS = 16  # right-hand sides solved at once, for the estimate of the work
TAIL_SECONDS = 2.0  # for tails after Ctrl-C
NO_CALIBRATION = "the calibration (predictions are Gaussian)"
INIT_MEMBERS = 16  # single trees trained for init="trained"


def train_forest(
    encoders: Sequence[BitEncoder], rows: Rows, settings: Settings, run: Run
) -> Trained:
    """Train a forest for one target and condition it on all rows.

    Parameters
    ----------
    encoders : sequence of BitEncoder
        Fitted, without shift; assigned to the trees in turn.
    rows : Rows
        Standardised targets, y (n, 1), with their features.
    settings : Settings
        How to train.
    run : Run
        Random numbers, threads, clock, progress, engine.

    Notes
    -----
    Each product is O(n T). Products are needed for the training stages, for one solve on all rows
    and for the diagonal of leave-one-out. The fitted forest lies in the host's memory.
    """
    rows = rows.target(0)
    refuse_zero_weights(rows)
    check_range(rows)
    check_extremes(rows)
    work = rows.n_rows * settings.n_trees * SOLVED_COLUMNS
    room = forest_card_bytes(encoders, settings.n_trees, rows.n_rows)
    single: MixtureSettings = settings_of("default", {"n_members": INIT_MEMBERS})
    if settings.init == "trained":
        room = max(room, card_bytes(encoders, single, rows.n_rows, 1))
    engine = choose(run.engine, work, run.n_threads, room)
    trained: list[tuple[BitEncoder, BitOrder]] = []
    with one_blas_thread():
        if settings.init == "trained":
            alone = replace(rows, y=rows.y[:, None])
            found = train_ensemble(encoders, alone, single, _initial_run(run, engine)).fitted
            trained = [(one.encoder, one.order) for one in cast(Ensemble, found).members]
        return _train(encoders, rows, settings, run, engine, trained)


def forest_card_bytes(encoders: Sequence[BitEncoder], n_trees: int, n_rows: int) -> int:
    """Estimate of the GPU memory for training, in bytes: the trees, and making a preconditioner."""
    shifted = [-(-(encoder.n_bits_ + encoder.n_features_in_) // 8) for encoder in encoders]
    trees = sum(shifted[t % len(shifted)] + CARD_TREE_BYTES for t in range(n_trees))
    return n_rows * (trees + CARD_ROW_BYTES + 2 * 8 * (rank_for(n_rows) + BLOCK_ROWS))


def _train(
    encoders: Sequence[BitEncoder],
    rows: Rows,
    settings: Settings,
    run: Run,
    engine: Engine,
    trained: Sequence[tuple[BitEncoder, BitOrder]],
) -> Trained:
    host = CpuEngine(n_threads=run.n_threads)
    present = np.ones(rows.n_rows, bool) if rows.weight is None else rows.weight > 0
    rows = rows.select(np.flatnonzero(present))
    grids, parameters = _start(encoders, settings, run.rng, trained)
    data = EncodedRows(grids, encode_grids(grids, rows.features, host), rows)
    mixed = run.rng.permutation(rows.n_rows)
    n_held = min(HELD_ROWS, rows.n_rows // 5) if rows.n_rows >= FEW_ROWS else 0
    seen = mixed[: mixed.size - n_held]
    learned = replace(data, rows=rows.for_training())
    unit, plan = 0.0, Plan(0.0, 0.0, settings.train_rows)
    if run.watch.limited:
        unit = measure_unit(data, parameters, engine, run.watch)
        given = (rows.n_rows, settings.train_rows, settings.calibrated)
        plan = plan_forest(run.watch.left(), unit, *given)
    before = replace(run, watch=run.watch.before(plan.solve + plan.tails))
    stages, stopped = _run_stages(learned, parameters, seen, settings, before, engine, plan, unit)
    parameters = stages[-1].parameters if stages else parameters
    run.raise_interrupt()
    seed = int(run.rng.integers(2**31))
    solver = None if engine.on_host else engine
    limits = _limits(run, rows.n_rows, unit, plan.tails)
    model = condition_forest(data, parameters, settings, seed, host, solver, limits)
    model = replace(model, present=present)
    if limits.watch.stop and model.residual > TOLERANCE:
        run.leave_out(f"the last solve (relative residual {model.residual:.1g}, not {TOLERANCE:g})")
    run.raise_interrupt()
    residuals = None
    if settings.calibrated:
        try:
            model, residuals = _leave_out(
                model, data, parameters, mixed, n_held, settings, solver, run, unit
            )
        except KeyboardInterrupt:
            if not run.keep:
                raise
            run.watch.interrupt()
            run.leave_out(NO_CALIBRATION)
    run.progress("fits", 1, 1)
    n_steps = sum(stage.n_steps for stage in stages)
    diverged = any(stage.diverged for stage in stages)
    looks = tuple(look for stage in stages for look in stage.nll_per_row)
    fitted = FittedForest(model, looks, n_steps, diverged)
    return Trained(fitted, stopped, n_steps, None if residuals is None else (residuals,))


def _initial_run(run: Run, engine: Engine) -> Run:
    """For the single trees of init="trained": at most a third of the time."""
    watch = run.watch.within(run.watch.left() / 3) if run.watch.limited else run.watch

    def tell(stage: str, done: int, total: int) -> None:
        run.progress(f"initial {stage}", done, total)

    device = "cpu" if engine.on_host else "cuda"
    return replace(run, watch=watch, progress=tell, engine=device, left_out=[])


def _limits(run: Run, n_rows: int, unit: float, later: float) -> Limits:
    """Limits of the solve on all rows, which leaves `later` seconds for the tails."""

    def tell(name: str, share: float) -> None:
        run.progress(name, int(100 * share), 100)

    watch, left = run.last_watch, run.watch.left() - later
    if not watch.limited:
        return Limits(watch, tell=tell)
    if later and left > 0:
        watch = watch.within(left)
    rank = fitting_rank(left, n_rows, unit)
    return Limits(watch, rank, 0 if rank else start_rows(left, n_rows, unit), tell)


def _start(
    encoders: Sequence[BitEncoder],
    settings: Settings,
    rng: np.random.Generator,
    trained: Sequence[tuple[BitEncoder, BitOrder]],
) -> tuple[tuple[BitEncoder, ...], Parameters]:
    """Draw the grids and the initial parameters."""
    grids = draw_grids(encoders, settings.n_trees, rng)
    if settings.init == "trained":
        grids, phi = _from_trained(encoders, grids, trained)
    elif settings.init == "random":
        phi = tuple(start_random(grid, rng) for grid in grids)
    else:
        phi = tuple(start_even(grid, settings.slope, rng) for grid in grids)
    even = np.full(settings.n_trees, -np.log(settings.n_trees))
    return grids, Parameters(phi, even, float(np.log(START_NOISE)))


def _run_stages(
    data: EncodedRows,
    parameters: Parameters,
    seen: Ints,
    settings: Settings,
    run: Run,
    engine: Engine,
    plan: Plan,
    unit: float,
) -> tuple[list[Stage], bool]:
    """Run all stages, each on more of the rows `seen`; also whether they were stopped early.

    With a time budget, the first stage has the rows of the plan, and the second is left out unless
    there is time for some steps.
    """
    found: list[Stage] = []
    n_before, stopped = 0, False
    for most, n_steps in settings.stages:
        some = np.sort(seen[: min(most, seen.size)])
        if some.size == n_before:
            continue
        short = run.watch.left() < stage_seconds(some.size, FEW_STEPS, unit)
        if found and (run.watch.stop or short):
            run.leave_out(f"the training stage on {some.size} rows")
            stopped = True
            break
        n_before = some.size
        if not found and plan.train_rows < some.size:
            run.leave_out(f"{some.size - plan.train_rows} of {some.size} training rows")
            some = np.sort(seen[: plan.train_rows])
        began = run.watch.elapsed()
        own = replace(run, progress=_rename(run.progress, "more steps")) if found else run
        stage = train_stage(data.select(some), parameters, n_steps, settings, engine, own)
        if stage.stopped:
            run.leave_out(f"{n_steps - stage.n_steps} of {n_steps} training steps")
        units = some.size * (STAGE_UNITS + stage.n_steps * STEP_UNITS)
        unit = max(unit, (run.watch.elapsed() - began) / units)
        found.append(stage)
        parameters = stage.parameters
        stopped = stopped or stage.stopped
    return found, stopped


def _rename(progress: Progress, stage: str) -> Progress:
    """Progress under another name."""
    return lambda _, done, total: progress(stage, done, total)


def _leave_out(
    model: ForestModel,
    data: EncodedRows,
    parameters: Parameters,
    mixed: Ints,
    n_held: int,
    settings: Settings,
    solver: Engine | None,
    run: Run,
    unit: float,
) -> tuple[ForestModel, Residuals | None]:
    """The model with what it learned for leave-one-out, and residuals for its calibration.

    mixed: the rows in random order, the held-out ones last. From 60,000 rows on, residuals are
    those of a forest conditioned on 20,000 rows. That avoids solves on all rows, and standardised
    residuals hardly depend on the number of rows. If time is short, the forest has fewer rows
    still, or there are no residuals. After Ctrl-C they get 2 seconds.
    """
    usual = n_rows = mixed.size if mixed.size < MANY_ROWS else SOME_ROWS
    watch = run.watch
    if watch.interrupted:
        watch = run.last_watch.within(TAIL_SECONDS)
        unit = unit or measure_unit(data, parameters, model.forest.engine, run.watch)
    if watch.limited:
        n_rows = min(usual, tail_rows(watch.left(), mixed.size, unit))
    if n_rows == 0 or watch.stop:
        run.leave_out(NO_CALIBRATION)
        return model, None
    if n_rows < usual:
        run.leave_out(f"{usual - n_rows} of {usual} rows for the calibration")

    def tell(share: float) -> None:
        run.progress("leave-one-out", int(100 * share), 100)

    found: Residuals | None
    fresh = np.zeros(mixed.size, bool)
    fresh[mixed[mixed.size - n_held :]] = True
    if n_rows == mixed.size:
        lent = move_model(model, data.codes, solver)
        model, found = residuals_of(model, fresh, lent, watch, tell)
    else:
        n_last = n_held if n_rows == SOME_ROWS else min(n_held, n_rows // 2)
        some = np.append(mixed[: n_rows - n_last], mixed[mixed.size - n_last :])
        fewer = data.select(some)
        host = model.forest.engine
        limits = Limits(watch)
        small = condition_forest(fewer, parameters, settings, model.seed, host, solver, limits)
        lent = move_model(small, fewer.codes, solver)
        _, found = residuals_of(small, fresh[some], lent, watch, tell)
        if found is not None:
            found = replace(found, rows=np.flatnonzero(model.present)[some])
    if found is None:
        if watch is run.watch and watch.interrupted and run.keep:  # once more, in 2 seconds
            return _leave_out(model, data, parameters, mixed, n_held, settings, solver, run, unit)
        run.leave_out(NO_CALIBRATION)
    return model, found


def _from_trained(
    encoders: Sequence[BitEncoder],
    grids: Sequence[BitEncoder],
    trained: Sequence[tuple[BitEncoder, BitOrder]],
) -> tuple[tuple[BitEncoder, ...], tuple[Floats, ...]]:
    """Grids and phi from trained single trees, assigned in turn, with the shifts of `grids`."""
    by_scaling = {encoder.scaling: encoder for encoder in encoders}
    chosen, phi = [], []
    for t, grid in enumerate(grids):
        own, order = trained[t % len(trained)]
        chosen.append(by_scaling[own.scaling].with_shift(grid.shift_))
        phi.append(order.phi)
    return tuple(chosen), tuple(phi)
