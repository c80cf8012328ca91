"""Training a forest: initial parameters, training on some rows, conditioning on all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from triegp.additive.conditioning import (
    calibrate_forest,
    check_extremes,
    condition_forest,
    move_model,
)
from triegp.additive.fitted import FittedForest
from triegp.additive.model import ForestModel, rank_for
from triegp.additive.preconditioner import BLOCK_ROWS
from triegp.additive.settings import Settings
from triegp.additive.start import Parameters, draw_grids, features_of, start_even, start_random
from triegp.additive.walk import Stage, train_stage
from triegp.encoding.codes import Codes, select_codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.engines import CpuEngine, Engine, choose, one_blas_thread
from triegp.engines.choice import CARD_ROW_BYTES
from triegp.mixture import settings as mixture_settings
from triegp.mixture.members import Ensemble
from triegp.mixture.train import card_bytes, train_ensemble
from triegp.models.interface import Trained
from triegp.models.run import Run, silent
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows, check_range, refuse_zero_weights

Floats = npt.NDArray[np.float64]

START_NOISE = 0.1  # relative to the variance of y, before the scale is found
HELD_ROWS = 2_000  # at most; held out of training, tails are learned from them
MANY_ROWS = 60_000  # from this many rows, tails are learned from a forest of fewer rows
SOME_ROWS = 20_000  # rows of that smaller forest
FEW_ROWS = 1_000  # below, no rows are held out: tails are learned from all rows
CARD_TREE_BYTES = 48  # GPU memory per row and tree, codes not included
SOLVED_COLUMNS = 16  # right-hand sides solved at once, for the estimate of the work
INIT_MEMBERS = 16  # single trees trained for init="trained"


@dataclass(frozen=True, eq=False)
class Start:
    """Initial state of training: grids, codes of the rows on them, parameters."""

    grids: tuple[BitEncoder, ...]
    codes: list[Codes]
    parameters: Parameters


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
    members: Any = mixture_settings.settings_of("default", {"n_members": INIT_MEMBERS})
    if settings.init == "trained":
        room = max(room, card_bytes(encoders, members, rows.n_rows, 1))
    engine = choose(run.engine, work, run.n_threads, room)
    trained: list[tuple[BitEncoder, BitOrder]] = []
    with one_blas_thread():
        if settings.init == "trained":
            alone = replace(rows, y=rows.y[:, None])
            same = replace(run, progress=silent, engine="cpu" if engine.on_host else "cuda")
            found = train_ensemble(encoders, alone, members, same).fitted
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
    start = _start(encoders, rows, settings, run.rng, host, trained)
    mixed = run.rng.permutation(rows.n_rows)
    held = min(HELD_ROWS, rows.n_rows // 5) if rows.n_rows >= FEW_ROWS else 0
    stages, stopped = _run_stages(start, rows, mixed[: mixed.size - held], settings, run, engine)
    parameters = stages[-1].parameters if stages else start.parameters
    run.raise_interrupt()
    seed = int(run.rng.integers(2**31))
    solver = None if engine.on_host else engine
    given = (start.codes, parameters, rows)
    model = condition_forest(start.grids, *given, present, settings, seed, host, solver)
    if settings.calibrated:
        try:
            model = _learn_tails(model, *given, mixed, held, settings, solver)
        except KeyboardInterrupt:
            if not run.keep:
                raise
            run.watch.interrupt()
            stopped = True
    run.progress("fits", 1, 1)
    return _result(model, stages, stopped)


def _start(
    encoders: Sequence[BitEncoder],
    rows: Rows,
    settings: Settings,
    rng: np.random.Generator,
    host: CpuEngine,
    trained: Sequence[tuple[BitEncoder, BitOrder]],
) -> Start:
    """Draw grids, encode the rows, and set the initial parameters."""
    grids = draw_grids(encoders, settings.n_trees, rng)
    if settings.init == "trained":
        grids, phi = _from_trained(encoders, grids, trained)
    elif settings.init == "random":
        phi = tuple(start_random(grid, rng) for grid in grids)
    else:
        phi = tuple(start_even(grid, settings.slope, rng) for grid in grids)
    codes = encode_grids(grids, rows.features, host)
    even = np.full(settings.n_trees, -np.log(settings.n_trees))
    return Start(grids, codes, Parameters(phi, even, float(np.log(START_NOISE))))


def _run_stages(
    start: Start,
    rows: Rows,
    seen: npt.NDArray[np.int64],
    settings: Settings,
    run: Run,
    engine: Engine,
) -> tuple[list[Stage], bool]:
    """Run all stages, each on more of the rows `seen`; also whether they were stopped early."""
    parameters, features = start.parameters, [features_of(grid) for grid in start.grids]
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
        codes = [select_codes(part, some) for part in start.codes]
        own = replace(rows, X=None).select(some)
        stage = train_stage(parameters, codes, features, own, n_steps, settings, engine, run)
        found.append(stage)
        parameters = stage.parameters
        stopped = stopped or stage.stopped
    return found, stopped


def _learn_tails(
    model: ForestModel,
    codes: Sequence[Codes],
    parameters: Parameters,
    rows: Rows,
    mixed: npt.NDArray[np.int64],
    held: int,
    settings: Settings,
    solver: Engine | None,
) -> ForestModel:
    """The model with tails learned from the held-out rows, or from all rows if none are held out.

    From 60,000 rows on, leave-one-out uses a forest conditioned on 20,000 rows. That avoids solves
    on all rows, and standardised residuals hardly depend on the number of rows.
    """
    if mixed.size < MANY_ROWS:
        last = np.sort(mixed[mixed.size - held :]) if held else None
        return calibrate_forest(model, last, move_model(model, codes, solver))
    some = np.append(mixed[: SOME_ROWS - held], mixed[mixed.size - held :])
    codes = [select_codes(part, some) for part in codes]
    fewer = condition_forest(
        model.encoders,
        codes,
        parameters,
        rows.select(some),
        np.ones(some.size, bool),
        settings,
        model.seed,
        model.forest.engine,
        solver,
    )
    last = np.arange(some.size - held, some.size)
    calibrated = calibrate_forest(fewer, last, move_model(fewer, codes, solver))
    return replace(model, tails=calibrated.tails)


def _result(model: ForestModel, stages: Sequence[Stage], stopped: bool) -> Trained:
    n_steps = sum(stage.n_steps for stage in stages)
    diverged = any(stage.diverged for stage in stages)
    looks = tuple(look for stage in stages for look in stage.nll_per_row)
    return Trained(FittedForest(model, looks, n_steps, diverged), stopped, n_steps)


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
