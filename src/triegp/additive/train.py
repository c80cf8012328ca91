"""Training: initial parameters, training on parts of the rows, conditioning on all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from triegp.additive.budget import (
    Plan,
    Work,
    calibration_rows,
    fitting_share,
    measure_unit,
    plan_forest,
    start_rows,
)
from triegp.additive.conditioning import (
    Limits,
    check_extremes,
    condition_forest,
    residuals_of,
)
from triegp.additive.fitted import FittedForest
from triegp.additive.folds import predict_folds
from triegp.additive.model import ForestModel, rank_for, tolerance_for
from triegp.additive.preconditioner import BLOCK_ROWS
from triegp.additive.settings import Settings
from triegp.additive.singles import single_settings, take_orders, train_singles
from triegp.additive.start import (
    EncodedRows,
    Parameters,
    draw_grids,
    joint_rows,
    start_even,
    start_random,
    start_smooth,
)
from triegp.additive.variance import leave_out, some_blocks
from triegp.additive.walk import Stage, train_stage
from triegp.encoding.grids import encode_grids
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine, Engine, choose, one_blas_thread
from triegp.engines.choice import CARD_ROW_BYTES
from triegp.mixture.train import card_bytes
from triegp.models.folds import held_rows
from triegp.models.interface import Residuals, Trained
from triegp.models.run import Run
from triegp.smooth.coordinates import coordinates_of, fit_coordinates
from triegp.smooth.linear import Linear
from triegp.tree.rows import Rows, check_range, refuse_zero_weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

START_NOISE = 0.1  # relative to the variance of y, before the scale is found
CARD_TREE_BYTES = 48  # GPU memory per row and tree, codes not included
CARD_TARGET_BYTES = 64  # GPU memory per row and target after the first: vectors of a solve
WORST_RESIDUAL = 0.03  # relative, of a solve that leave-one-out can be read off
SOLVED_COLUMNS = 16  # right-hand sides solved at once, for the estimate of the work
NO_FOLDS = "predictions of held-out rows (calibration learns from leave-one-out)"
NO_CALIBRATION = "the calibration (predictions are Gaussian)"
NO_TEST = "the test whether the smooth part is of use"
LEAST_GAIN = 1e-3  # of nll per row, for a smooth part to be kept


def train_forest(
    encoders: Sequence[Quantiser], rows: Rows, settings: Settings, run: Run
) -> Trained:
    """Train trees and a smooth part and condition them on all rows.

    All targets of the rows share orders, weights, smooth part, scales and noise, in standardised
    units: those of the highest sum of their likelihoods.

    Parameters
    ----------
    encoders : sequence of Quantiser
        Fitted, without shift; assigned to the trees in turn.
    rows : Rows
        Standardised targets, y (n, k), with their features. Known noise must be the same for all.
    settings : Settings
        How to train.
    run : Run
        Random numbers, threads, clock, progress, engine.

    Notes
    -----
    Training takes parts of the rows, in a time that hardly depends on their number, nor on that of
    the targets. One solve on all rows follows, by products of O(n T k). The fitted model lies in
    the host's memory.
    """
    rows = joint_rows(rows)
    refuse_zero_weights(rows)
    check_range(rows)
    check_extremes(rows)
    work = rows.n_rows * settings.n_trees * SOLVED_COLUMNS
    room = forest_card_bytes(encoders, settings.n_trees, rows.n_rows, rows.n_targets)
    if settings.init == "trained":
        room = max(room, card_bytes(encoders, single_settings(), rows.n_rows, rows.n_targets))
    engine = choose(run.engine, work, run.n_threads, room)
    with one_blas_thread():
        return _train(encoders, rows, settings, run, engine)


def forest_card_bytes(
    encoders: Sequence[Quantiser], n_trees: int, n_rows: int, n_targets: int = 1
) -> int:
    """Estimate of the GPU memory for a solve, in bytes: the trees, and making a preconditioner."""
    shifted = [-(-(encoder.n_bits_ + encoder.n_working) // 8) for encoder in encoders]
    trees = sum(shifted[t % len(shifted)] + CARD_TREE_BYTES for t in range(n_trees))
    more = CARD_TARGET_BYTES * (n_targets - 1)
    return n_rows * (trees + more + CARD_ROW_BYTES + 2 * 8 * (rank_for(n_rows) + BLOCK_ROWS))


def _train(
    encoders: Sequence[Quantiser],
    rows: Rows,
    settings: Settings,
    run: Run,
    engine: Engine,
) -> Trained:
    host = CpuEngine(n_threads=run.n_threads)
    present = np.ones(rows.n_rows, bool) if rows.weight is None else rows.weight > 0
    rows = rows.select(np.flatnonzero(present))
    singles = None
    if settings.init == "trained":
        singles = train_singles(encoders, rows, run, engine)
    n_evaluations = 0 if singles is None else singles.n_evaluations
    grids, parameters = _start(encoders, settings, run.rng, singles)
    coordinates = fit_coordinates(rows.features)
    inputs = coordinates_of(coordinates, rows.features)
    parameters = replace(parameters, smooth=start_smooth(settings, inputs.shape[1]))
    codes = encode_grids(grids, rows.features, host)
    data = EncodedRows(grids, codes, rows, inputs, coordinates)
    held = held_rows(rows.n_rows)
    seen = np.arange(rows.n_rows - held.size)
    linear = parameters.smooth is not None and engine.on_host
    work = Work(rows.n_rows, settings.n_trees, linear, 0.0, rows.n_targets)
    plan = Plan(0.0, 0.0)
    if run.watch.limited:
        work = replace(work, unit=measure_unit(data, parameters, engine, run.watch))
        plan = plan_forest(run.watch.left(), work, settings.calibrated)
    before = replace(run, watch=run.watch.before(plan.solve + plan.tails))
    stage, found = _learn(data, parameters, seen, held, settings, host, run, before)
    seed = int(run.rng.integers(2**31))
    solver = None if engine.on_host else engine
    n_evaluations += stage.n_steps
    parameters = found
    if stage.stopped:
        run.leave_out(f"{settings.max_iter - stage.n_steps} of {settings.max_iter} training steps")
    limits = _limits(run, replace(work, linear=linear and parameters.smooth is not None), plan)
    model = condition_forest(data, parameters, settings, seed, host, solver, limits, held)
    model = replace(model, present=present)
    wanted = tolerance_for(model.rows)
    if limits.watch.stop and model.residual > wanted:
        run.leave_out(f"the last solve (relative residual {model.residual:.1g}, not {wanted:.1g})")
    if limits.share < 1.0 and solver is None and isinstance(model.smooth, Linear):
        kept = model.smooth.induced
        run.leave_out(
            f"all but {kept.inducing.size} inducing rows and {kept.n_neighbours} neighbours of the "
            "smooth part"
        )
    run.raise_interrupt()
    residuals = None
    if settings.calibrated:
        residuals = _leave_out(model, held, run)
    run.progress("fits", 1, 1)
    fitted = FittedForest(model, stage.nll_per_row, stage.n_steps, stage.diverged)
    return Trained(fitted, stage.stopped, n_evaluations, residuals, stage.curve)


def _limits(run: Run, work: Work, plan: Plan) -> Limits:
    """Limits of the solve on all rows, which leaves time for the tails."""

    def tell(name: str, share: float) -> None:
        run.progress(name, int(100 * share), 100)

    watch, left = run.last_watch, run.watch.left() - plan.tails
    if not watch.limited:
        return Limits(watch, tell=tell)
    if plan.tails and left > 0:
        watch = watch.within(left)
    share = fitting_share(left, work)
    return Limits(watch, share, 0 if share else start_rows(left, work), tell)


def _start(
    encoders: Sequence[Quantiser],
    settings: Settings,
    rng: np.random.Generator,
    singles: Trained | None,
) -> tuple[tuple[Quantiser, ...], Parameters]:
    """Draw the grids and the initial parameters of the trees."""
    grids = draw_grids(encoders, settings.n_trees, rng)
    if singles is not None:
        orders = take_orders(singles, encoders, grids)
        grids, phi = orders.grids, orders.phi
    elif settings.init == "random":
        phi = tuple(start_random(grid, rng) for grid in grids)
    else:
        phi = tuple(start_even(grid, settings.slope, rng) for grid in grids)
    even = np.full(settings.n_trees, -np.log(settings.n_trees))
    return grids, Parameters(phi, even, float(np.log(START_NOISE)))


def _learn(
    data: EncodedRows,
    parameters: Parameters,
    seen: Ints,
    held: Ints,
    settings: Settings,
    engine: Engine,
    run: Run,
    before: Run,
) -> tuple[Stage, Parameters]:
    """Train from initial parameters; `before`: the run with the time that training may take."""
    learned = replace(data, rows=data.rows.for_training())
    stage = train_stage(learned, parameters, seen, held, settings, engine, before)
    run.raise_interrupt()
    return stage, _drop_smooth(stage, settings, run)


def _drop_smooth(stage: Stage, settings: Settings, run: Run) -> Parameters:
    """The trained parameters; with smooth="auto", without a smooth part that does nothing."""
    found = stage.parameters
    if settings.smooth != "auto" or found.smooth is None:
        return found
    if stage.smooth_gain is None:
        run.leave_out(NO_TEST)
        return found
    return found if stage.smooth_gain > LEAST_GAIN else replace(found, smooth=None)


def _leave_out(model: ForestModel, held: Ints, run: Run) -> tuple[Residuals, ...] | None:
    """Residuals of each target for the calibration; None without time, or for a bad solution.

    Few rows are predicted without their folds. Of more than 2,000, those that were held out are
    predicted by the others, and these without themselves alone. If there are more than 100,000
    rows, or less time, they are those of the rows of some blocks and of the held-out rows.
    """
    late = run.watch.stop and not (run.watch.interrupted and run.keep)
    if late or (run.watch.limited and model.residual > WORST_RESIDUAL):
        run.leave_out(NO_CALIBRATION)
        return None
    n, most = model.rows.n_rows, calibration_rows(run.watch.left(), model.n_targets)
    fresh = np.zeros(n, bool)
    fresh[held] = True
    if model.exact:
        return residuals_of(model, predict_folds(model), fresh)
    rows = np.arange(n) if n <= most else some_blocks(model, most, held)
    mean, var = leave_out(model, rows)
    if model.held_mean is not None:
        mean[fresh[rows]] = model.held_mean
    elif held.size:
        run.leave_out(NO_FOLDS)
    return residuals_of(model, (mean, var), fresh, rows, alone=True)
