"""Training a forest: initial parameters, training on some rows, conditioning on all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from triegp.additive.conditioning import (
    check_extremes,
    condition_forest,
    move_model,
    residuals_of,
)
from triegp.additive.fitted import FittedForest
from triegp.additive.model import ForestModel, rank_for
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
from triegp.models.run import Run, silent
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
            same = replace(run, progress=silent, engine="cpu" if engine.on_host else "cuda")
            found = train_ensemble(encoders, alone, single, same).fitted
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
    stages, stopped = _run_stages(learned, parameters, seen, settings, run, engine)
    parameters = stages[-1].parameters if stages else parameters
    run.raise_interrupt()
    seed = int(run.rng.integers(2**31))
    solver = None if engine.on_host else engine
    model = condition_forest(data, parameters, settings, seed, host, solver)
    model = replace(model, present=present)
    residuals = None
    if settings.calibrated:
        try:
            model, residuals = _leave_out(model, data, parameters, mixed, n_held, settings, solver)
        except KeyboardInterrupt:
            if not run.keep:
                raise
            run.watch.interrupt()
            stopped = True
    run.progress("fits", 1, 1)
    n_steps = sum(stage.n_steps for stage in stages)
    diverged = any(stage.diverged for stage in stages)
    looks = tuple(look for stage in stages for look in stage.nll_per_row)
    fitted = FittedForest(model, looks, n_steps, diverged)
    return Trained(fitted, stopped, n_steps, None if residuals is None else (residuals,))


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
) -> tuple[list[Stage], bool]:
    """Run all stages, each on more of the rows `seen`; also whether they were stopped early."""
    found: list[Stage] = []
    n_before, stopped = 0, False
    for most, n_steps in settings.stages:
        some = np.sort(seen[: min(most, seen.size)])
        if some.size == n_before:
            continue
        if run.watch.stop and found:
            stopped = True
            break
        n_before = some.size
        stage = train_stage(data.select(some), parameters, n_steps, settings, engine, run)
        found.append(stage)
        parameters = stage.parameters
        stopped = stopped or stage.stopped
    return found, stopped


def _leave_out(
    model: ForestModel,
    data: EncodedRows,
    parameters: Parameters,
    mixed: Ints,
    n_held: int,
    settings: Settings,
    solver: Engine | None,
) -> tuple[ForestModel, Residuals]:
    """The model with what it learned for leave-one-out, and residuals for its calibration.

    mixed: the rows in random order, the held-out ones last. From 60,000 rows on, residuals are
    those of a forest conditioned on 20,000 rows. That avoids solves on all rows, and standardised
    residuals hardly depend on the number of rows.
    """
    fresh = np.zeros(mixed.size, bool)
    fresh[mixed[mixed.size - n_held :]] = True
    if mixed.size < MANY_ROWS:
        return residuals_of(model, fresh, move_model(model, data.codes, solver))
    some = np.append(mixed[: SOME_ROWS - n_held], mixed[mixed.size - n_held :])
    fewer = data.select(some)
    host = model.forest.engine
    small = condition_forest(fewer, parameters, settings, model.seed, host, solver)
    _, found = residuals_of(small, fresh[some], move_model(small, fewer.codes, solver))
    return model, replace(found, rows=np.flatnonzero(model.present)[some])


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
